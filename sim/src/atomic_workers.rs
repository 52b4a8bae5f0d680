//! The workers that make atomic steps, and their steps under way. `atomic_step_actions` acts for them.

use std::collections::BTreeMap;

use sennit_engine::{AtomicAck, Effect, Publish, Refusal, SessionId};
use sennit_model::PartitionId;

use crate::workbench_topics::HeldMessage;

/// The number of workers.
pub const WORKERS: usize = 2;

/// A step as it was sent.
#[derive(Clone, Debug)]
pub struct SentStep {
    pub session: SessionId,
    pub parts: Vec<Publish>,
    pub acks: Vec<AtomicAck>,
    pub held: Vec<HeldMessage>,
    /// How often it was sent.
    pub times: u32,
    /// The request without an answer.
    pub request: Option<u64>,
}

/// A worker: it makes one step at a time.
#[derive(Debug, Default)]
pub struct Worker {
    /// The next sequence in each partition.
    pub sequences: BTreeMap<PartitionId, u64>,
    pub under_way: Option<SentStep>,
    /// The last step that is done.
    pub done: Option<SentStep>,
}

/// All workers.
#[derive(Debug, Default)]
pub struct Workers {
    /// How often, in a thousand operations, a worker does something.
    pub eagerness: u32,
    pub workers: [Worker; WORKERS],
}

impl Workers {
    /// Handles an effect. Returns the messages that a worker holds on, because its step is refused.
    pub fn handle_effect(&mut self, effect: &Effect) -> Vec<HeldMessage> {
        let origin = match effect {
            Effect::PublishedAtomic { origin, .. } | Effect::Refused { origin, .. } => origin,
            _ => return Vec::new(),
        };
        for worker in &mut self.workers {
            let is_asked = |sent: &&mut SentStep| sent.request == Some(origin.request);
            let Some(sent) = worker.under_way.as_mut().filter(is_asked) else { continue };
            sent.request = None;
            match effect {
                Effect::Refused { refusal, .. } => {
                    let why = match refusal {
                        Refusal::Atomic { why, .. } => why,
                        other => other,
                    };
                    // A full disk says nothing about an earlier time.
                    let is_full = matches!(why, Refusal::StorageFull);
                    let is_unknown =
                        matches!(why, Refusal::OutcomeUnknown) || is_full && sent.times > 1;
                    let refused = worker.under_way.take_if(|_| !is_unknown);
                    return refused.map_or_else(Vec::new, |sent| sent.held);
                }
                _ => {
                    for part in &sent.parts {
                        let next = worker.sequences.entry(part.partition).or_default();
                        *next = part.producer.first_sequence + u64::from(part.batch.count());
                    }
                    worker.done = worker.under_way.take();
                }
            }
        }
        Vec::new()
    }

    /// Handles the end of the broker.
    pub fn disconnected(&mut self) {
        self.workers.iter_mut().flat_map(|worker| &mut worker.under_way).for_each(|sent| {
            sent.request = None;
        });
    }
}
