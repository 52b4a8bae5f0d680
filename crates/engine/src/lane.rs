//! A lane: the ready messages of a group that have one class, oldest first. It may name messages that are not ready
//! any more, and may know the newest ones only by where they begin.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use sennit_model::Timestamp;

use crate::{
    classes::{ClassNumber, Classes},
    runs::Runs,
    throttles::Bucket,
    tries::Tries,
};

/// Most runs that are found at once by their class.
const RUNS_FOUND_MAX: usize = 4096;

/// No offset is as high.
pub(crate) const NOWHERE: u64 = u64::MAX;

/// The messages of a class.
#[derive(Debug)]
pub(crate) struct Lane {
    /// That of its class.
    pub(crate) age: u32,
    /// Its flow, with the flow's age; `u32::MAX` if it is in none.
    pub(crate) flow: (u32, u32),
    pub(crate) weight: u32,
    /// The buckets of its throttle keys.
    pub(crate) buckets: Box<[Arc<Bucket>]>,
    /// When these have a token, while they hold it back; else 0.
    pub(crate) free_at: Timestamp,
    /// Its place in the queue of its flow: not beyond its oldest message; [`NOWHERE`] if it is not there.
    pub(crate) queued_at: u64,
    runs: VecDeque<Range<u64>>,
    /// Messages from here on are not among the runs.
    rest: u64,
}

impl Default for Lane {
    fn default() -> Self {
        Self::new(0, (u32::MAX, 0), 1, Box::default())
    }
}

impl Lane {
    pub(crate) fn new(
        age: u32,
        flow: (u32, u32),
        weight: u32,
        buckets: Box<[Arc<Bucket>]>,
    ) -> Self {
        let (free_at, queued_at) = (Timestamp(0), NOWHERE);
        let runs = VecDeque::new();
        Self { age, flow, weight, buckets, free_at, queued_at, runs, rest: NOWHERE }
    }

    /// None of its messages lies before this; [`NOWHERE`] if it has none.
    pub(crate) fn begins(&self) -> u64 {
        self.runs.front().map_or(self.rest, |run| run.start)
    }

    /// How many runs it has.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Adds messages, and returns by how many runs it is longer. With a limit, what does not go into so many runs is
    /// found later.
    pub(crate) fn add(&mut self, range: Range<u64>, runs_max: Option<usize>) -> usize {
        let Range { start, end } = range.start..range.end.min(self.rest);
        if start >= end {
            return 0;
        }
        let before = self.runs.len();
        match (self.runs.front().map(|run| run.start), self.runs.back_mut()) {
            (_, Some(last)) if last.end == start => last.end = end,
            (_, Some(last)) if last.end < start => {
                if runs_max.is_some_and(|max| before >= max) {
                    self.rest = start;
                } else {
                    self.runs.push_back(start..end);
                }
            }
            (Some(first), _) if end == first => {
                self.runs.front_mut().expect("there is a first").start = start;
            }
            (Some(first), _) if end > first => {
                let at = self.runs.partition_point(|run| run.start < start);
                self.runs.insert(at, start..end);
            }
            _ => self.runs.push_front(start..end),
        }
        self.runs.len() - before
    }

    /// The oldest message that is ready. Nothing at or after `indexed_to` was ever added.
    pub(crate) fn first(
        &mut self,
        class: ClassNumber,
        ready: &Runs<Tries>,
        classes: &Classes,
        indexed_to: u64,
    ) -> Option<(u64, Tries)> {
        loop {
            let Some(run) = self.runs.front_mut() else {
                if !self.find_rest(class, classes, indexed_to) {
                    return None;
                }
                continue;
            };
            match ready.first_from(run.start) {
                Some((start, _, &tries)) if start < run.end => {
                    run.start = run.start.max(start);
                    return Some((run.start, tries));
                }
                _ => self.pop(),
            }
        }
    }

    fn pop(&mut self) {
        self.runs.pop_front();
        if self.runs.is_empty() {
            // There may be a million lanes, of which few have messages.
            self.runs = VecDeque::new();
        }
    }

    /// Takes the oldest message, which is at `offset`; returns by how many runs it is shorter.
    pub(crate) fn take(&mut self, offset: u64) -> usize {
        let run = self.runs.front_mut().expect("it has the message");
        assert_eq!(run.start, offset, "it is the oldest");
        run.start += 1;
        if run.start < run.end {
            return 0;
        }
        self.pop();
        1
    }

    /// Finds more of the messages that were not added, by their class. Costs a step for each message between.
    fn find_rest(&mut self, class: ClassNumber, classes: &Classes, indexed_to: u64) -> bool {
        while self.rest < indexed_to && self.runs.is_empty() {
            // In parts, because what is behind enough of them need not be looked at.
            let end = indexed_to.min(self.rest.saturating_add(RUNS_FOUND_MAX as u64));
            classes.runs(self.rest..end, |part, other| {
                if other == class {
                    self.runs.push_back(part);
                }
            });
            self.rest = end;
        }
        if self.rest >= indexed_to {
            self.rest = NOWHERE;
        }
        !self.runs.is_empty()
    }

    /// The runs.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.runs.iter().cloned()
    }

    /// Where the messages begin that are not among the runs.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn rest(&self) -> u64 {
        self.rest
    }
}
