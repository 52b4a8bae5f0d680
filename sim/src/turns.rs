//! Keys take turns: a topic whose keys all have messages from the beginning, a consumer that holds one message at a
//! time, and counts of what it was given after each. Everything else is quiet then, so that the shares are exact.

use std::collections::BTreeMap;

use sennit_engine::{Command, Credit, Origin, Publish, SessionId};
use sennit_model::{
    Batch, BatchBuilder, Header, Message, MessageFields, ProducerStamp, TopicConfig, TopicKind,
};

use crate::{oracle::Violation, run::Run};

/// The keys: their weights, priorities, the costs of their messages, and how many they have.
static KEYS: [(&str, u64, u64, u64, u64); 5] = [
    ("even", 1, 4, 1, 20),
    ("odd", 1, 4, 1, 20),
    ("heavy", 2, 4, 1, 40),
    ("dear", 1, 4, 3, 6),
    ("low", 1, 2, 1, 4),
];
/// Of so many messages one is of the lowest priority.
const LOWEST_SHARE: u64 = 16;
/// The first number of these messages. Others use far lower numbers.
const MESSAGES: u64 = 1 << 52;

/// The promise that keys take turns.
const TURNS: &str = "I8 keys take turns by weight, cost and priority";

impl Run {
    /// Checks the turns of keys in a seed with fair groups.
    pub(crate) fn take_turns(&mut self) -> Result<(), Violation> {
        if self.swarm.fair == 0 || self.swarm.runs_full {
            return Ok(());
        }
        self.world.trace.step(format_args!("keys take turns"));
        let (partition, group) = self.topics.add(&mut self.world, topic())?;
        let (batch, keys) = messages();
        let origin = Origin { session: SessionId(1), request: self.world.request() };
        let producer = ProducerStamp::default();
        self.world.submit(Command::Publish(Publish { origin, partition, producer, batch }));
        self.settle_down_calmly(1000)?;
        let credit = Credit { messages: 1, bytes: 1 << 20 };
        let request = self.world.request();
        let Self { world, random, .. } = self;
        let subscribe = world.consumers.subscribe(random, partition, group, credit, request);
        self.world.submit(subscribe);
        let mut given: BTreeMap<&str, u64> = BTreeMap::new();
        let moved = self.world.moving.moved();
        for count in 1..=keys.len() as u64 {
            self.settle_down_calmly(1000)?;
            let acks = self.world.consumers.ack_all(&mut self.world.requests);
            for ack in acks {
                if let Command::Settle(settle) = &ack
                    && settle.partition == partition
                {
                    let offset = settle.runs.first().map_or(0, |run| run.first.0);
                    *given.entry(keys[offset as usize]).or_default() += 1;
                }
                self.world.submit(ack);
            }
            let all: u64 = given.values().sum();
            if all != count {
                let detail = format!("{given:?} after {count} acks of {}", keys.len());
                return Err(Violation::new(TURNS, detail));
            }
            check(&given, count, 2 + self.world.moving.moved() - moved)?;
        }
        self.settle_down_calmly(1000)
    }
}

fn topic() -> TopicConfig {
    let name = |text: &str| Some(text.parse().expect("it is a name"));
    let fields = MessageFields {
        fair_key: name("k"),
        weight: name("w"),
        priority: name("p"),
        cost: sennit_model::Cost::Header("c".parse().expect("it is a name")),
        ..MessageFields::default()
    };
    TopicConfig { fields: fields.if_any(), ..TopicConfig::of_kind(TopicKind::Queue) }
}

/// All messages in one batch, and the key of each.
fn messages() -> (Batch, Vec<&'static str>) {
    let (mut builder, mut keys) = (BatchBuilder::new(), Vec::new());
    for &(key, weight, priority, cost, count) in &KEYS {
        let mut headers = vec![Header::text("k", key)];
        // What a message does not say is 1, or 4 of its priority.
        for (name, value, unsaid) in [("w", weight, 1), ("p", priority, 4), ("c", cost, 1)] {
            headers.extend((value != unsaid).then(|| Header::text(name, value.to_string())));
        }
        for _ in 0..count {
            let number = MESSAGES + keys.len() as u64;
            let payload = number.to_le_bytes().to_vec();
            let message = Message { headers: headers.clone(), ..Message::new(payload) };
            builder.push(&message).expect("within all limits");
            keys.push(key);
        }
    }
    (builder.take().expect("it holds messages"), keys)
}

/// Checks the counts after `count` messages. Where their batch has to be fetched, at first
/// and after a move, a key may lose a turn: `slack` says by how many turns counts may differ.
fn check(given: &BTreeMap<&str, u64>, count: u64, slack: u64) -> Result<(), Violation> {
    let of = |key: &str| given.get(key).copied().unwrap_or_default();
    let wrong = |what: &str| {
        Err(Violation::new(TURNS, format!("after {count} messages {what}: {given:?}")))
    };
    let higher = || KEYS.iter().filter(|held| held.2 == 4);
    let is_one_through = higher().any(|held| of(held.0) == held.4);
    if !is_one_through {
        // All of them still have messages: their shares are those of one round after the other.
        let rounds = of("even");
        for (key, weight, _, cost, _) in higher() {
            let share = rounds * weight / cost;
            if of(key).abs_diff(share) > slack * weight {
                return wrong(&format!("the share of {key} is {share}"));
            }
        }
    }
    let are_all_through = higher().all(|held| of(held.0) == held.4);
    let share = count / LOWEST_SHARE;
    if of("low") + slack < share.min(4) {
        return wrong(&format!("of the lowest priority there should be {share}"));
    }
    if !are_all_through && of("low") > share + slack {
        return wrong(&format!("of the lowest priority there should be no more than {share}"));
    }
    Ok(())
}
