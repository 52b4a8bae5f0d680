//! The command that names a topic and its groups; dead letters that waited for the names are moved then.

use std::sync::Arc;

use sennit_model::PartitionId;

use crate::{
    command::{DeadLetters, Origin},
    effect::Effect,
    engine::{Engine, Outbox, mark_ready},
    names::SourceNames,
    refusal::Refusal,
};

impl Engine {
    /// Takes the names of a partition's topic, for its dead letters.
    pub(crate) fn name_source(
        &mut self,
        origin: Origin,
        id: PartitionId,
        names: Arc<SourceNames>,
        out: &mut Outbox,
    ) {
        let Some(partition) = self.partitions.get_mut(&id) else {
            return out.refuse(origin, Refusal::UnknownTopic);
        };
        // A group that is not among them is gone: no other answer would come.
        let has_all = partition.groups.iter().all(|group| names.of(group.id()).is_some());
        if has_all && matches!(partition.dead_letters, DeadLetters::To(_)) {
            partition.dead_letter_topic_requested = false;
        }
        mark_ready(&mut self.ready_list, partition);
        self.names.set(id.topic, names);
        let (topic, group, created) = (id.topic, None, false);
        out.after_commit.push(Effect::Done { origin, topic, group, created });
    }
}
