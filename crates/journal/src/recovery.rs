//! Reads a lane back after any stop. A torn tail is discarded, because it was never confirmed. Damage to durable
//! data is reported, because that data was confirmed.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    block::Blocks,
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, FORMAT_VERSION, SegmentHeader},
    frame::FrameBuilder,
    headless::{
        HeadlessSegment, UnreadableSlot, inspect_headless, inspect_unreadable, last_segment_in,
    },
    lane::Lane,
    lane_config::LaneConfig,
    position::Position,
    reader::Reader,
    scan::{Scan, ScanEnd, ScanItem},
    slot::{Slot, SlotMaker, slot_number},
    slot_file::segment_in,
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
        self.builder.end_at(end);
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

/// A segment on the disk.
struct FoundSegment<F> {
    /// If it is not whole: the header that its frames imply.
    header: SegmentHeader,
    is_whole: bool,
    /// The file is shorter than a slot.
    is_truncated: bool,
    path: PathBuf,
    file: F,
}

/// A slot without a whole header.
struct HeadlessSlot<F> {
    path: PathBuf,
    file: F,
    /// Its last segment.
    last: Option<HeadlessSegment>,
    /// Whether a segment was begun in it that was neither finished nor confirmed.
    is_torn: bool,
}

impl<F> FoundSegment<F> {
    /// Returns whether this segment continues the log that ended before `expected`: its header says
    /// that the segments between hold nothing of the log.
    fn follows(&self, expected: u64, segment_bytes: u64) -> bool {
        let is_next = self.header.segment == expected;
        let passes_over = self.header.previous_end <= Position(expected * segment_bytes);
        self.is_whole && (is_next || passes_over)
    }
}

/// Removes the segments that hold nothing of the log, as the header of a later one says. Their
/// slots are spare.
fn remove_skipped<F>(
    segments: &mut BTreeMap<u64, FoundSegment<F>>,
    segment_bytes: u64,
) -> VecDeque<Slot> {
    let mut log_before_ends = Position(u64::MAX);
    let mut void = Vec::new();
    for (&number, found) in segments.iter().rev() {
        if Position(number * segment_bytes) >= log_before_ends {
            void.push(number);
        } else {
            log_before_ends = found.header.previous_end;
        }
    }
    let void = void.into_iter().filter_map(|number| segments.remove(&number));
    void.filter(|found| !found.is_truncated).map(|found| slot(found.path, false)).collect()
}

/// Returns whether each segment of `range` exists or was skipped.
fn is_unbroken<F>(
    segments: &BTreeMap<u64, FoundSegment<F>>,
    range: RangeInclusive<u64>,
    segment_bytes: u64,
) -> bool {
    let (mut expected, last) = (*range.start(), *range.end());
    for (&number, found) in segments.range(range) {
        if number > expected && !found.follows(expected, segment_bytes) {
            return false;
        }
        expected = number + 1;
    }
    expected > last
}

fn slot(path: PathBuf, is_truncated: bool) -> Slot {
    Slot { path, is_truncated, is_unwritten: false }
}

