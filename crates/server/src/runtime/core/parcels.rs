//! Commands and effects that gather as bytes until they are sent to another node.

use sennit_engine::{Command, Effect, Encoded, Refusal};

use super::peer_links::Parcel;
use crate::runtime::index::ShardIndex;

/// Bytes that are sent before more gathers.
const PARCEL_BYTES: usize = 1 << 20;

/// Most bytes of one command or effect that is sent to another node.
const PARCEL_BYTES_MAX: usize = 64 << 20;

/// Bytes that gather for one node.
#[derive(Debug, Default)]
pub(super) struct Gathering {
    encoded: Encoded,
    count: u32,
}

impl Gathering {
    /// Adds a command.
    ///
    /// # Errors
    /// The refusal that answers it.
    pub(super) fn add_command(&mut self, command: &Command) -> Result<(), Refusal> {
        self.add(|encoded| command.encode(encoded))
    }

    /// Adds an effect.
    ///
    /// # Errors
    /// The refusal that is told instead.
    pub(super) fn add_effect(&mut self, effect: &Effect) -> Result<(), Refusal> {
        self.add(|encoded| effect.encode(encoded))
    }

    fn add(
        &mut self,
        encode: impl FnOnce(&mut Encoded) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        encode(&mut self.encoded)?;
        self.count += 1;
        Ok(())
    }

    /// Whether it is to be sent before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.encoded.byte_count() >= PARCEL_BYTES
    }

    /// Whether it can be sent at all: with one that is full sent first, only a single command or effect can be too long.
    pub(super) fn fits(&self) -> bool {
        self.encoded.byte_count() <= PARCEL_BYTES_MAX
    }

    /// Lets go of all that has gathered.
    pub(super) fn clear(&mut self) {
        self.encoded.clear();
        self.count = 0;
    }

    /// Removes what has gathered, if anything has.
    pub(super) fn take(&mut self, shard: ShardIndex, term: u64) -> Option<Parcel> {
        if self.count == 0 {
            return None;
        }
        let parcel = Parcel { shard, term, count: self.count, body: self.encoded.to_bytes() };
        self.clear();
        Some(parcel)
    }
}
