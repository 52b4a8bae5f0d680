//! Makes the state of a replica anew, beside its log. The state of a replica that has applied what its group did not
//! decide is poisoned, and thrown away. A rebuild reads the lane again from the last checkpoint that may be used,
//! with a reader of its own, on any thread, while the shard goes on appending. Then the shard takes it over: it applies
//! what came since from memory, and counts the live batches of its files anew.

use std::{collections::VecDeque, ops::Range};

use sennit_engine::{Engine, Record};
use sennit_journal::{Disk, Frame, Position, Reader, WalkItem};
use sennit_model::{Generation, Timestamp};

use crate::{
    group_record::GroupRecord,
    memory_batches::MemoryBatches,
    packs::pack_of,
    recover_error::RecoverError,
    replay::{Reading, ReplayedLane, decoded},
    shard::Shard,
    standing::Standing,
};

/// Bytes of the log that the shard applies from memory when it takes a rebuild over, as long as each round of the
/// rebuild leaves at most half as much as the one before.
const TAKEN_OVER_BYTES: u64 = 4 << 20;

/// A state that is being made anew.
#[derive(Debug)]
pub struct Rebuild<D: Disk> {
    reader: Reader<D>,
    reading: Reading,
    /// Everything before this position was read.
    reached: Position,
    /// Everything before this position is to be read.
    target: Position,
    /// What is to be read next of it, in parts of one segment at most.
    parts: VecDeque<Range<Position>>,
    /// The length of the last round, in bytes of the log.
    round_bytes: u64,
}

/// What became of a rebuild that was given to its shard.
#[derive(Debug)]
pub enum TakeOver<D: Disk> {
    /// Its state is the shard's, which follows nobody yet.
    Done,
    /// The log has gone on so far that more of it is to be read first.
    TooEarly(Box<Rebuild<D>>),
}

impl<D: Disk> Rebuild<D> {
    /// Reads on, a segment at most. Returns whether more is to be read before the shard may take over.
    ///
    /// # Errors
    /// A [`RecoverError`]: the lane is damaged or cannot be read. The rebuild is of no use any more; a start finds out
    /// what can be saved.
    pub fn step(&mut self) -> Result<bool, RecoverError> {
        if self.parts.is_empty() {
            self.parts = self.reader.log_parts(self.reached..self.target)?.into();
        }
        if let Some(part) = self.parts.pop_front() {
            let Self { reader, reading, .. } = self;
            reader.walk_part(&part, |item| reading.take(item))?;
            self.reached = part.end;
        }
        Ok(!self.parts.is_empty())
    }

    /// Bytes of records that were read so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.reading.bytes
    }

    /// Is to read everything before `target`.
    fn begin_round(&mut self, target: Position) {
        self.round_bytes = target.0 - self.reached.0;
        self.target = target;
    }
}

impl Shard {
    /// Throws the poisoned state away, and begins to make it anew. `reader` is of the shard's lane, and nobody else's.
    ///
    /// # Panics
    /// If the state is not poisoned, or the shard is no replica.
    pub fn begin_rebuild<D: Disk>(&mut self, reader: Reader<D>, now: Timestamp) -> Rebuild<D> {
        assert_eq!(self.standing, Standing::Poisoned, "a state is thrown away");
        let mut empty = Engine::new(Generation(0), now);
        empty.succeed(&self.engine);
        self.engine = empty;
        self.writer.memory_batches = MemoryBatches::default();
        self.moves.is_void = self.moves.under_way.is_some();
        let (reached, target) = (self.writer.replay_from(), self.progress.written());
        self.cache.hold_from(Some(target));
        let of = ReplayedLane::Of(self.writer.group_log().replica);
        let (reading, parts) = (Reading::new(of, now), VecDeque::new());
        let mut rebuild = Rebuild { reader, reading, reached, target, parts, round_bytes: 0 };
        rebuild.begin_round(target);
        rebuild
    }

