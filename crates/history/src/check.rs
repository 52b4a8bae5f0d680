//! The checker: all rules over one history.

use std::collections::BTreeMap;

use crate::{
    groups,
    history::History,
    instants,
    log::{self, Log, NEVER},
    operation::{Answer, MessageName, What},
    publishes::Publishes,
    readers::{self, ReadBack},
    violation::{Rule, Violation},
};

/// What a history holds, so that a test can say that enough has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Operations.
    pub operations: u64,
    /// Messages that were confirmed.
    pub confirmed: u64,
    /// Messages whose outcome no publisher learned.
    pub unknown: u64,
    /// Messages in the logs.
    pub logged: u64,
    /// Copies of messages that may be appended more than once.
    pub repeated: u64,
    /// Messages that readers received.
    pub read: u64,
    /// Messages that consumers received.
    pub delivered: u64,
    /// Messages whose settlement was confirmed.
    pub settled: u64,
    /// Answers that said where a partition ends.
    pub ends: u64,
}

/// What the checker found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What the history holds.
    pub counts: Counts,
    /// Each promise that was broken. One fault may break several.
    pub violations: Vec<Violation>,
}

/// Judges a history. The history has to end with each partition read back, by readers whose
/// [`crate::ReadStart::reads_back`] is set. Costs some sorts of all that was published, read and delivered.
#[must_use]
pub fn check(history: &History) -> Verdict {
    let mut violations = Vec::new();
    let publishes = Publishes::of(history);
    let logs = log::rebuild(history, &publishes, &mut violations);
    let read_back = readers::judge(history, &logs, &mut violations);
    for (&partition, log) in &logs {
        instants::judge(partition, log, &mut violations);
        missing(partition, log, read_back.get(&partition), &mut violations);
        torn(partition, log, read_back.get(&partition), &publishes, &mut violations);
    }
    let repeated = names(&logs, &publishes, &mut violations);
    groups::judge(history, &publishes, &logs, &mut violations);
    let logged = logs.values().map(|log| log.slots.len() as u64).sum();
    let counts = Counts { repeated, logged, ..counts(history, &logs) };
    Verdict { counts, violations }
}

/// All that anybody was told of is there in the end.
fn missing(
    partition: u32,
    log: &Log,
    read_back: Option<&ReadBack>,
    violations: &mut Vec<Violation>,
) {
    let Some(read_back) = read_back.filter(|part| part.is_whole) else {
        let says = format!("partition {partition}");
        return violations.push(Violation { rule: Rule::NotReadBack, place: None, says });
    };
    let lost = log.slots.iter().filter(|slot| !read_back.holds(slot.offset));
    violations.extend(lost.map(|slot| {
        let says = format!("{:?}, told by {}", slot.name, slot.known_by);
        Violation::at(Rule::Missing, partition, slot.offset, says)
    }));
}

/// The messages of a batch lie one behind the other.
fn torn(
    partition: u32,
    log: &Log,
    read_back: Option<&ReadBack>,
    publishes: &Publishes<'_>,
    violations: &mut Vec<Violation>,
) {
    let end = read_back.map_or(NEVER, |part| part.end);
    for (at, slot) in log.slots.iter().enumerate() {
        let Some(publish) = publishes.find(slot.name) else { continue };
        let (first, count) = (publish.published.first.number, publish.published.count);
        let neighbour = |index: Option<usize>, offset: Option<u64>, number: u64| {
            let other = index.and_then(|index| log.slots.get(index));
            let other = other.filter(|other| Some(other.offset) == offset);
            let name = MessageName { number, ..slot.name };
            // Where nobody was told of the offset, another rule says so.
            other.is_none_or(|other| other.name == name)
        };
        let number = slot.name.number;
        let has_next = number - first + 1 < u64::from(count);
        let is_cut = has_next && slot.offset.checked_add(1).is_none_or(|next| next == end);
        let is_torn = is_cut
            || has_next && !neighbour(at.checked_add(1), slot.offset.checked_add(1), number + 1)
            || number > first
                && !neighbour(at.checked_sub(1), slot.offset.checked_sub(1), number - 1);
        if is_torn {
            let says = format!("the batch of {:?}, {}", slot.name, slot.publish);
            violations.push(Violation::at(Rule::Torn, partition, slot.offset, says));
        }
    }
}

/// Each message lies once, unless it may be repeated, and those of a publisher in its order. Returns how many were
/// repeated.
fn names(
    logs: &BTreeMap<u32, Log>,
    publishes: &Publishes<'_>,
    violations: &mut Vec<Violation>,
) -> u64 {
    let places = logs.iter().flat_map(|(&partition, log)| {
        log.slots.iter().map(move |slot| (slot.name, partition, slot.offset))
    });
    let mut places: Vec<_> = places.collect();
    places.sort_unstable();
    let mut repeated = 0;
    // By partition, the last message of the publisher and its first place.
    let mut last: BTreeMap<u32, (MessageName, u64)> = BTreeMap::new();
    for copies in places.chunk_by(|a, b| a.0 == b.0) {
        let (name, partition, offset) = copies[0];
        let once = publishes.find(name).is_some_and(|publish| publish.published.once);
        match copies.get(1) {
            Some(&(_, other_partition, other)) if once => {
                let says =
                    format!("{name:?} lies at partition {other_partition} offset {other} too");
                violations.push(Violation::at(Rule::Duplicated, partition, offset, says));
            }
            _ => repeated += copies.len() as u64 - 1,
        }
        let before = last.insert(partition, (name, offset));
        if let Some((earlier, place)) = before
            && earlier.publisher == name.publisher
            && place > offset
        {
            let says = format!("{name:?} lies there, and {earlier:?} at {place}");
            violations.push(Violation::at(Rule::PublisherReordered, partition, offset, says));
        }
    }
    for publish in publishes.iter() {
        let name = publish.published.first;
        let is_placed = || places.binary_search_by_key(&name, |place| place.0).is_ok();
        if publish.published.answer == Answer::Confirmed(None) && !is_placed() {
            let says = format!("{name:?} is nowhere, confirmed by publish #{}", publish.index);
            violations.push(Violation { rule: Rule::Missing, place: None, says });
        }
    }
    repeated
}

fn counts(history: &History, logs: &BTreeMap<u32, Log>) -> Counts {
    let mut counts = Counts { operations: history.operations().len() as u64, ..Counts::default() };
    for operation in history.operations() {
        match &operation.what {
            What::Published(published) => match published.answer {
                Answer::Confirmed(_) => counts.confirmed += u64::from(published.count),
                Answer::Unknown => counts.unknown += u64::from(published.count),
                Answer::Refused | Answer::NextIs(_) => {}
            },
            What::Read(read) => counts.read += read.contents.len() as u64,
            What::Delivered(delivered) => counts.delivered += delivered.contents.len() as u64,
            What::Settlement(settlement) if settlement.is_confirmed => {
                counts.settled += u64::from(settlement.count);
            }
            What::Settlement(_) | What::ReadStart(_) | What::Gap(_) => {}
            What::Ended(_) | What::Drained { .. } => {}
        }
    }
    counts.ends = logs.values().map(|log| log.ends.len() as u64).sum();
    counts
}
