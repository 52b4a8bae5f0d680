//! The quotas of a tenant, and the meter that counts what its keys and users use of them. Time is an argument.

use std::time::Duration;

use sennit_model::Timestamp;
use serde::{Deserialize, Serialize};

/// The quotas of a tenant. What is absent has no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quotas {
    /// Messages published in a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub messages_per_second: Option<u64>,
    /// Bytes published in a second: keys, headers and payloads, as encoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
    /// Bytes of messages that are kept in topics and streams of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stored_bytes: Option<u64>,
    /// Topics and streams of its namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topics: Option<u64>,
    /// Connections of the native protocol at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
}

/// A quota that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the quota of the tenant is {}: {quota} is {limit}{}", use_of(*.retry), room(*.stored))]
pub struct OverQuota {
    /// The name of the quota.
    pub quota: &'static str,
    /// The limit.
    pub limit: u64,
    /// Bytes that are stored, where it is the quota of these.
    pub stored: Option<u64>,
    /// When the same may succeed.
    pub retry: QuotaRetry,
}

/// When something that was over a quota may succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaRetry {
    /// After this time.
    After(Duration),
    /// Once consumers have settled messages, or something has ended or is deleted: now and then it is worth a try.
    WhenFreed,
    /// Once somebody has made room, or the quota is a larger one. It is no use to try again.
    ByHand,
    /// Soon: a node of a cluster that has just started, or heard of the quota, does not know yet what is stored.
    OnceMeasured,
}

/// The longest time to retry that is told.
const RETRY_MAX: Duration = Duration::from_secs(3600);

impl QuotaRetry {
    /// After this time, in bounds that a client can wait for.
    #[must_use]
    pub fn after(wait: Duration) -> Self {
        Self::After(wait.clamp(Duration::from_secs(1), RETRY_MAX))
    }
}

/// How much of a quota is used.
fn use_of(retry: QuotaRetry) -> &'static str {
    match retry {
        QuotaRetry::OnceMeasured => "not measured yet",
        QuotaRetry::After(_) | QuotaRetry::WhenFreed | QuotaRetry::ByHand => "used up",
    }
}

/// How room is made in a quota of stored bytes.
fn room(stored: Option<u64>) -> String {
    stored.map_or_else(String::new, |stored| {
        format!(
            ", and {stored} bytes are stored: settle messages, delete messages or topics, or ask the operator for more"
        )
    })
}

/// The use that a tenant makes of its rates. A second's worth may be used at once. A larger batch is taken when the
/// bucket is full, and paid for afterwards, so that no batch is too large for ever.
#[derive(Clone, Debug, Default)]
pub struct QuotaMeter {
    messages: Bucket,
    bytes: Bucket,
}

impl QuotaMeter {
    /// Takes a batch of so many messages and bytes, all of it or nothing.
    ///
    /// # Errors
    /// The quota that is used up, with the time until there is room.
    pub fn take(
        &mut self,
        quotas: &Quotas,
        (messages, bytes): (u64, u64),
        now: Timestamp,
    ) -> Result<(), OverQuota> {
        let over = |quota, rate: u64, wait| {
            let retry = QuotaRetry::After(wait);
            OverQuota { quota, limit: rate, stored: None, retry }
        };
        if let Some(rate) = quotas.messages_per_second {
            self.messages.fill(rate, now);
            if let Some(wait) = self.messages.wait(rate, messages) {
                return Err(over("messages_per_second", rate, wait));
            }
        }
        if let Some(rate) = quotas.bytes_per_second {
            self.bytes.fill(rate, now);
            if let Some(wait) = self.bytes.wait(rate, bytes) {
                return Err(over("bytes_per_second", rate, wait));
            }
            self.bytes.take(bytes);
        }
        if quotas.messages_per_second.is_some() {
            self.messages.take(messages);
        }
        Ok(())
    }

    /// Checks that a message could be taken now.
    ///
    /// # Errors
    /// The quota that is used up, with the time until there is room.
    pub fn check(&self, quotas: &Quotas, now: Timestamp) -> Result<(), OverQuota> {
        self.clone().take(quotas, (1, 1), now)
    }

    /// Has what was done without asking be paid for: what is taken next waits for it. No more than an hour's worth is owed.
    pub fn charge(&mut self, quotas: &Quotas, (messages, bytes): (u64, u64), now: Timestamp) {
        let of = [
            (quotas.messages_per_second, &mut self.messages, messages),
            (quotas.bytes_per_second, &mut self.bytes, bytes),
        ];
        for (rate, bucket, used) in of {
            let Some(rate) = rate else { continue };
            bucket.fill(rate, now);
            bucket.take(used);
            bucket.owe_at_most(rate);
        }
    }
}

/// A token bucket, in thousandths of a token. It may owe.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    held: i128,
    filled_at: Option<Timestamp>,
}

impl Bucket {
    /// Adds what has come since the last time.
    fn fill(&mut self, rate: u64, now: Timestamp) {
        let full = i128::from(rate) * 1000;
        self.held = match self.filled_at {
            None => full,
            Some(at) => {
                let since = now.since(at).as_millis();
                let more = i128::try_from(since).unwrap_or(i128::MAX).saturating_mul(rate.into());
                self.held.saturating_add(more).min(full)
            }
        };
        self.filled_at = Some(self.filled_at.map_or(now, |at| at.max(now)));
    }

