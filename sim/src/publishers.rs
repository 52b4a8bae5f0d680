//! The simulated publishers: each sends batches under its own id, and sends them again with the same sequences if
//! their outcome is unknown.

use std::collections::BTreeMap;

use sennit_engine::{Origin, Publish, SessionId};
use sennit_model::{Batch, PartitionId, ProducerId, ProducerStamp};

use crate::{random::Random, swarm::Swarm};

const PUBLISHERS: u64 = 4;
/// The session all publishers speak in.
const SESSION: SessionId = SessionId(1);

/// Builds a batch. Its messages carry the numbers from the last argument on.
type FillBatch = fn(&mut Random, &Swarm, u64) -> Batch;

/// The batches that a publisher has sent to a partition in its epoch.
#[derive(Debug, Default)]
struct SentBatches {
    epoch: u32,
    next_sequence: u64,
    sent: Vec<(u64, Batch, bool)>,
    /// The index of the next batch to send, for the first time or again.
    at: usize,
}

/// All publishers of a kind.
#[derive(Debug)]
pub struct Publishers {
    fill: FillBatch,
    sent_batches: BTreeMap<(ProducerId, PartitionId), SentBatches>,
    next_message: u64,
    /// The batch of each request in flight.
    requests: BTreeMap<u64, (ProducerId, PartitionId, u32, usize)>,
}

impl Publishers {
    /// Publishers that have sent nothing. Their messages are numbered from `first`.
    pub fn new(fill: FillBatch, first: u64) -> Self {
        Self { fill, sent_batches: BTreeMap::new(), next_message: first, requests: BTreeMap::new() }
    }

    /// The next publish for a partition: a new batch, or the oldest batch with an unknown outcome.
    pub fn publish(
        &mut self,
        random: &mut Random,
        swarm: &Swarm,
        partition: PartitionId,
        request: u64,
    ) -> Publish {
        let id = ProducerId(random.below(PUBLISHERS + 1));
        if id == ProducerId(0) {
            let batch = self.batch(random, swarm);
            let producer =
                ProducerStamp { first_sequence: random.below(100), ..Default::default() };
            return publish(request, partition, producer, batch);
        }
        let is_new = self
            .sent_batches
            .get(&(id, partition))
            .is_none_or(|batches| batches.at == batches.sent.len());
        let new = is_new.then(|| self.batch(random, swarm));
        let batches = self.sent_batches.entry((id, partition)).or_default();
        if let Some(batch) = new {
            let first = batches.next_sequence;
            batches.next_sequence += u64::from(batch.count());
            batches.sent.push((first, batch, false));
        }
        let index = batches.at;
        batches.at += 1;
        self.send((id, partition), index, request)
    }

    fn batch(&mut self, random: &mut Random, swarm: &Swarm) -> Batch {
        let batch = (self.fill)(random, swarm, self.next_message);
        self.next_message += u64::from(batch.count());
        batch
    }

    fn send(&mut self, key: (ProducerId, PartitionId), index: usize, request: u64) -> Publish {
        let batches = &self.sent_batches[&key];
        let (first_sequence, batch, _) = &batches.sent[index];
        let producer =
            ProducerStamp { id: key.0, epoch: batches.epoch, first_sequence: *first_sequence };
        self.requests.insert(request, (key.0, key.1, batches.epoch, index));
        publish(request, key.1, producer, batch.clone())
    }

    /// Publishes an old batch, at times under an old epoch; or starts a new epoch. `None` if nothing is sent.
    pub fn resend(
        &mut self,
        random: &mut Random,
        partition: PartitionId,
        request: u64,
    ) -> Option<Publish> {
        let keys: Vec<_> =
            self.sent_batches.keys().filter(|(_, place)| *place == partition).copied().collect();
        let key = *random.pick(&keys)?;
        let batches = self.sent_batches.get_mut(&key)?;
        if random.chance(100) {
            *batches = SentBatches { epoch: batches.epoch + 1, ..SentBatches::default() };
            return None;
        }
        if batches.sent.is_empty() {
            return None;
        }
        // Mostly a recent batch: the broker does not remember old ones.
        let newest = batches.sent.len() as u64 - 1;
        let index = (newest - random.below(newest.min(5) + 1)) as usize;
        if batches.epoch > 0 && random.chance(200) {
            let (first_sequence, batch, _) = batches.sent[index].clone();
            let producer = ProducerStamp { id: key.0, epoch: batches.epoch - 1, first_sequence };
            return Some(publish(request, partition, producer, batch));
        }
        Some(self.send(key, index, request))
    }

    /// Handles a confirm.
    pub fn confirmed(&mut self, request: u64) {
        if let Some((id, partition, epoch, index)) = self.requests.remove(&request)
            && let Some(batches) = self.sent_batches.get_mut(&(id, partition))
            && batches.epoch == epoch
            && let Some(sent) = batches.sent.get_mut(index)
        {
            sent.2 = true;
        }
    }

    /// Handles a refusal: the batch, and all after it, must be sent again. Returns its partition.
    pub fn refused(&mut self, request: u64) -> Option<PartitionId> {
        let (id, partition, epoch, index) = self.requests.remove(&request)?;
        if let Some(batches) = self.sent_batches.get_mut(&(id, partition))
            && batches.epoch == epoch
            && batches.sent.get(index).is_some_and(|sent| !sent.2)
        {
            batches.at = batches.at.min(index);
        }
        Some(partition)
    }

    /// Handles the end of the broker: unconfirmed batches must be sent again.
    pub fn disconnected(&mut self) {
        self.requests.clear();
        for batches in self.sent_batches.values_mut() {
            batches.at = batches.sent.iter().position(|sent| !sent.2).unwrap_or(batches.sent.len());
        }
    }

    /// Handles the deletion of a partition.
    pub fn dropped(&mut self, partition: PartitionId) {
        self.sent_batches.retain(|(_, place), _| *place != partition);
    }
}

fn publish(request: u64, partition: PartitionId, producer: ProducerStamp, batch: Batch) -> Publish {
    Publish { origin: Origin { session: SESSION, request }, partition, producer, batch }
}
