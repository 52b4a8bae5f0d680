//! Reading a lane back after a stop, whatever stopped it. A torn tail is discarded, because nobody
//! was told that it was there; damage to what was durable is said, because somebody was.

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
    headless::{HeadlessSegment, Rest, last_held, look_at_headless, look_past_unreadable},
    lane::Lane,
    lane_config::LaneConfig,
    position::Position,
    reader::Reader,
    scan::{Ends, Found, Scan},
    slot::{Slot, SlotMaker, slot_number},
    slot_file::segment_in,
    walk::{Damage, Walked, give},
};

/// What is needed to go on after recovery, and what was found.
#[derive(Debug)]
pub struct RecoveredEnd<D: Disk> {
    /// Where the log ends.
    pub end: Position,
    /// Where the replay began.
    pub replay_from: Position,
    /// Where the one before would have begun, if it is still there: to begin there comes to the
    /// same, as long as no segment since then is missing.
    pub fallback_from: Option<Position>,
    /// Where the log ended in each segment that was read.
    ends: BTreeMap<u64, Position>,
    /// Bytes behind the end that were written but never committed.
    pub torn_bytes: u64,
    /// Gathers what comes next, in a new segment and a new generation.
    pub builder: FrameBuilder,
    /// Writes it.
    pub lane: Lane<D>,
    /// Reads what lies in segments.
    pub reader: Reader<D>,
    /// Makes more slots.
    pub slots: SlotMaker<D>,
    /// Segments whose header is not whole, and the slot of each. What of their frames is whole is read
    /// all the same.
    pub headless: BTreeMap<u64, PathBuf>,
    /// Slots that could not be read, and why. What a replay needs is in none of them, but older
    /// segments may be. They are neither read nor written to.
    pub unreadable: Vec<(PathBuf, Fault)>,
}

impl<D: Disk> RecoveredEnd<D> {
    /// Has the log end with `segment`, if that was read: what was written in later ones is nothing that
    /// a later replay needs. The first segment of this life will say so. Returns the later ones: once
    /// that segment is durable, their slots may be used again.
    pub fn ends_with(&mut self, segment: u64) -> Vec<u64> {
        let Some(&end) = self.ends.get(&segment) else { return Vec::new() };
        self.builder.end_at(end);
        self.end = end;
        self.lane.segments().filter(|&later| later > segment).collect()
    }
}

/// Where a replay begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplayFrom {
    /// Where the newest segment's header says.
    #[default]
    Newest,
    /// With the frame or segment that begins here, which a recovery of the same lane has found.
    At(Position),
}

/// One segment found on disk.
struct FoundSegment<F> {
    /// If it is not whole: what the frames behind it say it was.
    header: SegmentHeader,
    is_whole: bool,
    /// The file is shorter than a slot.
    is_cut: bool,
    path: PathBuf,
    file: F,
}

/// A slot without a header that is whole.
struct HeadlessSlot<F> {
    path: PathBuf,
    file: F,
    /// What it held last.
    last: Option<HeadlessSegment>,
    /// Whether a segment was begun in it, and neither finished nor promised to anybody.
    is_torn: bool,
}

impl<F> FoundSegment<F> {
    /// Whether the log goes on in this segment where it ended before `expected`: those between hold
    /// nothing of it, as the header says.
    fn follows(&self, expected: u64, segment_bytes: u64) -> bool {
        let is_next = self.header.segment == expected;
        let passes_over = self.header.previous_end <= Position(expected * segment_bytes);
        self.is_whole && (is_next || passes_over)
    }
}

/// Takes the segments that hold nothing of the log, as a later one says: the log before that ended in
/// front of them. Their slots are spare.
fn take_void<F>(
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
    void.filter(|found| !found.is_cut).map(|found| slot(found.path, false)).collect()
}

/// Whether each segment of `range` is there, or was passed over.
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

