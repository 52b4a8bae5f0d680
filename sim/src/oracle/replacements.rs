//! The messages of a group that later ones with their deduplication values have replaced.

use std::collections::BTreeMap;

use sennit_model::MessageView;

/// The turn of a replacement that may have happened or not.
const UNSURE: u64 = u64::MAX;

/// The messages of a group that were replaced, with the turn of the later message.
#[derive(Clone, Debug, Default)]
pub(super) struct Replacements(BTreeMap<u64, u64>);

impl Replacements {
    /// Notes that a message was replaced, with the turn if that is certain.
    pub(super) fn note(&mut self, offset: u64, turn: Option<u64>) {
        self.0.entry(offset).or_insert(turn.unwrap_or(UNSURE));
    }

    /// Whether a message may have been replaced.
    pub(super) fn may_hold(&self, offset: u64) -> bool {
        self.0.contains_key(&offset)
    }

    /// The turn in which a message was certainly replaced.
    pub(super) fn certain(&self, offset: u64) -> Option<u64> {
        self.0.get(&offset).copied().filter(|turn| *turn != UNSURE)
    }

    /// Notes a crash: later messages that are not durable may be lost.
    pub(super) fn crashed(&mut self, durable_turn: u64) {
        for turn in self.0.values_mut() {
            *turn = if *turn <= durable_turn { 0 } else { UNSURE };
        }
    }
}

/// The value of a message.
pub(super) fn value_of(message: &MessageView<'_>) -> Option<u8> {
    let mut headers = message.headers().filter_map(Result::ok);
    headers.find(|header| header.0 == crate::swarm::DEDUP_HEADER)?.2.first().copied()
}
