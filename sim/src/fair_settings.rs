//! Random settings of fair groups, and headers for them: few keys, so that messages meet, and few rules, so that they
//! hold something back.

use std::{sync::Arc, time::Duration};

use sennit_model::{
    Cost, GroupConfig, Header, KeyRule, KeyRules, MessageFields, Order, ThrottleRate, ThrottleRule,
    TopicConfig,
};

use crate::random::Random;

/// The fair keys, and the patterns of rules for them.
const KEYS: [&str; 5] = ["a1", "a2", "b1", "b2", "c"];
const KEY_PATTERNS: [&str; 5] = ["*", "a*", "a1", "b*", "c"];
/// The values of the header that names throttle keys, and the patterns of rules for these.
const THROTTLE_KEYS: [&str; 4] = ["t1", "t2", "t1, t2", "u:x,t2"];
const THROTTLE_PATTERNS: [&str; 4] = ["t1", "t2", "t*", "u:*"];
/// A bucket holds at least so many tokens at the end of a run.
const LAST_BURST: u32 = 20;
/// The rate at the end of a run is at least a token in this time.
const LAST_INTERVAL: Duration = Duration::from_secs(1);

/// Adds fields and a pause to a topic, to `fair` of a thousand.
pub fn topic(random: &mut Random, fair: u32, config: &mut TopicConfig) {
    if random.chance(fair) {
        config.fields = fields(random).if_any();
        config.is_paused = random.chance(60);
    }
}

fn fields(random: &mut Random) -> MessageFields {
    let mut name = |text: &str, per_mille| {
        random.chance(per_mille).then(|| text.parse().expect("it is a name"))
    };
    MessageFields {
        fair_key: name("k", 900),
        weight: name("w", 600),
        priority: name("p", 600),
        throttle_keys: name("t", 600),
        delay: name("d", 500),
        cost: match random.below(3) {
            0 => Cost::Message,
            1 => Cost::Bytes,
            _ => Cost::Header("c".parse().expect("it is a name")),
        },
    }
}

/// Adds rules, a throttle and a pause to a group, if there are fair ones.
pub fn group(random: &mut Random, fair: u32, config: &mut GroupConfig) {
    if fair == 0 {
        return;
    }
    config.is_paused = random.chance(60);
    config.throttle = random.chance(150).then(|| rate(random));
    if random.chance(600) {
        let rules = (0..random.between(1, 3)).map(|_| rule(random));
        config.key_rules = KeyRules::default().with(&rules.collect::<Vec<_>>());
    }
}

/// An order, of `ordered` of a thousand groups.
pub fn order(random: &mut Random, ordered: u32) -> Order {
    match random.chance(ordered) {
        true => [Order::Key, Order::Key, Order::Partition][random.below(3) as usize],
        false => Order::None,
    }
}

fn rule(random: &mut Random) -> KeyRule {
    let pattern = KEY_PATTERNS[random.below(5) as usize].parse().expect("it is a pattern");
    KeyRule {
        weight: random.chance(300).then(|| random.between(1, 5) as u32),
        concurrency: random.chance(600).then(|| random.between(1, 3) as u32),
        throttle: random.chance(250).then(|| rate(random)),
        is_paused: random.chance(120),
        ..KeyRule::new(pattern)
    }
}

fn rate(random: &mut Random) -> ThrottleRate {
    let interval = Duration::from_millis([1, 20, 200, 3_000][random.below(4) as usize]);
    let interval_ns = interval.as_nanos() as u64 + random.below(1_000_000);
    ThrottleRate { interval_ns, burst: random.between(1, 5) as u32 }
}

/// Rules for throttle keys.
pub fn throttles(random: &mut Random) -> Arc<[ThrottleRule]> {
    let mut rules = Vec::new();
    for pattern in THROTTLE_PATTERNS {
        if random.chance(500) {
            let pattern = pattern.parse().expect("it is a pattern");
            rules.push(ThrottleRule { pattern, rate: rate(random) });
        }
    }
    rules.into()
}

/// The headers of a message.
pub fn headers(random: &mut Random) -> Vec<Header> {
    let mut headers = Vec::new();
    let mut add = |name, value: String| headers.push(Header::text(name, value));
    let key = random.weighted(&[40, 20, 15, 10, 5, 10]);
    if let Some(key) = KEYS.get(key) {
        add("k", (*key).into());
    }
    if random.chance(300) {
        add("w", ["1", "2", "3", "7", "0", "x"][random.weighted(&[30, 30, 20, 10, 5, 5])].into());
    }
    if random.chance(300) {
        add("p", ["0", "4", "5", "9", "12", "-1"][random.weighted(&[30, 20, 20, 20, 5, 5])].into());
    }
    if random.chance(400) {
        add("t", THROTTLE_KEYS[random.below(4) as usize].into());
    }
    if random.chance(80) {
        let longest = [50, 5_000, 600_000][random.below(3) as usize];
        add("d", random.below(longest).to_string());
    }
    if random.chance(200) {
        add("c", random.between(1, 10).to_string());
    }
    headers
}

/// Lifts what would hold a group back for good, and has throttles let enough pass.
pub fn lift_group(config: &mut GroupConfig) {
    config.is_paused = false;
    config.throttle = config.throttle.map(faster);
    let rules = config.key_rules.iter().cloned().map(|rule| {
        let throttle = rule.throttle.map(faster);
        KeyRule { is_paused: false, throttle, ..rule }
    });
    let rules = rules.filter(|rule| !rule.is_empty());
    config.key_rules = KeyRules::new(rules.collect());
}

/// The rate, or a higher one at which a run ends.
pub fn faster(rate: ThrottleRate) -> ThrottleRate {
    let interval_ns = rate.interval_ns.min(LAST_INTERVAL.as_nanos() as u64);
    ThrottleRate { interval_ns, burst: rate.burst.max(LAST_BURST) }
}
