//! The parked connections: the position and deadline of each, and all that wait at a position. It knows no answers,
//! and does not use the wires that it holds.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::FixedState;
use sennit_model::{Offset, PartitionId};
use slab::Slab;

use crate::{
    doors::streams::{Live, ReadPosition},
    http::{http1_answers::Manner, port_place::PortPlace},
    identity::principal::Principal,
    runtime::{shard_answers::ParkedQuestion, wire::WireAtRest},
};

/// A moment, in milliseconds since the core began.
pub(super) type Moment = u64;

/// Nobody, in a list of readers.
const NOBODY: u32 = u32::MAX;

/// A parked connection.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) wire: WireAtRest,
    /// One of the places that the port has.
    pub(super) place: PortPlace,
    pub(super) moves: u32,
    pub(super) manner: Manner,
    /// Who reads.
    pub(super) principal: Principal,
    /// At which position it waits, between whom; none if it is at rest between two requests.
    at: Option<Seat>,
    pub(super) patience: Patience,
    /// When something is to be done, whatever comes.
    due: Moment,
}

/// Where a reader stands in the list of its position.
#[derive(Clone, Copy, Debug)]
struct Seat {
    position: u32,
    before: u32,
    behind: u32,
}

/// How a reader waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Patience {
    /// The cursor that it came with, or was given last.
    pub(super) cursor: u64,
    /// When it waits no more.
    pub(super) until: Moment,
    /// When it was told something last.
    pub(super) said_at: Moment,
}

/// A position, and who waits there.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) position: ReadPosition,
    /// The question to the stream, once it is asked.
    pub(super) question: Option<ParkedQuestion>,
    first: u32,
    last: u32,
    /// Whether the question is answered: who waits here is being told, and nobody joins any more.
    is_answered: bool,
}

type Key = (PartitionId, Offset, Live);

/// All parked connections, and the positions at which they wait.
#[derive(Debug, Default)]
pub(super) struct Readers {
    all: Slab<Reader>,
    positions: Slab<Held>,
    by_key: HashMap<Key, u32, FixedState>,
    due: BTreeSet<(Moment, u32)>,
}

/// What became of a position that a reader has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Joined {
    /// Others wait there already.
    Others,
    /// It is new: its stream has to be asked.
    New(u32),
}

fn key(position: &ReadPosition) -> Key {
    (position.stream.0, position.at.at, position.live)
}

/// Numbers fit: there are no more connections than descriptors.
fn number(at: usize) -> u32 {
    at as u32
}

impl Readers {
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn get(&self, reader: u32) -> Option<&Reader> {
        self.all.get(reader as usize)
    }

    pub(super) fn get_mut(&mut self, reader: u32) -> Option<&mut Reader> {
        self.all.get_mut(reader as usize)
    }

