//! Publishers that publish natively to the topics of streams, and the effects for them. They have random numbers of
//! their own, so that they do not change other runs. Their actions are in `native_publishing`.

use sennit_engine::{Effect, Refusal};
use sennit_model::{Batch, Offset, PartitionId};

use crate::{numbered_messages, publishers::Publishers, random::Random, swarm::Swarm};

/// The first message number. Other publishers use far lower numbers.
const MESSAGES: u64 = 1 << 50;

/// All native publishers.
#[derive(Debug)]
pub struct NativePublishers {
    pub random: Random,
    /// How often a publisher acts, in parts of a thousand.
    pub eagerness: u32,
    pub publishers: Publishers,
}

fn fill(random: &mut Random, swarm: &Swarm, first: u64) -> Batch {
    numbered_messages::plain(
        random,
        swarm,
        &mut first.clone(),
        numbered_messages::plain_room(swarm),
    )
}

impl NativePublishers {
    /// The publishers of a seed; half of all seeds have none.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7A71_7E5F);
        let eagerness = [0, 0, 0, 60, 200, 500][random.below(6) as usize];
        Self { random, eagerness, publishers: Publishers::new(fill, MESSAGES) }
    }

    /// Handles an effect for one of them. Returns the end of a stream that it reveals.
    pub fn handle_effect(&mut self, effect: &Effect) -> Option<(PartitionId, Offset)> {
        match effect {
            Effect::Confirmed(confirmed) => {
                self.publishers.confirmed(confirmed.origin.request);
                let first = confirmed.first_offset?;
                Some((confirmed.partition, first.plus(u64::from(confirmed.count))))
            }
            Effect::PublishedAt { origin, .. } => {
                self.publishers.confirmed(origin.request);
                None
            }
            Effect::Refused { origin, refusal } => {
                let partition = self.publishers.refused(origin.request)?;
                match refusal {
                    Refusal::OffsetMismatch { next, .. } => Some((partition, *next)),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Handles the end of the broker.
    pub fn disconnected(&mut self) {
        self.publishers.disconnected();
    }
}
