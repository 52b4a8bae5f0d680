//! Lanes that share a disk: the slots that each lacks, the publishes that are refused, and the bytes lent to a
//! pack. Held slots are on the disk already, so only missing ones are counted here. `sennit_shard::SlotBudget`
//! decides how many a lane needs.

use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};

use super::{
    inbox::{self, Message},
    index::{IndexVec, ShardIndex},
};

/// What one lane has said.
#[derive(Debug, Default)]
struct LaneState {
    /// Segments that its checkpoints take beside the one that they begin in.
    checkpoint_segments: AtomicU64,
    /// Slots that it lacks.
    missing: AtomicU64,
    /// Slots of its that take room of the disk and that it does not have: those that are being made, and those
    /// that it has given back and that are not removed yet.
    outside: AtomicU64,
    /// Whether publishes are refused for that.
    is_full: AtomicBool,
}

/// See the file's page.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    segment_bytes: u64,
    lanes: IndexVec<ShardIndex, LaneState>,
    /// What a pack that is being written may still take.
    lent_bytes: AtomicU64,
    /// How many lanes are full.
    full_count: AtomicU64,
    cores: Vec<inbox::Sender>,
}

/// Room that no slot takes until this is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'a> {
    reserve: &'a DiskReserve,
    bytes: u64,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.reserve.lent_bytes.fetch_sub(self.bytes, SeqCst);
    }
}

impl DiskReserve {
    /// That of so many lanes without slots; `cores` are all that run shards.
    pub(crate) fn new(shards: usize, cores: Vec<inbox::Sender>, segment_bytes: u64) -> Self {
        Self {
            segment_bytes,
            lanes: IndexVec::of(shards, |_| LaneState::default()),
            lent_bytes: AtomicU64::new(0),
            full_count: AtomicU64::new(0),
            cores,
        }
    }

    /// A checkpoint of a shard takes so many segments beside the one that it begins in.
    pub(crate) fn set_checkpoint_segments(&self, shard: ShardIndex, segments: u64) {
        self.lanes[shard].checkpoint_segments.store(segments, Relaxed);
    }

    /// How many segments that is.
    pub(crate) fn checkpoint_segments(&self, shard: ShardIndex) -> u64 {
        self.lanes[shard].checkpoint_segments.load(Relaxed)
    }

    /// A lane lacks so many slots, and publishes are refused for that or not. Tells every core when the first
    /// lane is full, and when the last is no more: all of them free what they can meanwhile.
    pub(crate) fn lacks(&self, shard: ShardIndex, missing: usize, is_full: bool) {
        let lane = &self.lanes[shard];
        lane.missing.store(missing as u64, Relaxed);
        if lane.is_full.swap(is_full, SeqCst) == is_full {
            return;
        }
        let is_first_or_last = match is_full {
            true => self.full_count.fetch_add(1, SeqCst) == 0,
            false => self.full_count.fetch_sub(1, SeqCst) == 1,
        };
        if is_first_or_last {
            self.cores.iter().for_each(|core| drop(core.send(Message::DiskShort(is_full))));
        }
    }

    /// A slot of a lane takes room of the disk from now on, and the lane does not have it.
    pub(crate) fn add_outside_slot(&self, shard: ShardIndex) {
        self.lanes[shard].outside.fetch_add(1, SeqCst);
    }

    /// The lane has it now, or it takes no room any more.
    pub(crate) fn remove_outside_slot(&self, shard: ShardIndex) {
        let outside = &self.lanes[shard].outside;
        let _ = outside.fetch_update(SeqCst, SeqCst, |count| count.checked_sub(1));
    }

    /// How many bytes have to be free so that every lane may have the slots that it lacks.
    pub(crate) fn needed_bytes(&self) -> u64 {
        let lacking =
            |lane: &LaneState| lane.missing.load(Relaxed).saturating_sub(lane.outside.load(SeqCst));
        let slots: u64 = self.lanes.iter().map(lacking).sum();
        slots.saturating_mul(self.segment_bytes).saturating_add(self.lent_bytes.load(SeqCst))
    }

    /// How many bytes a pack for which so many are lent leaves free: what lanes lack, which may have begun to use
    /// what they hold. On a short disk nothing: the pack frees more than it takes.
    pub(crate) fn left_by_pack(&self, lent: u64) -> u64 {
        if self.is_short() { 0 } else { self.needed_bytes().saturating_sub(lent) }
    }

    /// Whether publishes to some lane are refused.
    pub(crate) fn is_short(&self) -> bool {
        self.full_count.load(SeqCst) > 0
    }

