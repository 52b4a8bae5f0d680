//! Recovers a shard from its journal on disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use sennit_engine::{Engine, Journal, KeptBatch, Place, Record};
use sennit_journal::{
    Container, Damage, Disk, Fault, Lane, LaneConfig, Position, Reader, RecoveredLane, SlotMaker,
};
use sennit_model::{Generation, Offset, PartitionId, Timestamp};

use crate::{
    checkpoint::Checkpoints,
    compaction_state::CompactionState,
    move_state::MoveState,
    mover::{Mover, PackLengths, StoredBatch},
    packs::Packs,
    recover_error::RecoverError,
    replay::{ReadBack, Reading, ReplayedLane, replay},
    replica_log::Replica,
    segments::Segments,
    shard::Shard,
    tail_cache::TailCache,
    writer::Writer,
};

/// The settings of a shard.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The number of bytes of the newest frames that are kept in memory.
    pub cache_bytes: usize,
    /// The number of segments in use beyond which the oldest is emptied into packs.
    pub journal_segments: usize,
    /// The lengths of packs.
    pub packs: PackLengths,
    /// Whether compaction writes `Superseded`, which names no place, and leaves what stays where it
    /// lies. If not it writes `Compacted`, which every version reads.
    pub writes_superseded: bool,
    /// The replica of a group that the shard is, if it is one: its lane is the group's log, and compaction writes
    /// `Superseded`.
    pub replica: Option<Replica>,
}

/// The results of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Number of replayed records.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Torn bytes at the end: written, and never committed.
    pub torn_bytes: u64,
    /// Durable parts of the journal that are damaged. Their contents are lost.
    pub damage: Vec<Damage>,
    /// Number of partitions that may have lost messages with them.
    pub doubtful_partitions: u64,
    /// Missing packs that hold wanted messages.
    pub lost_packs: Vec<u32>,
    /// Missing segments that hold wanted messages.
    pub lost_segments: Vec<u64>,
    /// Segments in use whose header is not whole, and their slots. Their whole frames are readable.
    pub headless_segments: BTreeMap<u64, PathBuf>,
    /// Slots that cannot be read and hold nothing that is wanted. They are not used.
    pub unreadable_slots: Vec<PathBuf>,
    /// The generation that begins.
    pub generation: Generation,
}

/// A recovered shard and its parts.
#[derive(Debug)]
pub struct Recovered<D: Disk> {
    /// The shard.
    pub shard: Shard,
    /// Writes its frames.
    pub lane: Lane<D>,
    /// Reads its fetches.
    pub reader: Reader<D>,
    /// Creates slots for its lane.
    pub slots: SlotMaker<D>,
    /// Empties segments and packs.
    pub mover: Mover<D>,
    /// The position of the last record that was replayed.
    pub last_record: Position,
    /// The records that say what was lost. They are appended already, and applied.
    pub lost_records: Vec<Record>,
    /// The results of the recovery.
    pub report: RecoveryReport,
}

