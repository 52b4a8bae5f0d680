//! Reads a lane back after any stop. A torn tail is discarded, because it was never confirmed. Damage to durable
//! data is reported, because that data was confirmed.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    disk::Disk,
    fault::Fault,
    frame::FrameBuilder,
    headless::HeadlessSegment,
    lane::Lane,
    lane_config::LaneConfig,
    position::Position,
    reader::Reader,
    scan::{Scan, ScanEnd, ScanItem},
    slot::SlotMaker,
    slot_survey::{FoundSegment, SlotSurvey, open_for_frames},
    walk::{Damage, WalkItem, emit},
};

/// A recovered lane and its parts.
#[derive(Debug)]
pub struct RecoveredLane<D: Disk> {
    /// The end of the log.
    pub end: Position,
    /// The start of the replay.
    pub replay_from: Position,
    /// The start of the replay before, if its segments still exist. A replay from there yields the
    /// same state, unless a segment since then is missing.
    pub fallback_from: Option<Position>,
    /// The end of the log in each segment that was read.
    ends: BTreeMap<u64, Position>,
    /// Bytes behind the end that were written and never committed.
    pub torn_bytes: u64,
    /// Gathers later records, in a new segment and a new generation.
    pub builder: FrameBuilder,
    /// Writes frames.
    pub lane: Lane<D>,
    /// Reads segments and packs.
    pub reader: Reader<D>,
    /// Creates slots.
    pub slots: SlotMaker<D>,
    /// The segments whose header is not whole, and their slots. Their whole frames are read all the
    /// same.
    pub headless: BTreeMap<u64, PathBuf>,
    /// The slots that could not be read, and the faults. The replay needs none of them, but they
    /// may hold older segments. They are neither read nor written.
    pub unreadable: Vec<(PathBuf, Fault)>,
}

impl<D: Disk> RecoveredLane<D> {
    /// Ends the log with `segment`, if that was read: no replay needs the records of later
    /// segments. The first segment of this start will say so. Returns the later segments, whose
    /// slots may be used again once that first segment is durable.
    pub fn ends_with(&mut self, segment: u64) -> Vec<u64> {
        let Some(&end) = self.ends.get(&segment) else { return Vec::new() };
        self.builder.set_end(end);
        self.end = end;
        self.lane.segments().filter(|&later| later > segment).collect()
    }
}

/// The start of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayFrom {
    /// At the position in the newest segment's header.
    #[default]
    Newest,
    /// At the frame or segment at this position, which a recovery of the same lane has found.
    At(Position),
}

/// Opens a lane and passes all records from the start of the replay to `each`, in order. If durable
/// frames are not whole, it passes [`WalkItem::Damage`], and continues at the next frame that
/// belongs at its position. A missing segment, or one whose header is not whole, is damage too; the
/// whole frames of the latter are passed. Damage never shortens the log, and every start reports it
/// again, until a replay begins behind it.
///
/// A segment before the replay whose header is not whole is found by its frames, and a [`Reader`]
/// reads them.
///
/// A directory without segments is a new lane. The function writes nothing, and syncs what was
/// written before.
///
/// # Errors
/// [`Fault::Rot`] of whole headers that contradict each other or themselves; [`Fault::NewerFormat`]
/// or [`Fault::Foreign`] if the slots are not of this lane; the error of `each`; [`Fault::Io`],
/// also for data that the replay needs. Other data may be unreadable.
pub fn recover<D: Disk, E: From<Fault>>(
    disk: &D,
    config: LaneConfig,
    from: ReplayFrom,
    each: impl FnMut(WalkItem) -> Result<(), E>,
) -> Result<RecoveredLane<D>, E> {
    sync_directories(disk, &config.directory)?;
    let mut survey = SlotSurvey::read_headers(disk, &config)?;
    survey.remove_skipped();
    survey.sync_newest()?;
    survey.inspect_headless()?;
    survey.inspect_unreadable()?;
    let next_segment = survey.next_segment()?;
    let replay_from = match from {
        ReplayFrom::Newest => survey.newest_replay_from(),
        ReplayFrom::At(position) => position,
    };
    let fallback_from = survey.fallback_from(replay_from);
    let headless = survey.find_headless(replay_from)?;
    let mut log = LogReader::new(&survey, &headless, replay_from, each);
    log.read()?;
    let LogReader { end, ends, torn_bytes, .. } = log;
    let generation = survey.next_generation(end)?;
    let builder = FrameBuilder::new(config.clone(), generation, next_segment, end, replay_from);
    let (directory, segment_bytes) = (config.directory.clone(), config.segment_bytes);
    let slots = SlotMaker::new(disk.clone(), directory, segment_bytes, survey.next_slot());
    let unreadable = std::mem::take(&mut survey.unreadable);
    let paths = headless.iter().map(|(&number, found)| (number, found.path.clone())).collect();
    let (in_use, spare) = survey.into_slots(&paths);
    let lane = Lane::new(disk.clone(), config.clone(), in_use, spare);
    let reader = Reader::new(disk.clone(), config, Arc::new(headless));
    Ok(RecoveredLane {
        end,
        replay_from,
        fallback_from,
        ends,
        torn_bytes,
        builder,
        lane,
        reader,
        slots,
        headless: paths,
        unreadable,
    })
}

