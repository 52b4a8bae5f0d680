//! Surveys the slots of a lane: reads their headers and, where a header is not whole, their frames. The recovery reads
//! the log from the segments found here.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use crate::{
    block::Blocks,
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, SegmentHeader},
    headless::{
        HeadlessSegment, UnreadableSlot, inspect_headless, inspect_unreadable, last_use_of,
    },
    lane_config::LaneConfig,
    position::Position,
    slot::{Slot, slot_number},
    slot_file::segment_in,
};

/// A segment on the disk.
pub(crate) struct FoundSegment<F> {
    /// If it is not whole: the header that its frames imply.
    pub(crate) header: SegmentHeader,
    pub(crate) is_whole: bool,
    /// The file is shorter than a slot.
    pub(crate) is_truncated: bool,
    pub(crate) path: PathBuf,
    file: F,
}

impl<F> FoundSegment<F> {
    /// Returns whether this segment continues the log that ended before `expected`: its header says
    /// that the segments between hold nothing of the log.
    pub(crate) fn follows(&self, expected: u64, segment_bytes: u64) -> bool {
        let is_next = self.header.segment == expected;
        let passes_over = self.header.previous_end <= Position(expected * segment_bytes);
        self.is_whole && (is_next || passes_over)
    }
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

/// The slots of a lane, as far as they were read.
pub(crate) struct SlotSurvey<'a, D: Disk> {
    pub(crate) disk: &'a D,
    pub(crate) config: &'a LaneConfig,
    pub(crate) segments: BTreeMap<u64, FoundSegment<D::File>>,
    without_header: Vec<HeadlessSlot<D::File>>,
    /// The slots of segments that hold nothing of the log.
    skipped: VecDeque<Slot>,
    unreadable_headers: Vec<(PathBuf, Fault)>,
    /// The slots that cannot be read, and the faults. The replay needs none of them.
    pub(crate) unreadable: Vec<(PathBuf, Fault)>,
    /// The newest segment whose header is whole.
    newest: Option<SegmentHeader>,
    /// The highest segment whose header was durable.
    pub(crate) highest: Option<u64>,
    /// The highest generation, including that of torn segments.
    generation: u32,
    /// Everything before this was durable, according to frames without a header.
    pub(crate) proven: Position,
    next_slot: u32,
}

impl<'a, D: Disk> SlotSurvey<'a, D> {
    /// Reads the headers of all slots.
    pub(crate) fn read_headers(disk: &'a D, config: &'a LaneConfig) -> Result<Self, Fault> {
        let mut survey = Self {
            disk,
            config,
            segments: BTreeMap::new(),
            without_header: Vec::new(),
            skipped: VecDeque::new(),
            unreadable_headers: Vec::new(),
            unreadable: Vec::new(),
            newest: None,
            highest: None,
            generation: 0,
            proven: Position(0),
            next_slot: 0,
        };
        let directory = &config.directory;
        for name in disk.list(directory).map_err(Fault::io("list", directory))? {
            if let Some(number) = slot_number(&name) {
                survey.read_header(number, directory.join(name))?;
            }
        }
        Ok(survey)
    }

    fn read_header(&mut self, number: u32, path: PathBuf) -> Result<(), Fault> {
        let config = self.config;
        let file = self.disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
        let is_truncated =
            file.length().map_err(Fault::io("measure", &path))? < config.segment_bytes;
        if is_truncated && matches!(segment_in(&file, &path), Ok(None)) {
            // A crash came while it was made; the next slot that is made gets its name.
            return Ok(());
        }
        self.next_slot = self.next_slot.max(number + 1);
        file.forget_cached().map_err(Fault::io("reread", &path))?;
        match segment_in(&file, &path) {
            Ok(Some(header)) => {
                check_header(&header, config, &path)?;
                if self.segments.contains_key(&header.segment) {
                    let position = Position(header.segment * config.segment_bytes);
                    let problem = "another slot holds the same segment";
                    return Err(Fault::Rot { path, position, problem });
                }
                let found = FoundSegment { header, is_whole: true, is_truncated, path, file };
                self.segments.insert(header.segment, found);
            }
            Ok(None) => {
                self.without_header.push(HeadlessSlot { path, file, last: None, is_torn: false });
            }
            Err(fault) => self.unreadable_headers.push((path, fault)),
        }
        Ok(())
    }

    /// Removes the segments that hold nothing of the log, as the header of a later one says. Their
    /// slots are spare.
    pub(crate) fn remove_skipped(&mut self) {
        let mut log_before_ends = Position(u64::MAX);
        let mut skipped = Vec::new();
        for (&number, found) in self.segments.iter().rev() {
            if Position(number * self.config.segment_bytes) >= log_before_ends {
                skipped.push(number);
            } else {
                log_before_ends = found.header.previous_end;
            }
        }
        let skipped = skipped.into_iter().filter_map(|number| self.segments.remove(&number));
        let skipped = skipped.filter(|found| !found.is_truncated);
        self.skipped = skipped.map(|found| slot(found.path, false)).collect();
    }

