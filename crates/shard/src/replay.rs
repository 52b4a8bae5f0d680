//! Replays the journal: reads the records in order, notes damage, and builds the state.

use bytes::Bytes;
use sennit_engine::{Engine, Record, Replay, Replayed};
use sennit_journal::{
    BLOCK_BYTES, Damage, Disk, LaneConfig, Position, RecoveredLane, ReplayFrom, WalkItem, recover,
};
use sennit_model::{Generation, Timestamp};

use crate::recover_error::RecoverError;

/// A lane that was read back, and its state.
pub(crate) struct ReadBack<D: Disk> {
    pub(crate) recovered: RecoveredLane<D>,
    pub(crate) reading: Reading,
    pub(crate) engine: Engine,
    /// Records that have to be journaled first.
    pub(crate) lost: Vec<Record>,
}

/// Replays the journal from the newest whole checkpoint, which usually is the one that the newest
/// segment names.
pub(crate) fn replay<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    now: Timestamp,
) -> Result<ReadBack<D>, RecoverError> {
    let mut from = ReplayFrom::Newest;
    let mut damage = Vec::new();
    let mut newest_tried = Position(0);
    let mut highest_place = 0;
    loop {
        let mut reading = Reading::new(now);
        let recovered = recover(disk, config.clone(), from, |walked| reading.take(walked))?;
        damage.append(&mut reading.damage);
        let generation = Generation(recovered.builder.generation());
        let replay = std::mem::replace(&mut reading.replay, Replay::new(now));
        highest_place = highest_place.max(replay.highest_place());
        if let Some(newest) = reading.newest_checkpoint
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
        if let Some((mut engine, lost)) = replay.finish(generation, is_oldest) {
            engine.raise_highest_place(highest_place);
            damage.sort_unstable_by_key(|damage| damage.position);
            damage.dedup();
            reading.damage = damage;
            return Ok(ReadBack { recovered, reading, engine, lost });
        }
        let Some(fallback) = recovered.fallback_from else {
            return Err(RecoverError::Checkpoint { position: recovered.replay_from });
        };
        from = ReplayFrom::At(fallback);
    }
}

/// The state of a replay.
pub(crate) struct Reading {
    replay: Replay,
    /// The position of the frame in which the newest whole checkpoint begins, if that is after the
    /// one at the start of the replay.
    pub(crate) newest_checkpoint: Option<Position>,
    /// The same for a checkpoint whose end was not read yet.
    begun_checkpoint: Option<Position>,
    /// The position of the first record; a checkpoint begins there, if there is one.
    first: Option<Position>,
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

impl Reading {
    fn new(now: Timestamp) -> Self {
        let (newest_checkpoint, begun_checkpoint) = (None, None);
        let replay = Replay::new(now);
        let (checkpoint_span, records, bytes, damage) = (0, 0, 0, Vec::new());
        Self {
            replay,
            newest_checkpoint,
            begun_checkpoint,
            first: None,
            last: Position(0),
            checkpoint_span,
            needed: Position(0),
            records,
            bytes,
            damage,
        }
    }

    fn take(&mut self, walked: WalkItem) -> Result<(), RecoverError> {
        match walked {
            WalkItem::Record { kind, position, body, .. } => self.record(kind, position, body),
            WalkItem::Damage(damage) => {
                self.replay.damage(damage.bytes);
                // No replay begins with a checkpoint of which something may be missing.
                self.begun_checkpoint = None;
                self.damage.push(damage);
                Ok(())
            }
        }
    }

    fn record(&mut self, kind: u8, position: Position, body: Bytes) -> Result<(), RecoverError> {
        assert!(self.last < position, "the journal passes records out of order");
        self.last = position;
        self.records += 1;
        self.first.get_or_insert(position);
        self.bytes += body.len() as u64;
        let replayed = self.replay.record(kind, position.0, body);
        match replayed.map_err(|error| RecoverError::Record { position, error })? {
            Replayed::Applied => self.needed = position,
            Replayed::PartOfCheckpoint => {}
            Replayed::LaterCheckpointBegan => {
                // It is the first record of its frame, and frames begin with a block.
                let in_block = position.0 % BLOCK_BYTES as u64;
                self.begun_checkpoint = Some(Position(position.0 - in_block));
            }
            Replayed::CheckpointEnded { bytes } => {
                self.needed = position;
                let begun = self.begun_checkpoint.or(self.first);
                self.checkpoint_span = begun.map_or(bytes, |begun| position.0 - begun.0);
                self.newest_checkpoint = self.begun_checkpoint.take().or(self.newest_checkpoint);
            }
        }
        Ok(())
    }
}
