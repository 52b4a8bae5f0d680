//! The room on the disk that is left for lanes that cannot go on without another slot: what acks take of
//! the journal comes free with the next checkpoint, and until that is there it needs slots. All lanes share
//! the disk. It knows nothing of who takes them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many slots are left for a lane if a checkpoint takes so many segments: acks fill as many and free
/// little, while the last checkpoint lies in others, and the next has to be there before those come free.
/// Publishes that were not refused any more fill one or two others.
fn left(checkpoint_segments: u64) -> u64 {
    3 * checkpoint_segments + 2
}

/// So many slots are left for each lane, by shard.
#[derive(Debug)]
pub(crate) struct Reserve {
    segment_bytes: u64,
    slots: Vec<AtomicU64>,
}

impl Reserve {
    /// That of so many shards with short checkpoints.
    pub(crate) fn new(shards: usize, segment_bytes: u64) -> Self {
        Self { segment_bytes, slots: (0..shards).map(|_| AtomicU64::new(left(1))).collect() }
    }

    /// A checkpoint of a shard takes so many segments.
    pub(crate) fn checkpoint_takes(&self, shard: usize, segments: u64) {
        self.slots[shard].store(left(segments), Relaxed);
    }

    /// For so many slots of a lane the disk has room when publishes are refused, where nobody else takes
    /// it.
    pub(crate) fn slots_of(&self, shard: usize) -> usize {
        self.slots[shard].load(Relaxed) as usize
    }

    /// What all of them take of the disk.
    pub(crate) fn bytes(&self) -> u64 {
        let slots: u64 = self.slots.iter().map(|slots| slots.load(Relaxed)).sum();
        self.segment_bytes.saturating_mul(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_of_longer_checkpoints_has_more_left_for_it_and_takes_nothing_from_others() {
        let reserve = Reserve::new(2, 1 << 20);
        reserve.checkpoint_takes(1, 1);
        assert_eq!((reserve.slots_of(1), reserve.bytes()), (5, 10 << 20));
        reserve.checkpoint_takes(1, 4);
        assert_eq!((reserve.slots_of(0), reserve.slots_of(1)), (5, 14));
        assert_eq!(reserve.bytes(), 19 << 20);
    }
}
