//! The best core for a connection: that of the streams it uses, which saves each request the way to another thread
//! and back. It knows no sockets.

use crate::runtime::{index::CoreIndex, peer_cores::PeerCores, placement::has_http_place_at};

/// So many requests in a row for streams of one other core make a connection move there; after each
/// move twice as many, so that one which alternates comes to rest.
const ASKS_BEFORE_MOVE: u32 = 8;

/// How often that is doubled.
const DOUBLINGS_MAX: u32 = 20;

/// What a connection has asked for lately.
#[derive(Debug, Default)]
pub(crate) struct CoreAffinity {
    /// The other core whose streams it has asked for, and how often in a row.
    to: CoreIndex,
    asks: u32,
    /// How often it has moved.
    moves: u32,
}

impl CoreAffinity {
    /// That of a connection that has moved so often.
    pub(crate) fn after(moves: u32) -> Self {
        Self { moves, ..Self::default() }
    }

    /// How often it has moved.
    pub(crate) fn moves(&self) -> u32 {
        self.moves
    }

    /// Takes account of the request that was worked on just now.
    pub(crate) fn learn(&mut self, peer_cores: &PeerCores) {
        let Some(of) = peer_cores.take_requested() else { return };
        self.asks = match of {
            of if of == peer_cores.here => 0,
            of if of == self.to => self.asks.saturating_add(1),
            _ => 1,
        };
        self.to = of;
    }

    /// Where to move, if it is worth it and there is room.
    pub(crate) fn place(&self, peer_cores: &PeerCores) -> Option<Departure> {
        if self.asks < ASKS_BEFORE_MOVE << self.moves.min(DOUBLINGS_MAX) {
            return None;
        }
        let departure = Departure { to: self.to, moves: self.moves + 1 };
        has_http_place_at(&peer_cores.cores, self.to).then_some(departure)
    }
}

/// A connection leaves for another core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Departure {
    pub(crate) to: CoreIndex,
    /// How often it has moved then.
    pub(crate) moves: u32,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::runtime::index::IndexVec;

    fn two_cores() -> PeerCores {
        PeerCores::of(CoreIndex(0), IndexVec::of(2, |_| Arc::default()))
    }

    /// Asks for streams of these cores, one after the other; says after how many it moves.
    fn moves_after(moves: u32, of: impl Iterator<Item = u32>) -> Option<usize> {
        let (peer_cores, mut affinity) = (two_cores(), CoreAffinity::after(moves));
        for (count, of) in of.enumerate() {
            peer_cores.note_request(CoreIndex(of));
            affinity.learn(&peer_cores);
            if affinity.place(&peer_cores).is_some() {
                return Some(count + 1);
            }
        }
        None
    }

    #[test]
    fn a_connection_moves_to_the_core_that_it_goes_on_asking() {
        assert_eq!(moves_after(0, [1; 20].into_iter()), Some(8));
        assert_eq!(moves_after(0, [0; 20].into_iter()), None);
        assert_eq!(moves_after(0, [1, 1, 1, 1, 1, 1, 1, 0].into_iter().cycle().take(99)), None);
    }

    #[test]
    fn each_move_makes_the_next_one_dearer() {
        assert_eq!(moves_after(1, [1; 99].into_iter()), Some(16));
        assert_eq!(moves_after(3, [1; 99].into_iter()), Some(64));
        assert_eq!(moves_after(u32::MAX, [1; 99].into_iter()), None);
    }

    #[test]
    fn a_core_takes_no_more_than_twice_its_share() {
        let (peer_cores, mut affinity) = (two_cores(), CoreAffinity::default());
        for _ in 0..20 {
            peer_cores.note_request(CoreIndex(1));
            affinity.learn(&peer_cores);
        }
        peer_cores.cores[CoreIndex(0)].http_connections.set(1);
        peer_cores.cores[CoreIndex(1)].http_connections.set(100);
        assert!(affinity.place(&peer_cores).is_some());
        let third = Arc::default();
        let many = peer_cores.cores.iter().chain([&third]).cloned().collect();
        assert_eq!(affinity.place(&PeerCores::of(CoreIndex(0), many)), None);
    }

    #[test]
    fn what_is_no_request_for_a_stream_changes_nothing() {
        let (peer_cores, mut affinity) = (two_cores(), CoreAffinity::default());
        for _ in 0..8 {
            peer_cores.note_request(CoreIndex(1));
            affinity.learn(&peer_cores);
            affinity.learn(&peer_cores);
        }
        assert_eq!(affinity.place(&peer_cores), Some(Departure { to: CoreIndex(1), moves: 1 }));
    }
}
