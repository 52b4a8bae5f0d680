//! Replays the journal: reads the records in order, notes damage, and builds the state.

use std::ops::Range;

use sennit_engine::{Engine, Record, Replay, Replayed};
use sennit_journal::{
    BLOCK_BYTES, Damage, Disk, LaneConfig, Position, RecoveredLane, ReplayFrom, WalkItem, recover,
};
use sennit_model::{Generation, Timestamp};

use crate::{
    group_record::GroupRecord,
    labels::Labels,
    recover_error::RecoverError,
    replica_log::Replica,
    replica_reading::{EngineRecord, ReplicaReading},
    standing::generation_of,
};

/// The lane that is replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayedLane {
    /// That of a shard which is no replica.
    Plain,
    /// That of this replica.
    Of(Replica),
    /// Its first record says whether it is a replica's.
    Either,
}

/// A lane that was read back, and its state.
pub(crate) struct ReadBack<D: Disk> {
    pub(crate) recovered: RecoveredLane<D>,
    pub(crate) reading: Reading,
    pub(crate) engine: Engine,
    /// Records that have to be journaled first.
    pub(crate) lost: Vec<Record>,
    /// The records of the entries behind the state, which are not known to be committed, with the places of their batches.
    pub(crate) uncommitted: Vec<(Record, Position)>,
}

/// Replays the journal from the newest whole checkpoint, which usually is the one that the newest
/// segment names.
pub(crate) fn replay<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    of: ReplayedLane,
    now: Timestamp,
) -> Result<ReadBack<D>, RecoverError> {
    let mut from = ReplayFrom::Newest;
    let mut damage = Vec::new();
    let mut newest_tried = Position(0);
    let mut highest_place = 0;
    loop {
        let mut reading = Reading::new(of, now);
        let recovered = recover(disk, config.clone(), from, |walked| reading.take(walked))?;
        let rest = reading.finish()?;
        damage.append(&mut reading.damage);
        let generation = Generation(recovered.builder.generation());
        let replay = std::mem::replace(&mut reading.replay, Replay::new(now));
        highest_place = highest_place.max(replay.highest_place());
        if let Some(newest) = reading.newest_checkpoint.as_ref().map(|found| found.range.start)
            && !damage.is_empty()
            && newest > newest_tried
        {
            // A later checkpoint knows what the damage has taken. None is tried twice: what lies in
            // front of it may look like damage to it each time.
            newest_tried = newest;
            from = ReplayFrom::At(newest);
            continue;
        }
        let is_oldest = recovered.replay_from == Position(0);
        let state = match reading.replica.as_ref().map(|replica| &replica.log) {
            // The next leader says what is lost, and each leader has a generation of its own: its term.
            Some(log) if !log.replica.is_alone => {
                let generation = generation_of(log.here.term);
                let engine = replay.finish_as_replica(generation, is_oldest, log.time);
                engine.map(|engine| (engine, Vec::new()))
            }
            _ => replay.finish(generation, is_oldest),
        };
        if let Some((mut engine, lost)) = state {
            engine.raise_highest_place(highest_place);
            damage.sort_unstable_by_key(|damage| damage.position);
            damage.dedup();
            reading.damage = damage;
            let uncommitted = decoded(rest)?;
            return Ok(ReadBack { recovered, reading, engine, lost, uncommitted });
        }
        let Some(fallback) = recovered.fallback_from else {
            let is_in_group =
                reading.replica.as_ref().is_some_and(|replica| !replica.log.replica.is_alone);
            if is_in_group && !damage.is_empty() {
                // The replica is to be replaced, and needs no state until then.
                let (engine, lost, uncommitted) = (Engine::new(generation, now), vec![], vec![]);
                reading.damage = damage;
                return Ok(ReadBack { recovered, reading, engine, lost, uncommitted });
            }
            return Err(RecoverError::Checkpoint { position: recovered.replay_from });
        };
        from = ReplayFrom::At(fallback);
    }
}

