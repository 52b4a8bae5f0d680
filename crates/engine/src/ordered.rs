//! A sorted list of small values under an order that the caller brings along, packed into pieces, so that neither
//! growth nor removal moves much. Values added at the end, as new ones are, fill their pieces.

use std::cmp::Ordering;

/// Most things in a piece.
const PIECE_MAX: usize = 256;

/// Things in order. Each question comes with how a thing compares to what is asked for.
#[derive(Debug)]
pub(crate) struct Ordered<T> {
    /// None is empty.
    pieces: Vec<Vec<T>>,
}

impl<T> Default for Ordered<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T: Copy> Ordered<T> {
    /// Where what is asked for is, or would be: `(piece, index)`. O(log n).
    fn seek(&self, mut than: impl FnMut(T) -> Ordering) -> Result<(usize, usize), (usize, usize)> {
        let Some(last) = self.pieces.last() else { return Err((0, 0)) };
        // As a rule what comes is new, and comes last.
        if than(last[last.len() - 1]).is_lt() {
            return Err((self.pieces.len() - 1, last.len()));
        }
        let behind = self.pieces.partition_point(|piece| than(piece[0]).is_le());
        let at = behind.saturating_sub(1);
        let piece = &self.pieces[at];
        piece.binary_search_by(|held| than(*held)).map(|i| (at, i)).map_err(|i| (at, i))
    }

    /// The thing that is equal.
    pub(crate) fn get(&self, than: impl FnMut(T) -> Ordering) -> Option<T> {
        self.seek(than).ok().map(|(piece, index)| self.pieces[piece][index])
    }

    /// Puts `thing` where it belongs; one that is equal is replaced.
    pub(crate) fn insert(&mut self, thing: T, than: impl FnMut(T) -> Ordering) {
        let (at, index) = match self.seek(than) {
            Ok((at, index)) => {
                self.pieces[at][index] = thing;
                return;
            }
            Err(place) => place,
        };
        let is_last = at + 1 >= self.pieces.len();
        match self.pieces.get_mut(at) {
            Some(piece) if piece.len() < PIECE_MAX => piece.insert(index, thing),
            Some(piece) if !is_last || index < PIECE_MAX => {
                let mut behind = piece.split_off(PIECE_MAX / 2);
                match index.checked_sub(PIECE_MAX / 2) {
                    Some(index) => behind.insert(index, thing),
                    None => piece.insert(index, thing),
                }
                self.pieces.insert(at + 1, behind);
            }
            _ => self.pieces.push(vec![thing]),
        }
    }

    /// Takes out the thing that is equal.
    pub(crate) fn remove(&mut self, than: impl FnMut(T) -> Ordering) -> Option<T> {
        let (at, index) = self.seek(than).ok()?;
        let removed = self.pieces[at].remove(index);
        let left = self.pieces[at].len();
        if left == 0 {
            self.pieces.remove(at);
        } else if let Some(next) = self.pieces.get_mut(at + 1)
            && left + next.len() <= PIECE_MAX / 2
        {
            let next = std::mem::take(next);
            self.pieces[at].extend(next);
            self.pieces.remove(at + 1);
        }
        Some(removed)
    }

    /// What comes after what is asked for, in order.
    pub(crate) fn after(&self, than: impl FnMut(T) -> Ordering) -> impl Iterator<Item = T> {
        let (at, index) = match self.seek(than) {
            Ok((at, index)) => (at, index + 1),
            Err(place) => place,
        };
        let pieces = self.pieces.get(at..).unwrap_or_default();
        pieces.iter().flatten().copied().skip(index)
    }

    /// All things, in order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = T> {
        self.pieces.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_says_the_same_as_a_plain_set(
            ascending in 0..2_000u32,
            steps in proptest::collection::vec((0..3_000u32, 0..3u8), 0..1_500),
            ask in 0..3_000u32,
        ) {
            let mut ordered = Ordered::default();
            let mut twin = BTreeSet::new();
            for n in 0..ascending {
                ordered.insert(n, |held: u32| held.cmp(&n));
                twin.insert(n);
            }
            for (n, kind) in steps {
                match kind {
                    0 => {
                        ordered.insert(n, |held: u32| held.cmp(&n));
                        twin.insert(n);
                    }
                    _ => {
                        let removed = ordered.remove(|held| held.cmp(&n));
                        prop_assert_eq!(removed.is_some(), twin.remove(&n));
                    }
                }
            }
            prop_assert!(ordered.iter().eq(twin.iter().copied()));
            prop_assert_eq!(ordered.get(|held| held.cmp(&ask)), twin.get(&ask).copied());
            let after: Vec<u32> = ordered.after(|held| held.cmp(&ask)).collect();
            prop_assert!(after.into_iter().eq(twin.range(ask + 1..).copied()));
        }
    }

    #[test]
    fn what_comes_in_order_leaves_no_piece_half_empty() {
        let mut ordered = Ordered::default();
        for n in 0..10_000u32 {
            ordered.insert(n, |held: u32| held.cmp(&n));
        }
        assert_eq!(ordered.pieces.len(), 10_000usize.div_ceil(PIECE_MAX));
    }
}
