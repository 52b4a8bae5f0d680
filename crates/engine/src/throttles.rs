//! Throttles: a bucket for each throttle key, which refuses what comes too early. All shards of a broker share them,
//! so that a key has one rate wherever its messages lie. It knows no message.
//!
//! Source: the generic cell rate algorithm, ITU-T I.371: one time for each bucket, and no refill.

use std::sync::{
    Arc, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use sennit_model::{
    ThrottlePattern, ThrottleRate, ThrottleRule, Timestamp, limits::THROTTLE_BUCKETS_MAX,
};

const NS_PER_MS: u64 = 1_000_000;

/// A token that is taken no later than this counts as taken in time, so that the late wake-ups of a busy broker do
/// not lower a rate: a quarter of the interval, but at least and at most this.
const LATENESS_NS_MIN: u64 = 2 * NS_PER_MS;
const LATENESS_NS_MAX: u64 = 50 * NS_PER_MS;

/// Buckets are looked through for those that are full and in nobody's hands after so many new names, or as many as
/// there are buckets.
const SWEEP_AT_MIN: usize = 1024;

/// The tokens of one throttle key. Times are in nanoseconds since the Unix epoch.
#[derive(Debug, Default)]
pub(crate) struct Bucket {
    /// The time at which the bucket is full again.
    full_at: AtomicU64,
    /// The time in which it gets a token; 0 where there is no limit.
    interval: AtomicU64,
    /// How early a token may be taken: a burst less one, in time.
    tolerance: AtomicU64,
}

impl Bucket {
    fn set_rate(&self, rate: Option<ThrottleRate>) {
        let interval = rate.map_or(0, |rate| rate.interval_ns);
        let burst = rate.map_or(1, |rate| rate.burst);
        self.interval.store(interval, Relaxed);
        self.tolerance.store(interval.saturating_mul(u64::from(burst) - 1), Relaxed);
    }

    /// Takes a token.
    ///
    /// # Errors
    /// There is none; the time from which on there is one.
    pub(crate) fn take(&self, now: Timestamp) -> Result<(), Timestamp> {
        let interval = self.interval.load(Relaxed);
        if interval == 0 {
            return Ok(());
        }
        let now = now.0.saturating_mul(NS_PER_MS);
        let tolerance = self.tolerance.load(Relaxed);
        let lateness = (interval / 4).clamp(LATENESS_NS_MIN, LATENESS_NS_MAX);
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            // Another rate may have left a time far ahead: it is brought near, so that it comes.
            let held = full_at.min(now.saturating_add(tolerance).saturating_add(interval));
            let allowed_at = held.saturating_sub(tolerance);
            if now < allowed_at {
                if held < full_at {
                    let _ = self.full_at.compare_exchange(full_at, held, Relaxed, Relaxed);
                }
                return Err(Timestamp(allowed_at.div_ceil(NS_PER_MS)));
            }
            let is_late = held.saturating_add(lateness) >= now;
            let next = if is_late { held } else { now }.saturating_add(interval);
            match self.full_at.compare_exchange_weak(full_at, next, Relaxed, Relaxed) {
                Ok(_) => return Ok(()),
                Err(changed) => full_at = changed,
            }
        }
    }

    /// A token that was taken was of no use.
    pub(crate) fn give_back(&self) {
        let interval = self.interval.load(Relaxed);
        let back = |full_at: u64| Some(full_at.saturating_sub(interval));
        let _ = self.full_at.fetch_update(Relaxed, Relaxed, back);
    }

    fn is_full(&self, now: Timestamp) -> bool {
        self.full_at.load(Relaxed) <= now.0.saturating_mul(NS_PER_MS)
    }
}

/// Takes a token of each bucket, or of none.
///
/// # Errors
/// One of them has none; the time from which on it has one.
pub(crate) fn take_of_all<'a>(
    buckets: impl Iterator<Item = &'a Arc<Bucket>> + Clone,
    now: Timestamp,
) -> Result<(), Timestamp> {
    for (taken, bucket) in buckets.clone().enumerate() {
        if let Err(free_at) = bucket.take(now) {
            buckets.take(taken).for_each(|bucket| bucket.give_back());
            return Err(free_at);
        }
    }
    Ok(())
}

