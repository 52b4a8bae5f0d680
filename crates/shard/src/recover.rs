//! From the journal on disk to a shard that goes on where the last one stopped.

use std::collections::BTreeSet;

use bytes::Bytes;
use sennit_engine::{RecordError, Replay, Replayed};
use sennit_journal::{BLOCK_BYTES, Disk, Fault, Lane, LaneConfig, Position, Reader, SlotMaker};
use sennit_model::{Generation, Timestamp};

use crate::{
    checkpoint::Checkpoints,
    mover::{Mover, PackLengths},
    moves::Moves,
    packs::Packs,
    segments::Segments,
    shard::Shard,
    tail_cache::TailCache,
    writer::Writer,
};

/// What a shard is told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How many bytes of the newest frames are kept in memory.
    pub cache_bytes: usize,
    /// Segments of the journal in use beyond which the oldest is emptied into packs.
    pub journal_segments: usize,
    /// How long packs are.
    pub packs: PackLengths,
}

/// What recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Records that were replayed.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// Bytes at the end that were torn: written, but never committed.
    pub torn_bytes: u64,
    /// Packs that hold messages that are still wanted, and that are not there.
    pub lost_packs: Vec<u32>,
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
    /// The journal begins with a checkpoint that is not whole.
    #[error("the checkpoint at position {position} is not whole", position = .position.0)]
    Checkpoint {
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
    /// Empties segments and packs.
    pub mover: Mover<D>,
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
    let mut reading = Reading::new(now);
    let lane_config = config.clone();
    let recovered = sennit_journal::recover(disk, config, |kind, position, body| {
        reading.record(kind, position, body)
    })?;
    let generation = Generation(recovered.builder.generation());
    let replay_from = recovered.replay_from;
    let Reading { replay, newest_checkpoint, records, bytes, .. } = reading;
    let engine =
        replay.finish(generation).ok_or(RecoverError::Checkpoint { position: replay_from })?;
    let mut lane = recovered.lane;
    let mut segments = Segments::new(segment_bytes, replay_from);
    for segment in lane.segments() {
        segments.opened(segment);
    }
    let mut packs = Packs::default();
    let (mut next_pack, mut lost_packs) = (0, BTreeSet::new());
    for pack in sennit_journal::packs(disk, &lane_config)? {
        next_pack = next_pack.max(pack.number + 1);
        packs.added(pack);
    }
    for place in engine.places() {
        let position = Position(place.position);
        if let Some((pack, _)) = position.pack() {
            next_pack = next_pack.max(pack + 1);
            if packs.holds(pack) {
                packs.written(pack, place.bytes);
            } else {
                // What lay there cannot be read: that is found, and confined, when it is wanted.
                lost_packs.insert(pack);
            }
            continue;
        }
        let segment = segments.of(position);
        if !lane.holds(segment) {
            return Err(RecoverError::LostSegment { segment });
        }
        segments.written(position, place.bytes);
    }
    // What was being written, or removed, when the last life ended.
    packs.release_empty();
    segments.replay_begins(replay_from);
    let mut released = Vec::new();
    segments.take_released(&mut released);
    for segment in released {
        lane.release(segment);
    }
    let report = RecoveryReport {
        records,
        bytes,
        torn_bytes: recovered.torn_bytes,
        lost_packs: lost_packs.into_iter().collect(),
        generation,
    };
    let mut writer = Writer::new(recovered.builder, segments, replay_from);
    if let Some(begin) = newest_checkpoint {
        // The last life may have ended before a segment's header said so: this life's first does.
        writer.replay_from(begin);
    }
    let cache = TailCache::new(settings.cache_bytes);
    let moves = Moves::new(packs, settings.journal_segments);
    let reader = recovered.reader.another();
    let mover = Mover::new(disk.clone(), lane_config, reader, settings.packs, next_pack);
    let checkpoints = Checkpoints::new(segment_bytes);
    let shard = Shard::new(engine, writer, cache, moves, checkpoints, now);
    let (reader, slots) = (recovered.reader, recovered.slots);
    Ok(Recovered { shard, lane, reader, slots, mover, report })
}

/// The journal as it is read: the state it comes to, and what else the next life has to know.
struct Reading {
    replay: Replay,
    /// Where the frame lies in which the newest checkpoint begins that is whole, after the one
    /// with which the replay began.
    newest_checkpoint: Option<Position>,
    /// The same, of the one whose end is not read yet.
    begun_checkpoint: Option<Position>,
    records: u64,
    bytes: u64,
}

impl Reading {
    fn new(now: Timestamp) -> Self {
        let (newest_checkpoint, begun_checkpoint) = (None, None);
        let replay = Replay::new(now);
        Self { replay, newest_checkpoint, begun_checkpoint, records: 0, bytes: 0 }
    }

    fn record(&mut self, kind: u8, position: Position, body: Bytes) -> Result<(), RecoverError> {
        self.records += 1;
        self.bytes += body.len() as u64;
        let replayed = self.replay.record(kind, position.0, body);
        match replayed.map_err(|error| RecoverError::Record { position, error })? {
            Replayed::Applied => {}
            Replayed::LaterCheckpointBegan => {
                // It is the first record of its frame, and frames begin with a block.
                let in_block = position.0 % BLOCK_BYTES as u64;
                self.begun_checkpoint = Some(Position(position.0 - in_block));
            }
            Replayed::CheckpointEnded => {
                self.newest_checkpoint = self.begun_checkpoint.take().or(self.newest_checkpoint);
            }
        }
        Ok(())
    }
}
