//! Repairs a lane that nobody serves: it gives up messages that cannot be read, copies the others out of the
//! damaged files, and then nothing refers to these files.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use sennit_engine::KeptBatch;
use sennit_journal::{Container, Damage, Disk, Fault, LaneConfig, Position, verify};
use sennit_model::{Batch, Timestamp};

use crate::{
    mover::{MoveError, PackLengths, RetentionClass},
    recover::{Recovered, Settings, recover},
    recover_error::RecoverError,
};

/// The results of a repair.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// The damage.
    pub damage: Vec<Damage>,
    /// Number of partitions that may have lost messages with the journal.
    pub doubtful_partitions: u64,
    /// Number of messages that were kept, could not be read, and are given up.
    pub lost_messages: u64,
    /// Damaged files without references. The caller moves them to the quarantine.
    pub to_quarantine: Vec<PathBuf>,
}

/// The reason why a lane could not be repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// The state cannot be recovered.
    #[error(transparent)]
    Recover(#[from] RecoverError),
    /// The messages beside the damage could not be copied.
    #[error(transparent)]
    Move(#[from] MoveError),
    /// A fault of the disk.
    #[error(transparent)]
    Journal(#[from] Fault),
}

/// Repairs a lane, if anything in it is damaged. It takes as much memory as the shard's state.
///
/// # Errors
/// A [`RepairError`]. The work until then is durable, and the repair can be started again.
pub fn repair<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    now: Timestamp,
) -> Result<Repaired, RepairError> {
    let verdict = verify(disk, config)?;
    let packs = PackLengths::default();
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: usize::MAX,
        packs,
        writes_superseded: false,
        replica: None,
    };
    let parts = recover(disk, config.clone(), settings, now)?;
    let report = parts.report.clone();
    let mut containers: BTreeMap<Container, BTreeSet<PathBuf>> = BTreeMap::new();
    for damage in verdict.damage.iter().chain(&report.damage) {
        for container in containers_of(damage, config.segment_bytes) {
            containers.entry(container).or_default().insert(damage.path.clone());
        }
    }
    containers
        .extend(report.lost_packs.iter().map(|&pack| (Container::Pack(pack), BTreeSet::new())));
    for &segment in &report.lost_segments {
        // Its header is gone, or all of it.
        let slots = verdict.headless.iter().filter(|slot| slot.segments.contains(&segment));
        let paths = slots.map(|slot| slot.path.clone());
        containers.entry(Container::Segment(segment)).or_default().extend(paths);
    }
    for (&segment, path) in &report.headless_segments {
        containers.entry(Container::Segment(segment)).or_default().insert(path.clone());
    }
    if containers.is_empty() {
        return Ok(Repaired::default());
    }
    let mut work = Work { parts, now, released_packs: Vec::new() };
    let lost_messages = work.save_or_give_up(&containers, config.segment_bytes)?;
    work.renew()?;
    let mut damage: Vec<Damage> = verdict.damage.into_iter().chain(report.damage).collect();
    damage.sort_unstable_by(|a, b| (a.position, &a.path).cmp(&(b.position, &b.path)));
    damage.dedup_by(|a, b| a.position == b.position && a.path == b.path);
    let free = containers.into_iter().filter(|(container, _)| work.is_free(*container));
    let to_quarantine = free.flat_map(|(_, paths)| paths).filter(|path| *path != config.directory);
    let to_quarantine: BTreeSet<PathBuf> = to_quarantine.chain(report.unreadable_slots).collect();
    let doubtful_partitions = report.doubtful_partitions;
    let to_quarantine = to_quarantine.into_iter().collect();
    Ok(Repaired { damage, doubtful_partitions, lost_messages, to_quarantine })
}

/// The containers that damage affects.
fn containers_of(damage: &Damage, segment_bytes: u64) -> Vec<Container> {
    if let Some((pack, _)) = damage.position.pack() {
        return vec![Container::Pack(pack)];
    }
    let last = damage.position.0 + damage.bytes.max(1) - 1;
    let segments = damage.position.0 / segment_bytes..=last / segment_bytes;
    segments.map(Container::Segment).collect()
}

/// A shard without users.
struct Work<D: Disk> {
    parts: Recovered<D>,
    now: Timestamp,
    released_packs: Vec<u32>,
}

impl<D: Disk> Work<D> {
    /// Copies the readable batches in `containers`, and gives up the others; returns the number of
    /// messages in these.
    fn save_or_give_up(
        &mut self,
        containers: &BTreeMap<Container, BTreeSet<PathBuf>>,
        segment_bytes: u64,
    ) -> Result<u64, RepairError> {
        let mut suspect: BTreeMap<Container, Vec<KeptBatch>> = BTreeMap::new();
        for kept in self.parts.shard.engine().batches() {
            let position = Position(kept.place.position);
            let container = Container::of(position, segment_bytes);
            if containers.contains_key(&container) {
                suspect.entry(container).or_default().push(kept);
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
                    saved.push((kept, RetentionClass::of(shard.engine().kept_for(partition))));
                } else {
                    lost += shard.give_up(partition, first);
                }
            }
            if !saved.is_empty() {
                let moved = mover.copy_each(&saved)?;
                shard.handle_move(moved, self.now);
            }
            self.commit()?;
        }
        Ok(lost)
    }

    /// Makes a replay begin behind everything that exists now.
    fn renew(&mut self) -> Result<(), RepairError> {
        self.parts.shard.checkpoint_soon();
        self.commit()?;
        self.parts.shard.start_segment();
        self.commit()?;
        self.parts.shard.forget_fallback();
        self.commit()
    }

    /// Commits until nothing is left to commit. Freed slots are not reused, because they may be
    /// damaged.
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
            shard.handle_commit(end, self.now);
        }
    }

    /// Returns whether nothing refers to the container.
    fn is_free(&self, container: Container) -> bool {
        match container {
            Container::Segment(segment) => !self.parts.lane.holds(segment),
            Container::Pack(pack) => {
                let places = self.parts.shard.engine().places();
                let mut packs = places.filter_map(|place| Position(place.position).pack());
                packs.all(|(held, _)| held != pack)
            }
        }
    }
}
