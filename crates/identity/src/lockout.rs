//! Failed logins cost time: those of one name from one address, and those from one address. Nothing is remembered of a name
//! alone, so nobody can lock out the owner of a name at another address. Loopback addresses are those of everybody whom a
//! proxy on this machine passes on: there, names alone are counted. Time is an argument, memory has a limit.
//!
//! A check of what can be guessed, and is costly, asks first and waits as told: that of a password. Keys, tokens and
//! certificates cannot be guessed, and are checked at once. A password that was right at an address before does not wait there:
//! comparing with it is cheap, and has a limit of its own, because a guesser at that address is answered by it too.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use ring::digest;
use sennit_model::Timestamp;

use crate::{
    address_prefix::AddressPrefix,
    limits::{
        LOGIN_ADDRESS_BURST, LOGIN_ADDRESS_INTERVAL, LOGIN_DELAY_MAX, LOGIN_ENTRIES_MAX,
        LOGIN_LOG_BURST, LOGIN_LOG_INTERVAL, LOGIN_NAME_BURST, LOGIN_NAME_INTERVAL,
        LOGIN_RECALL_BURST, LOGIN_RECALL_INTERVAL,
    },
};

/// The answer to an attempt to log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginAdmission {
    /// It is answered after this delay, which is zero as a rule.
    After(Duration),
    /// Too many of this address wait already. It is refused without a look at the credential, and may be tried again.
    Refused {
        /// The time to retry.
        retry_after: Duration,
    },
}

/// A line about a refused login that may be logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginLogLine {
    /// Number of lines that were left out since the last.
    pub left_out: u64,
}

/// The failed logins of all addresses.
#[derive(Clone, Debug, Default)]
pub struct LoginThrottle {
    /// Two generations: when the young one is full it becomes the old one, and what was old is forgotten.
    young: BTreeMap<Origin, Bucket>,
    old: BTreeMap<Origin, Bucket>,
    log: Bucket,
    left_out: u64,
}

/// An address, or a name at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    prefix: AddressPrefix,
    counted: Counted,
}

/// The failures that a bucket counts. A name is a hash of 16 bytes, so that its length costs no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    /// Of any names.
    OfAddress,
    /// Of one name.
    OfName([u8; 16]),
    /// Of one name, compared with passwords that were right.
    Recalled([u8; 16]),
}

impl Origin {
    /// What an attempt is counted for: the address, and the name at it.
    fn of(address: IpAddr, name: Option<&str>) -> impl Iterator<Item = (Self, Pace)> + Clone {
        let prefix = AddressPrefix::of(address);
        let is_shared = address.to_canonical().is_loopback();
        let name =
            name.map(|name| (Self { prefix, counted: Counted::OfName(short(name)) }, BY_NAME));
        let address = (Self { prefix, counted: Counted::OfAddress }, BY_ADDRESS);
        (!is_shared).then_some(address).into_iter().chain(name)
    }

    /// What a wrong password is counted for that was compared with those that were right.
    fn recalled(address: IpAddr, name: &str) -> Self {
        Self { prefix: AddressPrefix::of(address), counted: Counted::Recalled(short(name)) }
    }
}

fn short(name: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&digest::digest(&digest::SHA256, name.as_bytes()).as_ref()[..16]);
    short
}

/// A bucket that empties with time: the instant at which it is empty, in milliseconds since 1970 (the generic cell rate
/// algorithm of ATM).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bucket {
    empty_at_ms: u64,
}

/// How fast a bucket empties and how much it takes at once.
#[derive(Clone, Copy)]
struct Pace {
    burst: u64,
    interval_ms: u64,
}

impl Pace {
    const fn new(burst: u32, interval: Duration) -> Self {
        Self { burst: burst as u64, interval_ms: interval.as_millis() as u64 }
    }
}

const BY_NAME: Pace = Pace::new(LOGIN_NAME_BURST, LOGIN_NAME_INTERVAL);
const BY_ADDRESS: Pace = Pace::new(LOGIN_ADDRESS_BURST, LOGIN_ADDRESS_INTERVAL);
const BY_RECALL: Pace = Pace::new(LOGIN_RECALL_BURST, LOGIN_RECALL_INTERVAL);
const OF_LOG: Pace = Pace::new(LOGIN_LOG_BURST, LOGIN_LOG_INTERVAL);