/// The state of a replay.
#[derive(Debug)]
pub(crate) struct Reading {
    replay: Replay,
    /// A replica's log.
    pub(crate) replica: Option<ReplicaReading>,
    detects_replica: bool,
    /// The newest usable checkpoint, if that is after the one at the start of the replay.
    pub(crate) newest_checkpoint: Option<FoundCheckpoint>,
    /// A later checkpoint, which is whole and may yet be overridden.
    pub(crate) pending_checkpoint: Option<FoundCheckpoint>,
    /// The same for a checkpoint whose end was not read yet.
    begun_checkpoint: Option<Position>,
    /// The position of the first record; a checkpoint begins there, if there is one.
    first: Option<Position>,
    /// Whether a record was applied.
    has_begun: bool,
    /// The position of the last record.
    pub(crate) last: Position,
    /// Bytes of the journal from the begin to the end of the last complete checkpoint.
    pub(crate) checkpoint_span: u64,
    /// The position of the last record that a later replay needs, which excludes the pieces of an
    /// incomplete checkpoint.
    pub(crate) needed: Position,
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    pub(crate) damage: Vec<Damage>,
}

/// A whole checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundCheckpoint {
    /// From the frame in which it begins to the record with which it ends.
    pub(crate) range: Range<Position>,
    /// In a replica's lane the last entry before its end: once that is committed, a replay may begin with it.
    last_index: u64,
}

impl Reading {
    pub(crate) fn new(of: ReplayedLane, now: Timestamp) -> Self {
        let replica = match of {
            ReplayedLane::Of(replica) => Some(ReplicaReading::new(Some(replica))),
            ReplayedLane::Plain | ReplayedLane::Either => None,
        };
        Self {
            replay: Replay::new(now),
            replica,
            detects_replica: of == ReplayedLane::Either,
            newest_checkpoint: None,
            pending_checkpoint: None,
            begun_checkpoint: None,
            first: None,
            has_begun: false,
            last: Position(0),
            checkpoint_span: 0,
            needed: Position(0),
            records: 0,
            bytes: 0,
            damage: Vec::new(),
        }
    }

    /// Takes the next item of the lane.
    pub(crate) fn take(&mut self, walked: WalkItem) -> Result<(), RecoverError> {
        match walked {
            WalkItem::Record { kind, position, body, frame } => {
                assert!(self.last < position, "the journal passes records out of order");
                self.last = position;
                self.records += 1;
                self.bytes += body.len() as u64;
                let is_first = self.first.is_none();
                let first = *self.first.get_or_insert(position);
                if is_first && self.detects_replica && GroupRecord::is_kind(kind) {
                    self.replica = Some(ReplicaReading::new(None));
                }
                let Some(replica) = &mut self.replica else {
                    return self.apply((kind, position, body));
                };
                if !self.has_begun && first < frame.frame {
                    self.replay.begins_without_checkpoint();
                }
                let mut ready = Vec::new();
                let taken = replica.take((kind, position, body), frame, &mut ready);
                taken.map_err(|error| RecoverError::Replica { position, error })?;
                self.apply_ready(ready)
            }
            WalkItem::Damage(damage) => {
                if let Some(replica) = &mut self.replica {
                    let (position, mut ready) = (damage.position, Vec::new());
                    let taken = replica.damage(&mut ready);
                    taken.map_err(|error| RecoverError::Replica { position, error })?;
                    self.apply_ready(ready)?;
                }
                self.replay.damage(damage.bytes);
                // No replay begins with a checkpoint of which something may be missing.
                self.begun_checkpoint = None;
                self.damage.push(damage);
                Ok(())
            }
        }
    }

    /// Ends the reading of a replica's log, of which these are the labels. Returns the state after the entry `commit`, if
    /// the lane has one, and the records of the entries behind it.
    ///
    /// # Panics
    /// If the lane is no replica's.
    pub(crate) fn finish_at(
        mut self,
        labels: &Labels,
        commit: u64,
    ) -> Result<Option<(Engine, Vec<EngineRecord>)>, RecoverError> {
        let replica = self.replica.as_mut().expect("the lane is a replica's");
        let (position, mut ready, mut rest) = (self.last, Vec::new(), Vec::new());
        let closed = replica.finish_at(labels, commit, &mut ready, &mut rest);
        closed.map_err(|error| RecoverError::Replica { position, error })?;
        self.apply_ready(ready)?;
        if self.replay.has_holes() {
            return Ok(None);
        }
        // Generation and time are those of the state that it succeeds.
        let engine = self.replay.finish_as_replica(Generation(0), false, Timestamp(0));
        Ok(engine.map(|engine| (engine, rest)))
    }

