//! Routing of the effects of a core's shards: to sessions of this core, to other cores, and to questions of the
//! core itself.

use sennit_engine::Effect;

use super::{Core, CoreSession};
use crate::runtime::index::CoreIndex;

impl Core {
    /// Sends the effects of the shard of this number where they belong.
    pub(super) fn route(&mut self, number: usize) {
        let mut effects = std::mem::take(&mut self.scratch);
        effects.append(self.shards[number].effects());
        for effect in effects.drain(..) {
            match (effect, &self.decider) {
                (Effect::AttemptsFailed(attempts), Some(decider)) => {
                    decider.failed(self.shards[number].index, *attempts);
                }
                (effect, _) => self.route_one(effect),
            }
        }
        self.scratch = effects;
    }

    pub(super) fn route_one(&mut self, effect: Effect) {
        let session = match &effect {
            Effect::Confirmed(confirmed) => confirmed.origin.session,
            Effect::PublishNoted(note) => note.origin.session,
            Effect::Deliver(delivery) => delivery.session,
            Effect::Settled(settled) => settled.origin.session,
            Effect::SubscriptionEnded { session, .. }
            | Effect::SubscriptionInterrupted { session, .. }
            | Effect::CursorTaken { session, .. }
            | Effect::ReaderTooSlow { session, .. }
            | Effect::Gap { session, .. } => *session,
            Effect::Subscribed { origin, .. }
            | Effect::Done { origin, .. }
            | Effect::PublishedAt { origin, .. }
            | Effect::PublishedAtomic { origin, .. }
            | Effect::Described { origin, .. }
            | Effect::Located { origin, .. }
            | Effect::Cursors { origin, .. }
            | Effect::Delayed { origin, .. }
            | Effect::DelaysChanged { origin, .. }
            | Effect::Explained { origin, .. }
            | Effect::Keys { origin, .. }
            | Effect::Unparked { origin, .. }
            | Effect::Walked { origin, .. }
            | Effect::Refused { origin, .. }
            | Effect::Stream(origin, _) => origin.session,
            // Nobody decides about them here: the policy stands.
            Effect::AttemptsFailed(_) => return,
            // The first core has the control of topics.
            Effect::DeadLetterTopicNeeded { .. } | Effect::StreamEnded { .. } => {
                CoreSession::of_core(CoreIndex::FIRST).into()
            }
        };
        let home = CoreSession::from(session).core();
        if home != self.index {
            self.effects[home].push(effect);
            return;
        }
        if session == CoreSession::of_core(home).into() {
            match (&effect, &self.needs) {
                (Effect::DeadLetterTopicNeeded { source }, Some(needs)) => {
                    needs.dead_letter_topic(*source);
                }
                (Effect::StreamEnded { topic }, Some(needs)) => needs.end_of_stream(*topic),
                _ => self.answers.take(effect),
            }
            return;
        }
        if self.draining && matches!(effect, Effect::Deliver(_)) {
            return;
        }
        let Some(sink) = self.sinks.get(&session) else { return };
        for (shard, command) in sink.take(effect, &self.cores.placement) {
            self.cores.send_commands(shard, vec![command]);
        }
    }
}