    /// Takes a rebuild over that has nothing more to read, unless the log has gone on too far meanwhile: then that is to
    /// be read first.
    ///
    /// # Errors
    /// A [`RecoverError`]: the lane has no state, or what came since is not a replica's. The state stays poisoned.
    ///
    /// # Panics
    /// If the state is not poisoned, or the rebuild has more to read.
    pub fn take_over<D: Disk>(
        &mut self,
        mut rebuild: Rebuild<D>,
        now: Timestamp,
    ) -> Result<TakeOver<D>, RecoverError> {
        assert_eq!(self.standing, Standing::Poisoned, "a state takes the place of a poisoned one");
        assert_eq!(rebuild.reached, rebuild.target, "a rebuild reads all that it is to read");
        self.writer.seal();
        let (reached, written) = (rebuild.reached, self.progress.written());
        let behind = self.writer.end().0 - reached.0;
        let gets_closer = behind <= rebuild.round_bytes / 2;
        let since =
            self.cache.frames_from(reached).filter(|_| behind <= TAKEN_OVER_BYTES || !gets_closer);
        let Some(since) = since else {
            rebuild.begin_round(written);
            self.cache.hold_from(Some(written));
            return Ok(TakeOver::TooEarly(Box::new(rebuild)));
        };
        let (written_since, unwritten) =
            since.split_at(since.partition_point(|frame| frame.end <= written));
        for frame in written_since {
            rebuild.take_frame(frame)?;
        }
        let log = self.writer.group_log();
        // What is not written is not in it, or a crash could want what was freed.
        let secured = log.here.commit.min(log.labels.last_before(written));
        let finished = rebuild.reading.finish_at(&log.labels, secured)?;
        let begin = self.writer.replay_from();
        let (mut engine, rest) = finished.ok_or(RecoverError::Checkpoint { position: begin })?;
        let mut later = decoded(rest)?;
        for frame in unwritten.iter().chain(&self.writer.sealed) {
            later.append(&mut self.records_of(frame)?);
        }
        engine.succeed(&self.engine);
        self.engine = engine;
        self.count_live_batches();
        for (record, place) in &later {
            self.note_live_batches(record, *place);
            self.engine.apply(record, place.0);
        }
        // Only now: a move that is recorded and not written may be all that refers to a pack.
        self.moves.packs.release_empty();
        self.engine.committed(self.progress.committed().0);
        self.cache.hold_from(None);
        self.standing = Standing::Follower { leader: None };
        self.finish_turn(now);
        Ok(TakeOver::Done)
    }

    /// The records of the engine in a frame that is in memory; none if the frame is an entry that was cut.
    fn records_of(&self, frame: &Frame) -> Result<Vec<(Record, Position)>, RecoverError> {
        let mut records = frame.records();
        let Some((kind, _, body)) = records.next() else { return Ok(Vec::new()) };
        let head = GroupRecord::decode(kind, &body);
        let position = frame.position;
        let head = head.map_err(|error| RecoverError::Replica { position, error: error.into() })?;
        if let GroupRecord::Entry(entry) = head {
            let labels = self.writer.log.as_ref().map(|log| &log.labels);
            let label = labels.and_then(|labels| labels.get(entry.id.index));
            if label.is_none_or(|label| label.body.frame != frame.body.frame) {
                return Ok(Vec::new());
            }
        }
        decoded(records.filter(|(kind, ..)| !GroupRecord::is_kind(*kind)))
    }

    /// Counts the live batches of segments and packs anew, and releases the segments that nothing needs. A batch whose
    /// file is not there is damage.
    fn count_live_batches(&mut self) {
        let (segments, packs) = (&mut self.writer.segments, &mut self.moves.packs);
        segments.forget_live();
        packs.forget_live();
        let mut lost = None;
        for batch in self.engine.batches() {
            let place = batch.place;
            let is_held = match pack_of(place.position) {
                Some(pack) => {
                    packs.add_live(pack, place.bytes);
                    packs.holds(pack)
                }
                None => segments.add_live_if_held(Position(place.position), place.bytes),
            };
            if !is_held {
                lost.get_or_insert((batch.partition, place));
            }
        }
        segments.release_unneeded();
        if let Some((partition, place)) = lost {
            self.note_damage(partition, place);
        }
    }

    /// Counts the batches that a record appends or moves as live: it frees those that are not wanted.
    fn note_live_batches(&mut self, record: &Record, place: Position) {
        if let Some(batch) = record.batch() {
            self.writer.segments.add_live(place, batch.bytes().len() as u32);
        }
        let Record::Moved { moves, .. } = record else { return };
        for (_, place) in moves {
            if let Some(pack) = pack_of(place.position) {
                self.moves.packs.add_live(pack, place.bytes);
            }
        }
    }
}

impl<D: Disk> Rebuild<D> {
    /// Takes a frame from memory.
    fn take_frame(&mut self, frame: &Frame) -> Result<(), RecoverError> {
        for (kind, position, body) in frame.records() {
            self.reading.take(WalkItem::Record { kind, position, body, frame: frame.body })?;
        }
        Ok(())
    }
}