/// The one lock below the waterline (decision 25): it is held for a look-up when a shard sees a key for the first
/// time, and never for a message.
#[expect(
    clippy::disallowed_types,
    reason = "a throttle key has one rate in all shards of a broker"
)]
type Lock<T> = std::sync::Mutex<T>;

/// The buckets of a broker, by name, and the rules for them.
#[derive(Debug, Default)]
pub struct Throttles {
    buckets: Lock<Buckets>,
    changes: AtomicU64,
    /// Whether rules are to come of which nothing is known yet.
    awaits_rules: AtomicBool,
}

#[derive(Debug, Default)]
struct Buckets {
    rules: Rules,
    named: HashMap<Box<str>, Arc<Bucket>, FixedState>,
    /// How many names without a bucket were asked for since the last sweep, and how many buckets that left.
    since_sweep: usize,
    after_sweep: usize,
}

/// Rules, to be found by key.
#[derive(Debug, Default)]
struct Rules {
    exact: HashMap<Box<str>, ThrottleRate, FixedState>,
    /// Those with a wildcard, the one with the greatest precedence first.
    wild: Vec<(ThrottlePattern, ThrottleRate)>,
}

impl Rules {
    fn new(rules: &[ThrottleRule]) -> Self {
        let (mut exact, mut wild) = (HashMap::default(), Vec::new());
        for ThrottleRule { pattern, rate } in rules {
            match pattern.exact() {
                Some(key) => drop(exact.insert(key.into(), *rate)),
                None => wild.push((pattern.clone(), *rate)),
            }
        }
        wild.sort_by_key(|(pattern, _)| std::cmp::Reverse(pattern.precedence()));
        Self { exact, wild }
    }

    /// The rate of a key. Costs a step for each rule with a wildcard.
    fn of(&self, key: &str) -> Option<ThrottleRate> {
        let exact = self.exact.get(key).copied();
        exact.or_else(|| self.wild_for(key).map(|(_, rate)| *rate))
    }

    fn wild_for(&self, key: &str) -> Option<&(ThrottlePattern, ThrottleRate)> {
        self.wild.iter().find(|(pattern, _)| pattern.matches(key.as_bytes()))
    }
}

impl Throttles {
    /// Throttles whose rules are still to be set: until then no message with a throttle key passes.
    #[must_use]
    pub fn without_rules_yet() -> Self {
        Self { awaits_rules: AtomicBool::new(true), ..Self::default() }
    }

    /// Whether rules are to come of which nothing is known yet.
    pub(crate) fn awaits_rules(&self) -> bool {
        self.awaits_rules.load(Relaxed)
    }

    /// Has these rules from now on. A bucket keeps what it holds; its rate changes at once.
    pub fn set_rules(&self, rules: &[ThrottleRule]) {
        let mut held = self.lock();
        held.rules = Rules::new(rules);
        for (name, bucket) in held.named.iter().filter(|(name, _)| !is_own(name)) {
            bucket.set_rate(held.rules.of(name));
        }
        self.awaits_rules.store(false, Relaxed);
        self.changes.fetch_add(1, Relaxed);
    }

    /// How often the rules have changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// The bucket of a throttle key.
    pub(crate) fn of_key(&self, key: &str, now: Timestamp) -> Arc<Bucket> {
        let mut held = self.lock();
        if held.has_room_for(key, now) || held.rules.exact.contains_key(key) {
            let rate = held.rules.of(key);
            return held.get(key, rate);
        }
        let shared = held.rules.wild_for(key).map(|(pattern, rate)| (pattern.to_string(), *rate));
        match shared {
            Some((pattern, rate)) => held.get(&pattern, Some(rate)),
            None => held.get("*", None),
        }
    }

