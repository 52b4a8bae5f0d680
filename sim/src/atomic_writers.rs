//! Writers that append atomically to several streams of a group, and their appends: one writer for each group. They
//! have random numbers of their own, so that they do not change other runs. Their actions are in
//! `atomic_append_actions`.

use sennit_engine::{StreamAnswer, StreamAppend, StreamRefusal};
use sennit_model::PartitionId;

use crate::random::Random;

/// Stream groups.
pub const GROUPS: u64 = 2;

/// Appends to several streams.
pub type Appends = Vec<(PartitionId, StreamAppend)>;

/// A writer's append: group, epoch, number.
pub type SentAppend = (usize, u64, usize);

/// A writer of atomic appends.
#[derive(Debug, Default)]
pub struct AtomicWriter {
    pub epoch: u64,
    /// Its appends, and whether each has a final answer.
    pub sent: Vec<(Appends, bool)>,
    /// The index of the next append to send, for the first time or again.
    pub at: usize,
}

/// All writers.
#[derive(Debug)]
pub struct AtomicWriters {
    pub random: Random,
    /// How often a writer acts, in parts of a thousand.
    pub eagerness: u32,
    pub by_group: [AtomicWriter; GROUPS as usize],
}

impl AtomicWriters {
    /// The writers of a seed; half of all seeds have none.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0A70_311C);
        let eagerness = [0, 0, 0, 60, 200, 500][random.below(6) as usize];
        Self { random, eagerness, by_group: Default::default() }
    }

    /// Handles the end of the broker: unanswered appends must be sent again.
    pub fn disconnected(&mut self) {
        for writer in &mut self.by_group {
            let first = writer.sent.iter().position(|sent| !sent.1);
            writer.at = first.unwrap_or(writer.sent.len());
        }
    }

    /// Handles an answer; `None` if the shard has refused the append.
    pub fn answered(&mut self, (group, epoch, index): SentAppend, answer: Option<&StreamAnswer>) {
        let writer = &mut self.by_group[group];
        if writer.epoch != epoch {
            return;
        }
        match answer {
            Some(StreamAnswer::AppendedTogether(_)) => writer.sent[index].1 = true,
            None
            | Some(StreamAnswer::RefusedTogether {
                refusal: StreamRefusal::ProducerGap { .. } | StreamRefusal::ProducerBegins,
                ..
            }) => writer.at = writer.at.min(index),
            // It will never be accepted: the writer continues in a new epoch.
            Some(_) => *writer = AtomicWriter { epoch: epoch + 1, ..AtomicWriter::default() },
        }
    }
}
