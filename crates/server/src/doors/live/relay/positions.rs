//! How far this broker has what others publish. News that come behind a gap wait until what is missing was sent again, or is
//! known to be gone. It does no input and output, and knows no clock of its own.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use foldhash::fast::RandomState;
use sennit_model::TopicName;

use super::message::{NodeId, RelayKind, RelayMessage};
use crate::doors::live::limits::{RELAY_HELD_BYTES_MAX, RELAY_ORIGINS_MAX};

/// How long an answer to a question may take before it is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Questions without an answer before a broker counts as gone.
const QUESTIONS_MAX: u32 = 5;

/// A topic of another broker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Source {
    topic: TopicName,
    tag: u64,
}

#[derive(Debug)]
struct Position {
    node: NodeId,
    /// Everything before it is here, or is known to be gone.
    next: u64,
    gap: Option<Gap>,
}

/// Something is missing.
#[derive(Debug)]
struct Gap {
    /// News behind it, in their order.
    held: VecDeque<RelayMessage>,
    bytes: usize,
    asked: Instant,
    questions: u32,
}

/// The step that follows.
#[derive(Debug, PartialEq)]
pub(crate) enum Step {
    /// These messages are published here: those of the topic, encoded, with their offsets there.
    Publish(RelayMessage),
    /// The other broker is asked what there is from this offset on.
    Ask { node: NodeId, topic: TopicName, tag: u64, from: u64 },
    /// Something is missing for good: whoever follows the topic is told.
    Tell(TopicName),
}

/// The positions of all topics that are followed.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    sources: HashMap<Source, Position, RandomState>,
}

impl Positions {
    /// Takes a message of another broker; says what follows.
    pub(crate) fn take(&mut self, message: RelayMessage, now: Instant) -> Vec<Step> {
        let source = Source { topic: message.topic.clone(), tag: message.tag };
        let mut steps = Vec::new();
        let Some(position) = self.sources.get_mut(&source) else {
            // What was before is not asked for: whoever subscribes begins here.
            if message.kind == RelayKind::News {
                if self.sources.len() >= RELAY_ORIGINS_MAX {
                    let topics = self.sources.drain().map(|(source, _)| source.topic);
                    steps.extend(topics.map(Step::Tell));
                }
                let position = Position { node: message.node, next: message.end, gap: None };
                self.sources.insert(source, position);
                steps.push(Step::Publish(message));
            }
            return steps;
        };
        position.node = message.node;
        match message.kind {
            RelayKind::Question
            | RelayKind::Joined
            | RelayKind::Left
            | RelayKind::Here
            | RelayKind::WhoIsHere
            | RelayKind::Alive => return steps,
            RelayKind::Gone => {
                if message.end > position.next {
                    position.next = message.end;
                    steps.push(Step::Tell(source.topic.clone()));
                }
            }
            RelayKind::News | RelayKind::Again if message.from <= position.next => {
                position.publish(message, &mut steps);
            }
            RelayKind::Again => {}
            RelayKind::News => {
                let bytes = message.bytes();
                let gap = position.gap.get_or_insert_with(|| {
                    steps.push(ask(&source, position.node, position.next));
                    Gap { held: VecDeque::new(), bytes: 0, asked: now, questions: 1 }
                });
                if gap.bytes + bytes > RELAY_HELD_BYTES_MAX {
                    // It is sent again with the rest.
                    gap.held.clear();
                    gap.bytes = 0;
                } else {
                    gap.bytes += bytes;
                    gap.held.push_back(message);
                }
                return steps;
            }
        }
        if let Some(gap) = &mut position.gap {
            // It answers.
            gap.asked = now;
            gap.questions = 1;
        }
        position.join(&mut steps);
        steps
    }

    /// The way to the others was cut: all are asked what came meanwhile.
    pub(crate) fn ask_all(&mut self, now: Instant) -> Vec<Step> {
        let mut steps = Vec::new();
        for (source, position) in &mut self.sources {
            let gap = Gap { held: VecDeque::new(), bytes: 0, asked: now, questions: 1 };
            position.gap = Some(gap);
            steps.push(ask(source, position.node, position.next));
        }
        steps
    }

    /// Time has passed: who has not answered is asked again, or given up.
    pub(crate) fn look(&mut self, now: Instant) -> Vec<Step> {
        let mut steps = Vec::new();
        for (source, position) in &mut self.sources {
            let Some(gap) = &mut position.gap else { continue };
            if now.duration_since(gap.asked) < ASK_AGAIN {
                continue;
            }
            gap.asked = now;
            gap.questions += 1;
            if gap.questions <= QUESTIONS_MAX {
                steps.push(ask(source, position.node, position.next));
                continue;
            }
            // What it has published before it went may be missing.
            steps.push(Step::Tell(source.topic.clone()));
            if let Some(first) = gap.held.front() {
                position.next = first.from;
            }
            position.join(&mut steps);
            position.gap = None;
        }
        steps
    }

    /// Nobody follows such topics any more.
    pub(crate) fn forget(&mut self, is_such: impl Fn(&TopicName) -> bool) {
        self.sources.retain(|source, _| !is_such(&source.topic));
    }
}

fn ask(source: &Source, node: NodeId, from: u64) -> Step {
    Step::Ask { node, topic: source.topic.clone(), tag: source.tag, from }
}

impl Position {
    /// Publishes what is new of a message.
    fn publish(&mut self, mut message: RelayMessage, steps: &mut Vec<Step>) {
        message.messages.retain(|(offset, _)| *offset >= self.next);
        self.next = self.next.max(message.end);
        if !message.messages.is_empty() {
            steps.push(Step::Publish(message));
        }
    }

