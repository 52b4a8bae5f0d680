//! The workbench: pages of the messages that a group still has, asked of the shard of their partition. What is to go
//! to another shard is published there first and settled then. It knows no protocol.

use std::sync::Arc;

use sennit_engine::{
    Command, Destination, PartitionCommand, Publish, Refusal, Requeue, Selection, Topic, Walk,
    WalkPage, WalkVerb,
};
use sennit_model::{
    DEAD_LETTER_SUFFIX, GroupId, HeaderName, Offset, OffsetRange, PartitionId, PartitionIndex,
    ProducerStamp, TopicName,
    limits::{WORKBENCH_EXAMINED_MAX, WORKBENCH_RANGES_MAX},
};

use super::{Control, group_named};
use crate::{
    broker::control_request::{
        ControlAnswer, ControlRefusal, Inspect, InspectVerb, MeantMessages, PageOfMessages, Rework,
        ReworkVerb,
    },
    identity::principal::Principal,
    runtime::{clock::now, index::ShardIndex, shard_answers::Answer},
};

/// The partition that a request means, with its shard.
struct Place {
    topic: Topic,
    partition: PartitionId,
    shard: ShardIndex,
    group: GroupId,
}

impl Control {
    pub(super) async fn inspect(&self, inspect: Inspect) -> Result<ControlAnswer, ControlRefusal> {
        let Inspect { messages, verb } = inspect;
        let place = self.place(&messages)?;
        let verb = match verb {
            InspectVerb::Peek { payload_bytes_max } => WalkVerb::Peek { payload_bytes_max },
            InspectVerb::Count(by) => WalkVerb::Count(by),
        };
        let page = self.walk(&place, messages, verb, false).await?;
        Ok(ControlAnswer::Inspected(place.with(page)))
    }

    /// What is published again is paid for by the principal's tenant afterwards, since it is not known before how much it
    /// is; and nothing is as long as the tenant owes something or stores all it may.
    pub(super) async fn rework(
        &self,
        principal: &Principal,
        rework: Rework,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let publishes = !rework.dry_run && !matches!(rework.verb, ReworkVerb::Cancel);
        let meter = principal.meter().filter(|_| publishes);
        if let Some(meter) = &meter {
            meter.check_rates(now())?;
            meter.check_stored(1, now())?;
        }
        let page = self.rework_page(rework).await?;
        if let Some(meter) = meter {
            meter.charge((page.page.done, page.page.bytes), now());
        }
        Ok(ControlAnswer::Reworked(page))
    }

    async fn rework_page(&self, rework: Rework) -> Result<PageOfMessages, ControlRefusal> {
        let Rework { messages, verb, dry_run } = rework;
        let place = self.place(&messages)?;
        let is_edit = matches!(
            verb,
            ReworkVerb::Redrive { edit: Some(_), .. } | ReworkVerb::Move { edit: Some(_), .. }
        );
        let page = match verb {
            ReworkVerb::Cancel => self.walk(&place, messages, WalkVerb::Cancel, dry_run).await?,
            ReworkVerb::Undo => {
                let to = Destination::DeadLetters;
                let verb = WalkVerb::Requeue(Requeue { to, ..Requeue::default() });
                self.walk(&place, messages, verb, dry_run).await?
            }
            ReworkVerb::Redrive { .. } if !messages.topic.is_dead_letter_topic() => {
                return Err(Refusal::NotDeadLetters.into());
            }
            ReworkVerb::Redrive { to: None, redrive, edit } => {
                let verb = WalkVerb::Requeue(Requeue { to: Destination::Source, redrive, edit });
                self.walk(&place, messages, verb, dry_run).await?
            }
            ReworkVerb::Redrive { to: Some(to), edit, redrive: _ }
            | ReworkVerb::Move { to, edit } => {
                self.move_to(&place, messages, &to, edit, dry_run).await?
            }
        };
        if let Some(refusal) = page.refusal.clone().filter(|_| page.done == 0) {
            return Err(refusal.into());
        }
        if is_edit && page.done == 0 && page.leased > 0 {
            return Err(Refusal::MessageLeased.into());
        }
        Ok(place.with(page))
    }

