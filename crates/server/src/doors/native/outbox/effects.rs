//! Frames of the native protocol for the effects of a shard.

use sennit_engine::{
    AtomicPart, Command, ConfirmedPart, Effect, GapReason, ReaderChange, SessionId,
};
use sennit_protocol::{ErrorCode, Gap, PublishedAt, Reply, SettleRun, control};

use super::Outbox;
use crate::{
    doors::native::refusal_reply,
    runtime::{
        core::EffectSink,
        drain::DRAIN,
        index::ShardIndex,
        placement::Placement,
        session_takeover::{Ended, SessionToken},
    },
};

impl EffectSink for Outbox {
    fn take(&self, effect: Effect, placement: &Placement) -> Vec<(ShardIndex, Command)> {
        match effect {
            Effect::Confirmed(confirmed) => self.confirm(&confirmed),
            Effect::PublishNoted(note) => self.publish_note(&note),
            Effect::Deliver(delivery) => self.deliver(delivery),
            Effect::Settled(settled) => {
                let stale = settled.stale.iter().map(|run| SettleRun {
                    partition: settled.partition.index,
                    first: run.first,
                    count: run.count,
                    attempt: run.attempt,
                    generation: run.generation,
                });
                self.settled(settled.origin.request, settled.applied, stale);
            }
            Effect::PublishedAt { origin, first, count } => {
                self.reply(&Reply::PublishedAt(PublishedAt { first, count }), origin.request);
            }
            Effect::PublishedAtomic { origin, parts } => {
                let parts = parts.iter().map(atomic_part).collect();
                let reply = Reply::PublishedAtomic(control::PublishedAtomic { parts });
                self.reply(&reply, origin.request);
            }
            Effect::SubscriptionEnded { subscription, .. } => {
                self.subscription_ended(subscription, ErrorCode::UnknownTopic);
            }
            Effect::SubscriptionInterrupted { subscription, .. } => {
                self.subscription_ended(subscription, ErrorCode::OutcomeUnknown);
            }
            Effect::CursorTaken { session, subscription, .. } => {
                self.subscription_ended(subscription, ErrorCode::CursorHeld);
                return self.end_everywhere(session, subscription, placement);
            }
            Effect::ReaderTooSlow { session, subscription, .. } => {
                self.subscription_ended(subscription, ErrorCode::SlowConsumer);
                return self.end_everywhere(session, subscription, placement);
            }
            Effect::Refused { origin, refusal } => {
                self.refused(origin.request, refusal_reply::reply(&refusal));
            }
            Effect::Gap { subscription, partition, range, reason, session: _ } => {
                let (partition, offsets) = (partition.index, range);
                self.gap(Gap { subscription, partition, offsets, reason: reason_of(reason) });
            }
            Effect::Subscribed { .. }
            | Effect::Done { .. }
            | Effect::Described { .. }
            | Effect::Located { .. }
            | Effect::Cursors { .. }
            | Effect::Delayed { .. }
            | Effect::DelaysChanged { .. }
            | Effect::Explained { .. }
            | Effect::Keys { .. }
            | Effect::Unparked { .. }
            | Effect::Walked { .. }
            | Effect::Stream(..)
            | Effect::StreamEnded { .. }
            | Effect::AttemptsFailed(_)
            | Effect::DeadLetterTopicNeeded { .. } => {}
        }
        Vec::new()
    }

    fn token(&self) -> Option<SessionToken> {
        self.successor.token.get()
    }

    fn set_token(&self, token: SessionToken) {
        self.successor.token.set(Some(token));
    }

    fn replaced(&self, ended: Ended) {
        self.successor.comes(ended);
    }

    fn say_goodbye(&self) {
        let grace_ms = u64::try_from(DRAIN.as_millis()).unwrap_or(u64::MAX);
        let reason = "the broker stops".to_owned();
        self.reply(&Reply::GoAway(control::GoAway { reason, grace_ms }), 0);
    }

    fn has_sent_all(&self) -> bool {
        Self::is_empty(self)
    }
}

impl Outbox {
    /// A subscription that has lost one partition ends in all of them, whatever the others think of it.
    fn end_everywhere(
        &self,
        session: SessionId,
        subscription: u32,
        placement: &Placement,
    ) -> Vec<(ShardIndex, Command)> {
        let held = self.routes.borrow_mut().subscriptions.remove(subscription);
        let partitions = held.iter().flat_map(|held| held.each_partition(placement));
        let end = |partition| {
            let change = ReaderChange::End;
            Command::Reader { session, subscription, partition, change }
        };
        partitions.map(|(shard, partition)| (shard, end(partition))).collect()
    }
}

fn atomic_part(part: &AtomicPart) -> control::AtomicPart {
    let whole = control::AtomicRun { count: part.count, first_offset: None, duplicate: true };
    let run = |run: &ConfirmedPart| control::AtomicRun {
        count: run.count,
        first_offset: Some(run.first_offset.0),
        duplicate: run.duplicate,
    };
    let forgotten = part.runs.is_empty().then_some(whole);
    control::AtomicPart {
        topic_id: part.partition.topic.0,
        partition: part.partition.index.0,
        durability: part.durability.number().into(),
        runs: part.runs.iter().map(run).chain(forgotten).collect(),
        dropped: part.dropped,
        replaced: part.replaced,
    }
}

fn reason_of(reason: GapReason) -> sennit_protocol::GapReason {
    match reason {
        GapReason::Damaged => sennit_protocol::GapReason::Damaged,
        GapReason::Lost => sennit_protocol::GapReason::Lost,
        GapReason::Retention => sennit_protocol::GapReason::Retention,
        GapReason::RolledBack => sennit_protocol::GapReason::RolledBack,
        GapReason::Skipped => sennit_protocol::GapReason::Skipped,
        GapReason::Filtered => sennit_protocol::GapReason::Filtered,
        GapReason::Compacted => sennit_protocol::GapReason::Compacted,
    }
}