/// Recovers a shard from its lane. A lane that does not exist is a new shard. Damaged data is
/// skipped: its contents are lost, and no offset is given twice. Unreadable data is an error,
/// because it may be readable the next time.
///
/// # Errors
/// A [`RecoverError`]: the journal cannot be read, is not of this program, or a damaged checkpoint
/// leaves no state to continue from. Then nothing was changed.
pub fn recover<D: Disk>(
    disk: &D,
    config: LaneConfig,
    settings: Settings,
    now: Timestamp,
) -> Result<Recovered<D>, RecoverError> {
    let segment_bytes = config.segment_bytes;
    let of = settings.replica.map_or(ReplayedLane::Plain, ReplayedLane::Of);
    let ReadBack { mut recovered, reading, mut engine, lost, uncommitted } =
        replay(disk, &config, of, now)?;
    let generation = Generation(recovered.builder.generation());
    let replay_from = recovered.replay_from;
    let empty_segments = end_log_at_needed(&mut recovered, &reading, segment_bytes);
    let mut lane = recovered.lane;
    let mut segments = Segments::new(segment_bytes, recovered.fallback_from.unwrap_or(replay_from));
    lane.segments().for_each(|segment| segments.add(segment));
    let (mut packs, next_pack) = list_packs(disk, &config, &engine)?;
    let mover_reader = recovered.reader.duplicate();
    let mut mover = Mover::new(disk.clone(), config, mover_reader, settings.packs, next_pack);
    let mut writer = Writer::new(recovered.builder, segments, replay_from);
    writer.skip_segments(empty_segments);
    writer.since_checkpoint_bytes = reading.bytes;
    let committed = writer.end();
    if let Some(newest) = reading.newest_checkpoint {
        // The last life may have ended before a segment's header said so: this life's first does.
        writer.set_replay_from(newest.range.start);
    }
    writer.log = reading.replica.map(|replica| replica.log);
    if let Some(log) = &mut writer.log {
        log.begin_life(committed, generation, now);
        if log.replica.is_alone {
            writer.begin_term();
        }
    }
    for record in &lost {
        // Before anything else is: a later replay must not take the next messages for these.
        writer.append(record);
    }
    if !reading.damage.is_empty() {
        let is_held = |container| is_held(container, &lane, &packs);
        for (kept, place) in
            find_moved(&engine, &mut mover, packs.numbers(), segment_bytes, is_held)
        {
            engine.move_batches(kept.partition, &[(kept.first, place)], &mut writer);
        }
    }
    let mut missing = count_live_batches(&engine, &lane, &mut packs, &mut writer.segments);
    let (unreadable_slots, faults) = recovered.unreadable.into_iter().unzip();
    exclude_lost_slots(&mut lane, &missing.segments, faults)?;
    if reading.damage.is_empty() || !is_in_group(settings) {
        release_unneeded(&mut lane, &mut packs, &mut writer.segments, replay_from);
    }
    // Only now: what they free may be wanted again.
    for (record, place) in &uncommitted {
        engine.apply(record, place.0);
        if let Some(batch) = record.batch() {
            writer.segments.add_live(*place, batch.bytes().len() as u32);
        }
    }
    if !uncommitted.is_empty() {
        // The last life may have known that these free them, and have removed their files.
        missing.retain_wanted(&engine, segment_bytes);
    }
    let mut headless_segments = recovered.headless;
    headless_segments.retain(|segment, _| lane.holds(*segment));
    let report = RecoveryReport {
        records: reading.records,
        bytes: reading.bytes,
        torn_bytes: recovered.torn_bytes,
        doubtful_partitions: if reading.damage.is_empty() { 0 } else { lost.len() as u64 },
        damage: reading.damage,
        lost_packs: missing.packs.into_iter().collect(),
        lost_segments: missing.segments.into_iter().collect(),
        headless_segments,
        unreadable_slots,
        generation,
    };
    let cache = TailCache::new(settings.cache_bytes, committed);
    let moves = MoveState::new(packs, settings.journal_segments);
    let pending = reading.pending_checkpoint.map(|found| found.range);
    let checkpoints = Checkpoints::new(segment_bytes, reading.checkpoint_span, pending);
    let writes_superseded = settings.writes_superseded || settings.replica.is_some();
    let compacting = CompactionState::new(writes_superseded);
    let mut shard =
        Shard::new(engine, writer, committed, cache, (moves, compacting), checkpoints, now);
    shard.begin_in_group();
    let damage = report.damage.first().map(|damage| damage.position);
    if let Some(quarantine) = shard.found_quarantine(damage) {
        shard.enter_quarantine(quarantine, now);
    }
    // The first frame takes one.
    shard.set_spare_slots(lane.spare_count().saturating_sub(1), shard.end());
    let (reader, slots) = (recovered.reader, recovered.slots);
    let last_record = reading.last;
    Ok(Recovered { shard, lane, reader, slots, mover, last_record, lost_records: lost, report })
}

/// Ends the log with the last segment that a later replay needs. Returns the segments behind it.
/// Starts that came to nothing have begun them, and would fill a full disk.
fn end_log_at_needed<D: Disk>(
    recovered: &mut RecoveredLane<D>,
    reading: &Reading,
    segment_bytes: u64,
) -> Vec<u64> {
    if !reading.damage.is_empty() || !recovered.unreadable.is_empty() {
        return Vec::new();
    }
    let last_needed = reading.needed.max(recovered.replay_from).segment(segment_bytes);
    recovered.ends_with(last_needed)
}

/// The packs on the disk, and the number of the next one.
fn list_packs<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    engine: &Engine,
) -> Result<(Packs, u32), Fault> {
    let mut packs = Packs::default();
    // A record of what was done with a batch may rot: what says that it lies in a pack that is gone
    // must not mean a later one.
    let highest_place = Position(engine.highest_place());
    let mut next_pack = highest_place.pack().map_or(0, |(pack, _)| pack + 1);
    for pack in sennit_journal::packs(disk, config)? {
        next_pack = next_pack.max(pack.number + 1);
        packs.add(pack);
    }
    Ok((packs, next_pack))
}

/// The files of live batches that do not exist.
#[derive(Default)]
struct MissingFiles {
    packs: BTreeSet<u32>,
    segments: BTreeSet<u64>,
}

