//! Atomic publishes of a session: all that they name lies on one shard, or they are refused.

use sennit_engine::{AtomicAck, Command, Publish};
use sennit_identity::Verb;
use sennit_model::{GroupId, PartitionId};
use sennit_protocol::{ErrorCode, PublishAtomic, control};

use super::{
    super::{hooks, refusal_reply::control_reply},
    Flow, Session,
    settled_runs::runs_by_partition,
};
use crate::{broker::control_request::ControlRefusal, runtime::index::ShardIndex};

/// What refuses an atomic publish: the partition that it is about, and the error.
type Refused = (PartitionId, Box<control::Error>);

impl Session {
    /// Publishes the parts and acks the deliveries, all of it or nothing.
    pub(super) async fn publish_atomic(&mut self, step: &PublishAtomic, request: u64) -> Flow {
        // Its answer comes to this session: the connection stays.
        self.is_settled = true;
        let checked = match self.check_rights(step).await.and_then(|()| self.checked(step, request))
        {
            Ok((shard, parts, acks)) => self.hooked(step, parts).await.map(|it| (shard, it, acks)),
            Err(refused) => Err(refused),
        };
        let (shard, parts, acks) = match checked {
            Ok(checked) => checked,
            Err((partition, mut error)) => {
                error.topic_id = Some(partition.topic.0);
                error.partition = Some(partition.index.0);
                let closes_connection = error.closes_connection;
                self.outbox.refused(request, *error);
                return if closes_connection { Flow::Broken } else { Flow::GoOn };
            }
        };
        self.wait_for_room(shard).await;
        if self.core.look(|core| core.is_draining()) {
            let mut error = control::Error::new(ErrorCode::ShuttingDown, "the broker stops");
            error.closes_connection = false;
            self.outbox.refused(request, error);
            return Flow::GoOn;
        }
        let batch = parts.iter().fold((0, 0), |(messages, bytes), part| {
            (messages + u64::from(part.batch.count()), bytes + part.batch.bytes().len() as u64)
        });
        if let Err(error) = self.guard.take(batch) {
            self.outbox.refused(request, *error);
            return Flow::GoOn;
        }
        // It may have waited, and a right been taken meanwhile.
        if let Err((_, error)) = self.check_rights(step).await {
            self.outbox.refused(request, *error);
            return Flow::GoOn;
        }
        if !self.published_to.contains(&shard) {
            self.published_to.push(shard);
        }
        let origin = self.origin(request);
        let step = sennit_engine::PublishAtomic { origin, parts, acks };
        self.core.with(|core| core.command(shard, Command::PublishAtomic(step)));
        Flow::GoOn
    }

    /// Checks the rights to publish to the topics of the parts, and to settle what the acks name.
    async fn check_rights(&self, step: &PublishAtomic) -> Result<(), Refused> {
        for part in &step.parts {
            let partition = part.head.partition;
            let may = self.guard.check(partition.topic, Verb::Publish).await;
            may.map_err(|error| (partition, Box::new(error)))?;
        }
        for ack in &step.acks {
            let may = self.guard.check(ack.topic, Verb::Settle).await;
            let partition = PartitionId { topic: ack.topic, ..PartitionId::default() };
            may.map_err(|error| (partition, Box::new(error)))?;
        }
        Ok(())
    }

    /// The parts as the hooks of their topics decide.
    async fn hooked(
        &self,
        step: &PublishAtomic,
        mut parts: Vec<Publish>,
    ) -> Result<Vec<Publish>, Refused> {
        for (of_step, part) in step.parts.iter().zip(&mut parts) {
            let batch = part.batch.clone();
            let decided = hooks::on_publish(&self.hooks, &self.core, &of_step.head, batch).await;
            part.batch = decided.map_err(|error| (part.partition, Box::new(error)))?;
        }
        Ok(parts)
    }

    /// The shard of a step, and its batches and acks as the engine has them.
    fn checked(
        &self,
        step: &PublishAtomic,
        request: u64,
    ) -> Result<(ShardIndex, Vec<Publish>, Vec<AtomicAck>), Refused> {
        let first = step.parts.first().map(|part| part.head.partition).unwrap_or_default();
        let shard = self.shard(first);
        let on_shard = |partition: PartitionId| {
            let lies_on = self.shard(partition);
            if lies_on == shard {
                return Ok(());
            }
            let message = format!(
                "topic {} partition {} lies on shard {}, topic {} partition {} on shard {}",
                partition.topic.0,
                partition.index.0,
                lies_on.0,
                first.topic.0,
                first.index.0,
                shard.0
            );
            Err((partition, Box::new(control::Error::new(ErrorCode::TopicsApart, message))))
        };
        let (mut parts, mut acks) = (Vec::with_capacity(step.parts.len()), Vec::new());
        for part in &step.parts {
            let partition = part.head.partition;
            let batch = part.check_batch();
            let batch = batch.map_err(|error| (partition, Box::new((&error).into())))?;
            if self.core.cores.own_topic.is(partition.topic) {
                return Err((partition, Box::new(control_reply(&ControlRefusal::Reserved))));
            }
            on_shard(partition)?;
            let (origin, producer) = (self.origin(request), part.head.producer);
            parts.push(Publish { origin, partition, producer, batch });
        }
        for ack in &step.acks {
            for (index, runs) in runs_by_partition(&ack.runs) {
                let partition = PartitionId { topic: ack.topic, index };
                if ack.group == GroupId::NONE {
                    let message = "readers hold nothing that could be acked";
                    let error = control::Error::new(ErrorCode::NotLeased, message);
                    return Err((partition, Box::new(error)));
                }
                on_shard(partition)?;
                acks.push(AtomicAck { partition, group: ack.group, runs });
            }
        }
        Ok((shard, parts, acks))
    }
}
