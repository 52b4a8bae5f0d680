//! Routing of the effects of a core's shards: to sessions of this core, to other cores, and to questions of the
//! core itself.

use sennit_engine::Effect;

use super::{Core, addressee::session_of, core_session::CoreSession};
use crate::runtime::index::CoreIndex;

impl Core {
    /// Sends the effects of the shard of this number where they belong.
    pub(super) fn route(&mut self, number: usize) {
        let mut effects = std::mem::take(&mut self.scratch);
        self.shards[number].take_effects(&mut effects);
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
        // No decider is here: the policy stands.
        if let Effect::AttemptsFailed(_) = effect {
            return;
        }
        // The first core has the control of topics.
        let of_control = || self.cores.own_session(CoreIndex::FIRST);
        let session = session_of(&effect).unwrap_or_else(of_control);
        let home = CoreSession::from(session).core();
        if home != self.index {
            // Another node may name a core that is none.
            if (home.0 as usize) < self.effects.len() {
                self.effects[home].push(effect);
            }
            return;
        }
        if session == self.cores.own_session(home) {
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