    /// The numbers of all.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.all.iter().map(|(at, _)| number(at)).collect()
    }

    /// Anybody.
    pub(super) fn anybody(&self) -> Option<u32> {
        self.all.iter().next().map(|(at, _)| number(at))
    }

    /// Takes a connection in; it waits for nothing yet.
    pub(super) fn take_in(
        &mut self,
        wire: WireAtRest,
        place: PortPlace,
        moves: u32,
        manner: Manner,
        principal: Principal,
        due: Moment,
    ) -> u32 {
        let patience = Patience::default();
        let reader = Reader { wire, place, moves, manner, principal, at: None, patience, due };
        let at = number(self.all.insert(reader));
        self.due.insert((due, at));
        at
    }

    /// Lets one go that is at rest.
    pub(super) fn let_go(&mut self, reader: u32) -> Reader {
        let gone = self.all.remove(reader as usize);
        debug_assert!(gone.at.is_none(), "who waits leaves its position first");
        self.due.remove(&(gone.due, reader));
        gone
    }

    /// Says when something is to be done with a reader.
    pub(super) fn set_due(&mut self, reader: u32, due: Moment) {
        let Some(held) = self.all.get_mut(reader as usize) else { return };
        self.due.remove(&(held.due, reader));
        held.due = due;
        self.due.insert((due, reader));
    }

    /// Who is due at `now`, or was before.
    pub(super) fn first_due(&self, now: Moment) -> Option<u32> {
        self.due.first().filter(|(due, _)| *due <= now).map(|(_, reader)| *reader)
    }

    /// When the next one is due.
    pub(super) fn next_due(&self) -> Option<Moment> {
        self.due.first().map(|(due, _)| *due)
    }

    /// Has a reader that is at rest wait at a position, behind those who wait there.
    pub(super) fn join(
        &mut self,
        reader: u32,
        position: ReadPosition,
        patience: Patience,
    ) -> Joined {
        let key = key(&position);
        let (at, joined) = match self.by_key.get(&key) {
            Some(&at) => (at, Joined::Others),
            None => {
                let (first, last) = (NOBODY, NOBODY);
                let held = Held { position, question: None, first, last, is_answered: false };
                let at = number(self.positions.insert(held));
                self.by_key.insert(key, at);
                (at, Joined::New(at))
            }
        };
        let held = &mut self.positions[at as usize];
        let before = held.last;
        held.last = reader;
        match before {
            NOBODY => held.first = reader,
            before => self.seat_mut(before, |seat| seat.behind = reader),
        }
        let joining = &mut self.all[reader as usize];
        debug_assert!(joining.at.is_none(), "nobody waits at two positions");
        joining.at = Some(Seat { position: at, before, behind: NOBODY });
        joining.patience = patience;
        joined
    }

    /// Has a reader wait no more; says at which position it did.
    pub(super) fn leave(&mut self, reader: u32) -> Option<u32> {
        let Seat { position, before, behind } = self.all.get_mut(reader as usize)?.at.take()?;
        match before {
            NOBODY => self.positions[position as usize].first = behind,
            before => self.seat_mut(before, |seat| seat.behind = behind),
        }
        match behind {
            NOBODY => self.positions[position as usize].last = before,
            behind => self.seat_mut(behind, |seat| seat.before = before),
        }
        Some(position)
    }

    fn seat_mut(&mut self, reader: u32, change: impl FnOnce(&mut Seat)) {
        if let Some(seat) = &mut self.all[reader as usize].at {
            change(seat);
        }
    }

    /// The position at which a reader waits.
    pub(super) fn position_of(&self, reader: u32) -> Option<&Held> {
        let seat = self.all.get(reader as usize)?.at?;
        self.positions.get(seat.position as usize)
    }

    pub(super) fn position(&self, position: u32) -> Option<&Held> {
        self.positions.get(position as usize)
    }

    pub(super) fn position_mut(&mut self, position: u32) -> Option<&mut Held> {
        self.positions.get_mut(position as usize)
    }

    /// The question of a position is answered: who comes from now on waits elsewhere.
    pub(super) fn set_answered(&mut self, position: u32) {
        if let Some(held) = self.positions.get_mut(position as usize) {
            held.is_answered = true;
            self.by_key.remove(&key(&held.position));
        }
    }

    /// Who waits longest at a position.
    pub(super) fn first_at(&self, position: u32) -> Option<u32> {
        self.positions
            .get(position as usize)
            .map(|held| held.first)
            .filter(|&first| first != NOBODY)
    }

    /// Forgets a position at which nobody waits.
    pub(super) fn forget_position(&mut self, position: u32) -> Option<Held> {
        let gone = self.positions.try_remove(position as usize)?;
        debug_assert_eq!(gone.first, NOBODY, "somebody waits there");
        if !gone.is_answered {
            self.by_key.remove(&key(&gone.position));
        }
        Some(gone)
    }
}

impl Held {
    /// Whether nobody waits here and nobody is to be told: it is to be forgotten.
    pub(super) fn is_forsaken(&self) -> bool {
        self.first == NOBODY && !self.is_answered
    }
}
