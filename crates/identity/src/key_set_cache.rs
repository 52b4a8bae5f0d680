//! The key set of an issuer that publishes it at a URL: when to fetch it, and for how long its keys are good. The machine
//! fetches nothing: it says when a fetch is due and is told how it ended. Time and jitter are arguments.

use std::{sync::Arc, time::Duration};

use sennit_model::Timestamp;

use crate::{
    key_set::KeySet,
    limits::{
        KEY_SET_AGE_MAX, KEY_SET_FRESH, KEY_SET_FRESH_MAX, KEY_SET_FRESH_MIN, KEY_SET_RETRY_MAX,
        KEY_SET_RETRY_MIN, KEY_SET_UNKNOWN_KEY_INTERVAL,
    },
};

/// The part of a wait by which it is made shorter, so that brokers which started together do not fetch together: 0 is none, 255 is a quarter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FetchJitter(pub u8);

impl FetchJitter {
    fn shorten(self, wait: Duration) -> Duration {
        wait - wait / 4 * u32::from(self.0) / 255
    }
}

/// The keys of an issuer, and when they are fetched.
#[derive(Clone, Debug, Default)]
pub struct KeySetCache {
    kept: Option<Kept>,
    /// When the next fetch is due. A fetch is due at once in the beginning.
    next_fetch: Timestamp,
    is_under_way: bool,
    last_start: Option<Timestamp>,
    failures: u32,
}

/// The result of the last fetch that has not failed.
#[derive(Clone, Debug)]
struct Kept {
    keys: Arc<KeySet>,
    at: Timestamp,
}

impl KeySetCache {
    /// The keys that are good at `now`: those of the last fetch that has not failed, for [`KEY_SET_AGE_MAX`].
    #[must_use]
    pub fn keys(&self, now: Timestamp) -> Option<&Arc<KeySet>> {
        let kept = self.kept.as_ref()?;
        (now.since(kept.at) < KEY_SET_AGE_MAX).then_some(&kept.keys)
    }

    /// The age of the keys; `None` if there are none.
    #[must_use]
    pub fn age(&self, now: Timestamp) -> Option<Duration> {
        Some(now.since(self.kept.as_ref()?.at))
    }

    /// Number of fetches that have failed since the last that has not.
    #[must_use]
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// When the next fetch is due; `None` while one is under way.
    #[must_use]
    pub fn next_fetch(&self) -> Option<Timestamp> {
        (!self.is_under_way).then_some(self.next_fetch)
    }

    /// Begins a fetch if one is due. Whoever is told `true` fetches, and says how it ended.
    #[must_use]
    pub fn begin(&mut self, now: Timestamp) -> bool {
        let is_due = !self.is_under_way && self.next_fetch <= now;
        if is_due {
            self.is_under_way = true;
            self.last_start = Some(now);
        }
        is_due
    }

    /// A token names a key that is not in the set, as after a rotation: a fetch becomes due, but not sooner than
    /// [`KEY_SET_UNKNOWN_KEY_INTERVAL`] after the last has begun. Whether the next fetch was moved.
    pub fn unknown_key(&mut self, now: Timestamp) -> bool {
        let earliest =
            self.last_start.map_or(now, |last| now.max(last.plus(KEY_SET_UNKNOWN_KEY_INTERVAL)));
        let is_sooner = !self.is_under_way && earliest < self.next_fetch;
        if is_sooner {
            self.next_fetch = earliest;
        }
        is_sooner
    }

    /// The fetch has brought `keys`, which their issuer says are fresh for `max_age`. They replace all that were there: a key
    /// that is not among them is not good any more. The next fetch is due a little before they are stale.
    pub fn fetched(
        &mut self,
        keys: KeySet,
        max_age: Option<Duration>,
        now: Timestamp,
        jitter: FetchJitter,
    ) {
        let fresh = max_age.unwrap_or(KEY_SET_FRESH).clamp(KEY_SET_FRESH_MIN, KEY_SET_FRESH_MAX);
        self.kept = Some(Kept { keys: Arc::new(keys), at: now });
        self.failures = 0;
        self.is_under_way = false;
        self.next_fetch = now.plus(jitter.shorten(fresh / 10 * 9));
    }