/// Opens the slot for reading all its frames, uncached if possible: that costs no copy, and a slot
/// is read once.
fn open_for_frames<D: Disk>(disk: &D, path: &Path, is_truncated: bool) -> Result<D::File, Fault> {
    // Of one that is cut the end may lie within a block.
    let uncached = if is_truncated { None } else { disk.open_uncached(path).unwrap_or_default() };
    // Some file systems open it so, and refuse to read.
    let uncached =
        uncached.filter(|uncached| uncached.read_at(Blocks::zeroed(1).as_mut(), 0).is_ok());
    uncached.map_or_else(|| disk.open_to_read(path).map_err(Fault::io("open", path)), Ok)
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
    mut each: impl FnMut(WalkItem) -> Result<(), E>,
) -> Result<RecoveredLane<D>, E> {
    let directory = &config.directory;
    disk.create_directory(directory).map_err(Fault::io("create", directory))?;
    // A slot whose maker was killed before it synced the directory is used like the others.
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
    for directory in above.into_iter().chain([directory.as_path()]) {
        disk.sync_directory(directory).map_err(Fault::io("sync", directory))?;
    }
    let mut segments: BTreeMap<u64, FoundSegment<D::File>> = BTreeMap::new();
    let (mut without_header, mut no_header) = (Vec::new(), Vec::new());
    let mut next_slot = 0;
    for name in disk.list(directory).map_err(Fault::io("list", directory))? {
        let Some(number) = slot_number(&name) else { continue };
        let path = directory.join(name);
        let file = disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
        let is_truncated =
            file.length().map_err(Fault::io("measure", &path))? < config.segment_bytes;
        if is_truncated && matches!(segment_in(&file, &path), Ok(None)) {
            // A crash came while it was made; the next slot that is made gets its name.
            continue;
        }
        next_slot = next_slot.max(number + 1);
        file.forget_cached().map_err(Fault::io("reread", &path))?;
        let header = match segment_in(&file, &path) {
            Ok(header) => header,
            Err(fault) => {
                no_header.push((path, fault));
                continue;
            }
        };
        match header {
            Some(header) => {
                check_header(&header, &config, &path)?;
                if segments.contains_key(&header.segment) {
                    let position = Position(header.segment * config.segment_bytes);
                    let problem = "another slot holds the same segment";
                    return Err(Fault::Rot { path, position, problem }.into());
                }
                let found = FoundSegment { header, is_whole: true, is_truncated, path, file };
                segments.insert(header.segment, found);
            }
            None => without_header.push((path, file)),
        }
    }
    let void = remove_skipped(&mut segments, config.segment_bytes);
    if let Some(newest) = segments.values().next_back() {
        // What a killed process wrote and never synced can be read, and is taken for the log's
        // end: from here on others build on it, so it has to be durable. Older segments were
        // synced before this one was begun.
        newest.file.sync().map_err(Fault::io("sync", &newest.path))?;
    }
    let newest = segments.last_key_value().map(|(_, found)| found.header);
    let mut generation = newest.map_or(0, |header| header.generation);
    let mut highest = newest.map(|header| header.segment);
    // Everything before this was durable.
    let mut proven = Position(0);
    let mut unreadable = Vec::new();
    let mut spare = Vec::new();
    for (path, file) in without_header {
        let frames = open_for_frames(disk, &path, false)?;
        let is_in_other_slot = |segment| segments.contains_key(&segment);
        match inspect_headless(&frames, &path, &config, newest.as_ref(), is_in_other_slot) {
            Ok(looked) => {
                generation = generation.max(looked.generation);
                highest = highest.max(looked.lost_segment(&config));
                proven = looked.proven.map_or(proven, |position| proven.max(position));
                let (last, is_torn) = (looked.last, looked.generation > 0);
                spare.push(HeadlessSlot { path, file, last, is_torn });
            }
            Err(fault) => match inspect_unreadable(&file, &path, &config, newest.as_ref()) {
                UnreadableSlot::IsOlder { .. } => unreadable.push((path, fault)),
                UnreadableSlot::MayBeNewer => return Err(fault.into()),
            },
        }
    }
    for (path, fault) in no_header {
        let file = disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
        match inspect_unreadable(&file, &path, &config, newest.as_ref()) {
            UnreadableSlot::IsOlder { is_read: true } => unreadable.push((path, fault)),
            // The newest segment, if its frames cannot be read either.
            _ => return Err(fault.into()),
        }
    }
    let next_segment = highest.map_or(0, |highest| highest + 1);
    if !is_countable(next_segment, &config) {
        let problem = "a header or a frame names the last segment that can be counted";
        let position = Position(next_segment.saturating_mul(config.segment_bytes));
        return Err(Fault::Rot { path: directory.clone(), position, problem }.into());
    }
    let newest_from = newest.map_or(Position(0), |header| header.replay_from);
    let replay_from = match from {
        ReplayFrom::Newest => newest_from,
        ReplayFrom::At(position) => position,
    };
    let stated = segments.values().map(|found| found.header.replay_from);
    let fallback_from = stated
        .filter(|stated| *stated < replay_from)
        .max()
        .filter(|stated| segments.contains_key(&stated.segment(config.segment_bytes)));
    let mut end = newest.map_or(Position(0), |_| replay_from);
    let (mut ends, mut torn_bytes) = (BTreeMap::new(), 0);
    let mut headless = BTreeMap::new();
    if let Some(highest) = highest {
        let first = replay_from.segment(config.segment_bytes);
        if !is_unbroken(&segments, first..=highest, config.segment_bytes) {
            if !unreadable.is_empty() {
                // What is missing may lie there.
                return Err(unreadable.remove(0).1.into());
            }
            // Behind the newest header all are missing, where the replay begins later too.
            let lowest = newest.map_or(first, |newest| first.min(newest.segment + 1));
            headless = salvage(&mut spare, &mut segments, &(lowest..=highest), &config)?;
        }
        recover_headless(&mut spare, &mut headless);
        let mut expected = first;
        for (&number, found) in segments.range(first..=highest) {
            let FoundSegment { header, is_whole, is_truncated, path, file: _ } = found;
            let start = Position(number * config.segment_bytes);
            if number > expected && !found.follows(expected, config.segment_bytes) {
                each(missing(&config, end, start))?;
                end = start;
            }
            expected = number + 1;
            let next = segments.range(expected..).next().map(|(_, next)| next);
            let next = next.filter(|next| next.follows(expected, config.segment_bytes));
            let said_by_next = headless.get(&expected).map_or(start, |next| next.durable_before);
            let proven = if number == highest { proven } else { said_by_next };
            let unknown = ScanEnd::Unknown { proven };
            let next_ends = next.map_or(unknown, |next| ScanEnd::At(next.header.previous_end));
            let begin = replay_from.max(start);
            let frames = open_for_frames(disk, path, *is_truncated)?;
            let mut scan = Scan::of_segment(&frames, path, &config, header, begin, next_ends);
            if !is_whole {
                scan = scan.without_header(begin == start);
            }
            loop {
                match scan.step()? {
                    ScanItem::End { torn_bytes: torn } => {
                        torn_bytes = torn;
                        break;
                    }
                    // Only the header could say where the log before it ended.
                    ScanItem::Hole { position, end: hole_end, problem }
                        if !is_whole && position == start =>
                    {
                        let position = end.min(position);
                        emit(ScanItem::Hole { position, end: hole_end, problem }, path, &mut each)?;
                    }
                    found => {
                        emit(found, path, &mut each)?;
                    }
                }
            }
            end = scan.position();
            ends.insert(number, end);
            if *is_truncated && number == highest {
                // What lay behind cannot say any more that it was durable.
                let (position, path) = (end, path.clone());
                end = start.plus(config.segment_bytes);
                let bytes = end.0 - position.0;
                let damage = Damage { path, position, bytes, problem: "the slot is cut off" };
                each(WalkItem::Damage(damage))?;
            }
        }
        if expected <= highest {
            let start = Position((highest + 1) * config.segment_bytes);
            each(missing(&config, end, start))?;
            end = start;
        }
    }
    let Some(generation) = generation.checked_add(1) else {
        let problem = "a header says that the lane was started as often as can be counted";
        return Err(Fault::Rot { path: directory.clone(), position: end, problem }.into());
    };
    let mut in_use: BTreeMap<u64, Slot> = segments
        .into_iter()
        .map(|(number, FoundSegment { path, is_truncated, .. })| (number, slot(path, is_truncated)))
        .collect();
    let paths = headless.iter().map(|(&number, found)| (number, found.path.clone()));
    let paths: BTreeMap<u64, PathBuf> = paths.collect();
    for (&number, path) in &paths {
        in_use.insert(number, slot(path.clone(), false));
    }
    // A torn segment is written over by the next one of its number, which is the next that is begun: two
    // slots would hold frames of one segment else, and rot of the right one make the other look right.
    spare.sort_by(|one, other| (other.is_torn, &one.path).cmp(&(one.is_torn, &other.path)));
    let spare: VecDeque<Slot> =
        spare.into_iter().map(|held| slot(held.path, false)).chain(void).collect();
    let slots = SlotMaker::new(disk.clone(), directory.clone(), config.segment_bytes, next_slot);
    Ok(RecoveredLane {
        end,
        replay_from,
        fallback_from,
        ends,
        torn_bytes,
        builder: FrameBuilder::new(config.clone(), generation, next_segment, end, replay_from),
        lane: Lane::new(disk.clone(), config.clone(), in_use, spare),
        reader: Reader::new(disk.clone(), config, Arc::new(headless)),
        slots,
        headless: paths,
        unreadable,
    })
}