impl Bucket {
    /// The time until the bucket takes one more.
    fn wait_ms(self, pace: Pace, now: Timestamp) -> u64 {
        let full = (pace.burst - 1) * pace.interval_ms;
        self.empty_at_ms.saturating_sub(full).saturating_sub(now.0)
    }

    fn take(self, pace: Pace, now: Timestamp) -> Self {
        Self { empty_at_ms: self.empty_at_ms.max(now.0).saturating_add(pace.interval_ms) }
    }

    fn give_back(self, pace: Pace) -> Self {
        Self { empty_at_ms: self.empty_at_ms.saturating_sub(pace.interval_ms) }
    }
}

impl LoginThrottle {
    /// An attempt to log in as `name` from `address`; `None` if it names nobody, as a token that was not checked. It counts
    /// as failed until [`Self::succeeded`] says otherwise.
    pub fn attempt(
        &mut self,
        address: IpAddr,
        name: Option<&str>,
        now: Timestamp,
    ) -> LoginAdmission {
        let origins = Origin::of(address, name);
        let found = origins.map(|(origin, pace)| (origin, pace, self.bucket(origin)));
        let wait_ms = found.clone().map(|(_, pace, bucket)| bucket.wait_ms(pace, now)).max();
        let delay = Duration::from_millis(wait_ms.unwrap_or_default());
        if delay > LOGIN_DELAY_MAX {
            return LoginAdmission::Refused { retry_after: delay - LOGIN_DELAY_MAX };
        }
        for (origin, pace, bucket) in found.collect::<Vec<_>>() {
            self.keep(origin, bucket.take(pace, now));
        }
        LoginAdmission::After(delay)
    }

    /// The credential of an attempt was right. The name at this address has no failures any more; the address has one less,
    /// so that an attacker with one right credential does not clear what its guesses have cost.
    pub fn succeeded(&mut self, address: IpAddr, name: Option<&str>) {
        for (origin, pace) in Origin::of(address, name) {
            if origin.counted == Counted::OfAddress {
                let bucket = self.bucket(origin).give_back(pace);
                self.keep(origin, bucket);
            } else {
                self.young.remove(&origin);
                self.old.remove(&origin);
            }
        }
    }

    /// Returns whether a password of `name` may be compared with those that were right at `address` before.
    #[must_use]
    pub fn may_recall(&self, address: IpAddr, name: &str, now: Timestamp) -> bool {
        self.bucket(Origin::recalled(address, name)).wait_ms(BY_RECALL, now) == 0
    }

    /// A password of `name` was compared with those that were right at `address` before, and is none of them.
    pub fn not_recalled(&mut self, address: IpAddr, name: &str, now: Timestamp) {
        let origin = Origin::recalled(address, name);
        let bucket = self.bucket(origin).take(BY_RECALL, now);
        self.keep(origin, bucket);
    }

    /// A login was refused. Says whether to log it; lines that were left out are counted.
    pub fn log(&mut self, now: Timestamp) -> Option<LoginLogLine> {
        if self.log.wait_ms(OF_LOG, now) > 0 {
            self.left_out += 1;
            return None;
        }
        self.log = self.log.take(OF_LOG, now);
        Some(LoginLogLine { left_out: std::mem::take(&mut self.left_out) })
    }

    /// Number of addresses, and names at addresses, that are remembered: at most [`LOGIN_ENTRIES_MAX`].
    #[must_use]
    pub fn entries(&self) -> usize {
        self.young.len() + self.old.len()
    }

    fn bucket(&self, origin: Origin) -> Bucket {
        let kept = self.young.get(&origin).or_else(|| self.old.get(&origin));
        kept.copied().unwrap_or_default()
    }