    /// A bucket that no throttle key has, of a group or of one of its fair keys.
    pub(crate) fn own(&self, name: &str, rate: ThrottleRate, now: Timestamp) -> Arc<Bucket> {
        assert!(is_own(name), "it is no throttle key");
        let mut held = self.lock();
        let of_all = || name.rfind('/').map_or(name, |end| &name[..=end]);
        let name = if held.has_room_for(name, now) { name } else { of_all() };
        held.get(name, Some(rate))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names of buckets that are no throttle keys begin with a character that such a key does not have: it is cut where
/// it begins with one.
fn is_own(name: &str) -> bool {
    name.starts_with('\0')
}

impl Buckets {
    /// Whether there is a bucket of this name or room for one. Costs a step for each bucket, at times.
    fn has_room_for(&mut self, name: &str, now: Timestamp) -> bool {
        if self.named.contains_key(name) {
            return true;
        }
        self.since_sweep += 1;
        if self.since_sweep > self.after_sweep.max(SWEEP_AT_MIN) {
            // A bucket that is full is as a new one.
            self.named.retain(|_, bucket| Arc::strong_count(bucket) > 1 || !bucket.is_full(now));
            (self.since_sweep, self.after_sweep) = (0, self.named.len());
        }
        self.named.len() < THROTTLE_BUCKETS_MAX
    }

    fn get(&mut self, name: &str, rate: Option<ThrottleRate>) -> Arc<Bucket> {
        if let Some(bucket) = self.named.get(name) {
            if is_own(name) {
                bucket.set_rate(rate);
            }
            return bucket.clone();
        }
        let bucket = Arc::new(Bucket::default());
        bucket.set_rate(rate);
        self.named.insert(name.into(), bucket.clone());
        bucket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1000;

    fn rule(pattern: &str, rate: &str) -> ThrottleRule {
        ThrottleRule { pattern: pattern.parse().unwrap(), rate: ThrottleRate::parse(rate).unwrap() }
    }

    fn taken(bucket: &Bucket, times: impl Iterator<Item = u64>) -> usize {
        times.filter(|&at| bucket.take(Timestamp(at)).is_ok()).count()
    }

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let throttles = Throttles::default();
        throttles.set_rules(&[rule("smtp", "50/s burst 5")]);
        let bucket = throttles.of_key("smtp", Timestamp(0));
        assert_eq!(taken(&bucket, std::iter::repeat_n(SECOND, 100)), 5);
        let minute = taken(&bucket, SECOND + 1..=61 * SECOND);
        assert!((2995..=3001).contains(&minute), "{minute}");
        let other = throttles.of_key("other", Timestamp(0));
        assert_eq!(taken(&other, std::iter::repeat_n(SECOND, 100)), 100);
    }

    #[test]
    fn a_token_that_is_taken_late_does_not_lower_the_rate() {
        let throttles = Throttles::default();
        throttles.set_rules(&[rule("k", "50/s burst 1")]);
        let bucket = throttles.of_key("k", Timestamp(0));
        let (mut now, mut count) = (SECOND, 0);
        while now < 61 * SECOND {
            match bucket.take(Timestamp(now)) {
                Ok(()) => count += 1,
                // Each wake-up is late by up to 3 ms.
                Err(free_at) => now = free_at.0 + count % 4,
            }
        }
        assert!((2970..=3030).contains(&count), "{count}");
    }

    #[test]
    fn a_message_takes_a_token_of_each_bucket_or_of_none() {
        let throttles = Throttles::default();
        throttles.set_rules(&[rule("a", "1/s burst 3"), rule("b", "1/s burst 1")]);
        let buckets = ["a", "b"].map(|key| throttles.of_key(key, Timestamp(0)));
        let now = Timestamp(100 * SECOND);
        assert_eq!(take_of_all(buckets.iter(), now), Ok(()));
        assert!(take_of_all(buckets.iter(), now).is_err());
        // The two that were left of three are there still.
        assert_eq!(taken(&buckets[0], std::iter::repeat_n(now.0, 9)), 2);
    }

    #[test]
    fn a_rule_that_changes_counts_at_once() {
        let throttles = Throttles::default();
        throttles.set_rules(&[rule("tenant:*", "1/h burst 1")]);
        let bucket = throttles.of_key("tenant:a", Timestamp(0));
        let now = 10_000 * SECOND;
        assert_eq!(taken(&bucket, std::iter::repeat_n(now, 9)), 1);
        throttles.set_rules(&[rule("tenant:*", "1/s burst 1")]);
        assert_eq!(bucket.take(Timestamp(now)), Err(Timestamp(now + SECOND)));
        assert_eq!(bucket.take(Timestamp(now + SECOND)), Ok(()));
        throttles.set_rules(&[]);
        assert_eq!(bucket.take(Timestamp(now + SECOND)), Ok(()));
    }
}
