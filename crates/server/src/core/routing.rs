//! Where a shard's effects belong: to sessions that are at home on this core, to the other cores', and to
//! who asked in the core's own name.

use sennit_engine::{Command, Effect, ReaderChange};
use sennit_protocol::{ErrorCode, Gap, GapReason, PublishedAt, Reply, SettleRun};

use super::{Core, own_session};
use crate::{inbox::Message, refusal_reply};

impl Core {
    /// Sends the shard's effects where they belong.
    pub(super) fn route(&mut self) {
        let mut effects = std::mem::take(&mut self.scratch);
        effects.append(self.shard.effects());
        for effect in effects.drain(..) {
            self.route_one(effect);
        }
        self.scratch = effects;
    }

    pub(super) fn route_one(&mut self, effect: Effect) {
        let (session, request) = match &effect {
            Effect::Confirmed(confirmed) => (confirmed.origin.session, confirmed.origin.request),
            Effect::Deliver(delivery) => (delivery.session, 0),
            Effect::Settled(settled) => (settled.origin.session, settled.origin.request),
            Effect::SubscriptionEnded { session, .. }
            | Effect::CursorTaken { session, .. }
            | Effect::ReaderTooSlow { session, .. }
            | Effect::Gap { session, .. } => (*session, 0),
            Effect::Subscribed { origin, .. }
            | Effect::Done { origin, .. }
            | Effect::PublishedAt { origin, .. }
            | Effect::Described { origin, .. }
            | Effect::Located { origin, .. }
            | Effect::Cursors { origin, .. }
            | Effect::Unparked { origin, .. }
            | Effect::Refused { origin, .. } => (origin.session, origin.request),
            Effect::Stream(origin, _) => (origin.session, origin.request),
            // The first core has the control of topics.
            Effect::DeadLetterTopicNeeded { .. } | Effect::StreamEnded { .. } => {
                (own_session(0), 0)
            }
        };
        let home = (session.0 >> 48) as usize;
        if home != self.index {
            self.effects[home].push(effect);
            return;
        }
        if session == own_session(home) {
            self.answers.take(effect);
            return;
        }
        let Some(outbox) = self.outboxes.get(&session) else { return };
        match effect {
            Effect::Confirmed(confirmed) => outbox.confirm(&confirmed),
            Effect::Deliver(_) if self.draining => {}
            Effect::Deliver(delivery) => outbox.deliver(delivery),
            Effect::Settled(settled) => {
                let stale = settled.stale.iter().map(|run| SettleRun {
                    partition: settled.partition.index,
                    first: run.first,
                    count: run.count,
                    attempt: run.attempt,
                    generation: run.generation,
                });
                outbox.settled(request, settled.applied, stale);
            }
            Effect::SubscriptionEnded { subscription, .. } => {
                outbox.subscription_ended(subscription, ErrorCode::UnknownTopic);
            }
            Effect::PublishedAt { first, count, .. } => {
                outbox.reply(&Reply::PublishedAt(PublishedAt { first, count }), request);
            }
            Effect::ReaderTooSlow { subscription, .. }
            | Effect::CursorTaken { subscription, .. } => {
                let is_slow = matches!(effect, Effect::ReaderTooSlow { .. });
                let code = if is_slow { ErrorCode::SlowConsumer } else { ErrorCode::CursorHeld };
                outbox.subscription_ended(subscription, code);
                let held = outbox.routes.borrow_mut().subscriptions.remove(subscription);
                for (core, partition) in
                    held.iter().flat_map(|held| held.each_partition(self.commands.len()))
                {
                    // It ends in all partitions, whatever the others think of it.
                    let change = ReaderChange::End;
                    let end = Command::Reader { session, subscription, partition, change };
                    let _ = self.cores.inboxes[core].send(Message::Commands(vec![end]));
                }
            }
            Effect::Refused { refusal, .. } => {
                outbox.refused(request, refusal_reply::reply(&refusal));
            }
            Effect::Gap { subscription, partition, range, reason, session: _ } => outbox.gap(Gap {
                subscription,
                partition: partition.index,
                offsets: range,
                reason: match reason {
                    sennit_engine::GapReason::Damaged => GapReason::Damaged,
                    sennit_engine::GapReason::Lost => GapReason::Lost,
                    sennit_engine::GapReason::Retention => GapReason::Retention,
                    sennit_engine::GapReason::RolledBack => GapReason::RolledBack,
                    sennit_engine::GapReason::Skipped => GapReason::Skipped,
                    sennit_engine::GapReason::Filtered => GapReason::Filtered,
                    sennit_engine::GapReason::Compacted => GapReason::Compacted,
                },
            }),
            Effect::Subscribed { .. }
            | Effect::Done { .. }
            | Effect::Described { .. }
            | Effect::Located { .. }
            | Effect::Cursors { .. }
            | Effect::Unparked { .. }
            | Effect::Stream(..)
            | Effect::StreamEnded { .. }
            | Effect::DeadLetterTopicNeeded { .. } => {}
        }
    }
}