fn slot(path: PathBuf, is_cut: bool) -> Slot {
    Slot { path, is_cut, is_unwritten: false }
}

/// The slot as its frames are read, which are many: past the system's cache where that can be, which
/// costs no copy, and a slot is read once.
fn open_for_frames<D: Disk>(disk: &D, path: &Path, is_cut: bool) -> Result<D::File, Fault> {
    // Of one that is cut the end may lie within a block.
    let past = if is_cut { None } else { disk.open_to_read_past(path).unwrap_or_default() };
    // Some file systems open it so, and refuse to read.
    let past = past.filter(|past| past.read_at(Blocks::zeroed(1).as_mut(), 0).is_ok());
    past.map_or_else(|| disk.open_to_read(path).map_err(Fault::io("open", path)), Ok)
}

/// Opens a lane and gives every record from where a replay begins on to `each`, in order. Where
/// frames that were durable are not whole it gives [`Walked::Damage`], and goes on at the next frame
/// that says that it belongs where it lies. A segment that is not there, or whose header is not
/// whole, is such a damage too; what frames of it are whole is given. The log never becomes shorter
/// for it, and the same damage is said at each start, until a replay begins behind it.
///
/// A segment before the replay whose header is not whole is found by its frames, and a [`Reader`] reads them.
///
/// A directory without segments is a new lane. Nothing is written, but what was written is synced.
///
/// # Errors
/// [`Fault::Rot`] of headers that are whole and contradict each other or themselves;
/// [`Fault::NewerFormat`] or [`Fault::Foreign`] if the slots are not of this lane; what `each`
/// returns; [`Fault::Io`], also of what a replay needs. What it does not need may be unreadable.
pub fn recover<D: Disk, E: From<Fault>>(
    disk: &D,
    config: LaneConfig,
    from: ReplayFrom,
    mut each: impl FnMut(Walked) -> Result<(), E>,
) -> Result<RecoveredEnd<D>, E> {
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
        let is_cut = file.length().map_err(Fault::io("measure", &path))? < config.segment_bytes;
        if is_cut && matches!(segment_in(&file, &path), Ok(None)) {
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
                    let what = "another slot holds the same segment";
                    return Err(Fault::Rot { path, position, what }.into());
                }
                let found = FoundSegment { header, is_whole: true, is_cut, path, file };
                segments.insert(header.segment, found);
            }
            None => without_header.push((path, file)),
        }
    }
    let void = take_void(&mut segments, config.segment_bytes);
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
        let is_elsewhere = |segment| segments.contains_key(&segment);
        match look_at_headless(&frames, &path, &config, newest.as_ref(), is_elsewhere) {
            Ok(looked) => {
                generation = generation.max(looked.generation);
                highest = highest.max(looked.lost_segment(&config));
                proven = looked.proven.map_or(proven, |position| proven.max(position));
                let (last, is_torn) = (looked.last, looked.generation > 0);
                spare.push(HeadlessSlot { path, file, last, is_torn });
            }
            Err(fault) => match look_past_unreadable(&file, &path, &config, newest.as_ref()) {
                Rest::IsOlder { .. } => unreadable.push((path, fault)),
                Rest::MayBeNewer => return Err(fault.into()),
            },
        }
    }
    for (path, fault) in no_header {
        let file = disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
        match look_past_unreadable(&file, &path, &config, newest.as_ref()) {
            Rest::IsOlder { is_read: true } => unreadable.push((path, fault)),
            // The newest segment, if its frames cannot be read either.
            _ => return Err(fault.into()),
        }
    }
    let next_segment = highest.map_or(0, |highest| highest + 1);
    if !is_countable(next_segment, &config) {
        let what = "a header or a frame names the last segment that can be counted";
        let position = Position(next_segment.saturating_mul(config.segment_bytes));
        return Err(Fault::Rot { path: directory.clone(), position, what }.into());
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
        take_older(&mut spare, &mut headless);
        let mut expected = first;
        for (&number, found) in segments.range(first..=highest) {
            let FoundSegment { header, is_whole, is_cut, path, file: _ } = found;
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
            let unknown = Ends::Unknown { proven };
            let next_ends = next.map_or(unknown, |next| Ends::At(next.header.previous_end));
            let begin = replay_from.max(start);
            let frames = open_for_frames(disk, path, *is_cut)?;
            let mut scan = Scan::of_segment(&frames, path, &config, header, begin, next_ends);
            if !is_whole {
                scan = scan.without_header(begin == start);
            }
            loop {
                match scan.step()? {
                    Found::End { torn_bytes: torn } => {
                        torn_bytes = torn;
                        break;
                    }
                    // Only the header could say where the log before it ended.
                    Found::Hole { position, end: hole_end, what }
                        if !is_whole && position == start =>
                    {
                        let position = end.min(position);
                        give(Found::Hole { position, end: hole_end, what }, path, &mut each)?;
                    }
                    found => {
                        give(found, path, &mut each)?;
                    }
                }
            }
            end = scan.position();
            ends.insert(number, end);
            if *is_cut && number == highest {
                // What lay behind cannot say any more that it was durable.
                let (position, path) = (end, path.clone());
                end = start.plus(config.segment_bytes);
                let bytes = end.0 - position.0;
                let damage = Damage { path, position, bytes, what: "the slot is cut off" };
                each(Walked::Damage(damage))?;
            }
        }
        if expected <= highest {
            let start = Position((highest + 1) * config.segment_bytes);
            each(missing(&config, end, start))?;
            end = start;
        }
    }
    let Some(generation) = generation.checked_add(1) else {
        let what = "a header says that the lane was started as often as can be counted";
        return Err(Fault::Rot { path: directory.clone(), position: end, what }.into());
    };
    let mut in_use: BTreeMap<u64, Slot> = segments
        .into_iter()
        .map(|(number, FoundSegment { path, is_cut, .. })| (number, slot(path, is_cut)))
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
    Ok(RecoveredEnd {
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

/// Refuses a segment of another format, lane or directory, and one whose numbers cannot be.
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
        let what = "the segment's header is whole, but says what cannot be";
        let position = Position(header.segment.saturating_mul(config.segment_bytes));
        return Err(Fault::Rot { path: path.to_owned(), position, what });
    }
    Ok(())
}

