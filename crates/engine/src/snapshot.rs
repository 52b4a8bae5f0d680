//! The state as one value: the result of a replay of all records. Tests and the simulator compare states by it; the
//! journal gets it in pieces (`checkpoint`).

use bytes::Bytes;
use sennit_model::{Generation, Timestamp};

use crate::{
    checkpoint::Next,
    codec::{Reader, Writer},
    engine::Engine,
    record_error::RecordError,
    replay::Replay,
};

/// The kind that errors of a snapshot name.
pub(crate) const SNAPSHOT: u8 = 127;
pub(crate) const VERSION: u32 = 2;

/// Slices of a snapshot are cut as those of a checkpoint of such pieces are.
const SLICE_BYTES: usize = 128 << 10;

impl Engine {
    /// Appends the state to `out`. Everything in it counts as committed.
    pub fn encode_snapshot(&self, out: &mut Vec<u8>) {
        let (next_topic, next_group) = self.catalogue.next_ids();
        Writer(out).u32(VERSION).u32(next_topic).u32(next_group);
        let mut next = Next::LostTopics;
        while !matches!(next, Next::Nothing) {
            self.keep_next(&mut next, SLICE_BYTES, out);
        }
    }

    /// The state out of a snapshot, in the `generation`th life of the shard.
    ///
    /// # Errors
    /// A [`RecordError`] that says what cannot be.
    pub fn from_snapshot(
        snapshot: Bytes,
        generation: Generation,
        now: Timestamp,
    ) -> Result<Self, RecordError> {
        let mut r = Reader { kind: SNAPSHOT, rest: snapshot };
        let version = r.u32()?;
        if version != VERSION {
            return Err(r.field("version", version));
        }
        let next_ids = (r.u32()?, r.u32()?);
        Replay::of_snapshot(r, next_ids, generation, now)
    }
}
