//! Fair groups in the world of the tests: their topics, rules and messages.

use std::time::Duration;

use sennit_engine::{DeadLetters, Delivery, DeliveryRun, Engine};
use sennit_model::{
    Cost, Generation, GroupConfig, Header, KeyRule, KeyRules, Message, MessageFields, MessageView,
    Messages, ThrottleRate, TopicConfig,
};

use super::{DEAD, ORDERS, World, queue, setting};

pub const SECOND: Duration = Duration::from_secs(1);

pub fn fields() -> MessageFields {
    let name = |text: &str| Some(text.parse().expect("it is a name"));
    MessageFields {
        fair_key: name("tenant"),
        weight: name("weight"),
        priority: name("priority"),
        throttle_keys: name("throttle"),
        delay: name("delay"),
        cost: Cost::Message,
    }
}

pub fn fair() -> TopicConfig {
    TopicConfig { fields: fields().if_any(), ..queue() }
}

pub fn group(rules: Vec<KeyRule>) -> GroupConfig {
    let key_rules = KeyRules::new(rules);
    GroupConfig { key_rules, lease: Duration::from_secs(30), ..GroupConfig::default() }
}

pub fn rule(pattern: &str) -> KeyRule {
    KeyRule::new(pattern.parse().expect("it is a pattern"))
}

pub fn rate(text: &str) -> Option<ThrottleRate> {
    Some(ThrottleRate::parse(text).expect("it is a rate"))
}

pub fn of(tenant: &str, more: &[(&str, &str)]) -> Message {
    let tenant = [("tenant", tenant)];
    let headers = tenant.iter().chain(more).map(|&(name, value)| Header::text(name, value));
    Message { headers: headers.collect(), ..Message::new(tenant[0].1.to_owned()) }
}

pub fn many(tenant: &str, count: usize) -> Vec<Message> {
    vec![of(tenant, &[]); count]
}

/// Settings that change while all else goes on.
pub fn alter(world: &mut World, topic: TopicConfig, group: GroupConfig) {
    world.open(ORDERS, topic, vec![setting(group)], DeadLetters::To(DEAD.topic));
}

/// The payloads of the next `count` messages, each of which is acked before the next is given.
pub fn served(world: &mut World, count: usize) -> Vec<String> {
    let mut served = Vec::new();
    while served.len() < count {
        let deliveries = world.deliveries();
        assert!(!deliveries.is_empty(), "nothing is given after {served:?}");
        for Delivery { first, count, attempt, generation, messages, .. } in deliveries {
            let messages = Messages::of_checked(&messages);
            let text = |message: MessageView<'_>| String::from_utf8_lossy(message.payload()).into();
            served.extend(messages.map(text));
            world.ack(DeliveryRun { first, count, attempt, generation });
        }
    }
    served.truncate(count);
    served
}

/// The world in its next life, from all of its records or from a snapshot.
pub fn restarted(mut world: World, from_snapshot: bool) -> World {
    if !from_snapshot {
        let count = world.journal.records.len();
        return world.crashed(count);
    }
    let mut kept = Vec::new();
    world.engine.encode_snapshot(&mut kept);
    let engine = Engine::from_snapshot(kept.into(), Generation(2), world.now);
    world.engine = engine.expect("it is whole");
    world.effects.clear();
    world
}