    fn place(&self, messages: &MeantMessages) -> Result<Place, ControlRefusal> {
        let topic = self.topic_named(&messages.topic)?;
        let group = group_named(&topic, &messages.group)?.id;
        let (partitions, index) = (topic.config().partitions, messages.partition);
        if index >= PartitionIndex(partitions) {
            let topic = messages.topic.clone();
            return Err(ControlRefusal::UnknownPartition { topic, partitions, partition: index });
        }
        let shard = self.core.cores.placement.shard_of(topic.created.home, index);
        let partition = PartitionId { topic: topic.id(), index };
        Ok(Place { topic, partition, shard, group })
    }

    /// The header that has the fair key of a topic's messages, or of those whose dead letters it holds.
    fn fair_key(&self, topic: &Topic) -> Option<HeaderName> {
        let of = |topic: &Topic| topic.config().fields.as_ref()?.fair_key.clone();
        of(topic).or_else(|| {
            let source = topic.created.name.as_str().strip_suffix(DEAD_LETTER_SUFFIX)?;
            of(&self.topic_named(&source.parse().ok()?).ok()?)
        })
    }

    async fn walk(
        &self,
        place: &Place,
        messages: MeantMessages,
        verb: WalkVerb,
        dry_run: bool,
    ) -> Result<WalkPage, ControlRefusal> {
        let walk = Walk {
            group: place.group,
            from: messages.from,
            selection: Arc::new(messages.selection),
            fair_key: self.fair_key(&place.topic),
            examined_max: WORKBENCH_EXAMINED_MAX,
            matched_max: messages.matched_max,
            verb,
            dry_run,
        };
        let command = PartitionCommand::Walk(Box::new(walk));
        match self.change_partition(place.shard, place.partition, command).await? {
            Answer::Walked(page) => Ok(*page),
            _ => Err(ControlRefusal::WrongAnswer),
        }
    }

    /// Publishes messages in another topic. Where its partition lies on the same shard, one record does that and settles
    /// them; where it does not, they are settled once the publish is committed, so that a crash between the two leaves
    /// them in both topics.
    async fn move_to(
        &self,
        place: &Place,
        messages: MeantMessages,
        to: &TopicName,
        edit: Option<sennit_engine::Edit>,
        dry_run: bool,
    ) -> Result<WalkPage, ControlRefusal> {
        let target = self.topic_named(to)?;
        if target.id() == place.partition.topic {
            return Err(ControlRefusal::SameTopic(to.clone()));
        }
        let partitions = target.config().partitions;
        let index = PartitionIndex(place.partition.index.0 % partitions.max(1));
        let shard = self.core.cores.placement.shard_of(target.created.home, index);
        let to = Destination::Topic { topic: target.id(), partitions };
        let requeue = Requeue { to, redrive: 0, edit };
        if shard == place.shard {
            return self.walk(place, messages, WalkVerb::Requeue(requeue), dry_run).await;
        }
        let copy = MeantMessages {
            matched_max: messages.matched_max.min(WORKBENCH_RANGES_MAX as u64),
            ..messages.clone()
        };
        let mut page = self.walk(place, copy, WalkVerb::Copy(requeue), dry_run).await?;
        let Some((batch, offsets)) = page.copies.take() else { return Ok(page) };
        let partition = PartitionId { topic: target.id(), index };
        let producer = ProducerStamp::default();
        page.bytes = batch.bytes().len() as u64;
        let publish = |origin| Command::Publish(Publish { origin, partition, producer, batch });
        match self.ask(shard, publish).await? {
            Answer::Published { .. } => {}
            _ => return Err(ControlRefusal::WrongAnswer),
        }
        let from = offsets.first().copied().unwrap_or_default();
        let selection = Selection { offsets: ranges(&offsets), ..Selection::default() };
        let published = MeantMessages { from, selection, ..messages };
        page.done = self.walk(place, published, WalkVerb::Cancel, false).await?.done;
        Ok(page)
    }
}

impl Place {
    fn with(&self, page: WalkPage) -> PageOfMessages {
        PageOfMessages { page, partitions: self.topic.config().partitions }
    }
}

/// The offsets as ranges that do not touch.
fn ranges(offsets: &[Offset]) -> Vec<OffsetRange> {
    let mut ranges: Vec<OffsetRange> = Vec::new();
    for &offset in offsets {
        match ranges.last_mut() {
            Some(last) if last.end == offset => last.end = offset.plus(1),
            _ => ranges.push(OffsetRange::new(offset, 1)),
        }
    }
    ranges
}
