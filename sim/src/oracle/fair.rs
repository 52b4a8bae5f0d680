//! The oracle's model of fair groups: what headers say, which rule means a key, how many of its messages are held,
//! and the times at which tokens were taken of each bucket. It is short of the engine's code on purpose: it compares
//! times and counts, and has no queues.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sennit_engine::GroupSetting;
use sennit_model::{
    GroupConfig, GroupId, KeyRule, KeyRules, MessageFields, MessageView, Order, PartitionId,
    ThrottleRate, ThrottleRule, Timestamp, TopicConfig, TopicId,
};

use super::{Oracle, Violation};

/// A token that is taken so late counts as taken in time: a quarter of the interval within these bounds.
const LATE_NS_MIN: u64 = 2_000_000;
const LATE_NS_MAX: u64 = 50_000_000;

/// What the headers of a message say to a scheduler. Messages that say the same are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Says {
    pub(super) key: String,
    priority: u64,
    throttle_keys: BTreeSet<String>,
}

impl Default for Says {
    fn default() -> Self {
        Self { key: String::new(), priority: 4, throttle_keys: BTreeSet::new() }
    }
}

impl Says {
    /// What a message says in a topic with these fields.
    pub(super) fn of(message: &MessageView<'_>, fields: Option<&MessageFields>) -> Self {
        let mut says = Self::default();
        let Some(fields) = fields else { return says };
        let value = |name: &Option<_>| name.as_ref().and_then(|name| header(message, name));
        says.key = value(&fields.fair_key).unwrap_or_default();
        if let Some(priority) = value(&fields.priority).and_then(|text| text.parse().ok()) {
            says.priority = u64::min(priority, 9);
        }
        let throttle_keys = value(&fields.throttle_keys).unwrap_or_default();
        let throttle_keys = throttle_keys.split(',').map(|key| key.trim().to_owned());
        says.throttle_keys = throttle_keys.filter(|key| !key.is_empty()).collect();
        says
    }
}

/// The delay that a header says.
pub(super) fn header_delay(
    message: &MessageView<'_>,
    fields: Option<&MessageFields>,
) -> Option<Duration> {
    let text = header(message, fields?.delay.as_ref()?)?;
    text.parse().ok().filter(|&ms| ms > 0).map(Duration::from_millis)
}

/// A message of the simulation has a header once, as text.
fn header(message: &MessageView<'_>, name: &sennit_model::HeaderName) -> Option<String> {
    let found = message.headers().filter_map(Result::ok).find(|held| held.0 == name.as_str())?;
    String::from_utf8(found.2.to_vec()).ok()
}

/// Whether messages are given by fair key.
pub(super) fn is_fair(topic: &TopicConfig, group: &GroupConfig) -> bool {
    topic.fields.is_some()
        || group.throttle.is_some()
        || group.key_rules.iter().len() > 0
        || group.order != Order::None
}

/// The rule for a key: the one that names it, or else the one with the longest beginning of it.
fn key_rule<'a>(rules: &'a KeyRules, key: &str) -> Option<&'a KeyRule> {
    let named = rules.iter().find(|rule| rule.pattern.as_str() == key);
    named.or_else(|| {
        let begins = rules.iter().filter(|rule| is_beginning(rule.pattern.as_str(), key));
        begins.max_by_key(|rule| rule.pattern.as_str().len())
    })
}

fn is_beginning(pattern: &str, key: &str) -> bool {
    pattern.strip_suffix('*').is_some_and(|beginning| key.starts_with(beginning))
}

/// The name of a bucket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum BucketName {
    Throttle(String),
    Group(TopicId, GroupId),
    Key(TopicId, GroupId, String),
}

impl BucketName {
    fn is_of(&self, topic: TopicId, group: GroupId) -> bool {
        match self {
            Self::Throttle(_) => false,
            Self::Group(of, in_group) | Self::Key(of, in_group, _) => {
                (*of, *in_group) == (topic, group)
            }
        }
    }
}

/// The times at which tokens of a bucket were taken, while it had this rate.
#[derive(Debug)]
struct Bucket {
    rate: ThrottleRate,
    taken: Vec<Timestamp>,
}

impl Bucket {
    /// Takes a token. In no span of time are there more than the burst and what the rate gives in it.
    fn take(&mut self, now: Timestamp) -> Result<(), String> {
        self.taken.push(now);
        let interval = self.rate.interval_ns;
        let late = (interval / 4).clamp(LATE_NS_MIN, LATE_NS_MAX);
        for (count, from) in (1..).zip(self.taken.iter().rev()) {
            let span = now.since(*from);
            let gained = (span.as_nanos() + u128::from(late)) / u128::from(interval);
            let most = u128::from(self.rate.burst) + gained;
            if count > most {
                return Err(format!("{count} in {span:?} up to {now:?}, allowed are {most}"));
            }
        }
        Ok(())
    }
}

