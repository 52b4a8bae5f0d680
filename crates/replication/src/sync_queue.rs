//! What raft has handed out and the lane has not synced yet, in order, with the messages that speak of it.

use std::collections::VecDeque;

use crate::message::Message;

/// What was handed out and is not synced.
#[derive(Default)]
pub(crate) struct SyncQueue {
    waiting: VecDeque<HandedOut>,
    /// The newest number of which the lane has said that it is synced.
    synced: u64,
}

/// One `Ready` of raft's.
pub(crate) struct HandedOut {
    /// raft's number of it.
    pub(crate) number: u64,
    /// It has something to write.
    pub(crate) writes: bool,
    /// It cuts the log.
    pub(crate) cuts: bool,
    /// Messages that may leave once it is synced.
    pub(crate) messages: Vec<Message>,
}

impl SyncQueue {
    /// Whether all that was handed out is synced.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// raft has handed something out.
    pub(crate) fn push(&mut self, handed_out: HandedOut) {
        self.waiting.push_back(handed_out);
    }

    /// The lane has synced all up to a number.
    pub(crate) fn synced(&mut self, number: u64) {
        self.synced = self.synced.max(number);
    }

    /// Takes out what is synced: the last number of it, with the messages. What has nothing to write is synced when all
    /// before it is. As long as a cut waits nothing comes out: raft knows what was synced by term and index, and an
    /// entry that was cut may come again.
    pub(crate) fn take_synced(&mut self) -> Option<(u64, Vec<Message>)> {
        let synced = self.synced;
        if self.waiting.iter().any(|one| one.cuts && one.number > synced) {
            return None;
        }
        let (mut last, mut messages) = (None, Vec::new());
        while let Some(one) = self.waiting.pop_front_if(|one| one.number <= synced || !one.writes) {
            last = Some(one.number);
            messages.extend(one.messages);
        }
        last.map(|number| (number, messages))
    }
}
