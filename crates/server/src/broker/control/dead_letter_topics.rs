//! Dead-letter topics: each is created when a shard needs it, and made known to the partitions that send there. It
//! knows no protocol.

use std::sync::Arc;

use sennit_engine::{CatalogueCommand, PartitionCommand};
use sennit_model::{Offset, TopicId};

use super::{Changed, Control, incarnation};
use crate::broker::control_request::ControlRefusal;

impl Control {
    /// Creates the topic for the dead letters of another, and tells all partitions.
    pub(super) async fn create_dead_letter_topic(
        &self,
        source: TopicId,
    ) -> Result<(), ControlRefusal> {
        let name = self
            .core
            .look(|core| core.catalogue().topic(source).map(|topic| topic.created.name.clone()));
        let Some(name) = name else { return Ok(()) };
        let _changes = self.changes.of(name.as_str()).await;
        let incarnation = incarnation()?;
        let command = CatalogueCommand::CreateDeadLetterTopic { source, incarnation };
        let Changed { topic, created, .. } = self.change_catalogue(command).await?;
        // The letters' partitions first: the source's send there as soon as they know them.
        self.open_partitions(topic).await?;
        if created {
            self.announce(topic, Offset(0));
        }
        self.name_partitions(source).await?;
        self.open_partitions(source).await
    }

    /// Tells the partitions of a topic what it and its groups are called, for their dead letters.
    async fn name_partitions(&self, topic: TopicId) -> Result<(), ControlRefusal> {
        let topic = self.core.look(|core| core.catalogue().topic(topic).cloned());
        let Some(topic) = topic else { return Ok(()) };
        let names = PartitionCommand::Name(Arc::new(topic.source_names()));
        self.tell_partitions(&topic, &names).await.map(drop)
    }
}
