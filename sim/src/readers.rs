//! The simulated readers and their positions. They have random numbers of their own, so that they do not change
//! other runs. Their actions are in `reader_actions`.

use sennit_engine::{Delivery, SessionId};
use sennit_model::{CursorName, Offset, PartitionId};

use crate::random::Random;

/// The first session of readers. Other sessions have far lower numbers.
const SESSIONS: u64 = 1 << 32;
/// A reader.
#[derive(Clone, Debug)]
pub struct ActiveReader {
    pub session: SessionId,
    pub subscription: u32,
    pub partition: PartitionId,
    pub cursor: Option<CursorName>,
    /// The offset after the last message received.
    pub at: u64,
    /// The number of messages and bytes that were received and not reported as taken.
    pub unreported: (u32, u64),
}

/// All readers.
#[derive(Debug)]
pub struct Readers {
    pub active: Vec<ActiveReader>,
    pub random: Random,
    /// How often a reader acts, in parts of a thousand.
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
        Self { active: Vec::new(), random, eagerness, next_session: SESSIONS, next_claim: 0 }
    }

    /// Takes a delivery.
    pub fn delivered(&mut self, delivery: &Delivery) {
        let Some(reader) = self.find(delivery.session, delivery.subscription) else { return };
        reader.at = delivery.first.0 + u64::from(delivery.count);
        reader.unreported.0 += delivery.count;
        reader.unreported.1 += delivery.messages.len() as u64;
    }

    /// Handles a gap that ends before `end`.
    pub fn passed(&mut self, session: SessionId, subscription: u32, end: Offset) {
        if let Some(reader) = self.find(session, subscription) {
            reader.at = end.0;
        }
    }

    fn find(&mut self, session: SessionId, subscription: u32) -> Option<&mut ActiveReader> {
        let is_own = |reader: &&mut ActiveReader| {
            (reader.session, reader.subscription) == (session, subscription)
        };
        self.active.iter_mut().find(is_own)
    }

    /// Handles the end of a reader.
    pub fn ended(&mut self, session: SessionId, subscription: u32) {
        self.active.retain(|held| (held.session, held.subscription) != (session, subscription));
    }

    /// Handles the end of the broker.
    pub fn disconnected(&mut self) {
        self.active.clear();
    }

    /// The index of a random reader, if there is one.
    pub fn any(&mut self) -> Option<usize> {
        let count = self.active.len() as u64;
        (count > 0).then(|| self.random.below(count) as usize)
    }
}