/// Refuses a segment of another format, lane or directory, and one with impossible numbers.
pub(crate) fn check_header(
    header: &SegmentHeader,
    config: &LaneConfig,
    path: &Path,
) -> Result<(), Fault> {
    if header.version > FORMAT_VERSION {
        return Err(Fault::NewerFormat {
            path: path.to_owned(),
            found: header.version.into(),
            known: FORMAT_VERSION.into(),
        });
    }
    for (field, found, expected) in [
        ("lane", u64::from(header.lane), u64::from(config.lane)),
        ("segment length", header.segment_bytes, config.segment_bytes),
        ("incarnation", header.incarnation, config.incarnation),
    ] {
        if found != expected {
            return Err(Fault::Foreign { path: path.to_owned(), field, found, expected });
        }
    }
    let is_place = |place: Position| {
        place.0 <= header.segment * config.segment_bytes
            && place.0.is_multiple_of(BLOCK_BYTES as u64)
    };
    let is_possible = is_countable(header.segment, config)
        && is_place(header.previous_end)
        && is_place(header.replay_from);
    if !is_possible {
        let problem = "the segment's header is whole, but its values are impossible";
        let position = Position(header.segment.saturating_mul(config.segment_bytes));
        return Err(Fault::Rot { path: path.to_owned(), position, problem });
    }
    Ok(())
}

