//! Slots without a whole header: spare slots, and slots whose header has rotted. Their frames still say which
//! segment they belong to.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::{Path, PathBuf},
};

use crate::{
    block::Blocks,
    disk::DiskFile,
    fault::Fault,
    format::{BLOCK_BYTES, FORMAT_VERSION, FrameHeader, SegmentHeader},
    lane_config::LaneConfig,
    position::Position,
    scan::{each_frame, frame_header},
    slot_file::read_padded,
};

/// A use of a slot: the segment that was written to it, in the generation that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SlotUse {
    pub(crate) segment: u64,
    pub(crate) generation: u32,
}

impl SlotUse {
    /// The use in which a frame was written.
    fn of(header: &FrameHeader, config: &LaneConfig) -> Self {
        let segment = header.position.segment(config.segment_bytes);
        Self { segment, generation: header.generation }
    }
}

/// A segment whose header is not whole, as its frames describe it.
#[derive(Clone, Debug)]
pub(crate) struct HeadlessSegment {
    /// The slot.
    pub(crate) path: PathBuf,
    /// Segment and generation are correct. The end of the log before it and the start of a replay
    /// were in the lost header only; both are the segment's start here.
    pub(crate) header: SegmentHeader,
    /// The durable mark of its frames, as far as it lies before the segment.
    pub(crate) durable_before: Position,
    /// The byte ranges of the slot with frames of this segment and generation, in order.
    frames: Vec<Range<u64>>,
}

impl HeadlessSegment {
    /// Reads the segment with this number and generation in a slot without a header.
    pub(crate) fn read(
        file: &impl DiskFile,
        path: &Path,
        config: &LaneConfig,
        slot_use: SlotUse,
    ) -> Result<Self, Fault> {
        let mut found = Self::new(path, config, slot_use);
        each_frame(file, path, config, BLOCK_BYTES as u64, |header| found.add(header, config))?;
        Ok(found)
    }

    fn new(path: &Path, config: &LaneConfig, slot_use: SlotUse) -> Self {
        let header = Self::header(config, slot_use);
        let (path, durable_before) = (path.to_owned(), Position(0));
        Self { path, header, durable_before, frames: Vec::new() }
    }

    /// The header that frames of this segment and generation imply.
    pub(crate) fn header(config: &LaneConfig, slot_use: SlotUse) -> SegmentHeader {
        let SlotUse { segment, generation } = slot_use;
        let start = Position(segment * config.segment_bytes);
        SegmentHeader {
            version: FORMAT_VERSION,
            lane: config.lane,
            segment,
            segment_bytes: config.segment_bytes,
            incarnation: config.incarnation,
            generation,
            previous_end: start,
            replay_from: start,
        }
    }

    fn slot_use(&self) -> SlotUse {
        SlotUse { segment: self.header.segment, generation: self.header.generation }
    }

    /// Adds a frame, if it belongs to this segment and generation.
    fn add(&mut self, header: &FrameHeader, config: &LaneConfig) {
        if SlotUse::of(header, config) != self.slot_use() {
            return;
        }
        if header.durable <= self.header.previous_end {
            self.durable_before = self.durable_before.max(header.durable);
        }
        let begin = header.position.in_segment(config.segment_bytes);
        let end = begin + header.frame_bytes() as u64;
        match self.frames.last_mut() {
            Some(last) if last.end >= begin => last.end = last.end.max(end),
            _ => self.frames.push(begin..end),
        }
    }

    /// Zeroes the part of `bytes`, read from byte `at` of the slot, that lies in no frame of the
    /// segment. It may be the rest of an earlier use of the slot, or a later one.
    pub(crate) fn clear_foreign(&self, bytes: &mut [u8], at: u64) {
        let end = at + bytes.len() as u64;
        let mut own_until = at;
        let mut clear = |foreign: Range<u64>| {
            if foreign.start < foreign.end {
                bytes[(foreign.start - at) as usize..(foreign.end - at) as usize].fill(0);
            }
        };
        for frames in self.frames.iter().filter(|frames| frames.end > at && frames.start < end) {
            clear(own_until..frames.start);
            own_until = frames.end;
        }
        clear(own_until..end);
    }
}

