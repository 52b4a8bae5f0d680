//! The users of the workbench: publishers, consumers and whoever cancels and moves messages. `workbench_actions` acts for
//! them, `oracle::copies` judges what comes of it.

use std::collections::VecDeque;

use sennit_engine::{Delivery, DeliveryRun, Effect, SessionId};
use sennit_model::{Batch, BatchBuilder, Message, Messages, Offset, PartitionId};

use crate::{
    atomic_workers::Workers,
    numbered_messages,
    random::Random,
    swarm::Swarm,
    workbench_topics::{FIRST_SESSION, HeldMessage, is_partition},
};

/// The first number of these messages.
const FIRST_MESSAGE: u64 = 1 << 56;
/// The number of places that are remembered.
const PLACES_MAX: usize = 40;
/// Derives the random source.
const WORKBENCH: u64 = 0x0B_E7C4;

/// The users of the workbench.
#[derive(Debug)]
pub struct WorkbenchUsers {
    /// How often, in a thousand operations, they do something.
    pub eagerness: u32,
    pub random: Random,
    pub held: Vec<HeldMessage>,
    pub workers: Workers,
    next_message: u64,
    pub next_session: u64,
    pub consumers: Vec<(SessionId, PartitionId)>,
    /// Where messages were seen: the partition, the offset and the number.
    pub places: VecDeque<(PartitionId, u64, u64)>,
    /// The walk without an answer.
    pub walk: Option<u64>,
}

impl WorkbenchUsers {
    /// Users of a seed, which do nothing before `eagerness` is set.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            eagerness: 0,
            random: Random::new(seed ^ WORKBENCH),
            held: Vec::new(),
            workers: Workers::default(),
            next_message: FIRST_MESSAGE,
            next_session: FIRST_SESSION,
            consumers: Vec::new(),
            places: VecDeque::new(),
            walk: None,
        }
    }

    /// Handles an effect for one of the users.
    pub fn handle_effect(&mut self, effect: &Effect) {
        self.held.extend(self.workers.handle_effect(effect));
        match effect {
            Effect::Deliver(delivery) if is_partition(delivery.partition) => {
                self.delivered(delivery);
            }
            Effect::Walked { origin, .. } | Effect::Refused { origin, .. } => {
                self.walk = self.walk.filter(|walk| *walk != origin.request);
            }
            _ => {}
        }
    }

    fn delivered(&mut self, delivery: &Delivery) {
        let &Delivery { session, partition, attempt, generation, .. } = delivery;
        for (at, message) in (delivery.first.0..).zip(Messages::of_checked(&delivery.messages)) {
            let number = numbered_messages::number(&message).unwrap_or_default();
            let run = DeliveryRun { first: Offset(at), count: 1, attempt, generation };
            self.held.push(HeldMessage { session, partition, run });
            self.places.push_back((partition, at, number));
            if self.places.len() > PLACES_MAX {
                self.places.pop_front();
            }
        }
    }

    /// Handles the end of the broker.
    pub fn disconnected(&mut self) {
        self.consumers.clear();
        self.walk = None;
        self.workers.disconnected();
    }

    /// A batch of new messages with payloads of no more than so many bytes.
    pub fn batch(&mut self, swarm: &Swarm, messages_max: u64, longest: u64) -> Batch {
        let mut builder = BatchBuilder::new();
        for _ in 0..self.random.between(1, messages_max) {
            let length = self.random.below(longest + 1) as usize;
            let delay = self.random.chance(80).then(|| swarm.span(&mut self.random));
            let message = Message { delay, ..Message::new(payload(self.next_message, length)) };
            builder.push(&message).expect("within all limits");
            self.next_message += 1;
        }
        builder.take().expect("it holds a message")
    }
}

/// The payload of a message.
#[must_use]
pub fn payload(number: u64, length: usize) -> Vec<u8> {
    let mut payload = number.to_le_bytes().to_vec();
    payload.resize(8 + length, number as u8);
    payload
}