    fn keep(&mut self, origin: Origin, bucket: Bucket) {
        self.old.remove(&origin);
        self.young.insert(origin, bucket);
        if self.young.len() > LOGIN_ENTRIES_MAX / 2 - 1 {
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const AT_ONCE: LoginAdmission = LoginAdmission::After(Duration::ZERO);

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn after_ms(ms: u64) -> Timestamp {
        Timestamp(NOW.0 + ms)
    }

    #[test]
    fn failures_of_a_name_at_an_address_cost_more_and_more_time() {
        let mut throttle = LoginThrottle::default();
        let here = address("192.0.2.1");
        let mut ask = || throttle.attempt(here, Some("ada"), NOW);
        let delays: Vec<_> = (0..5).map(|_| ask()).collect();
        assert_eq!(delays, [AT_ONCE; 5]);
        for seconds in [2, 4] {
            assert_eq!(ask(), LoginAdmission::After(Duration::from_secs(seconds)));
        }
        let retry_after = Duration::from_secs(2);
        assert_eq!(ask(), LoginAdmission::Refused { retry_after });
        assert_eq!(ask(), LoginAdmission::Refused { retry_after }, "a refusal costs nothing more");
        let later = NOW.plus(retry_after);
        let delay = throttle.attempt(here, Some("ada"), later);
        assert_eq!(delay, LoginAdmission::After(LOGIN_DELAY_MAX), "who waits as told gets in");
        let later = NOW.plus(Duration::from_secs(60));
        assert_eq!(throttle.attempt(here, Some("ada"), later), AT_ONCE);
    }

    #[test]
    fn nobody_else_pays_for_them() {
        let mut throttle = LoginThrottle::default();
        for _ in 0..1000 {
            throttle.attempt(address("192.0.2.1"), Some("ada"), NOW);
            throttle.attempt(address("2001:db8::1"), Some("ada"), NOW);
        }
        assert_eq!(throttle.attempt(address("192.0.2.2"), Some("ada"), NOW), AT_ONCE);
        assert_eq!(throttle.attempt(address("2001:db8:0:1::1"), Some("ada"), NOW), AT_ONCE);
        assert_eq!(throttle.attempt(address("192.0.2.1"), Some("bob"), NOW), AT_ONCE);
        // One host has all addresses of its 64 bits, and may write IPv4 as IPv6.
        let same = [address("2001:db8::ffff:1"), address("::ffff:192.0.2.1")];
        for address in same {
            let refused = throttle.attempt(address, Some("ada"), NOW);
            assert!(matches!(refused, LoginAdmission::Refused { .. }), "{address}");
        }
    }

    #[test]
    fn an_address_has_a_limit_of_its_own_for_guesses_at_many_names() {
        let mut throttle = LoginThrottle::default();
        let here = address("192.0.2.1");
        let mut admitted = 0;
        for index in 0..10_000 {
            if let LoginAdmission::After(_) = throttle.attempt(here, Some(&format!("{index}")), NOW)
            {
                admitted += 1;
            }
        }
        let waiting = LOGIN_DELAY_MAX.as_millis() / LOGIN_ADDRESS_INTERVAL.as_millis();
        assert_eq!(admitted, u128::from(LOGIN_ADDRESS_BURST) + waiting);
        assert_eq!(throttle.attempt(address("192.0.2.2"), None, NOW), AT_ONCE);
    }

    #[test]
    fn at_loopback_names_alone_are_counted() {
        let mut throttle = LoginThrottle::default();
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1"].map(address) {
            for index in 0..1000 {
                assert_eq!(throttle.attempt(here, Some(&format!("{here} {index}")), NOW), AT_ONCE);
                assert_eq!(throttle.attempt(here, None, NOW), AT_ONCE);
            }
            let last = (0..100).map(|_| throttle.attempt(here, Some("ada"), NOW)).last();
            assert!(matches!(last, Some(LoginAdmission::Refused { .. })), "{here}");
            throttle.succeeded(here, Some("ada"));
        }
    }

    #[test]
    fn a_right_credential_clears_its_name_and_no_guesses_of_others() {
        let mut throttle = LoginThrottle::default();
        let here = address("192.0.2.1");
        for _ in 0..10 {
            throttle.attempt(here, Some("ada"), NOW);
            throttle.attempt(here, Some("bob"), NOW);
        }
        throttle.succeeded(here, Some("ada"));
        assert_eq!(throttle.attempt(here, Some("ada"), NOW), AT_ONCE);
        assert!(throttle.attempt(here, Some("bob"), NOW) != AT_ONCE);
        // Right credentials cost an address nothing, however many there are.
        for _ in 0..10_000 {
            assert_eq!(throttle.attempt(here, Some("eve"), NOW), AT_ONCE);
            throttle.succeeded(here, Some("eve"));
        }
    }

    #[test]
    fn guesses_at_passwords_that_were_right_have_a_rate_at_their_own_address_alone() {
        let mut throttle = LoginThrottle::default();
        let (here, there) = (address("127.0.0.1"), address("192.0.2.2"));
        let mut now = NOW;
        let mut compared = 0;
        for _ in 0..10_000 {
            now = Timestamp(now.0 + 1);
            if throttle.may_recall(here, "ada", now) {
                throttle.not_recalled(here, "ada", now);
                compared += 1;
            }
        }
        let most = now.since(NOW).as_millis() / LOGIN_RECALL_INTERVAL.as_millis();
        assert!(compared <= u128::from(LOGIN_RECALL_BURST) + most);
        assert!(!throttle.may_recall(here, "ada", now));
        assert!(throttle.may_recall(there, "ada", now) && throttle.may_recall(here, "bob", now));
        // It is no attempt by itself, and an attempt is none of these.
        assert_eq!(throttle.attempt(here, Some("ada"), now), AT_ONCE);
        throttle.succeeded(here, Some("ada"));
        assert!(!throttle.may_recall(here, "ada", now));
        assert!(throttle.may_recall(here, "ada", now.plus(LOGIN_RECALL_INTERVAL)));
    }

    #[test]
    fn the_log_has_a_limit_and_says_what_was_left_out() {
        let mut throttle = LoginThrottle::default();
        let lines = (0..1000).filter(|_| throttle.log(NOW).is_some()).count();
        assert_eq!(lines, usize::try_from(LOGIN_LOG_BURST).unwrap());
        assert_eq!(throttle.log(after_ms(1000)), Some(LoginLogLine { left_out: 990 }));
        assert_eq!(throttle.log(after_ms(1000)), None);
        assert_eq!(throttle.log(after_ms(2000)), Some(LoginLogLine { left_out: 1 }));
    }

    #[test]
    fn memory_does_not_grow_under_an_attack_from_everywhere() {
        let mut throttle = LoginThrottle::default();
        for index in 0..100_000_u32 {
            let address = IpAddr::from(index.wrapping_mul(2_654_435_761).to_be_bytes());
            throttle.attempt(address, Some("ada"), NOW);
            assert!(throttle.entries() <= LOGIN_ENTRIES_MAX);
        }
        assert!(throttle.entries() > LOGIN_ENTRIES_MAX / 2 - 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_victim_at_another_address_is_never_delayed(
            attacks in prop::collection::vec((any::<u16>(), 0..4_u8, 0..2000_u64, any::<bool>()), 1..3000)
        ) {
            let mut throttle = LoginThrottle::default();
            let (victim, mut now) = (address("198.51.100.7"), NOW);
            for (host, name, ms, v6) in attacks {
                now = Timestamp(now.0 + ms);
                let attacker = if v6 {
                    IpAddr::from([0x2001, 0xdb8, 0, host % 64, host, 0, 0, 1])
                } else {
                    IpAddr::from([203, 0, 113, host.to_be_bytes()[1]])
                };
                let name = ["ada", "bob", "", "eve"][usize::from(name)];
                throttle.attempt(attacker, Some(name), now);
                prop_assert!(throttle.entries() <= LOGIN_ENTRIES_MAX);
                prop_assert_eq!(throttle.attempt(victim, Some("ada"), now), AT_ONCE);
                throttle.succeeded(victim, Some("ada"));
            }
        }

        #[test]
        fn whoever_waits_as_told_is_answered(failures in 0..200_usize, wait in 0..10_000_u64) {
            let mut throttle = LoginThrottle::default();
            let here = address("2001:db8::1");
            for _ in 0..failures {
                throttle.attempt(here, Some("ada"), NOW);
            }
            let now = after_ms(wait);
            let mut answer = throttle.attempt(here, Some("ada"), now);
            if let LoginAdmission::Refused { retry_after } = answer {
                answer = throttle.attempt(here, Some("ada"), now.plus(retry_after));
            }
            prop_assert!(matches!(answer, LoginAdmission::After(delay) if delay <= LOGIN_DELAY_MAX));
        }

        /// However the guesses are spread, an address gets no more of them than its limit.
        #[test]
        fn guesses_from_an_address_have_a_rate(steps in prop::collection::vec((0..300_u64, 0..50_u8), 1..2000)) {
            let mut throttle = LoginThrottle::default();
            let (here, mut now, mut admitted) = (address("192.0.2.1"), NOW, 0);
            for (ms, name) in steps {
                now = Timestamp(now.0 + ms);
                if let LoginAdmission::After(_) = throttle.attempt(here, Some(&name.to_string()), now) {
                    admitted += 1;
                }
            }
            let ms = now.since(NOW) + LOGIN_DELAY_MAX;
            let most = ms.as_millis() / LOGIN_ADDRESS_INTERVAL.as_millis() + u128::from(LOGIN_ADDRESS_BURST);
            prop_assert!(admitted <= most + 1);
        }
    }
}
