//! Readers: each receives its partition without a repetition, and without a gap that it is not told of. Those that
//! read all back say what the log is in the end.

use std::collections::BTreeMap;

use crate::{
    history::History,
    log::Log,
    operation::{Gap, Read, What},
    violation::{Rule, Violation},
};

/// Ranges of offsets that were read back: messages, and what retention has freed.
#[derive(Debug, Default)]
pub(crate) struct ReadBack {
    /// In the order of offsets.
    ranges: Vec<(u64, u64)>,
    /// Whether a reader came to the end that it was told.
    pub(crate) is_whole: bool,
    /// The offset behind the last message.
    pub(crate) end: u64,
}

impl ReadBack {
    pub(crate) fn holds(&self, offset: u64) -> bool {
        let behind = self.ranges.partition_point(|&(start, _)| start <= offset);
        let range = behind.checked_sub(1).and_then(|at| self.ranges.get(at));
        range.is_some_and(|&(_, end)| offset < end)
    }
}

/// Where a reader is in a partition.
#[derive(Default)]
struct Trail {
    next: u64,
    end: u64,
    reads_back: bool,
    ranges: Vec<(u64, u64)>,
}

/// Finds what readers were not told; returns what was read back of each partition.
pub(crate) fn judge(
    history: &History,
    logs: &BTreeMap<u32, Log>,
    violations: &mut Vec<Violation>,
) -> BTreeMap<u32, ReadBack> {
    let mut trails: BTreeMap<(u32, u32), Trail> = BTreeMap::new();
    for (operation, what) in (0..).zip(history.operations().iter().map(|each| &each.what)) {
        match what {
            What::ReadStart(start) => {
                let trail = trails.entry((start.reader, start.partition)).or_default();
                trail.next = start.from.unwrap_or(start.first);
                trail.end = start.end;
                trail.reads_back = start.reads_back;
                let at = (start.reader, start.partition, operation);
                violations.extend(trail.reach(at, start.first));
                trail.next = start.first;
            }
            What::Read(Read { reader, partition, first, contents }) => {
                let trail = trails.entry((*reader, *partition)).or_default();
                violations.extend(trail.reach((*reader, *partition, operation), *first));
                trail.next = first.saturating_add(contents.len() as u64);
                trail.cover(*first);
            }
            What::Gap(gap) => {
                let &Gap { reader, partition, start, end, is_retention } = gap;
                let trail = trails.entry((reader, partition)).or_default();
                violations.extend(trail.reach((reader, partition, operation), start));
                trail.next = end;
                if is_retention {
                    trail.cover(start);
                } else if logs
                    .get(&partition)
                    .is_some_and(|log| !log.between(start, end).is_empty())
                {
                    let says =
                        format!("reader {reader} was told of a gap up to {end} by #{operation}");
                    let gap = Violation::at(Rule::GapOverMessages, partition, start, says);
                    violations.push(gap);
                }
            }
            What::Published(_)
            | What::Ended(_)
            | What::Delivered(_)
            | What::Settlement(_)
            | What::Drained { .. } => {}
        }
    }
    let mut read_back: BTreeMap<u32, ReadBack> = BTreeMap::new();
    for ((_, partition), trail) in trails {
        if trail.reads_back {
            let part = read_back.entry(partition).or_default();
            part.is_whole |= trail.next >= trail.end;
            part.end = part.end.max(trail.next);
            part.ranges.extend(trail.ranges);
        }
    }
    read_back.values_mut().for_each(|part| part.ranges.sort_unstable());
    read_back
}

impl Trail {
    /// The reader comes to `first`.
    fn reach(&self, at: (u32, u32, u32), first: u64) -> Option<Violation> {
        let (reader, partition, operation) = at;
        let next = self.next;
        let rule = match first {
            _ if first > next => Rule::UntoldGap,
            _ if first < next => Rule::ReadAgain,
            _ => return None,
        };
        let says = format!("reader {reader} received {first} by #{operation}, not {next}");
        Some(Violation::at(rule, partition, next.min(first), says))
    }

    /// Notes what lies from `start` to the next offset.
    fn cover(&mut self, start: u64) {
        if !self.reads_back {
            return;
        }
        match self.ranges.last_mut() {
            Some((_, end)) if *end == start => *end = self.next,
            _ => self.ranges.push((start, self.next)),
        }
    }
}
