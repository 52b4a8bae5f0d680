//! The log of a partition, rebuilt from what clients were told: which message lies at each offset, since when it must
//! have been there, and who says so.

use std::collections::BTreeMap;

use crate::{
    history::History,
    operation::{Answer, Content, MessageName, Operation, What},
    publishes::Publishes,
    violation::{Rule, Violation, Witness, WitnessKind},
};

/// An instant behind all others: of what never ended.
pub(crate) const NEVER: u64 = u64::MAX;

/// What one client was told of one offset.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    offset: u64,
    content: Content,
    witness: Witness,
    ended_ns: u64,
}

/// A message at its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) offset: u64,
    pub(crate) name: MessageName,
    /// When it was published, and by which operation.
    pub(crate) begun_ns: u64,
    pub(crate) publish: Witness,
    /// When somebody first knew that it is there, and who; [`NEVER`] if no answer came.
    pub(crate) known_ns: u64,
    pub(crate) known_by: Witness,
}

/// The end of the partition as it was said once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndSaid {
    pub(crate) end: u64,
    pub(crate) begun_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) witness: Witness,
}

/// A partition's log, in the order of offsets. Offsets that nobody was told of are left out.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) slots: Vec<Slot>,
    /// In the order of the ends.
    pub(crate) ends: Vec<EndSaid>,
}

impl Log {
    /// The messages in a range of offsets.
    pub(crate) fn between(&self, start: u64, end: u64) -> &[Slot] {
        let from = self.slots.partition_point(|slot| slot.offset < start);
        let to = self.slots.partition_point(|slot| slot.offset < end);
        self.slots.get(from..to).unwrap_or_default()
    }
}

#[derive(Default)]
struct Told {
    sightings: Vec<Sighting>,
    ends: Vec<EndSaid>,
}

/// The logs of all partitions. Finds offsets that hold two messages, and messages that nobody published.
pub(crate) fn rebuild(
    history: &History,
    publishes: &Publishes<'_>,
    violations: &mut Vec<Violation>,
) -> BTreeMap<u32, Log> {
    let told = gather(history);
    told.into_iter()
        .map(|(partition, Told { mut sightings, mut ends })| {
            sightings.sort_unstable_by_key(|seen| (seen.offset, seen.ended_ns));
            ends.sort_unstable_by_key(|said| (said.end, said.begun_ns));
            let mut slots = Vec::new();
            for seen in sightings.chunk_by(|a, b| a.offset == b.offset) {
                if let Some(violation) = differing(partition, seen) {
                    violations.push(violation);
                }
                match slot_of(partition, seen, publishes) {
                    Ok(slot) => slots.push(slot),
                    Err(violation) => violations.push(violation),
                }
            }
            (partition, Log { slots, ends })
        })
        .collect()
}

fn gather(history: &History) -> BTreeMap<u32, Told> {
    let mut told: BTreeMap<u32, Told> = BTreeMap::new();
    for (index, operation) in history.operations().iter().enumerate() {
        let ended_ns = operation.ended_ns.unwrap_or(NEVER);
        let see = |kind, first: u64| {
            move |(at, content): (u64, Content)| Sighting {
                offset: first.saturating_add(at),
                content,
                witness: Witness::new(kind, index),
                ended_ns,
            }
        };
        match &operation.what {
            What::Published(published) => {
                let Some(partition) = published.partition else { continue };
                match published.answer {
                    Answer::Confirmed(Some(first)) => {
                        let MessageName { publisher, number } = published.first;
                        let names = (0..u64::from(published.count)).map(|at| {
                            let number = number + at;
                            (at, Content::Message(MessageName { publisher, number }))
                        });
                        let seen = names.map(see(WitnessKind::Published, first));
                        told.entry(partition).or_default().sightings.extend(seen);
                    }
                    Answer::NextIs(end) => {
                        told.entry(partition).or_default().ends.push(said(end, index, operation));
                    }
                    Answer::Confirmed(None) | Answer::Refused | Answer::Unknown => {}
                }
            }
            What::Read(read) => {
                let seen = (0..).zip(read.contents.iter().copied());
                let seen = seen.map(see(WitnessKind::Read, read.first));
                told.entry(read.partition).or_default().sightings.extend(seen);
            }
            What::Delivered(delivered) => {
                let seen = (0..).zip(delivered.contents.iter().copied());
                let seen = seen.map(see(WitnessKind::Delivered, delivered.first));
                told.entry(delivered.partition).or_default().sightings.extend(seen);
            }
            What::ReadStart(start) => {
                let end = said(start.end, index, operation);
                told.entry(start.partition).or_default().ends.push(end);
            }
            What::Ended(ended) => {
                let end = said(ended.end, index, operation);
                told.entry(ended.partition).or_default().ends.push(end);
            }
            What::Gap(_) | What::Settlement(_) | What::Drained { .. } => {}
        }
    }
    told
}

fn said(end: u64, index: usize, operation: &Operation) -> EndSaid {
    EndSaid {
        end,
        begun_ns: operation.begun_ns,
        ended_ns: operation.ended_ns.unwrap_or(NEVER),
        witness: Witness::new(WitnessKind::Ended, index),
    }
}

/// The first two sightings of an offset that say different things.
fn differing(partition: u32, seen: &[Sighting]) -> Option<Violation> {
    let [first, rest @ ..] = seen else { return None };
    let other = rest.iter().find(|other| other.content != first.content)?;
    let is_confirm = |seen: &Sighting| seen.witness.kind == WitnessKind::Published;
    let rule = match (is_confirm(first), is_confirm(other)) {
        (true, true) => Rule::OffsetGivenTwice,
        (false, false) => Rule::ReadDiffers,
        (true, false) | (false, true) => Rule::ConfirmDiffers,
    };
    let say = |seen: &Sighting| format!("{:?} by {}", seen.content, seen.witness);
    let says = format!("{}, {}", say(first), say(other));
    Some(Violation::at(rule, partition, first.offset, says))
}

/// The message at an offset, as the first who was told of it says.
fn slot_of(
    partition: u32,
    seen: &[Sighting],
    publishes: &Publishes<'_>,
) -> Result<Slot, Violation> {
    let Sighting { offset, content, witness: told, ended_ns } = seen[0];
    let wrong =
        |rule| Violation::at(rule, partition, offset, format!("{content:?}, told by {told}"));
    let Content::Message(name) = content else { return Err(wrong(Rule::Invented)) };
    let publish = publishes.find(name).ok_or_else(|| wrong(Rule::Invented))?;
    if matches!(publish.published.answer, Answer::Refused | Answer::NextIs(_)) {
        return Err(wrong(Rule::Invented));
    }
    let index = name.number - publish.published.first.number;
    let asked_partition = publish.published.partition.unwrap_or(partition);
    let asked_offset = publish.published.expected.map_or(offset, |first| first + index);
    if (asked_partition, asked_offset) != (partition, offset) {
        return Err(wrong(Rule::Misplaced));
    }
    Ok(Slot {
        offset,
        name,
        begun_ns: publish.operation.begun_ns,
        publish: Witness::new(WitnessKind::Published, publish.index),
        known_ns: ended_ns,
        known_by: told,
    })
}
