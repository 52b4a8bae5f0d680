//! Those who append to several streams of a group at once, and what each has sent: one for each group. They
//! draw from chance of their own, so that a world without them is what it was. What they do is in
//! `together`.

use sennit_engine::{StreamAnswer, StreamAppend, StreamRefusal};
use sennit_model::PartitionId;

use crate::random::Random;

/// Stream groups.
pub const GROUPS: u64 = 2;

/// Appends to several streams.
pub type Appends = Vec<(PartitionId, StreamAppend)>;

/// Which of a teller's appends was sent: its group, its epoch, the number.
pub type Sent = (usize, u64, usize);

/// Who appends to the streams of a group at once, and what it has sent in its life.
#[derive(Debug, Default)]
pub struct Teller {
    pub epoch: u64,
    /// What it has sent, and whether each was answered for good.
    pub sent: Vec<(Appends, bool)>,
    /// What is to be sent (again) begins here.
    pub at: usize,
}

/// All of them.
#[derive(Debug)]
pub struct Tellers {
    pub random: Random,
    /// How often one of them does something, in parts of a thousand.
    pub eagerness: u32,
    pub by_group: [Teller; GROUPS as usize],
}

impl Tellers {
    /// Those of a seed: of half of all seeds there are none.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0A70_311C);
        let eagerness = [0, 0, 0, 60, 200, 500][random.below(6) as usize];
        Self { random, eagerness, by_group: Default::default() }
    }

    /// The broker is gone: what was not answered has to be sent again.
    pub fn disconnected(&mut self) {
        for teller in &mut self.by_group {
            let first = teller.sent.iter().position(|sent| !sent.1);
            teller.at = first.unwrap_or(teller.sent.len());
        }
    }

    /// What was sent was answered, or the shard has refused it.
    pub fn answered(&mut self, (group, epoch, index): Sent, answer: Option<&StreamAnswer>) {
        let teller = &mut self.by_group[group];
        if teller.epoch != epoch {
            return;
        }
        match answer {
            Some(StreamAnswer::AppendedTogether(_)) => teller.sent[index].1 = true,
            None
            | Some(StreamAnswer::RefusedTogether {
                refusal: StreamRefusal::ProducerGap { .. } | StreamRefusal::ProducerBegins,
                ..
            }) => teller.at = teller.at.min(index),
            // It will not be accepted: the teller goes on in another life.
            Some(_) => *teller = Teller { epoch: epoch + 1, ..Teller::default() },
        }
    }
}