/// Creates the directory of a new lane, and makes the names of all slots durable.
fn sync_directories<D: Disk>(disk: &D, directory: &Path) -> Result<(), Fault> {
    disk.create_directory(directory).map_err(Fault::io("create", directory))?;
    // A slot whose maker was killed before it synced the directory is used like the others.
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
    for directory in above.into_iter().chain([directory]) {
        disk.sync_directory(directory).map_err(Fault::io("sync", directory))?;
    }
    Ok(())
}

/// Reads the log from the start of the replay to its end.
struct LogReader<'a, D: Disk, F> {
    survey: &'a SlotSurvey<'a, D>,
    headless: &'a BTreeMap<u64, HeadlessSegment>,
    replay_from: Position,
    each: F,
    /// The end of what was read.
    end: Position,
    /// The end of the log in each segment that was read.
    ends: BTreeMap<u64, Position>,
    /// Bytes behind the end of the last segment that were written and never committed.
    torn_bytes: u64,
}

impl<'a, D: Disk, E: From<Fault>, F: FnMut(WalkItem) -> Result<(), E>> LogReader<'a, D, F> {
    fn new(
        survey: &'a SlotSurvey<'a, D>,
        headless: &'a BTreeMap<u64, HeadlessSegment>,
        replay_from: Position,
        each: F,
    ) -> Self {
        let (end, ends, torn_bytes) = (replay_from, BTreeMap::new(), 0);
        Self { survey, headless, replay_from, each, end, ends, torn_bytes }
    }

    fn read(&mut self) -> Result<(), E> {
        let Some(highest) = self.survey.highest else { return Ok(()) };
        let segment_bytes = self.survey.config.segment_bytes;
        let mut expected = self.replay_from.segment(segment_bytes);
        for (&number, found) in self.survey.segments.range(expected..=highest) {
            if number > expected && !found.follows(expected, segment_bytes) {
                self.report_missing_before(number)?;
            }
            expected = number + 1;
            self.read_segment(number, found)?;
            if found.is_truncated && number == highest {
                self.report_cut_off(found)?;
            }
        }
        if expected <= highest {
            self.report_missing_before(highest + 1)?;
        }
        Ok(())
    }

    fn read_segment(&mut self, number: u64, found: &FoundSegment<D::File>) -> Result<(), E> {
        let SlotSurvey { disk, config, .. } = *self.survey;
        let FoundSegment { header, is_whole, is_truncated, path, .. } = found;
        let start = Position(number * config.segment_bytes);
        let begin = self.replay_from.max(start);
        let frames = open_for_frames(disk, path, *is_truncated)?;
        let ends = self.frames_end(number);
        let mut scan = Scan::of_segment(&frames, path, config, header, begin, ends);
        if !is_whole {
            scan = scan.without_header(begin == start);
        }
        loop {
            let item = match scan.step()? {
                ScanItem::End { torn_bytes } => {
                    self.torn_bytes = torn_bytes;
                    break;
                }
                // Only the header could say where the log before it ended.
                ScanItem::Hole { position, end, problem } if !is_whole && position == start => {
                    ScanItem::Hole { position: self.end.min(position), end, problem }
                }
                item => item,
            };
            emit(item, path, &mut self.each)?;
        }
        let end = scan.position();
        assert!(begin <= end && end <= start.plus(config.segment_bytes), "not in the segment");
        self.end = end;
        self.ends.insert(number, self.end);
        Ok(())
    }

    /// The end of a segment's frames, as far as the later segments say it.
    fn frames_end(&self, number: u64) -> ScanEnd {
        let SlotSurvey { config, segments, highest, proven, .. } = self.survey;
        let (next, segment_bytes) = (number + 1, config.segment_bytes);
        let later = segments.range(next..).next().map(|(_, later)| later);
        if let Some(later) = later.filter(|later| later.follows(next, segment_bytes)) {
            return ScanEnd::At(later.header.previous_end);
        }
        let start = Position(number * segment_bytes);
        let said_by_next = self.headless.get(&next).map_or(start, |next| next.durable_before);
        ScanEnd::Unknown { proven: if *highest == Some(number) { *proven } else { said_by_next } }
    }

    /// Reports that no slot holds the log from its end so far to the start of `segment`.
    fn report_missing_before(&mut self, segment: u64) -> Result<(), E> {
        let path = self.survey.config.directory.clone();
        let start = Position(segment * self.survey.config.segment_bytes);
        self.report_damage(path, start, "a segment is missing")
    }

    /// Reports that the slot of the highest segment is cut off: what lay behind the last frame
    /// cannot say any more that it was durable.
    fn report_cut_off(&mut self, found: &FoundSegment<D::File>) -> Result<(), E> {
        let end = Position((found.header.segment + 1) * self.survey.config.segment_bytes);
        self.report_damage(found.path.clone(), end, "the slot is cut off")
    }

    /// Reports damage up to `end`, where the log continues.
    fn report_damage(
        &mut self,
        path: PathBuf,
        end: Position,
        problem: &'static str,
    ) -> Result<(), E> {
        assert!(self.end <= end, "damage makes the log shorter");
        let (position, bytes) = (self.end, end.0 - self.end.0);
        (self.each)(WalkItem::Damage(Damage { path, position, bytes, problem }))?;
        self.end = end;
        Ok(())
    }
}
