//! Latencies with a precision of a microsecond, including the tail, and their transfer from child to parent.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// The longest latency that the histogram distinguishes, in microseconds: an hour.
const MICROSECONDS_MAX: u64 = 3_600_000_000;

/// The number of values that wait to be counted. A histogram has some hundred KiB, which the processor's caches
/// cannot hold for a hundred readers.
const WAITING_MAX: usize = 256;

/// A histogram of latencies in microseconds, to three digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    /// Values that the histogram does not have yet, with the length of their runs: neighbours are mostly equal.
    waiting: Vec<(u64, u64)>,
}

/// Latencies as pairs of value and count: the form for other processes.
pub type Buckets = Vec<(u64, u64)>;

/// The percentiles of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The median.
    pub p50: u64,
    /// The 95th percentile.
    pub p95: u64,
    /// The 99th percentile.
    pub p99: u64,
    /// The 99.9th percentile.
    pub p999: u64,
    /// The 99.99th percentile.
    pub p9999: u64,
    /// The maximum.
    pub max: u64,
}

impl Latencies {
    /// No latencies.
    #[must_use]
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MICROSECONDS_MAX, 3)
            .expect("an hour in microseconds to three digits is within what a histogram can");
        Self { histogram, waiting: Vec::new() }
    }

    /// Records the time from `from_ns` to `to_ns`, rounded up to the microsecond.
    pub fn record(&mut self, from_ns: u64, to_ns: u64) {
        self.record_n(from_ns, to_ns, 1);
    }

    /// Records `count` equal times.
    pub fn record_n(&mut self, from_ns: u64, to_ns: u64, count: u64) {
        let us = to_ns.saturating_sub(from_ns).div_ceil(1000);
        if let Some((last, held)) = self.waiting.last_mut()
            && *last == us
        {
            *held += count;
            return;
        }
        if self.waiting.len() == WAITING_MAX {
            self.settle();
        }
        self.waiting.push((us, count));
    }

    fn settle(&mut self) {
        for (us, count) in self.waiting.drain(..) {
            self.histogram.saturating_record_n(us, count);
        }
    }

    /// All latencies, for the parent.
    #[must_use]
    pub fn buckets(mut self) -> Buckets {
        self.settle();
        let recorded = self.histogram.iter_recorded();
        recorded.map(|at| (at.value_iterated_to(), at.count_at_value())).collect()
    }

    /// Adds the latencies of a child.
    pub fn add(&mut self, buckets: &Buckets) {
        for &(us, count) in buckets {
            self.histogram.saturating_record_n(us, count);
        }
    }

    /// The percentiles; `None` without latencies.
    #[must_use]
    pub fn percentiles(&mut self) -> Option<Percentiles> {
        self.settle();
        let at = |quantile| self.histogram.value_at_quantile(quantile);
        (!self.histogram.is_empty()).then(|| Percentiles {
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            p9999: at(0.9999),
            max: self.histogram.max(),
        })
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_survive_the_way_from_child_to_parent() {
        let mut child = Latencies::new();
        for us in 1..=10_000 {
            child.record(0, us * 1000);
        }
        let mut parent = Latencies::new();
        parent.add(&child.clone().buckets());
        let (near, far) = (child.percentiles().unwrap(), parent.percentiles().unwrap());
        assert_eq!(near, far);
        assert!((4_995..=5_005).contains(&near.p50) && (9_900..=9_910).contains(&near.p99));
    }

    #[test]
    fn a_run_of_equal_values_counts_each() {
        let mut latencies = Latencies::new();
        for _ in 0..9 {
            latencies.record(1000, 3000);
        }
        latencies.record(1000, 901_000);
        let buckets = latencies.clone().buckets();
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 10);
        assert_eq!(latencies.percentiles().map(|p| (p.p50, p.max >= 900)), Some((2, true)));
    }

    #[test]
    fn nothing_measured_is_not_zero() {
        assert_eq!(Latencies::new().percentiles(), None);
    }
}
