//! How publishers are told apart that all carry producer id 0: each has a share of the sequences, which
//! confirms repeat. It knows no frame.

use std::collections::HashMap;

use sennit_model::limits::BATCH_MESSAGES_MAX;

/// Bits of a sequence that count messages; those above are the share.
const COUNTING_BITS: u32 = 40;

/// How many shares there are: more than publishers have room in memory.
const SHARES: u64 = 1 << (u64::BITS - COUNTING_BITS);

/// A publisher's share of the sequences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Share(u64);

impl Share {
    /// After so many sequences it begins with its first again. A batch that begins with the last of them
    /// still ends in the share.
    pub(crate) const SEQUENCES: u64 = (1 << COUNTING_BITS) - BATCH_MESSAGES_MAX as u64;

    /// The share that this sequence is of.
    pub(crate) fn of_sequence(sequence: u64) -> Self {
        Self(sequence >> COUNTING_BITS)
    }

    pub(crate) fn first_sequence(self) -> u64 {
        self.0 << COUNTING_BITS
    }
}

/// Which publisher has which share.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    publishers: HashMap<Share, u64>,
}

impl Shares {
    /// A share for the publisher of this number that no other has. They are given in turn, so that what a
    /// broker still says of a share that came back is not taken for its next owner's.
    pub(crate) fn give(&mut self, publisher: u64) -> Share {
        let mut share = Share(publisher % SHARES);
        while self.publishers.contains_key(&share) {
            share = Share((share.0 + 1) % SHARES);
        }
        self.publishers.insert(share, publisher);
        share
    }

    /// The publisher that has this share, if one has.
    pub(crate) fn publisher(&self, share: Share) -> Option<u64> {
        self.publishers.get(&share).copied()
    }

    /// Its publisher is gone.
    pub(crate) fn take_back(&mut self, share: Share) {
        self.publishers.remove(&share);
    }
}
