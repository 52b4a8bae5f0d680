//! Groups: after the confirm that a message is settled it is not handed out any more.
//!
//! A consumer may receive late: a delivery may have been on its way, or have lain with the client, when another
//! delivery of its message was acked. So a delivery breaks the promise only if it was handed out after the confirm for
//! certain. Two facts show that. Deliveries of a partition reach a consumer in the order in which they were handed
//! out: one that comes behind a message published after the confirm was handed out after it. And generations follow
//! each other: the broker that delivers a message published after the confirm has lived after it, so each generation
//! above its own began after the confirm.

use std::collections::{BTreeMap, HashMap};

use crate::{
    history::History,
    log::{Log, NEVER},
    operation::{Content, Delivered, Operation, What},
    publishes::Publishes,
    settled::SettledMessages,
    violation::{Rule, Violation},
};

/// What a consumer has received of a partition.
#[derive(Default)]
struct Stream {
    /// The latest begin of the publishes of what came.
    newest_ns: u64,
    generation: u64,
    /// The last first attempt of this generation.
    first_attempt: Option<u64>,
}

/// A delivery of one message: group, partition, offset, generation, attempt and operation.
type Handed = (u32, u32, u64, u64, u32, u32);

/// Finds deliveries that should not have been, and messages that were never delivered.
pub(crate) fn judge(
    history: &History,
    publishes: &Publishes<'_>,
    logs: &BTreeMap<u32, Log>,
    violations: &mut Vec<Violation>,
) {
    let settled = SettledMessages::of(history);
    let lives = Lives::of(history, publishes);
    let mut streams: HashMap<(u32, u32), Stream> = HashMap::new();
    let mut handed: Vec<Handed> = Vec::new();
    for (index, operation) in (0..).zip(history.operations()) {
        let What::Delivered(delivered) = &operation.what else { continue };
        let &Delivered { consumer, group, partition, first, generation, attempt, .. } = delivered;
        let stream = streams.entry((consumer, partition)).or_default();
        if generation < stream.generation {
            let says = format!(
                "consumer {consumer} received generation {generation} by #{index}, behind {}",
                stream.generation
            );
            violations.push(Violation::at(Rule::GenerationWentBack, partition, first, says));
        }
        if generation != stream.generation {
            (stream.generation, stream.first_attempt) = (generation, None);
        }
        if attempt == 1 {
            if let Some(last) = stream.first_attempt.filter(|&last| last >= first) {
                let says = format!("consumer {consumer} received it by #{index}, behind {last}");
                violations.push(Violation::at(Rule::DeliveredOutOfOrder, partition, first, says));
            }
            stream.first_attempt =
                Some(first.saturating_add(delivered.contents.len() as u64).saturating_sub(1));
        }
        for offset in (first..).take(delivered.contents.len()) {
            handed.push((group, partition, offset, generation, attempt, index));
            let Some(settled) = settled.find(group, partition, offset) else { continue };
            let is_behind = settled.ended_ns < stream.newest_ns;
            let is_of_a_later_life = settled.delivery != (generation, attempt)
                && generation > lives.latest_at(partition, settled.ended_ns);
            if is_behind || is_of_a_later_life {
                let says = format!(
                    "group {group} was told by #{} that it is settled, and #{index} delivered it",
                    settled.operation
                );
                let again = Violation::at(Rule::SettledDeliveredAgain, partition, offset, says);
                violations.push(again);
            }
        }
        for content in &delivered.contents {
            if let Some(begun_ns) = begin_of(*content, publishes) {
                stream.newest_ns = stream.newest_ns.max(begun_ns);
            }
        }
    }
    handed.sort_unstable();
    twice(&handed, violations);
    for operation in history.operations() {
        if let What::Drained { group } = operation.what {
            never_delivered(group, operation, logs, &handed, violations);
        }
    }
}

fn begin_of(content: Content, publishes: &Publishes<'_>) -> Option<u64> {
    let Content::Message(name) = content else { return None };
    publishes.find(name).map(|publish| publish.operation.begun_ns)
}

fn twice(handed: &[Handed], violations: &mut Vec<Violation>) {
    for pair in handed.windows(2) {
        let &[(group, partition, offset, generation, attempt, one), other] = pair else { continue };
        if (group, partition, offset, generation, attempt)
            == (other.0, other.1, other.2, other.3, other.4)
        {
            let says = format!("group {group}: #{one} and #{} are one delivery", other.5);
            violations.push(Violation::at(Rule::DeliveredTwice, partition, offset, says));
        }
    }
}

fn never_delivered(
    group: u32,
    drained: &Operation,
    logs: &BTreeMap<u32, Log>,
    handed: &[Handed],
    violations: &mut Vec<Violation>,
) {
    for (&partition, log) in logs {
        let known = log.slots.iter().filter(|slot| slot.known_ns < drained.begun_ns);
        for slot in known {
            let place = (group, partition, slot.offset);
            let at = handed.partition_point(|each| (each.0, each.1, each.2) < place);
            if handed.get(at).is_none_or(|each| (each.0, each.1, each.2) != place) {
                let says = format!("group {group} said that it is empty without {:?}", slot.name);
                let never = Violation::at(Rule::NeverDelivered, partition, slot.offset, says);
                violations.push(never);
            }
        }
    }
}

/// The generations that delivered, by partition: each with the begin of the publish of what it delivered.
struct Lives(HashMap<u32, Vec<(u64, u64)>>);

impl Lives {
    fn of(history: &History, publishes: &Publishes<'_>) -> Self {
        let mut lives: HashMap<u32, Vec<(u64, u64)>> = HashMap::new();
        for operation in history.operations() {
            let What::Delivered(delivered) = &operation.what else { continue };
            let begins = delivered.contents.iter().filter_map(|each| begin_of(*each, publishes));
            let list = lives.entry(delivered.partition).or_default();
            // It lived when the latest of them was published, and behind that.
            list.extend(begins.max().map(|begun_ns| (begun_ns, delivered.generation)));
        }
        for list in lives.values_mut() {
            list.sort_unstable();
            let mut least = NEVER;
            for (_, generation) in list.iter_mut().rev() {
                least = least.min(*generation);
                *generation = least;
            }
        }
        Self(lives)
    }

    /// A generation that lived after an instant: all above it began after that. [`NEVER`] if none is known.
    fn latest_at(&self, partition: u32, instant_ns: u64) -> u64 {
        let list = self.0.get(&partition).map_or(&[][..], Vec::as_slice);
        let behind = list.partition_point(|&(begun_ns, _)| begun_ns <= instant_ns);
        list.get(behind).map_or(NEVER, |&(_, generation)| generation)
    }
}
