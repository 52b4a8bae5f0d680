//! From the journal on disk to a shard that goes on where the last one stopped.

use bytes::Bytes;
use sennit_engine::{Engine, Record, RecordError};
use sennit_journal::{BLOCK_BYTES, Disk, Fault, Lane, LaneConfig, Position, Reader, SlotMaker};
use sennit_model::{Generation, Timestamp};

use crate::{
    segments::Segments,
    shard::Shard,
    snapshot::{SNAPSHOT_BEGAN, SNAPSHOT_ENDED, SNAPSHOT_PART, Snapshots},
    tail_cache::TailCache,
    writer::Writer,
};

/// What a shard is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many bytes of the newest frames are kept in memory.
    pub cache_bytes: usize,
}

/// What recovery found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records that were replayed.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes at the end that were torn: written, but never committed.
    pub torn_bytes: u64,
    /// Which life of the shard begins now.
    pub generation: Generation,
}

/// Why a shard cannot go on. It refuses rather than lose what was committed.
#[derive(Debug, thiserror::Error)]
pub enum RecoverError {
    /// The journal is damaged or cannot be read.
    #[error(transparent)]
    Journal(#[from] Fault),
    /// A record says what cannot be.
    #[error("record at position {position}: {error}", position = .position.0)]
    Record {
        /// Where its body lies.
        position: Position,
        /// What is wrong.
        error: RecordError,
    },
    /// The journal begins with a snapshot that is not whole.
    #[error("the snapshot at position {position} is not whole", position = .position.0)]
    Snapshot {
        /// Where the replay began.
        position: Position,
    },
    /// Messages that are still wanted lie in a segment that is in no slot.
    #[error("segment {segment} holds messages that are still wanted, but no slot holds it")]
    LostSegment {
        /// Which.
        segment: u64,
    },
}

/// A shard that goes on, and what carries its frames and reads.
#[derive(Debug)]
pub struct Recovered<D: Disk> {
    /// The shard.
    pub shard: Shard,
    /// Writes its frames.
    pub lane: Lane<D>,
    /// Makes its fetches.
    pub reader: Reader<D>,
    /// Makes slots for its lane.
    pub slots: SlotMaker<D>,
    /// What was found.
    pub report: RecoveryReport,
}

/// Rebuilds a shard from its lane. A lane that is not there yet is a new shard.
///
/// # Errors
/// A [`RecoverError`]: the journal is damaged, unreadable, or not of this program. Nothing was
/// changed then.
pub fn recover<D: Disk>(
    disk: &D,
    config: LaneConfig,
    settings: Settings,
    now: Timestamp,
) -> Result<Recovered<D>, RecoverError> {
    let segment_bytes = config.segment_bytes;
    let mut replay = Replay::default();
    let recovered = sennit_journal::recover(disk, config, |kind, position, body| {
        replay.record(kind, position, body, now)
    })?;
    let generation = Generation(recovered.builder.generation());
    let replay_from = recovered.replay_from;
    let newest_snapshot = replay.newest_snapshot;
    let engine = replay.finish(generation, replay_from, now)?;
    let mut lane = recovered.lane;
    let mut segments = Segments::new(segment_bytes, replay_from);
    for segment in lane.segments() {
        segments.opened(segment);
    }
    for place in engine.places() {
        let position = Position(place.position);
        let segment = segments.of(position);
        if !lane.holds(segment) {
            return Err(RecoverError::LostSegment { segment });
        }
        segments.written(position, place.bytes);
    }
    segments.replay_begins(replay_from);
    let mut released = Vec::new();
    segments.take_released(&mut released);
    for segment in released {
        lane.release(segment);
    }
    let report = RecoveryReport {
        records: replay.records,
        bytes: replay.bytes,
        torn_bytes: recovered.torn_bytes,
        generation,
    };
    let mut writer = Writer::new(recovered.builder, segments, replay_from);
    if let Some(begin) = newest_snapshot {
        // The last life may have ended before a segment's header said so: this life's first does.
        writer.replay_from(begin);
    }
    let cache = TailCache::new(settings.cache_bytes);
    let shard = Shard::new(engine, writer, cache, Snapshots::new(segment_bytes), now);
    Ok(Recovered { shard, lane, reader: recovered.reader, slots: recovered.slots, report })
}

/// The state a replay has come to.
#[derive(Default)]
struct Replay {
    engine: Option<Engine>,
    /// The snapshot that the replay begins with, while its parts come in.
    snapshot: Option<Vec<u8>>,
    /// Where the frame lies in which the newest snapshot begins that is whole, after the first.
    newest_snapshot: Option<Position>,
    /// The same, of the one whose end is not read yet.
    begun_snapshot: Option<Position>,
    records: u64,
    bytes: u64,
}

impl Replay {
    fn record(
        &mut self,
        kind: u8,
        position: Position,
        body: Bytes,
        now: Timestamp,
    ) -> Result<(), RecoverError> {
        self.records += 1;
        self.bytes += body.len() as u64;
        let wrong = |error| RecoverError::Record { position, error };
        match (kind, &mut self.engine, &mut self.snapshot) {
            (SNAPSHOT_BEGAN, None, snapshot) => *snapshot = Some(Vec::new()),
            (SNAPSHOT_PART, None, Some(snapshot)) => snapshot.extend_from_slice(&body),
            (SNAPSHOT_ENDED, None, Some(snapshot)) => {
                let snapshot = std::mem::take(snapshot);
                let engine = Engine::from_snapshot(snapshot.into(), Generation(0), now);
                self.engine = Some(engine.map_err(wrong)?);
                self.snapshot = None;
            }
            // A later snapshot says what the records between have said already.
            (SNAPSHOT_BEGAN, _, _) => {
                // It is the first record of its frame, and frames begin with a block.
                let in_block = position.0 % BLOCK_BYTES as u64;
                self.begun_snapshot = Some(Position(position.0 - in_block));
            }
            (SNAPSHOT_ENDED, _, _) => {
                self.newest_snapshot = self.begun_snapshot.take().or(self.newest_snapshot);
            }
            (SNAPSHOT_PART, _, _) => {}
            (_, None, Some(_)) => return Err(RecoverError::Snapshot { position }),
            (kind, engine, _) => {
                let (record, head) = Record::decode(kind, body).map_err(wrong)?;
                let engine = engine.get_or_insert_with(|| Engine::new(Generation(0), now));
                engine.apply(&record, position.plus(head as u64).0);
                engine.committed(u64::MAX);
                // What a replay frees is not counted: the live batches are, at the end.
                engine.take_freed();
            }
        }
        Ok(())
    }

    fn finish(
        &mut self,
        generation: Generation,
        replay_from: Position,
        now: Timestamp,
    ) -> Result<Engine, RecoverError> {
        if self.snapshot.is_some() {
            return Err(RecoverError::Snapshot { position: replay_from });
        }
        let mut engine = self.engine.take().unwrap_or_else(|| Engine::new(generation, now));
        engine.set_generation(generation);
        Ok(engine)
    }
}