    /// How long to wait until so much can be taken; `None` if it can now.
    fn wait(&self, rate: u64, wanted: u64) -> Option<Duration> {
        let full = i128::from(rate) * 1000;
        let needed = (i128::from(wanted) * 1000).min(full);
        if self.held >= needed && rate > 0 {
            return None;
        }
        let missing = needed - self.held;
        let ms = missing
            .checked_div(rate.into())
            .map_or(u64::MAX, |ms| u64::try_from(ms).unwrap_or(u64::MAX).saturating_add(1));
        // A rate of nothing is one that nobody waits for.
        Some(Duration::from_millis(ms).min(RETRY_MAX))
    }

    fn owe_at_most(&mut self, rate: u64) {
        self.held = self.held.max(-i128::from(rate) * 1000 * i128::from(RETRY_MAX.as_secs()));
    }

    fn take(&mut self, wanted: u64) {
        self.held = self.held.saturating_sub(i128::from(wanted) * 1000);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quotas(messages: Option<u64>, bytes: Option<u64>) -> Quotas {
        Quotas { messages_per_second: messages, bytes_per_second: bytes, ..Quotas::default() }
    }

    #[test]
    fn a_second_may_be_used_at_once_and_then_one_waits() {
        let (mut meter, quotas) = (QuotaMeter::default(), quotas(Some(10), None));
        let mut take = |messages, ms| meter.take(&quotas, (messages, 1_000_000), Timestamp(ms));
        assert_eq!(take(10, 1000), Ok(()));
        let over = take(1, 1000).unwrap_err();
        assert_eq!((over.quota, over.limit), ("messages_per_second", 10));
        assert_eq!(over.retry, QuotaRetry::After(Duration::from_millis(101)));
        assert_eq!(take(1, 1101), Ok(()));
        assert!(take(10, 1500).is_err());
        assert_eq!(take(10, 3000), Ok(()), "it holds no more than a second's worth");
        assert!(take(1, 3000).is_err());
    }

    #[test]
    fn a_batch_of_more_than_a_second_is_paid_for_afterwards() {
        let (mut meter, quotas) = (QuotaMeter::default(), quotas(None, Some(100)));
        let mut take = |bytes, ms| meter.take(&quotas, (1, bytes), Timestamp(ms));
        assert_eq!(take(500, 0), Ok(()));
        let over = take(1, 0).unwrap_err();
        assert_eq!(
            (over.quota, over.retry),
            ("bytes_per_second", QuotaRetry::After(Duration::from_millis(4011)))
        );
        assert!(take(1, 3999).is_err());
        assert_eq!(take(1, 4100), Ok(()));
    }

    #[test]
    fn what_is_refused_for_one_quota_uses_nothing_of_the_other() {
        let (mut meter, both) = (QuotaMeter::default(), quotas(Some(10), Some(100)));
        assert_eq!(meter.take(&both, (1, 100), Timestamp(0)), Ok(()));
        for _ in 0..100 {
            assert!(meter.take(&both, (1, 100), Timestamp(0)).is_err());
        }
        assert_eq!(meter.take(&both, (9, 0), Timestamp(0)), Ok(()));
        let none = quotas(Some(0), None);
        let over = QuotaMeter::default().take(&none, (1, 1), Timestamp(0)).unwrap_err();
        assert_eq!(over.retry, QuotaRetry::After(Duration::from_secs(3600)));
    }

    #[test]
    fn what_is_charged_is_paid_for_by_what_comes_next() {
        let (mut meter, quotas) = (QuotaMeter::default(), quotas(Some(10), Some(100)));
        meter.charge(&quotas, (30, 0), Timestamp(0));
        let over = meter.check(&quotas, Timestamp(0)).unwrap_err();
        assert_eq!(meter.take(&quotas, (1, 1), Timestamp(0)), Err(over));
        let wait = Duration::from_millis(2101);
        assert_eq!((over.quota, over.retry), ("messages_per_second", QuotaRetry::After(wait)));
        assert_eq!(meter.take(&quotas, (1, 1), Timestamp(2101)), Ok(()));
        meter.charge(&quotas, (0, u64::MAX), Timestamp(3000));
        let over = meter.take(&quotas, (1, 1), Timestamp(3000)).unwrap_err();
        assert_eq!(over.quota, "bytes_per_second");
        let hour = 3_600_000;
        assert_eq!(meter.take(&quotas, (1, 1), Timestamp(3000 + hour + 10)), Ok(()));
    }

    proptest! {
        #[test]
        fn over_any_time_no_more_is_taken_than_the_rate_and_one_batch(
            rate in 1_u64..1000, steps in prop::collection::vec((0_u64..500, 1_u64..2000), 1..100)
        ) {
            let (mut meter, quotas) = (QuotaMeter::default(), quotas(Some(rate), None));
            let (mut now, mut taken, mut longest) = (0, 0, 0);
            for (after, messages) in steps {
                now += after;
                match meter.take(&quotas, (messages, 0), Timestamp(now)) {
                    Ok(()) => {
                        taken += messages;
                        longest = longest.max(messages);
                    }
                    Err(over) => {
                        let QuotaRetry::After(wait) = over.retry else { panic!("{over:?}") };
                        let then = Timestamp(now).plus(wait);
                        prop_assert_eq!(meter.clone().take(&quotas, (messages, 0), then), Ok(()));
                    }
                }
            }
            prop_assert!(taken * 1000 <= rate * now + 1000 * (rate + longest), "{} in {} ms", taken, now);
        }
    }
}