    /// News that wait follow, as far as nothing is missing before them.
    fn join(&mut self, steps: &mut Vec<Step>) {
        let Some(mut gap) = self.gap.take() else { return };
        while let Some(first) = gap.held.pop_front() {
            if first.from > self.next {
                gap.held.push_front(first);
                break;
            }
            gap.bytes -= first.bytes();
            self.publish(first, steps);
        }
        if !gap.held.is_empty() {
            self.gap = Some(gap);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use sennit_model::{BatchBuilder, Message};

    use super::*;

    const NODE: NodeId = NodeId([7; 16]);

    fn message(kind: RelayKind, from: u64, end: u64, offsets: &[u64]) -> RelayMessage {
        let encoded = |offset: &u64| {
            let mut builder = BatchBuilder::new();
            builder.push(&Message::new(offset.to_string())).unwrap();
            (*offset, Bytes::copy_from_slice(builder.take().unwrap().bytes()))
        };
        let messages = offsets.iter().map(encoded).collect();
        let topic = "news".parse().unwrap();
        RelayMessage { kind, node: NODE, topic, tag: 1, from, end, messages }
    }

    /// The offsets that steps publish.
    fn published(steps: &[Step]) -> Vec<u64> {
        let messages = steps.iter().filter_map(|step| match step {
            Step::Publish(message) => Some(message.messages.iter().map(|(offset, _)| *offset)),
            _ => None,
        });
        messages.flatten().collect()
    }

    #[test]
    fn news_behind_a_gap_wait_for_what_is_missing() {
        let (mut positions, now) = (Positions::default(), Instant::now());
        assert_eq!(published(&positions.take(message(RelayKind::News, 5, 6, &[5]), now)), [5]);
        let steps = positions.take(message(RelayKind::News, 8, 9, &[8]), now);
        let asked = Step::Ask { node: NODE, topic: "news".parse().unwrap(), tag: 1, from: 6 };
        assert_eq!(steps, [asked]);
        assert_eq!(positions.take(message(RelayKind::News, 9, 10, &[9]), now), []);
        let steps = positions.take(message(RelayKind::Again, 6, 9, &[6, 8]), now);
        assert_eq!(published(&steps), [6, 8, 9], "each once, in order");
    }

    #[test]
    fn what_is_gone_is_told_and_the_rest_follows() {
        let (mut positions, now) = (Positions::default(), Instant::now());
        positions.take(message(RelayKind::News, 0, 1, &[0]), now);
        positions.take(message(RelayKind::News, 5, 6, &[5]), now);
        let steps = positions.take(message(RelayKind::Gone, 0, 4, &[]), now);
        assert_eq!(steps, [Step::Tell("news".parse().unwrap())]);
        let steps = positions.take(message(RelayKind::Again, 4, 6, &[4, 5]), now);
        assert_eq!(published(&steps), [4, 5]);
    }

    #[test]
    fn a_broker_that_does_not_answer_is_given_up_and_that_is_told() {
        let (mut positions, mut now) = (Positions::default(), Instant::now());
        positions.take(message(RelayKind::News, 0, 1, &[0]), now);
        positions.take(message(RelayKind::News, 5, 6, &[5]), now);
        for _ in 1..QUESTIONS_MAX {
            assert_eq!(positions.look(now), []);
            now += ASK_AGAIN;
            assert!(matches!(positions.look(now)[..], [Step::Ask { from: 1, .. }]));
        }
        now += ASK_AGAIN;
        let steps = positions.look(now);
        assert_eq!(steps[0], Step::Tell("news".parse().unwrap()));
        assert_eq!(published(&steps), [5]);
        assert_eq!(published(&positions.take(message(RelayKind::News, 6, 7, &[6]), now)), [6]);
    }

    proptest! {
        /// Messages between brokers are lost, and come twice; what is missing is asked for. All are published, each once and in
        /// their order.
        #[test]
        fn each_message_is_published_once_and_in_order(
            news in prop::collection::vec((1_u64..4, 0_u8..4), 1..60),
        ) {
            let (mut positions, now) = (Positions::default(), Instant::now());
            let (mut sent, mut heard, mut asked) = (0, Vec::new(), None);
            for (index, (length, fate)) in news.iter().enumerate() {
                let (from, end) = (sent, sent + length);
                sent = end;
                let offsets: Vec<u64> = (from..end).collect();
                let one = message(RelayKind::News, from, end, &offsets);
                let times = match (index, fate) { (0, _) => 1, (_, 0) => 0, (_, 1) => 2, _ => 1 };
                for _ in 0..times {
                    let steps = positions.take(one.clone(), now);
                    heard.extend(published(&steps));
                    for step in steps {
                        if let Step::Ask { from, .. } = step {
                            asked = Some(from);
                        }
                    }
                }
                if *fate == 3 && let Some(from) = asked.take() {
                    let offsets: Vec<u64> = (from..sent).collect();
                    let again = message(RelayKind::Again, from, sent, &offsets);
                    heard.extend(published(&positions.take(again, now)));
                }
            }
            // In the end the way is there again.
            for step in positions.ask_all(now) {
                let Step::Ask { from, .. } = step else { panic!("{step:?}") };
                let offsets: Vec<u64> = (from..sent).collect();
                let again = message(RelayKind::Again, from, sent, &offsets);
                heard.extend(published(&positions.take(again, now)));
            }
            prop_assert_eq!(heard, (0..sent).collect::<Vec<_>>());
        }
    }
}