    /// The fetch has failed, or has brought no key set. The keys that were there stay; the next fetch is due after a wait that
    /// doubles with each failure.
    pub fn failed(&mut self, now: Timestamp, jitter: FetchJitter) {
        self.failures = self.failures.saturating_add(1);
        self.is_under_way = false;
        let doubled = 1_u32.checked_shl(self.failures - 1).unwrap_or(u32::MAX);
        let wait = KEY_SET_RETRY_MIN.saturating_mul(doubled).min(KEY_SET_RETRY_MAX);
        self.next_fetch = now.plus(jitter.shorten(wait));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::token_key::TokenKey;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const NONE: FetchJitter = FetchJitter(0);

    fn keys(id: &str) -> KeySet {
        KeySet::new(vec![TokenKey::from_secret(&[1; 32]).unwrap().with_id(id).unwrap()]).unwrap()
    }

    fn id_at(cache: &KeySetCache, now: Timestamp) -> Option<&str> {
        cache.keys(now)?.keys()[0].id()
    }

    fn after(seconds: u64) -> Timestamp {
        NOW.plus(Duration::from_secs(seconds))
    }

    /// A cache that has fetched at `NOW`.
    fn fetched(max_age: Option<u64>) -> KeySetCache {
        let mut cache = KeySetCache::default();
        assert!(cache.begin(NOW));
        cache.fetched(keys("a"), max_age.map(Duration::from_secs), NOW, NONE);
        cache
    }

    #[test]
    fn a_fetch_is_due_in_the_beginning_and_one_at_a_time() {
        let mut cache = KeySetCache::default();
        assert!(cache.keys(NOW).is_none());
        assert!(cache.begin(NOW));
        assert!(!cache.begin(after(100)), "it is under way");
        assert_eq!(cache.next_fetch(), None);
        assert!(!cache.unknown_key(after(100)));
        cache.fetched(keys("a"), None, after(101), NONE);
        assert_eq!(id_at(&cache, after(101)), Some("a"));
    }

    #[test]
    fn the_next_fetch_is_due_before_the_keys_are_stale_and_the_issuer_does_not_choose_freely() {
        for (max_age, due) in
            [(None, 270), (Some(600), 540), (Some(0), 54), (Some(u64::MAX / 2000), 3240)]
        {
            assert_eq!(fetched(max_age).next_fetch(), Some(after(due)), "{max_age:?}");
        }
        let mut cache = KeySetCache::default();
        assert!(cache.begin(NOW));
        cache.fetched(keys("a"), Some(Duration::from_secs(1000)), NOW, FetchJitter(255));
        assert_eq!(cache.next_fetch(), Some(after(675)), "a quarter sooner");
    }

    #[test]
    fn an_unknown_key_is_looked_for_at_once_and_then_seldom() {
        let mut cache = fetched(None);
        assert!(!cache.begin(after(10)));
        assert!(cache.unknown_key(after(10)));
        assert_eq!(cache.next_fetch(), Some(after(30)), "the last fetch is 10 s old");
        assert!(!cache.unknown_key(after(10)) && !cache.begin(after(29)));
        assert!(cache.begin(after(30)));
        cache.fetched(keys("b"), None, after(31), NONE);
        assert_eq!(id_at(&cache, after(31)), Some("b"), "a key that was removed is not good");
        assert!(cache.unknown_key(after(200)));
        assert!(cache.begin(after(200)), "nobody has fetched for a while");
    }

    #[test]
    fn tokens_with_unknown_keys_cannot_make_the_broker_fetch_often() {
        let mut cache = fetched(None);
        let mut fetches = 0;
        for ms in 0..600_000 {
            let now = Timestamp(NOW.0 + ms);
            cache.unknown_key(now);
            if cache.begin(now) {
                fetches += 1;
                if fetches % 2 == 0 {
                    cache.failed(now, NONE);
                } else {
                    cache.fetched(keys("a"), None, now, NONE);
                }
            }
        }
        assert!(fetches <= 2 * 600 / 30, "{fetches} fetches in 600 s");
    }

    #[test]
    fn keys_outlive_an_issuer_that_is_away_for_a_day() {
        let mut cache = fetched(None);
        let mut now = NOW;
        let mut waits = Vec::new();
        while id_at(&cache, now) == Some("a") {
            let due = cache.next_fetch().unwrap();
            waits.push(due.since(now).as_secs());
            now = due;
            assert!(cache.begin(now));
            cache.failed(now, NONE);
        }
        assert_eq!(waits[..10], [270, 1, 2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(now.since(NOW).as_secs() / 120, KEY_SET_AGE_MAX.as_secs() / 120);
        assert!(cache.failures() > 700);
        let now = cache.next_fetch().unwrap();
        assert!(cache.begin(now));
        cache.fetched(keys("b"), None, now, NONE);
        assert_eq!((id_at(&cache, now), cache.failures()), (Some("b"), 0));
    }

    proptest! {
        #[test]
        fn whatever_happens_a_fetch_comes_and_none_too_soon(
            steps in prop::collection::vec((0..4_u8, 0..400_000_u64, any::<u8>()), 1..80)
        ) {
            let mut cache = KeySetCache::default();
            let mut now = NOW;
            let mut starts: Vec<Timestamp> = Vec::new();
            for (step, ms, jitter) in steps {
                now = Timestamp(now.0 + ms);
                match step {
                    0 => { let _ = cache.unknown_key(now); }
                    1 if cache.is_under_way => cache.failed(now, FetchJitter(jitter)),
                    2 if cache.is_under_way => cache.fetched(
                        keys("a"), Some(Duration::from_millis(ms)), now, FetchJitter(jitter)
                    ),
                    _ => if cache.begin(now) {
                        starts.push(now);
                    },
                }
                if let Some(next) = cache.next_fetch() {
                    prop_assert!(next.since(now) <= KEY_SET_FRESH_MAX);
                }
                prop_assert!(cache.keys(now).is_none() || cache.age(now).unwrap() < KEY_SET_AGE_MAX);
            }
            for pair in starts.windows(2) {
                prop_assert!(pair[1].since(pair[0]) >= KEY_SET_RETRY_MIN * 3 / 4);
            }
        }
    }
}
