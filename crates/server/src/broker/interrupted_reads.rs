//! Positions where answers broke off because a stream could not be read further: the next answer ends before that
//! position, and a reader that continues there receives the reason. Each core has all of them. It reads nothing.

use std::{cell::RefCell, collections::HashMap};

use sennit_model::{Offset, TopicId};

/// Streams of which it is remembered; beyond that it begins anew.
const BREAKS_MAX: usize = 1024;

/// Where answers broke off, the last of each stream.
#[derive(Debug, Default)]
pub(crate) struct InterruptedReads(RefCell<HashMap<TopicId, Offset>>);

impl InterruptedReads {
    pub(crate) fn broke_off(&self, topic: TopicId, at: Offset) {
        let mut breaks = self.0.borrow_mut();
        if breaks.len() >= BREAKS_MAX {
            breaks.clear();
        }
        breaks.insert(topic, at);
    }

    pub(crate) fn of(&self, topic: TopicId) -> Option<Offset> {
        self.0.borrow().get(&topic).copied()
    }
}
