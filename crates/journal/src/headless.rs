//! Slots whose header is not whole: spare ones, and those that rot made look so. What their frames
//! still say.

use std::{collections::BTreeSet, ops::RangeInclusive, path::Path};

use crate::{
    block::Blocks,
    disk::DiskFile,
    fault::Fault,
    format::{BLOCK_BYTES, SegmentHeader},
    lane_config::LaneConfig,
    position::Position,
    reader::read_padded,
    scan::{each_frame, frame_header},
};

/// What the frames say in a slot without a header.
pub(crate) struct Headless {
    /// The generation of what was torn when its segment was opened: the next one has to be higher,
    /// or its frames could be taken for the torn ones.
    pub(crate) generation: u32,
    /// The highest segment above the newest of which they prove that its header was durable.
    pub(crate) lost_segment: Option<u64>,
}

/// A slot without a header is spare: new, or torn when its segment was opened. Unless a frame in
/// it proves that the segment's header was durable once.
pub(crate) fn look_at_headless(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    newest: Option<&SegmentHeader>,
) -> Result<Headless, Fault> {
    let next = newest.map_or(0, |header| header.segment + 1);
    let start = Position(next * config.segment_bytes);
    let mut headless = Headless { generation: 0, lost_segment: None };
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        if header.position < start {
            return;
        }
        headless.generation = headless.generation.max(header.generation);
        if header.durable > start {
            let proven = Position(header.durable.0 - 1).min(header.position);
            let proven = Some(proven.segment(config.segment_bytes));
            headless.lost_segment = headless.lost_segment.max(proven);
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

/// The last segment among `wanted` of which the slot holds frames, and their generation.
pub(crate) fn last_held(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    wanted: &RangeInclusive<u64>,
) -> Result<Option<(u64, u32)>, Fault> {
    let mut last = None;
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        let segment = header.position.segment(config.segment_bytes);
        if wanted.contains(&segment) {
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
