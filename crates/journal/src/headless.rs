//! Slots whose header is not whole: spare ones, and those that rot made look so. What their frames
//! still say.

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

/// A segment whose header is not whole, as its frames describe it.
#[derive(Clone, Debug)]
pub(crate) struct HeadlessSegment {
    /// The slot.
    pub(crate) path: PathBuf,
    /// Segment and generation are right. Where the log before it ended and where a replay begins only
    /// the lost header could say: both are the segment's start here.
    pub(crate) header: SegmentHeader,
    /// What they say was durable of the log in front of it: everything before this.
    pub(crate) durable_before: Position,
    /// The bytes of the slot that frames of this segment and generation take, in order.
    frames: Vec<Range<u64>>,
}

impl HeadlessSegment {
    /// The segment of this number and generation in a slot without a header.
    pub(crate) fn read(
        file: &impl DiskFile,
        path: &Path,
        config: &LaneConfig,
        (segment, generation): (u64, u32),
    ) -> Result<Self, Fault> {
        let mut found = Self::new(path, config, (segment, generation));
        each_frame(file, path, config, BLOCK_BYTES as u64, |header| found.add(header, config))?;
        Ok(found)
    }

    fn new(path: &Path, config: &LaneConfig, key: (u64, u32)) -> Self {
        let header = Self::header(config, key);
        let (path, durable_before) = (path.to_owned(), Position(0));
        Self { path, header, durable_before, frames: Vec::new() }
    }

    /// What the frames say of the header of the segment of this number and generation.
    pub(crate) fn header(config: &LaneConfig, (segment, generation): (u64, u32)) -> SegmentHeader {
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

    fn key(&self) -> (u64, u32) {
        (self.header.segment, self.header.generation)
    }

    /// Adds a frame, if it is of this segment and generation.
    fn add(&mut self, header: &FrameHeader, config: &LaneConfig) {
        if key_of(header, config) != self.key() {
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

    /// Fills with zeros what of `bytes`, read from byte `at` of the slot, lies in no frame of the
    /// segment. An earlier use of the slot may have left it there, or a later one may have written it.
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

/// The segment and the generation of a frame.
fn key_of(header: &FrameHeader, config: &LaneConfig) -> (u64, u32) {
    (header.position.segment(config.segment_bytes), header.generation)
}

/// What the frames say in a slot without a header.
pub(crate) struct Headless {
    /// The generation of what was torn when its segment was opened: the next one has to be higher,
    /// or its frames could be taken for the torn ones. 0 if nothing was.
    pub(crate) generation: u32,
    /// Of the older segments that lie in no other slot, the one that this slot held last: slots are used
    /// for ever higher segments, and begun again by ever higher generations.
    pub(crate) last: Option<HeadlessSegment>,
    /// Everything before this was durable, as they say, and it lies above the newest segment.
    pub(crate) proven: Option<Position>,
}

impl Headless {
    /// The highest segment above the newest of which the frames prove that its header was durable.
    pub(crate) fn lost_segment(&self, config: &LaneConfig) -> Option<u64> {
        self.proven.map(|proven| Position(proven.0 - 1).segment(config.segment_bytes))
    }
}

/// A slot without a header is spare: new, or torn when its segment was opened. Unless a frame in
/// it proves that the segment's header was durable once, or it held an older segment: `is_elsewhere` says
/// whether another slot has the header of one.
pub(crate) fn look_at_headless(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    newest: Option<&SegmentHeader>,
    is_elsewhere: impl Fn(u64) -> bool,
) -> Result<Headless, Fault> {
    let next = newest.map_or(0, |header| header.segment + 1);
    let start = Position(next * config.segment_bytes);
    let mut headless = Headless { generation: 0, last: None, proven: None };
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        if header.position < start {
            let key = key_of(header, config);
            if !is_elsewhere(key.0) {
                let last = headless.last.take().filter(|last| last.key() >= key);
                let last = last.unwrap_or_else(|| HeadlessSegment::new(path, config, key));
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

/// What can be read of a slot that cannot be read all through.
pub(crate) enum Rest {
    /// No frame that follows the newest segment.
    IsOlder {
        /// Whether all was read behind the header.
        is_read: bool,
    },
    /// Such a frame.
    MayBeNewer,
}

/// Looks at the frames of such a slot, one block at a time. What lies in front of the newest segment
/// another start can still use; what lies behind it may be the end of the log.
pub(crate) fn look_past_unreadable(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    newest: Option<&SegmentHeader>,
) -> Rest {
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
    if is_newer { Rest::MayBeNewer } else { Rest::IsOlder { is_read } }
}

/// The last segment that is wanted of which the slot holds frames, and their generation.
pub(crate) fn last_held(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    is_wanted: impl Fn(u64) -> bool,
) -> Result<Option<(u64, u32)>, Fault> {
    let mut last = None;
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        let segment = header.position.segment(config.segment_bytes);
        if is_wanted(segment) {
            last = last.max(Some((segment, header.generation)));
        }
    })?;
    Ok(last)
}

/// The segments of which frames lie in a slot.
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
