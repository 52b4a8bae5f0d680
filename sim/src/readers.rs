//! The readers there are, and what each has had. They draw from chance of their own, so that a world
//! without them is what it was before there were any. What they do is in `reading`.

use sennit_engine::{Delivery, SessionId};
use sennit_model::{CursorName, Offset, PartitionId};

use crate::random::Random;

/// The first session of readers: those of others are far below.
const SESSIONS: u64 = 1 << 32;
/// A reader.
#[derive(Clone, Debug)]
pub struct Taker {
    pub session: SessionId,
    pub subscription: u32,
    pub partition: PartitionId,
    pub cursor: Option<CursorName>,
    /// Behind what came.
    pub at: u64,
    /// What came and was not said to be taken.
    pub untaken: (u32, u64),
}

/// All readers.
#[derive(Debug)]
pub struct Readers {
    pub takers: Vec<Taker>,
    pub random: Random,
    /// How often one of them does something, in parts of a thousand.
    pub eagerness: u32,
    pub next_session: u64,
    pub next_claim: u64,
}

impl Readers {
    /// The readers of a seed: half of all seeds have none.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5EAD_E125);
        let eagerness = [0, 0, 0, 60, 200, 500][random.below(6) as usize];
        Self { takers: Vec::new(), random, eagerness, next_session: SESSIONS, next_claim: 0 }
    }

    /// Messages have come.
    pub fn delivered(&mut self, delivery: &Delivery) {
        let Some(taker) = self.find(delivery.session, delivery.subscription) else { return };
        taker.at = delivery.first.0 + u64::from(delivery.count);
        taker.untaken.0 += delivery.count;
        taker.untaken.1 += delivery.messages.len() as u64;
    }

    /// A reader was told that it is passed over what lies before `end`.
    pub fn passed(&mut self, session: SessionId, subscription: u32, end: Offset) {
        if let Some(taker) = self.find(session, subscription) {
            taker.at = end.0;
        }
    }

    fn find(&mut self, session: SessionId, subscription: u32) -> Option<&mut Taker> {
        let is_own =
            |taker: &&mut Taker| (taker.session, taker.subscription) == (session, subscription);
        self.takers.iter_mut().find(is_own)
    }

    /// A reader has ended.
    pub fn ended(&mut self, session: SessionId, subscription: u32) {
        self.takers.retain(|held| (held.session, held.subscription) != (session, subscription));
    }

    /// The broker is gone.
    pub fn disconnected(&mut self) {
        self.takers.clear();
    }

    /// One of them, if there is one.
    pub fn any(&mut self) -> Option<usize> {
        let count = self.takers.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }
}