/// Returns whether this segment and the next one have positions below those of packs.
fn is_countable(segment: u64, config: &LaneConfig) -> bool {
    let segments = segment.checked_add(2);
    let next_end = segments.and_then(|segments| segments.checked_mul(config.segment_bytes));
    next_end.is_some_and(|end| Position(end).pack().is_none())
}

/// The damage for the range from `from` to `to`, which is in no slot.
fn missing(config: &LaneConfig, from: Position, to: Position) -> WalkItem {
    let (path, problem) = (config.directory.clone(), "a segment is missing");
    WalkItem::Damage(Damage { path, position: from, bytes: to.0 - from.0, problem })
}

/// Takes the slots without a header that hold frames of segments of `range` which are in no other
/// slot and were not skipped.
fn salvage<F: DiskFile>(
    spare: &mut Vec<HeadlessSlot<F>>,
    segments: &mut BTreeMap<u64, FoundSegment<F>>,
    range: &RangeInclusive<u64>,
    config: &LaneConfig,
) -> Result<BTreeMap<u64, HeadlessSegment>, Fault> {
    let mut taken = BTreeMap::new();
    for slot in std::mem::take(spare) {
        let HeadlessSlot { path, file, .. } = &slot;
        let is_missing = |segment| {
            let next = segments.range(segment..).map(|(_, found)| found).find(|next| next.is_whole);
            range.contains(&segment)
                && next.is_none_or(|next| !next.follows(segment, config.segment_bytes))
        };
        let last =
            last_segment_in(file, path, config, is_missing)?.filter(|(segment, generation)| {
                segments.get(segment).is_none_or(|torn| torn.header.generation < *generation)
            });
        let Some((segment, generation)) = last else {
            spare.push(slot);
            continue;
        };
        file.sync().map_err(Fault::io("sync", path))?;
        let found = HeadlessSegment::read(file, path, config, (segment, generation))?;
        let (header, HeadlessSlot { path, file, .. }) = (found.header, slot);
        taken.insert(segment, found);
        let found = FoundSegment { header, is_whole: false, is_truncated: false, path, file };
        // What was torn when the segment was first begun is spare.
        spare.extend(segments.insert(segment, found).map(|torn| {
            let FoundSegment { path, file, .. } = torn;
            HeadlessSlot { path, file, last: None, is_torn: true }
        }));
    }
    Ok(taken)
}

/// Takes the slots without a header that held segments before the replay: they may hold messages
/// that are still wanted. If two held the same segment, the higher generation has written it.
fn recover_headless<F>(
    spare: &mut Vec<HeadlessSlot<F>>,
    taken: &mut BTreeMap<u64, HeadlessSegment>,
) {
    spare.sort_by_key(|slot| {
        std::cmp::Reverse(slot.last.as_ref().map_or(0, |last| last.header.generation))
    });
    spare.retain_mut(|slot| {
        let is_torn = slot.is_torn;
        let is_missing = |last: &mut HeadlessSegment| {
            let segment = last.header.segment;
            !is_torn && !taken.contains_key(&segment)
        };
        match slot.last.take_if(is_missing) {
            Some(last) => {
                taken.insert(last.header.segment, last);
                false
            }
            None => true,
        }
    });
}
