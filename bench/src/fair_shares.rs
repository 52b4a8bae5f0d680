//! The shares of deliveries that tenants with different weights get while all of them have a backlog.

use anyhow::Result;
use serde_json::json;

use crate::{
    fair_results::{FairResults, ShareResults},
    load::Bench,
    row::Row,
    tenant_queue::{TenantQueue, runtime},
};

/// Messages that the consumer may hold.
const CREDIT: u32 = 64;

/// Tenants of weight 1, 2 and so on, each with a backlog.
#[derive(Clone, Debug)]
pub struct FairShares {
    /// The number of tenants; the weight of each is its number from 1.
    pub tenants: u32,
    /// Messages of each.
    pub each: u64,
    /// Deliveries after which shares are compared.
    pub window: u64,
    /// The length of a payload in bytes.
    pub size: usize,
    /// The greatest deviation from a share, in percent of it.
    pub limit_percent: f64,
}

impl FairShares {
    /// Counts the deliveries of each window in which no backlog ends.
    ///
    /// # Errors
    /// The broker cannot be reached, or nothing is delivered.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        runtime()?.block_on(async {
            let mut queue = TenantQueue::create(bench, self.size, Vec::new()).await?;
            for tenant in 0..self.tenants {
                queue.publish(tenant, tenant + 1, self.each).await?;
            }
            queue.flush().await?;
            let mut consumer = queue.consumer(CREDIT).await?;
            let mut results = ShareResults { window: self.window, ..ShareResults::default() };
            for _ in 0..self.windows() {
                let mut counts = vec![0; self.tenants as usize];
                for _ in 0..self.window {
                    let (delivery, tenant) = queue.next(&mut consumer).await?;
                    delivery.ack();
                    if let Some(count) = tenant.and_then(|of| counts.get_mut(of as usize)) {
                        *count += 1;
                    }
                }
                let deviation = self.deviation_percent(&counts);
                if deviation >= results.deviation_percent {
                    (results.deviation_percent, results.deliveries) = (deviation, counts);
                }
                results.windows += 1;
            }
            consumer.close().await?;
            let mut result = Row::default();
            queue.finish(bench, &mut result).await?;
            if results.windows == 0 || results.deviation_percent > self.limit_percent {
                result.errors += 1;
                let (windows, deviation) = (results.windows, results.deviation_percent);
                let text =
                    format!("the shares of {windows} windows are off by up to {deviation} %");
                result.error_texts.push(text);
            }
            result.fair = Some(FairResults::Shares(results));
            let (tenants, each, window) = (self.tenants, self.each, self.window);
            result.config = json!({ "tenants": tenants, "each": each, "window": window,
                "size": self.size, "credit": CREDIT });
            bench.name(&mut result, row);
            Ok(result)
        })
    }

    fn weights(&self) -> u64 {
        (1..=u64::from(self.tenants)).sum()
    }

    /// How many windows end before the heaviest tenant's backlog, with some room for what the consumer holds.
    fn windows(&self) -> u64 {
        let until_first_end = self.each * self.weights() / u64::from(self.tenants).max(1);
        until_first_end.saturating_sub(u64::from(CREDIT)) / self.window.max(1)
    }

    /// The greatest deviation of a count from its share, in percent of the share.
    fn deviation_percent(&self, counts: &[u64]) -> f64 {
        let of_one = self.window as f64 / self.weights() as f64;
        let deviations = (1..).zip(counts).map(|(weight, &count)| {
            let share = of_one * f64::from(weight);
            (count as f64 - share).abs() / share * 100.0
        });
        deviations.fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(each: u64) -> FairShares {
        FairShares { tenants: 5, each, window: 5000, size: 100, limit_percent: 1.0 }
    }

    #[test]
    fn a_window_counts_only_while_every_tenant_has_messages() {
        assert_eq!([1000, 2000, 20_000].map(|each| of(each).windows()), [0, 1, 11]);
    }

    #[test]
    fn a_deviation_is_a_part_of_the_share() {
        let counts = [333, 667, 1000, 1333, 1667];
        assert!(of(2000).deviation_percent(&counts) < 0.11);
        assert!((of(2000).deviation_percent(&[350, 650, 1000, 1333, 1667]) - 5.0).abs() < 0.01);
    }
}