/// Whether there is room for this segment and the next, below the positions in packs.
fn is_countable(segment: u64, config: &LaneConfig) -> bool {
    let segments = segment.checked_add(2);
    let next_end = segments.and_then(|segments| segments.checked_mul(config.segment_bytes));
    next_end.is_some_and(|end| Position(end).pack().is_none())
}

/// What lay from `from` to `to` is in no slot.
fn missing(config: &LaneConfig, from: Position, to: Position) -> Walked {
    let (path, what) = (config.directory.clone(), "a segment is missing");
    Walked::Damage(Damage { path, position: from, bytes: to.0 - from.0, what })
}

/// Takes the slots without a header that hold frames of those segments of `range` that no other slot holds and
/// nobody has passed over.
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
        let last = last_held(file, path, config, is_missing)?.filter(|(segment, generation)| {
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
        let found = FoundSegment { header, is_whole: false, is_cut: false, path, file };
        // What was torn when the segment was first begun is spare.
        spare.extend(segments.insert(segment, found).map(|torn| {
            let FoundSegment { path, file, .. } = torn;
            HeadlessSlot { path, file, last: None, is_torn: true }
        }));
    }
    Ok(taken)
}

/// Takes the slots without a header that held segments before the replay: messages may lie there that are
/// still wanted. Of two that held one segment the higher generation has written it.
fn take_older<F>(spare: &mut Vec<HeadlessSlot<F>>, taken: &mut BTreeMap<u64, HeadlessSegment>) {
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
