//! The packs in use and their live bytes: the counterpart of `segments` for moved batches. It opens no file.

use std::collections::BTreeMap;

use sennit_engine::Place;
use sennit_journal::{BLOCK_BYTES, Pack, Position};

/// A pack is thin, and is emptied into another, if that would need less than this fraction (1/2) of
/// its room.
const THIN_PART: u64 = 2;

/// The packs in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackSummary {
    /// Number of packs.
    pub count: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// Bytes of live batches in them.
    pub live_bytes: u64,
}

/// The usage of a pack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PackUsage {
    /// The length of its file.
    bytes: u64,
    /// Bytes of live batches in it.
    live: u64,
}

impl PackUsage {
    /// The approximate length of a pack with only the live batches; for a few bytes, three blocks.
    /// A pack of that length is never thin, or it would be moved again and again.
    fn least_bytes(&self) -> u64 {
        let block = BLOCK_BYTES as u64;
        self.live.next_multiple_of(block) + 2 * block
    }
}

/// The packs in use.
#[derive(Debug, Default)]
pub(crate) struct Packs {
    packs: BTreeMap<u32, PackUsage>,
    /// The total of all packs.
    total: PackUsage,
    released: Vec<u32>,
}

impl Packs {
    /// Adds a pack without live batches.
    pub(crate) fn add(&mut self, pack: Pack) {
        self.total.bytes += pack.bytes;
        self.packs.insert(pack.number, PackUsage { bytes: pack.bytes, live: 0 });
    }

    /// Returns whether the pack exists.
    pub(crate) fn holds(&self, pack: u32) -> bool {
        self.packs.contains_key(&pack)
    }

    /// The numbers of all packs, in order.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u32> {
        self.packs.keys().copied()
    }

    /// The length of the pack's file; 0 if it does not exist.
    pub(crate) fn bytes_of(&self, pack: u32) -> u64 {
        self.packs.get(&pack).map_or(0, |held| held.bytes)
    }

    /// Returns whether the place lies in a pack that exists, before its end.
    pub(crate) fn contains(&self, place: Place) -> bool {
        Position(place.position).pack().is_some_and(|(pack, byte)| {
            u64::from(byte) + u64::from(place.bytes) <= self.bytes_of(pack)
        })
    }

    /// Notes a batch in a pack, if the pack exists.
    pub(crate) fn add_live(&mut self, pack: u32, bytes: u32) {
        if let Some(held) = self.packs.get_mut(&pack) {
            held.live += u64::from(bytes);
            self.total.live += u64::from(bytes);
        }
    }

    /// Gives up a pack to which nothing refers, without it ever having been in use.
    pub(crate) fn give_up(&mut self, pack: &Pack) {
        self.released.push(pack.number);
    }

    /// Forgets which batches are live, to count them anew.
    pub(crate) fn forget_live(&mut self) {
        self.packs.values_mut().for_each(|held| held.live = 0);
        self.total.live = 0;
    }

    /// Notes that a batch is no longer wanted.
    pub(crate) fn remove_live(&mut self, pack: u32, bytes: u32) {
        if let Some(held) = self.packs.get_mut(&pack) {
            held.live = held.live.checked_sub(bytes.into()).expect("freed bytes were live");
            self.total.live -= u64::from(bytes);
            if held.live == 0 {
                self.release(pack);
            }
        }
    }

    /// Releases packs without live batches: a crash prevented references to them.
    pub(crate) fn release_empty(&mut self) {
        let empty: Vec<u32> =
            self.packs.iter().filter(|(_, held)| held.live == 0).map(|(&pack, _)| pack).collect();
        empty.into_iter().for_each(|pack| self.release(pack));
    }

    fn release(&mut self, pack: u32) {
        if let Some(held) = self.packs.remove(&pack) {
            self.total.bytes -= held.bytes;
            self.released.push(pack);
        }
    }

    /// Takes the packs that are no longer needed.
    pub(crate) fn take_released(&mut self, out: &mut Vec<u32>) {
        out.append(&mut self.released);
    }

    /// The pack with the smallest live fraction, if that is small, among those that `may` be
    /// emptied.
    pub(crate) fn thinnest(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        let thin = self
            .packs
            .iter()
            .filter(|&(&pack, held)| held.least_bytes() * THIN_PART < held.bytes && may(pack));
        let share = |held: &PackUsage| held.live as f64 / held.bytes as f64;
        thin.min_by(|a, b| share(a.1).total_cmp(&share(b.1))).map(|(&pack, _)| pack)
    }

    pub(crate) fn summary(&self) -> PackSummary {
        let PackUsage { bytes, live } = self.total;
        PackSummary { count: self.packs.len(), bytes, live_bytes: live }
    }
}

/// The pack that holds `position`.
pub(crate) fn pack_of(position: u64) -> Option<u32> {
    Position(position).pack().map(|(pack, _)| pack)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(number: u32, bytes: u64) -> Pack {
        Pack { number, bytes, class: 0, is_whole: true }
    }

    #[test]
    fn a_pack_is_released_with_its_last_live_batch() {
        let mut packs = Packs::default();
        packs.add(pack(1, 100));
        packs.add_live(1, 10);
        packs.add_live(1, 20);
        packs.remove_live(1, 10);
        assert!(packs.holds(1));
        packs.remove_live(1, 20);
        let mut released = Vec::new();
        packs.take_released(&mut released);
        assert_eq!((released, packs.holds(1)), (vec![1], false));
    }

    #[test]
    fn the_thinnest_pack_is_emptied_first_and_a_full_one_never() {
        let mut packs = Packs::default();
        for (number, live) in [(1, 600_000), (2, 400_000), (3, 100_000)] {
            packs.add(pack(number, 1_000_000));
            packs.add_live(number, live);
        }
        assert_eq!(packs.thinnest(|_| true), Some(3));
        assert_eq!(packs.thinnest(|pack| pack != 3), Some(2));
        assert_eq!(packs.thinnest(|pack| pack == 1), None);
    }

    #[test]
    fn a_pack_as_short_as_packs_are_is_never_thin() {
        let mut packs = Packs::default();
        packs.add(pack(1, 12_288));
        packs.add_live(1, 100);
        assert_eq!(packs.thinnest(|_| true), None);
    }
}