    /// Syncs the newest segment, which ends the log unless frames without a header prove more.
    pub(crate) fn sync_newest(&mut self) -> Result<(), Fault> {
        let Some(newest) = self.segments.values().next_back() else { return Ok(()) };
        // The frames that a killed process wrote and never synced can be read, and count as the
        // log's end. New frames follow them, so they have to be durable.
        // Older segments were synced before this one was begun.
        newest.file.sync().map_err(Fault::io("sync", &newest.path))?;
        let header = newest.header;
        (self.newest, self.highest) = (Some(header), Some(header.segment));
        self.generation = header.generation;
        Ok(())
    }

    /// Reads the frames of the slots without a header. They may belong to the end of the log.
    pub(crate) fn inspect_headless(&mut self) -> Result<(), Fault> {
        let (config, newest) = (self.config, self.newest.as_ref());
        for HeadlessSlot { path, file, .. } in std::mem::take(&mut self.without_header) {
            let frames = open_for_frames(self.disk, &path, false)?;
            let is_in_other_slot = |segment| self.segments.contains_key(&segment);
            match inspect_headless(&frames, &path, config, newest, is_in_other_slot) {
                Ok(found) => {
                    self.generation = self.generation.max(found.generation);
                    self.highest = self.highest.max(found.lost_segment(config));
                    self.proven = self.proven.max(found.proven.unwrap_or_default());
                    let (last, is_torn) = (found.last, found.generation > 0);
                    if last.is_none() && !is_torn {
                        // Its maker may have died before its length was durable.
                        file.sync().map_err(Fault::io("sync", &path))?;
                    }
                    self.without_header.push(HeadlessSlot { path, file, last, is_torn });
                }
                Err(fault) => match inspect_unreadable(&file, &path, config, newest) {
                    UnreadableSlot::IsOlder { .. } => self.unreadable.push((path, fault)),
                    UnreadableSlot::MayBeNewer => return Err(fault),
                },
            }
        }
        Ok(())
    }

    /// Reads what can be read of the slots whose header cannot be. None of them may be the newest.
    pub(crate) fn inspect_unreadable(&mut self) -> Result<(), Fault> {
        for (path, fault) in std::mem::take(&mut self.unreadable_headers) {
            let file = self.disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
            match inspect_unreadable(&file, &path, self.config, self.newest.as_ref()) {
                UnreadableSlot::IsOlder { is_read: true } => self.unreadable.push((path, fault)),
                // The newest segment, if its frames cannot be read either.
                _ => return Err(fault),
            }
        }
        Ok(())
    }

    /// The number of the next segment.
    pub(crate) fn next_segment(&self) -> Result<u64, Fault> {
        let next = self.highest.map_or(0, |highest| highest + 1);
        if is_countable(next, self.config) {
            return Ok(next);
        }
        let problem = "a header or a frame names the last segment that can be counted";
        let position = Position(next.saturating_mul(self.config.segment_bytes));
        Err(Fault::Rot { path: self.config.directory.clone(), position, problem })
    }

    /// The next generation. `end` is the end of the log.
    pub(crate) fn next_generation(&self, end: Position) -> Result<u32, Fault> {
        self.generation.checked_add(1).ok_or_else(|| {
            let problem = "a header says that the lane was started as often as can be counted";
            Fault::Rot { path: self.config.directory.clone(), position: end, problem }
        })
    }

    /// The start of a replay according to the newest segment's header.
    pub(crate) fn newest_replay_from(&self) -> Position {
        self.newest.map_or(Position(0), |header| header.replay_from)
    }

    /// The latest start of a replay before `replay_from` that a header states, if its segment still
    /// exists.
    pub(crate) fn fallback_from(&self, replay_from: Position) -> Option<Position> {
        let stated = self.segments.values().map(|found| found.header.replay_from);
        let latest = stated.filter(|stated| *stated < replay_from).max();
        latest.filter(|from| self.segments.contains_key(&from.segment(self.config.segment_bytes)))
    }

    /// Finds the segments without a whole header by their frames: those that a replay from
    /// `replay_from` misses, which become segments of the log, and older ones.
    pub(crate) fn find_headless(
        &mut self,
        replay_from: Position,
    ) -> Result<BTreeMap<u64, HeadlessSegment>, Fault> {
        let mut headless = BTreeMap::new();
        let first = replay_from.segment(self.config.segment_bytes);
        if let Some(highest) = self.highest.filter(|&highest| !self.is_unbroken(first..=highest)) {
            if !self.unreadable.is_empty() {
                // The missing segment may lie there.
                return Err(self.unreadable.remove(0).1);
            }
            // Behind the newest header all are missing, where the replay begins later too.
            let lowest = self.newest.map_or(first, |newest| first.min(newest.segment + 1));
            headless = self.salvage(&(lowest..=highest))?;
        }
        self.find_older_headless(&mut headless);
        Ok(headless)
    }