/// All buckets. They are full after a start.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    rules: Vec<ThrottleRule>,
    buckets: BTreeMap<BucketName, Bucket>,
}

impl Buckets {
    /// The rules for throttle keys from now on.
    pub(super) fn set_rules(&mut self, rules: &[ThrottleRule]) {
        let before = std::mem::replace(&mut self.rules, rules.to_vec());
        // What a bucket holds that had another rate between two times is not known.
        self.buckets.retain(|name, _| match name {
            BucketName::Throttle(key) => throttle_rate(&before, key) == throttle_rate(rules, key),
            _ => true,
        });
    }

    /// Groups have other settings from now on.
    pub(super) fn note_settings<'a>(
        &mut self,
        topic: TopicId,
        before: impl Iterator<Item = &'a GroupSetting>,
        after: &[GroupSetting],
    ) {
        let before: Vec<&GroupSetting> = before.collect();
        for setting in after {
            let is_same =
                |held: &&GroupSetting| held.id == setting.id && held.config == setting.config;
            if !before.iter().any(is_same) {
                self.buckets.retain(|name, _| !name.is_of(topic, setting.id));
            }
        }
    }

    fn take(&mut self, name: BucketName, rate: ThrottleRate, now: Timestamp) -> Result<(), String> {
        let new = || Bucket { rate, taken: Vec::new() };
        let bucket = self.buckets.entry(name).or_insert_with(new);
        if bucket.rate != rate {
            *bucket = new();
        }
        bucket.take(now)
    }
}

/// The rate of a throttle key.
fn throttle_rate(rules: &[ThrottleRule], key: &str) -> Option<ThrottleRate> {
    let named = rules.iter().find(|rule| rule.pattern.as_str() == key);
    let rule = named.or_else(|| {
        let begins = rules.iter().filter(|rule| is_beginning(rule.pattern.as_str(), key));
        begins.max_by_key(|rule| rule.pattern.as_str().len())
    });
    rule.map(|rule| rule.rate)
}

impl Oracle {
    /// Checks that nothing holds back a message that is delivered now.
    pub(super) fn check_scheduling(
        &mut self,
        id: PartitionId,
        group: GroupId,
        offset: u64,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let wrong = |rule, detail: String| {
            let place = format!("offset {offset} of {id}, group {}", group.0);
            Err(Violation::new(rule, format!("{place}: {detail}")))
        };
        let Some(partition) = self.partitions.get(&id) else { return Ok(()) };
        let Some(model) = partition.groups.get(&group) else { return Ok(()) };
        let (says, config) = (partition.says(offset).0, &model.setting.config);
        let key = partition.scheduling_key(model, offset);
        let rule = key_rule(&config.key_rules, key);
        let is_paused = partition.config.is_paused
            || config.is_paused
            || rule.is_some_and(|rule| rule.is_paused);
        if is_paused {
            let of_topic = partition.config.is_paused;
            let detail = format!("{says:?}, topic: {of_topic}, group: {}", config.is_paused);
            return wrong("I8 nothing is delivered that is paused", detail);
        }
        // Where age or bytes free messages, leases may end with them.
        let knows_held = model.keeps_unsettled && partition.keeps_unsettled();
        if knows_held && let Some(most) = rule.and_then(|rule| rule.concurrency) {
            let is_of_key = |other: &u64| partition.scheduling_key(model, *other) == key;
            let others = model.held(now).filter(|other| *other != offset);
            let held = others.filter(is_of_key).count() as u64 + 1;
            if held > u64::from(most) {
                let detail = format!("{held} of {key:?} are held, allowed are {most}");
                return wrong(
                    "I8 a key has no more messages under way than its rule allows",
                    detail,
                );
            }
        }
        if !is_fair(&partition.config, config) {
            return Ok(());
        }
        let mut due: Vec<(BucketName, ThrottleRate)> = Vec::new();
        for key in &says.throttle_keys {
            let rate = throttle_rate(&self.buckets.rules, key);
            due.extend(rate.map(|rate| (BucketName::Throttle(key.clone()), rate)));
        }
        if let Some(rate) = rule.and_then(|rule| rule.throttle) {
            due.push((BucketName::Key(id.topic, group, key.to_owned()), rate));
        }
        due.extend(config.throttle.map(|rate| (BucketName::Group(id.topic, group), rate)));
        for (name, rate) in due {
            if let Err(detail) = self.buckets.take(name.clone(), rate, now) {
                let detail = format!("{name:?} with {rate}: {detail}");
                return wrong("I8 no more is delivered than a throttle lets pass", detail);
            }
        }
        Ok(())
    }
}
