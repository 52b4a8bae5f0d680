//! What the atomic steps of a client share: their producers, and the topics that they have opened. It knows no
//! connection.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use sennit_model::{PartitionId, ProducerId, TopicId, TopicName};

use crate::reconnect::random;

/// Most topics, and most partitions of one producer, that are remembered.
const REMEMBERED_MAX: usize = 1024;

/// A producer of steps: one step at a time uses it.
pub(crate) struct StepProducer {
    pub(crate) id: ProducerId,
    /// The next sequence in each partition that it has published to.
    pub(crate) next: HashMap<PartitionId, u64>,
}

/// A topic as it was opened.
#[derive(Clone, Copy)]
pub(crate) struct OpenedTopic {
    pub(crate) id: TopicId,
    pub(crate) partitions: u32,
}

/// Topics by name.
pub(crate) type OpenedTopics = HashMap<TopicName, OpenedTopic>;

#[derive(Default)]
struct State {
    /// Producers that no step uses: as many as there were steps at once.
    idle: Vec<StepProducer>,
    topics: OpenedTopics,
}

/// What the steps of a client share.
#[derive(Default)]
pub(crate) struct AtomicSteps {
    state: Mutex<State>,
}

impl AtomicSteps {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topics of these names, if all of them were opened before.
    pub(crate) fn known(&self, names: &[&TopicName]) -> Option<OpenedTopics> {
        let state = self.state();
        let known = |name: &&TopicName| Some(((*name).clone(), *state.topics.get(*name)?));
        names.iter().map(known).collect()
    }

    pub(crate) fn remember(&self, opened: &OpenedTopics) {
        let mut state = self.state();
        if state.topics.len() > REMEMBERED_MAX {
            state.topics.clear();
        }
        state.topics.extend(opened.iter().map(|(name, topic)| (name.clone(), *topic)));
    }

    /// A producer that no step uses.
    pub(crate) fn take_producer(&self) -> StepProducer {
        let idle = self.state().idle.pop();
        idle.unwrap_or_else(|| StepProducer { id: ProducerId(random()), next: HashMap::new() })
    }

    /// Gives a producer back whose sequences are as the broker has them.
    pub(crate) fn give_back(&self, producer: StepProducer) {
        if producer.next.len() <= REMEMBERED_MAX {
            self.state().idle.push(producer);
        }
    }

    /// Forgets a topic that was deleted.
    pub(crate) fn forget(&self, topic: &TopicName) {
        self.state().topics.remove(topic);
    }
}
