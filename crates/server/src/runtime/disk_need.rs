//! The disk space that a broker needs: the sizes of a new data directory on a small disk, and whether there is room
//! to start. It reads the disk's state and changes nothing.

use std::path::Path;

use sennit_journal::{
    Disk, SHARDS_MAX,
    disk::{Access, RealDisk},
};
use sennit_shard::held_slots;

use super::error::ServeError;

/// Segments that a new directory gets where nobody says how long, longest first.
const SEGMENT_BYTES: [u64; 3] = [64 << 20, 32 << 20, 20 << 20];

/// A new directory takes this part of what is free for what it always holds, if nobody has said its sizes: the
/// rest is for messages.
const HELD_PART: u64 = 4;

/// Segments beside those that are always held: the one that is written, and one to publish into.
const USED_SEGMENTS: u64 = 2;

/// The sizes of a new data directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    pub(crate) shards: u32,
    pub(crate) segment_bytes: u64,
}

impl Sizes {
    /// What such a directory needs of the disk before anything is published, in bytes.
    pub(crate) fn needed_bytes(self) -> u64 {
        let segments = held_slots(0) + USED_SEGMENTS;
        u64::from(self.shards).saturating_mul(segments).saturating_mul(self.segment_bytes)
    }

    /// The sizes of a directory on a disk with so much free: those that were asked for, else the largest
    /// segments, and as many shards as there are cores, unless the disk is too small for that. `Err` has the
    /// smallest that are possible, if there is no room for them.
    pub(crate) fn fitting(
        free_bytes: u64,
        shards: Option<u32>,
        segment_bytes: Option<u64>,
        cores: u32,
    ) -> Result<Self, Self> {
        let lengths = segment_bytes.map_or(SEGMENT_BYTES.to_vec(), |bytes| vec![bytes]);
        let counts = shards.map_or((1..=cores).rev().collect(), |shards| vec![shards]);
        let sizes =
            |shards| lengths.iter().map(move |&segment_bytes| Self { shards, segment_bytes });
        let all = || counts.iter().flat_map(|&shards| sizes(shards));
        let roomy = all().find(|sizes| sizes.needed_bytes() <= free_bytes / HELD_PART);
        // With little room, shorter segments and fewer shards leave more of it for messages.
        let smallest = all().last().expect("each has one length and one number of shards at least");
        let has_room = smallest.needed_bytes() <= free_bytes;
        roomy.or(has_room.then_some(smallest)).ok_or(smallest)
    }
}

/// How many bytes are free where `data` lies or is to be made; none if the system does not say.
pub(crate) fn free_bytes(data: &Path) -> Option<u64> {
    let absolute = std::path::absolute(data).ok()?;
    let there = absolute.ancestors().find(|above| above.is_dir())?;
    RealDisk::new(Access::Buffered).available_bytes(there).ok()
}

/// Refuses a new directory for which the disk has no room.
pub(crate) fn sizes_for(
    data: &Path,
    shards: Option<u32>,
    segment_bytes: Option<u64>,
    cores: u32,
) -> Result<Sizes, ServeError> {
    let wanted = Sizes {
        shards: shards.unwrap_or(cores),
        segment_bytes: segment_bytes.unwrap_or(SEGMENT_BYTES[0]),
    };
    if wanted.shards > SHARDS_MAX {
        // Refused for that, whatever the disk holds.
        return Ok(wanted);
    }
    let Some(free) = free_bytes(data) else { return Ok(wanted) };
    let sizes = Sizes::fitting(free, shards, segment_bytes, cores).map_err(|smallest| {
        let Sizes { shards, segment_bytes } = smallest;
        let (path, needed) = (data.to_owned(), smallest.needed_bytes());
        ServeError::SmallDisk { path, free, needed, shards, segment_bytes }
    })?;
    if sizes != wanted {
        let Sizes { shards, segment_bytes } = sizes;
        tracing::info!(
            free_bytes = free,
            shards,
            segment_bytes,
            "the disk is small: the new data directory gets shorter segments or fewer shards"
        );
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_small_disk_gets_shorter_segments_and_then_fewer_shards() {
        let fitting = |free, shards, segment| {
            let sizes = Sizes::fitting(free * MIB, shards, segment, 2);
            sizes.map(|sizes| (sizes.shards, sizes.segment_bytes / MIB))
        };
        assert_eq!(fitting(10_000, None, None), Ok((2, 64)));
        assert_eq!(fitting(3_000, None, None), Ok((2, 32)));
        assert_eq!(fitting(1_500, None, None), Ok((2, 20)));
        assert_eq!(fitting(210, None, None), Ok((1, 20)));
        assert_eq!(fitting(400, Some(2), Some(20 * MIB)), Ok((2, 20)), "as it was asked for");
        let smallest = Sizes::fitting(150 * MIB, None, None, 2).unwrap_err();
        assert_eq!(smallest.needed_bytes(), 180 * MIB);
        let smallest = Sizes::fitting(210 * MIB, Some(1), Some(64 * MIB), 2).unwrap_err();
        assert_eq!(smallest.needed_bytes(), 576 * MIB);
    }
}
