//! Verifies a data directory that no broker serves.

use std::path::{Path, PathBuf};

use sennit_journal::{
    BLOCK_BYTES, Damage, DataDirectory, DirectorySettings, LaneConfig, Position, VerifyReport,
    disk::{Access, RealDisk},
    verify,
};
use sennit_shard::find_references;

use crate::runtime::{clock::now, error::ServeError};

/// What the lane of a shard holds, and what of it is damaged.
#[derive(Clone, Debug)]
pub struct ShardVerdict {
    /// Which shard.
    pub shard: u32,
    /// What was found.
    pub verdict: VerifyReport,
}

/// Looks at every byte of a data directory that has a checksum, one shard after the other, and
/// gives each verdict to `each`. The records are replayed too, as far as a start would go on with them, to
/// see that everything they refer to is there. Nothing is changed; the directory is locked meanwhile.
///
/// # Errors
/// The folder is no data directory, is served by a broker, or cannot be read.
pub fn verify_storage(data: &Path, mut each: impl FnMut(ShardVerdict)) -> Result<(), ServeError> {
    let directory = DataDirectory::open_existing(data)?;
    let settings = *directory.settings();
    let disk = RealDisk::new(Access::Buffered);
    for shard in 0..settings.shards {
        let lane = lane_config(directory.lane_directory(shard), shard, &settings);
        each(ShardVerdict { shard, verdict: verify_lane(&disk, &lane)? });
    }
    Ok(())
}

/// The lane of a shard of a directory with these settings.
pub(crate) fn lane_config(
    directory: PathBuf,
    shard: u32,
    settings: &DirectorySettings,
) -> LaneConfig {
    let DirectorySettings { segment_bytes, incarnation, .. } = *settings;
    LaneConfig { directory, lane: shard, segment_bytes, incarnation }
}

/// Looks at one lane.
pub(crate) fn verify_lane(disk: &RealDisk, lane: &LaneConfig) -> Result<VerifyReport, ServeError> {
    let mut verdict = verify(disk, lane)?;
    if !verdict.held_segments.is_empty() {
        let missing = missing(disk, lane, &verdict);
        verdict.damage.extend(missing);
    }
    Ok(verdict)
}

/// What the records refer to and is not there. A segment may still be there, in a slot that looks
/// spare because its header has rotted: that slot is named then. A start reads it all the same.
fn missing(disk: &RealDisk, lane: &LaneConfig, verdict: &VerifyReport) -> Vec<Damage> {
    let find_references = match find_references(disk, lane.clone(), now()) {
        Ok(find_references) => find_references,
        // Why is in the damage.
        Err(_) if !verdict.damage.is_empty() => return Vec::new(),
        Err(error) => {
            tracing::error!(lane = lane.lane, %error, "the records cannot be replayed");
            let (path, position) = (lane.directory.clone(), Position::default());
            let what =
                "the records are whole but cannot be replayed; no broker will start with them";
            return vec![Damage { path, position, bytes: 0, problem: what }];
        }
    };
    let is_named = |segment: u64| {
        let begin = segment * lane.segment_bytes;
        let mut damage = verdict.damage.iter();
        damage.any(|held| (held.position.0..held.position.0 + held.bytes).contains(&begin))
    };
    let segments = find_references.segments.difference(&verdict.held_segments);
    let segments = segments.filter(|segment| !is_named(**segment)).map(|&segment| {
        let slot = verdict.headless.iter().find(|slot| slot.segments.contains(&segment));
        let (path, bytes, what) = match slot {
            Some(slot) => {
                let what = "the header is gone of a segment with messages that are wanted";
                (&slot.path, BLOCK_BYTES as u64, what)
            }
            None => {
                let what = "a segment with messages that are wanted is missing";
                (&lane.directory, lane.segment_bytes, what)
            }
        };
        let position = Position(segment * lane.segment_bytes);
        Damage { path: path.clone(), position, bytes, problem: what }
    });
    let packs = find_references.packs.difference(&verdict.held_packs).map(|&pack| {
        let what = "a pack with messages that are wanted is missing";
        let position = Position::of_pack(pack, 0);
        Damage { path: lane.directory.clone(), position, bytes: 0, problem: what }
    });
    segments.chain(packs).collect()
}