    /// Ends the reading. Returns the records of entries that are not known to be committed.
    fn finish(&mut self) -> Result<Vec<EngineRecord>, RecoverError> {
        let Some(replica) = &mut self.replica else { return Ok(Vec::new()) };
        let (position, mut ready, mut rest) = (self.last, Vec::new(), Vec::new());
        let finished = replica.finish(&mut ready, &mut rest);
        finished.map_err(|error| RecoverError::Replica { position, error })?;
        self.apply_ready(ready)?;
        Ok(rest)
    }

    /// Applies records of a replica's lane, and sees which checkpoints that leaves.
    fn apply_ready(&mut self, ready: Vec<EngineRecord>) -> Result<(), RecoverError> {
        if let Some(voided) = self.replica.as_mut().and_then(ReplicaReading::take_voided) {
            // Checkpoints since then may have what is void.
            self.begun_checkpoint = None;
            self.pending_checkpoint.take_if(|found| found.last_index >= voided);
            self.newest_checkpoint.take_if(|found| found.last_index >= voided);
        }
        for record in ready {
            self.apply(record)?;
        }
        let Some(replica) = &mut self.replica else { return Ok(()) };
        self.needed = self.needed.max(replica.needed);
        let commit = replica.log.here.commit;
        if let Some(found) = self.pending_checkpoint.take_if(|found| found.last_index <= commit) {
            self.newest_checkpoint = Some(found);
        }
        Ok(())
    }

    fn apply(&mut self, (kind, position, body): EngineRecord) -> Result<(), RecoverError> {
        self.has_begun = true;
        let replayed = self.replay.record(kind, position.0, body);
        match replayed.map_err(|error| RecoverError::Record { position, error })? {
            Replayed::Applied => self.needed = self.needed.max(position),
            Replayed::CheckpointBegan => {
                self.needed = self.needed.max(position);
                if let Some(replica) = &mut self.replica {
                    replica.is_loading = true;
                }
            }
            Replayed::PartOfCheckpoint => {}
            Replayed::LaterCheckpointBegan => {
                // It is the first record of its frame, and frames begin with a block.
                let in_block = position.0 % BLOCK_BYTES as u64;
                self.begun_checkpoint = Some(Position(position.0 - in_block));
            }
            Replayed::CheckpointEnded { bytes } => {
                self.needed = self.needed.max(position);
                let begun = self.begun_checkpoint.or(self.first);
                self.checkpoint_span = begun.map_or(bytes, |begun| position.0 - begun.0);
                self.end_checkpoint(position);
            }
        }
        Ok(())
    }

    /// A checkpoint ends here: the one with which the replay began, or a later one.
    fn end_checkpoint(&mut self, position: Position) {
        let begun = self.begun_checkpoint.take();
        let found =
            |last_index| begun.map(|begun| FoundCheckpoint { range: begun..position, last_index });
        match &mut self.replica {
            None => self.newest_checkpoint = found(0).or(self.newest_checkpoint.take()),
            Some(replica) => {
                replica.is_loading = false;
                let last_index = replica.log.labels.last().index;
                self.pending_checkpoint = found(last_index).or(self.pending_checkpoint.take());
            }
        }
    }
}

/// The records of the engine that change a state, each with the place of its batch.
pub(crate) fn decoded(
    records: impl IntoIterator<Item = EngineRecord>,
) -> Result<Vec<(Record, Position)>, RecoverError> {
    let mut decoded = Vec::new();
    for (kind, position, body) in records {
        let record = Record::decode(kind, body);
        let (record, head) = record.map_err(|error| RecoverError::Record { position, error })?;
        let is_piece = matches!(
            record,
            Record::CheckpointBegan { .. }
                | Record::CheckpointPart { .. }
                | Record::CheckpointEnded { .. }
        );
        if !is_piece {
            decoded.push((record, position.plus(head as u64)));
        }
    }
    Ok(decoded)
}