    /// Returns whether each segment of `range` exists or was skipped.
    fn is_unbroken(&self, range: RangeInclusive<u64>) -> bool {
        let (mut expected, last) = (*range.start(), *range.end());
        for (&number, found) in self.segments.range(range) {
            if number > expected && !found.follows(expected, self.config.segment_bytes) {
                return false;
            }
            expected = number + 1;
        }
        expected > last
    }

    /// Takes the slots without a header that hold frames of segments of `range` which are in no
    /// other slot and were not skipped.
    fn salvage(
        &mut self,
        range: &RangeInclusive<u64>,
    ) -> Result<BTreeMap<u64, HeadlessSegment>, Fault> {
        let (config, segments) = (self.config, &mut self.segments);
        let mut taken = BTreeMap::new();
        for slot in std::mem::take(&mut self.without_header) {
            let HeadlessSlot { path, file, .. } = &slot;
            let is_missing = |segment| {
                let mut later = segments.range(segment..).map(|(_, found)| found);
                range.contains(&segment)
                    && later
                        .find(|next| next.is_whole)
                        .is_none_or(|next| !next.follows(segment, config.segment_bytes))
            };
            let last = last_use_of(file, path, config, is_missing)?.filter(|last| {
                let other = segments.get(&last.segment);
                other.is_none_or(|torn| torn.header.generation < last.generation)
            });
            let Some(last) = last else {
                self.without_header.push(slot);
                continue;
            };
            file.sync().map_err(Fault::io("sync", path))?;
            let found = HeadlessSegment::read(file, path, config, last)?;
            let (header, HeadlessSlot { path, file, .. }) = (found.header, slot);
            taken.insert(last.segment, found);
            let found = FoundSegment { header, is_whole: false, is_truncated: false, path, file };
            // The slot in which the segment was torn when it was first begun is spare.
            self.without_header.extend(segments.insert(last.segment, found).map(|torn| {
                let FoundSegment { path, file, .. } = torn;
                HeadlessSlot { path, file, last: None, is_torn: true }
            }));
        }
        Ok(taken)
    }

    /// Takes the slots without a header that held segments before the replay: they may hold
    /// messages that are still wanted. If two held the same segment, the higher generation has
    /// written it.
    fn find_older_headless(&mut self, taken: &mut BTreeMap<u64, HeadlessSegment>) {
        self.without_header.sort_by_key(|slot| {
            std::cmp::Reverse(slot.last.as_ref().map_or(0, |last| last.header.generation))
        });
        self.without_header.retain_mut(|slot| {
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

    /// The number of the next slot that is made.
    pub(crate) fn next_slot(&self) -> u32 {
        self.next_slot
    }

    /// The slots in use, and the spare slots in the order of their use.
    pub(crate) fn into_slots(
        mut self,
        headless: &BTreeMap<u64, PathBuf>,
    ) -> (BTreeMap<u64, Slot>, VecDeque<Slot>) {
        let segments = self.segments.into_iter();
        let mut in_use: BTreeMap<u64, Slot> = segments
            .map(|(number, found)| (number, slot(found.path, found.is_truncated)))
            .collect();
        in_use.extend(headless.iter().map(|(&number, path)| (number, slot(path.clone(), false))));
        // A torn segment is written over by the next one of its number, which is the next that is
        // begun. Otherwise two slots would hold frames of one segment, and rot of the right one
        // would make the other look right.
        self.without_header
            .sort_by(|one, other| (other.is_torn, &one.path).cmp(&(one.is_torn, &other.path)));
        let spare = self.without_header.into_iter().map(|held| slot(held.path, false));
        (in_use, spare.chain(self.skipped).collect())
    }
}

fn slot(path: PathBuf, is_truncated: bool) -> Slot {
    Slot { path, is_truncated, is_unwritten: false }
}

/// Opens the slot for reading all its frames, uncached if possible: that costs no copy, and a slot
/// is read once.
pub(crate) fn open_for_frames<D: Disk>(
    disk: &D,
    path: &Path,
    is_truncated: bool,
) -> Result<D::File, Fault> {
    // The end of a truncated slot may lie within a block.
    let uncached = if is_truncated { None } else { disk.open_uncached(path).unwrap_or_default() };
    // Some file systems open it so, and refuse to read.
    let uncached =
        uncached.filter(|uncached| uncached.read_at(Blocks::zeroed(1).as_mut(), 0).is_ok());
    uncached.map_or_else(|| disk.open_to_read(path).map_err(Fault::io("open", path)), Ok)
}

/// Refuses a segment of another format, lane or directory, and one with impossible numbers.
pub(crate) fn check_header(
    header: &SegmentHeader,
    config: &LaneConfig,
    path: &Path,
) -> Result<(), Fault> {
    let fields = [
        ("lane", u64::from(header.lane), u64::from(config.lane)),
        ("segment length", header.segment_bytes, config.segment_bytes),
        ("incarnation", header.incarnation, config.incarnation),
    ];
    Fault::check_origin(path, header.version, fields)?;
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
