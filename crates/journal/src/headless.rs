//! Slots whose header is not whole: spare ones, and those that rot made look so. What their frames
//! still say.

use std::{ops::RangeInclusive, path::Path};

use crate::{
    disk::DiskFile,
    fault::Fault,
    format::{BLOCK_BYTES, SegmentHeader},
    lane_config::LaneConfig,
    position::Position,
    scan::each_frame,
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
