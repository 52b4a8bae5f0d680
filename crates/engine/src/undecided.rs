//! Failed attempts that wait until somebody above the engine has decided about them. They are in memory alone: what the
//! group's policy says of them is recorded already, and stands if nobody answers.

use std::{ops::Range, sync::Arc};

use sennit_model::Timestamp;

use crate::runs::Runs;

/// What is asked about a run of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// How many attempts have failed, this one included.
    pub(crate) attempts: u32,
    pub(crate) failed_at: Timestamp,
    /// From when on the policy decides.
    pub(crate) deadline: Timestamp,
    pub(crate) reason: Arc<str>,
    is_asked: bool,
}

impl Question {
    pub(crate) fn new(
        attempts: u32,
        (failed_at, deadline): (Timestamp, Timestamp),
        reason: Arc<str>,
    ) -> Self {
        Self { attempts, failed_at, deadline, reason, is_asked: false }
    }
}

/// The undecided messages of a group in a partition. Each is waiting or dying too, as its policy has it.
#[derive(Debug, Default)]
pub(crate) struct Undecided {
    runs: Runs<Question>,
    /// Messages that were asked about and not answered.
    asked: u64,
}

impl Undecided {
    pub(crate) fn insert(&mut self, start: u64, end: u64, question: Question) {
        self.remove(start, end);
        self.runs.insert(start, end, question);
    }

    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        for (from, to, question) in self.runs.remove(start, end) {
            self.asked -= if question.is_asked { to - from } else { 0 };
        }
    }

    /// The messages about which somebody has to decide, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (u64, u64)> {
        self.runs.iter().map(|(start, end, _)| (start, end))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn has_any(&self, start: u64, end: u64) -> bool {
        self.runs.has_any(start, end)
    }

    /// The parts of `start..end` about which nobody has to decide.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        self.runs.gaps(start, end)
    }

    /// The parts of `start..end` whose deadline has passed.
    pub(crate) fn over(&self, start: u64, end: u64, now: Timestamp) -> Vec<Range<u64>> {
        let parts = self.runs.within(start, end).into_iter();
        let over = parts.filter(|(_, _, question)| question.deadline <= now);
        over.map(|(from, to, _)| from..to).collect()
    }

    /// The messages to ask about next, at most so many, with their offsets; none while others are asked about.
    pub(crate) fn next(&self, most: usize) -> Vec<(u64, Question)> {
        if self.asked > 0 {
            return Vec::new();
        }
        let each = |(start, end, question): (u64, u64, &Question)| {
            let question = question.clone();
            (start..end).map(move |offset| (offset, question.clone()))
        };
        self.runs.iter().flat_map(each).take(most).collect()
    }

    /// The message at an offset is asked about.
    pub(crate) fn ask(&mut self, offset: u64, question: Question) {
        self.insert(offset, offset + 1, Question { is_asked: true, ..question });
        self.asked += 1;
    }

    /// What was asked about the message at an offset, if that waits for an answer.
    pub(crate) fn asked_about(&self, offset: u64) -> Option<&Question> {
        let (_, _, question) = self.runs.run_of(offset)?;
        Some(question).filter(|question| question.is_asked)
    }
}
