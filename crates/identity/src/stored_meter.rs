//! The meter of the bytes that a tenant stores. They are measured now and then, and what is taken since a measurement
//! began counts on top of it, so that no more is let in meanwhile than there is room for. Time is an argument.

use sennit_model::Timestamp;

use crate::quota::{OverQuota, QuotaRetry};

/// What a tenant stores, as it was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredBytes {
    /// Bytes of all messages that are kept.
    pub bytes: u64,
    /// When the first of them are too old to be kept; `None` if none ever are.
    pub too_old_at: Option<Timestamp>,
    /// Whether some of them go once they are settled.
    pub until_settled: bool,
}

/// The meter.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoredMeter {
    measured: Option<StoredBytes>,
    /// Bytes that were taken since the measurement that counts began.
    taken: u64,
    /// Bytes that were taken since the one that is under way began.
    taken_meanwhile: u64,
}

impl StoredMeter {
    /// A measurement begins: what was taken before is in it.
    pub fn begin(&mut self) {
        self.taken = self.taken.saturating_add(self.taken_meanwhile);
        self.taken_meanwhile = 0;
    }

    /// The measurement that began last has come to this.
    pub fn end(&mut self, stored: StoredBytes) {
        self.measured = Some(stored);
        self.taken = std::mem::take(&mut self.taken_meanwhile);
    }

    /// Bytes that are stored now, as far as is known; `None` before the first measurement.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        let taken = self.taken.saturating_add(self.taken_meanwhile);
        self.measured.map(|stored| stored.bytes.saturating_add(taken))
    }

    /// Takes note of bytes that are stored from now on.
    pub fn add(&mut self, bytes: u64) {
        self.taken_meanwhile = self.taken_meanwhile.saturating_add(bytes);
    }

    /// Checks that so many more bytes may be stored. Nothing always may.
    ///
    /// # Errors
    /// They may not. What would make room says when to try again.
    pub fn check(&self, limit: u64, more: u64, now: Timestamp) -> Result<(), OverQuota> {
        let held = self.bytes().unwrap_or_default();
        if more == 0 || held.saturating_add(more) <= limit {
            return Ok(());
        }
        let stored = self.measured.unwrap_or_default();
        // Of what came since it was measured is not known yet how it goes.
        let may_settle = stored.until_settled || held > stored.bytes;
        let retry = match (more > limit, may_settle, stored.too_old_at) {
            (true, ..) | (false, false, None) => QuotaRetry::ByHand,
            (false, true, _) => QuotaRetry::WhenFreed,
            (false, false, Some(at)) => QuotaRetry::after(at.since(now)),
        };
        Err(OverQuota { quota: "stored_bytes", limit, stored: Some(held), retry })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1000);

    fn measured(bytes: u64) -> StoredBytes {
        StoredBytes { bytes, ..StoredBytes::default() }
    }

    fn take(meter: &mut StoredMeter, limit: u64, bytes: u64) -> Result<(), OverQuota> {
        meter.check(limit, bytes, NOW)?;
        meter.add(bytes);
        Ok(())
    }

    #[test]
    fn what_is_taken_counts_until_a_measurement_has_it() {
        let mut meter = StoredMeter::default();
        assert_eq!(meter.bytes(), None);
        meter.begin();
        meter.end(measured(50));
        assert_eq!(take(&mut meter, 100, 30), Ok(()));
        let over = take(&mut meter, 100, 30).unwrap_err();
        assert_eq!((over.quota, over.limit, over.stored), ("stored_bytes", 100, Some(80)));
        assert_eq!(take(&mut meter, 100, 0), Ok(()), "nothing always has room");
        meter.begin();
        assert_eq!(take(&mut meter, 100, 20), Ok(()));
        assert!(
            take(&mut meter, 100, 1).is_err(),
            "the one before counts while another is under way"
        );
        // It found what was taken before it began; what came meanwhile is on top.
        meter.end(measured(80));
        assert_eq!(meter.bytes(), Some(100));
        meter.begin();
        meter.end(measured(10));
        assert_eq!(take(&mut meter, 100, 90), Ok(()), "what was freed counts back");
    }

    #[test]
    fn the_time_to_retry_is_that_of_what_goes_by_itself() {
        let retry = |stored: StoredBytes, more| {
            let mut meter = StoredMeter::default();
            meter.end(stored);
            meter.check(100, more, NOW).unwrap_err().retry
        };
        let full = measured(100);
        assert_eq!(retry(full, 1), QuotaRetry::ByHand);
        let ages = StoredBytes { too_old_at: Some(Timestamp(61_000)), ..full };
        assert_eq!(retry(ages, 1), QuotaRetry::After(Duration::from_secs(60)));
        assert_eq!(retry(ages, 101), QuotaRetry::ByHand, "it never fits");
        let settled = StoredBytes { until_settled: true, ..ages };
        assert_eq!(retry(settled, 1), QuotaRetry::WhenFreed);
        let late = StoredBytes { too_old_at: Some(NOW), ..full };
        assert_eq!(retry(late, 1), QuotaRetry::After(Duration::from_secs(1)));
        let mut meter = StoredMeter::default();
        meter.end(full);
        meter.add(1);
        assert_eq!(meter.check(100, 1, NOW).unwrap_err().retry, QuotaRetry::WhenFreed);
    }

    proptest! {
        /// Whatever is measured when, no more is let in than there is room for: each measurement finds what was taken
        /// before it began, and perhaps some of what came meanwhile.
        #[test]
        fn no_more_is_stored_than_the_quota(steps in prop::collection::vec((0_u8..3, 0_u64..60), 0..200)) {
            let (mut meter, mut stored, mut at_begin) = (StoredMeter::default(), 0, None);
            meter.end(measured(0));
            for (step, bytes) in steps {
                match step {
                    0 => {
                        if take(&mut meter, 100, bytes).is_ok() {
                            stored += bytes;
                        }
                    }
                    1 => {
                        meter.begin();
                        at_begin = Some(stored);
                    }
                    _ => {
                        if let Some(found) = at_begin.take() {
                            // Anything between what there was and what there is now.
                            meter.end(measured(found + bytes % (stored - found + 1)));
                        }
                    }
                }
                prop_assert!(stored <= 100);
            }
        }
    }
}
