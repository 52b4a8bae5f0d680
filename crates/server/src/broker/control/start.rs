//! The control's part of a start: the shards are brought in line with the catalogue, and topics that the catalogue
//! has lost are adopted, before clients are accepted. It knows no protocol.

use std::{collections::BTreeMap, rc::Rc};

use sennit_engine::{CatalogueCommand, PartitionCommand, Refusal};
use sennit_model::{PartitionIndex, TopicId};
use tokio::sync::oneshot;

use super::{Control, gather, incarnation};
use crate::{
    broker::{
        control_request::ControlRefusal,
        recovered_state::{Found, FoundPartition, Lag},
    },
    runtime::index::ShardIndex,
};

/// Topics whose partitions are brought in line at once when the broker starts.
const OPENED_MAX: usize = 4096;

impl Control {
    /// Begins with what shards have found when they were recovered: nobody is let in before `done` is told. A node of a
    /// cluster does not wait for the others with that, and what its replicas have found is not all that is decided.
    pub(crate) async fn begin(self: Rc<Self>, found: Found, done: oneshot::Sender<()>) {
        if let Some(peers) = self.peers.clone() {
            let _ = done.send(());
            return self.begin_in_cluster(peers);
        }
        if let Err(error) = self.reconcile(&found.partitions).await {
            tracing::error!(error = error.to_string(), "shards lag the catalogue");
        }
        self.release_streams(&found.held_streams, &found.forks).await;
        for listener in self.listeners.iter() {
            listener.clone().starts().await;
        }
        let _ = done.send(());
    }

    /// Brings the shards in line with the catalogue: `owned` are the partitions they were
    /// recovered with, in the order of their numbers.
    pub(super) async fn reconcile(&self, owned: &[FoundPartition]) -> Result<(), ControlRefusal> {
        let placement = &self.core.cores.placement;
        let lag = self.core.look(|core| Lag::of(owned, core.catalogue(), placement));
        for topics in lag.topics.chunks(OPENED_MAX) {
            let asked: Vec<_> =
                topics.iter().filter_map(|&topic| self.ask_to_open(topic)).collect();
            for answers in asked {
                gather(answers).await?;
            }
        }
        self.adopt_lost(owned).await?;
        for FoundPartition { shard, id: partition, .. } in lag.strays {
            let is_known = self.core.look(|core| {
                core.catalogue()
                    .topic(partition.topic)
                    .is_some_and(|topic| partition.index.0 < topic.config().partitions)
            });
            if is_known {
                continue;
            }
            match self.change_partition(shard, partition, PartitionCommand::Drop).await {
                // A stream whose time is over went meanwhile; the others are still to be looked at.
                Err(ControlRefusal::Engine(Refusal::UnknownTopic)) => {}
                dropped => drop(dropped?),
            }
        }
        Ok(())
    }

    /// Has topics again whose partitions are there, and whose names and settings the catalogue has
    /// lost.
    async fn adopt_lost(&self, owned: &[FoundPartition]) -> Result<(), ControlRefusal> {
        let mut lost: BTreeMap<TopicId, Vec<(ShardIndex, PartitionIndex)>> = BTreeMap::new();
        self.core.look(|core| {
            let catalogue = core.catalogue();
            for &FoundPartition { shard, id: partition, .. } in owned {
                if catalogue.may_have_lost(partition.topic) {
                    lost.entry(partition.topic).or_default().push((shard, partition.index));
                }
            }
        });
        let placement = &self.core.cores.placement;
        for (topic, held) in lost {
            // One that was placed beside another topic is placed beside a number nobody has.
            let unused = (0..placement.shards() as u32).map(|n| TopicId(u32::MAX - n));
            let fits = |home: &TopicId| {
                held.iter().all(|&(shard, index)| placement.shard_of(*home, index) == shard)
            };
            let Some(home) = std::iter::once(topic).chain(unused).find(fits) else { continue };
            let partitions = 1 + held.iter().map(|(_, index)| index.0).max().unwrap_or_default();
            tracing::error!(
                topic_id = topic.0,
                "a topic has lost its name and settings: it is called lost-{} now",
                topic.0
            );
            let incarnation = incarnation()?;
            let command = CatalogueCommand::AdoptTopic { topic, partitions, home, incarnation };
            self.change_catalogue(command).await?;
            self.open_partitions(topic).await?;
        }
        Ok(())
    }
}