impl MissingFiles {
    /// Keeps those that hold a live batch.
    fn retain_wanted(&mut self, engine: &Engine, segment_bytes: u64) {
        if self.packs.is_empty() && self.segments.is_empty() {
            return;
        }
        let mut wanted = Self::default();
        for place in engine.places() {
            match Container::of(Position(place.position), segment_bytes) {
                Container::Pack(pack) => wanted.packs.insert(pack),
                Container::Segment(segment) => wanted.segments.insert(segment),
            };
        }
        self.packs.retain(|pack| wanted.packs.contains(pack));
        self.segments.retain(|segment| wanted.segments.contains(segment));
    }
}

/// Adds the live batches to the usage of their files. What lay in a missing file is found to be
/// damaged, and confined, when it is wanted.
fn count_live_batches<D: Disk>(
    engine: &Engine,
    lane: &Lane<D>,
    packs: &mut Packs,
    segments: &mut Segments,
) -> MissingFiles {
    let mut missing = MissingFiles::default();
    for place in engine.places() {
        let position = Position(place.position);
        let container = Container::of(position, segments.segment_bytes());
        let is_held = is_held(container, lane, packs);
        match container {
            Container::Pack(pack) if is_held => packs.add_live(pack, place.bytes),
            Container::Segment(_) if is_held => segments.add_live(position, place.bytes),
            Container::Pack(pack) => _ = missing.packs.insert(pack),
            Container::Segment(segment) => _ = missing.segments.insert(segment),
        }
    }
    missing
}

fn is_held<D: Disk>(container: Container, lane: &Lane<D>, packs: &Packs) -> bool {
    match container {
        Container::Pack(pack) => packs.holds(pack),
        Container::Segment(segment) => lane.holds(segment),
    }
}

/// Keeps the slots that may hold the `lost` segments from being written. Fails with the first of
/// the `faults` of unreadable slots, because a lost segment may lie there.
fn exclude_lost_slots<D: Disk>(
    lane: &mut Lane<D>,
    lost: &BTreeSet<u64>,
    faults: Vec<Fault>,
) -> Result<(), Fault> {
    if lost.is_empty() {
        return Ok(());
    }
    if let Some(fault) = faults.into_iter().next() {
        return Err(fault);
    }
    // A slot whose header is gone may be theirs: it is not written over. The others are used, or
    // each start would make new ones.
    lane.exclude_spares(lost);
    Ok(())
}

/// Whether the group has other replicas: what a lane's damage has taken is theirs to say.
fn is_in_group(settings: Settings) -> bool {
    settings.replica.is_some_and(|replica| !replica.is_alone)
}

/// Releases the packs that were being written or removed when the last life ended, and the segments
/// that neither a replay from `replay_from` nor a live batch needs.
fn release_unneeded<D: Disk>(
    lane: &mut Lane<D>,
    packs: &mut Packs,
    segments: &mut Segments,
    replay_from: Position,
) {
    packs.release_empty();
    segments.set_replay_from(replay_from);
    let mut released = Vec::new();
    segments.take_released(&mut released);
    released.into_iter().for_each(|segment| lane.release(segment));
}

/// Finds the new places of batches if damage has destroyed the records of their moves. Passes each
/// batch that is not in the file of its recorded place and that is in one of these packs, with its
/// place there.
pub(crate) fn find_moved<D: Disk>(
    engine: &Engine,
    mover: &mut Mover<D>,
    packs: impl Iterator<Item = u32>,
    segment_bytes: u64,
    is_held: impl Fn(Container) -> bool,
) -> Vec<(KeptBatch, Place)> {
    let container = |place: Place| Container::of(Position(place.position), segment_bytes);
    let missing = engine.batches().filter(|kept| !is_held(container(kept.place)));
    let mut missing: BTreeMap<(PartitionId, Offset), KeptBatch> =
        missing.map(|kept| ((kept.partition, kept.first), kept)).collect();
    let mut found = Vec::new();
    for pack in packs {
        if missing.is_empty() {
            break;
        }
        // A pack that is not whole keeps the batches that it has.
        for held in mover.list(Container::Pack(pack)).unwrap_or_default() {
            let StoredBatch { partition, first, count, .. } = held;
            let end = first.plus(u64::from(count));
            let inside: Vec<KeptBatch> = missing
                .range((partition, first)..(partition, end))
                .map(|(_, kept)| *kept)
                .collect();
            for kept in inside {
                // The pack may have another part of the batch, or all of it.
                let place = match (kept.first, kept.count) == (first, count) {
                    true => Some(held.place),
                    false => mover.find_part(&held, kept.first, kept.count),
                };
                if let Some(place) = place.filter(|place| place.bytes == kept.place.bytes) {
                    missing.remove(&(partition, kept.first));
                    found.push((kept, place));
                }
            }
        }
    }
    found
}