/// The information from the frames of a slot without a header.
pub(crate) struct HeadlessFrames {
    /// The generation of a segment whose opening was torn: the next generation has to be higher, so
    /// that its frames differ from the torn ones. 0 if there is none.
    pub(crate) generation: u32,
    /// The last older segment of this slot that is in no other slot. Segment numbers and
    /// generations in a slot only grow.
    pub(crate) last: Option<HeadlessSegment>,
    /// The durable mark of its frames, if it lies above the newest segment.
    pub(crate) proven: Option<Position>,
}

impl HeadlessFrames {
    /// The highest segment above the newest whose header was durable, as the frames prove.
    pub(crate) fn lost_segment(&self, config: &LaneConfig) -> Option<u64> {
        self.proven.map(|proven| Position(proven.0 - 1).segment(config.segment_bytes))
    }
}

/// Inspects a slot without a header. Such a slot is spare: it is new, or the opening of its segment
/// was torn; unless a frame in it proves that the segment's header was durable, or it held an older
/// segment. `is_in_other_slot` says whether another slot has the header of a segment.
pub(crate) fn inspect_headless(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    newest: Option<&SegmentHeader>,
    is_in_other_slot: impl Fn(u64) -> bool,
) -> Result<HeadlessFrames, Fault> {
    let next = newest.map_or(0, |header| header.segment + 1);
    let start = Position(next * config.segment_bytes);
    let mut headless = HeadlessFrames { generation: 0, last: None, proven: None };
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        if header.position < start {
            let slot_use = SlotUse::of(header, config);
            if !is_in_other_slot(slot_use.segment) {
                let last = headless.last.take().filter(|last| last.slot_use() >= slot_use);
                let last = last.unwrap_or_else(|| HeadlessSegment::new(path, config, slot_use));
                headless.last.insert(last).add(header, config);
            }
            return;
        }
        headless.generation = headless.generation.max(header.generation);
        if header.durable > start {
            headless.proven = headless.proven.max(Some(header.durable));
        }
    })?;
    Ok(headless)
}

/// The readable information of a slot that cannot be read completely.
pub(crate) enum UnreadableSlot {
    /// It has no frame that follows the newest segment.
    IsOlder {
        /// Whether everything behind the header was read.
        is_read: bool,
    },
    /// It has such a frame.
    MayBeNewer,
}

/// Inspects the frames of such a slot, one block at a time. A later start can still use a segment
/// before the newest one; a segment behind it may be the end of the log.
pub(crate) fn inspect_unreadable(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    newest: Option<&SegmentHeader>,
) -> UnreadableSlot {
    let next = newest.map_or(0, |header| header.segment + 1);
    let start = Position(next * config.segment_bytes);
    let (mut is_read, mut is_newer) = (true, false);
    let mut block = Blocks::zeroed(1);
    for at in (BLOCK_BYTES as u64..config.segment_bytes).step_by(BLOCK_BYTES) {
        match read_padded(file, path, block.as_mut(), at) {
            Ok(()) => {
                let header = frame_header(block.as_ref(), at, config);
                is_newer |= header.is_some_and(|header| header.position >= start);
            }
            Err(_) => is_read = false,
        }
    }
    if is_newer { UnreadableSlot::MayBeNewer } else { UnreadableSlot::IsOlder { is_read } }
}

/// The last wanted use of the slot of which it still has frames.
pub(crate) fn last_use_of(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    is_wanted: impl Fn(u64) -> bool,
) -> Result<Option<SlotUse>, Fault> {
    let mut last = None;
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        let slot_use = SlotUse::of(header, config);
        if is_wanted(slot_use.segment) {
            last = last.max(Some(slot_use));
        }
    })?;
    Ok(last)
}

/// The segments that have frames in a slot.
pub(crate) fn segments_of(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
) -> Result<BTreeSet<u64>, Fault> {
    let mut segments = BTreeSet::new();
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        segments.insert(header.position.segment(config.segment_bytes));
    })?;
    Ok(segments)
}
