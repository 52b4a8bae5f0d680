//! Repair of a lane that nobody serves: messages that cannot be read are given up in the records,
//! those beside them are copied out of the damaged files, and nothing refers to these afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use sennit_engine::KeptBatch;
use sennit_journal::{Damage, Disk, Fault, Home, LaneConfig, Position, verify};
use sennit_model::{Batch, Timestamp};

use crate::{
    mover::{Keeping, MoveError, PackLengths},
    recover::{Recovered, Settings, recover},
    recover_error::RecoverError,
};

/// What a repair found and did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// What was damaged.
    pub damage: Vec<Damage>,
    /// Partitions that may have lost messages with the journal.
    pub doubtful_partitions: u64,
    /// Messages that were kept, could not be read, and are given up.
    pub lost_messages: u64,
    /// Damaged files to which nothing refers any more. They are left in place: whoever repairs sets
    /// them aside.
    pub to_set_aside: Vec<PathBuf>,
}

/// Why a lane could not be repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Nothing can be built on what is left.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// What lies beside the damage could not be copied.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// The disk.
    #[error(transparent)]
    Journal(#[from] Fault),
}

/// Repairs a lane, if anything in it is damaged. It takes as much memory as the shard's state.
///
/// # Errors
/// A [`RepairError`]. What was done until then is as durable as ever, and a repair can be begun again.
pub fn repair<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    now: Timestamp,
) -> Result<Repaired, RepairError> {
    let verdict = verify(disk, config)?;
    let packs = PackLengths::default();
    let settings = Settings { cache_bytes: 0, journal_segments: usize::MAX, packs };
    let parts = recover(disk, config.clone(), settings, now)?;
    let report = parts.report.clone();
    let mut homes: BTreeMap<Home, BTreeSet<PathBuf>> = BTreeMap::new();
    for damage in verdict.damage.iter().chain(&report.damage) {
        for home in homes_of(damage, config.segment_bytes) {
            homes.entry(home).or_default().insert(damage.path.clone());
        }
    }
    homes.extend(report.lost_packs.iter().map(|&pack| (Home::Pack(pack), BTreeSet::new())));
    for &segment in &report.lost_segments {
        // Its header is gone, or all of it.
        let slots = verdict.headless.iter().filter(|slot| slot.segments.contains(&segment));
        let paths = slots.map(|slot| slot.path.clone());
        homes.entry(Home::Segment(segment)).or_default().extend(paths);
    }
    for (&segment, path) in &report.headless_segments {
        homes.entry(Home::Segment(segment)).or_default().insert(path.clone());
    }
    if homes.is_empty() {
        return Ok(Repaired::default());
    }
    let mut work = Work { parts, now, released_packs: Vec::new() };
    let lost_messages = work.save_or_give_up(&homes, config.segment_bytes)?;
    work.renew()?;
    let mut damage: Vec<Damage> = verdict.damage.into_iter().chain(report.damage).collect();
    damage.sort_unstable_by(|a, b| (a.position, &a.path).cmp(&(b.position, &b.path)));
    damage.dedup_by(|a, b| a.position == b.position && a.path == b.path);
    let free = homes.into_iter().filter(|(home, _)| work.is_free(*home));
    let to_set_aside = free.flat_map(|(_, paths)| paths).filter(|path| *path != config.directory);
    let to_set_aside: BTreeSet<PathBuf> = to_set_aside.chain(report.unreadable_slots).collect();
    let doubtful_partitions = report.doubtful_partitions;
    let to_set_aside = to_set_aside.into_iter().collect();
    Ok(Repaired { damage, doubtful_partitions, lost_messages, to_set_aside })
}

/// What is touched by a damage.
fn homes_of(damage: &Damage, segment_bytes: u64) -> Vec<Home> {
    if let Some((pack, _)) = damage.position.pack() {
        return vec![Home::Pack(pack)];
    }
    let last = damage.position.0 + damage.bytes.max(1) - 1;
    let segments = damage.position.0 / segment_bytes..=last / segment_bytes;
    segments.map(Home::Segment).collect()
}

/// A shard at work for nobody.
struct Work<D: Disk> {
    parts: Recovered<D>,
    now: Timestamp,
    released_packs: Vec<u32>,
}

impl<D: Disk> Work<D> {
    /// Copies the batches in `homes` that can be read, and gives up the others; returns how many
    /// messages these held.
    fn save_or_give_up(
        &mut self,
        homes: &BTreeMap<Home, BTreeSet<PathBuf>>,
        segment_bytes: u64,
    ) -> Result<u64, RepairError> {
        let mut suspect: BTreeMap<Home, Vec<KeptBatch>> = BTreeMap::new();
        for kept in self.parts.shard.engine().batches() {
            let position = Position(kept.place.position);
            let home = match position.pack() {
                Some((pack, _)) => Home::Pack(pack),
                None => Home::Segment(position.segment(segment_bytes)),
            };
            if homes.contains_key(&home) {
                suspect.entry(home).or_default().push(kept);
            }
        }
        let mut lost = 0;
        for held in suspect.into_values() {
            let Recovered { shard, mover, reader, .. } = &mut self.parts;
            let mut saved = Vec::new();
            for kept in held {
                let KeptBatch { partition, first, place, .. } = kept;
                let read = reader.read(Position(place.position), place.bytes as usize);
                if read.is_ok_and(|bytes| Batch::check_kept(bytes).is_ok()) {
                    saved.push((kept, Keeping::of(shard.engine().kept_for(partition))));
                } else {
                    lost += shard.give_up(partition, first);
                }
            }
            if !saved.is_empty() {
                let moved = mover.copy_each(&saved)?;
                shard.moved(moved, self.now);
            }
            self.commit()?;
        }
        Ok(lost)
    }

    /// Has a replay begin behind everything that is there now.
    fn renew(&mut self) -> Result<(), RepairError> {
        self.parts.shard.checkpoint_soon();
        self.commit()?;
        self.parts.shard.turn_segment();
        self.commit()?;
        self.parts.shard.forget_fallback();
        self.commit()
    }

    /// Commits until there is nothing to commit. Slots that come free are not used again: they may be
    /// among the damaged ones.
    fn commit(&mut self) -> Result<(), RepairError> {
        let Recovered { shard, lane, slots, .. } = &mut self.parts;
        loop {
            shard.effects().clear();
            let mut released = Vec::new();
            shard.take_released(&mut released);
            released.into_iter().for_each(|segment| lane.release(segment));
            shard.take_released_packs(&mut self.released_packs);
            let mut frames = Vec::new();
            shard.take_frames(&mut frames);
            if frames.is_empty() {
                return Ok(());
            }
            lane.take_surplus(0);
            let begun = frames.iter().filter(|frame| frame.first_of_segment).count();
            for _ in 0..begun {
                lane.add_spare(slots.make()?);
            }
            let end = lane.append(&frames)?;
            shard.committed(end, self.now);
        }
    }

    /// Whether nothing refers to what lies there.
    fn is_free(&self, home: Home) -> bool {
        match home {
            Home::Segment(segment) => !self.parts.lane.holds(segment),
            Home::Pack(pack) => {
                let places = self.parts.shard.engine().places();
                let mut packs = places.filter_map(|place| Position(place.position).pack());
                packs.all(|(held, _)| held != pack)
            }
        }
    }
}