    /// What all lanes lack, in bytes.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let missing = self.lanes.iter().map(|lane| lane.missing.load(Relaxed));
        missing.sum::<u64>().saturating_mul(self.segment_bytes)
    }

    /// What one lane lacks, in bytes.
    pub(crate) fn missing_bytes_of(&self, shard: ShardIndex) -> u64 {
        self.lanes[shard].missing.load(Relaxed).saturating_mul(self.segment_bytes)
    }

    /// How many bytes a lane leaves free when it makes a slot: what is lent, and where it is not full itself what
    /// full lanes lack.
    pub(crate) fn left_beside(&self, shard: ShardIndex) -> u64 {
        let lent = self.lent_bytes.load(SeqCst);
        if self.lanes[shard].is_full.load(SeqCst) {
            return lent;
        }
        let full = self.lanes.iter().filter(|lane| lane.is_full.load(SeqCst));
        let missing: u64 = full.map(|lane| lane.missing.load(Relaxed)).sum();
        lent.saturating_add(missing.saturating_mul(self.segment_bytes))
    }

    /// Keeps so many bytes for a pack: no slot takes them meanwhile.
    pub(crate) fn lend(&self, bytes: u64) -> Lent<'_> {
        self.lent_bytes.fetch_add(bytes, SeqCst);
        Lent { reserve: self, bytes }
    }

    /// How long a segment is.
    pub(crate) fn segment_bytes(&self) -> u64 {
        self.segment_bytes
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    #[test]
    fn what_a_full_lane_lacks_is_left_by_the_others_and_not_by_itself() {
        let (cores, _inboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| unbounded_channel()).unzip();
        let reserve = DiskReserve::new(2, cores, 1 << 20);
        reserve.lacks(ShardIndex(0), 2, false);
        assert_eq!(
            (reserve.left_beside(ShardIndex(0)), reserve.left_beside(ShardIndex(1))),
            (0, 0),
            "none is full"
        );
        reserve.lacks(ShardIndex(0), 3, true);
        assert_eq!(
            (reserve.left_beside(ShardIndex(0)), reserve.left_beside(ShardIndex(1))),
            (0, 3 << 20)
        );
        let lent = reserve.lend(1000);
        assert_eq!(
            (reserve.left_beside(ShardIndex(0)), reserve.left_beside(ShardIndex(1))),
            (1000, (3 << 20) + 1000)
        );
        drop(lent);
        assert_eq!((reserve.left_beside(ShardIndex(0)), reserve.missing_bytes()), (0, 3 << 20));
    }

    #[test]
    fn a_pack_leaves_what_lanes_lack_that_are_not_full() {
        let (cores, _inboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| unbounded_channel()).unzip();
        let reserve = DiskReserve::new(2, cores, 1 << 20);
        reserve.lacks(ShardIndex(0), 2, false);
        reserve.add_outside_slot(ShardIndex(0));
        let lent = reserve.lend(1000);
        assert_eq!(
            (reserve.needed_bytes(), reserve.left_by_pack(1000)),
            ((1 << 20) + 1000, 1 << 20)
        );
        reserve.remove_outside_slot(ShardIndex(0));
        assert_eq!(reserve.left_by_pack(1000), 2 << 20);
        reserve.lacks(ShardIndex(1), 1, true);
        assert_eq!(reserve.left_by_pack(1000), 0, "it frees more than it takes");
        drop(lent);
        reserve.remove_outside_slot(ShardIndex(1));
        assert_eq!(reserve.needed_bytes(), 3 << 20, "none was outside");
    }

    #[test]
    fn every_core_is_told_when_the_first_lane_is_full_and_when_the_last_is_no_more() {
        let (cores, mut inboxes): (Vec<_>, Vec<_>) = (0..2).map(|_| unbounded_channel()).unzip();
        let reserve = DiskReserve::new(2, cores, 1 << 20);
        let mut told = || match [0, 1].map(|core: usize| inboxes[core].try_recv()) {
            [Ok(Message::DiskShort(one)), Ok(Message::DiskShort(other))] if one == other => {
                Some(one)
            }
            [Err(_), Err(_)] => None,
            others => panic!("{others:?}"),
        };
        reserve.lacks(ShardIndex(0), 1, true);
        assert_eq!((told(), reserve.is_short()), (Some(true), true));
        reserve.lacks(ShardIndex(1), 1, true);
        reserve.lacks(ShardIndex(0), 0, false);
        assert_eq!((told(), reserve.is_short()), (None, true));
        reserve.lacks(ShardIndex(1), 0, false);
        assert_eq!((told(), reserve.is_short()), (Some(false), false));
    }
}
