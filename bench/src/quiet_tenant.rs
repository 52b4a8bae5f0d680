//! The number of deliveries before a quiet tenant's message that arrives behind the backlogs of others.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::{
    fair_results::{FairResults, QuietResults},
    load::Bench,
    row::Row,
    tenant_queue::{TenantQueue, runtime},
};

/// A noisy tenant, others with short backlogs, and tenants that arrive later.
#[derive(Clone, Debug)]
pub struct QuietTenant {
    /// Messages of the noisy tenant.
    pub noisy: u64,
    /// The number of other tenants.
    pub others: u32,
    /// The number of quiet tenants that arrive, one after the other, each with one message.
    pub arrivals: u32,
    /// The length of a payload in bytes.
    pub size: usize,
    /// The greatest number of rounds before a quiet tenant's message.
    pub limit_rounds: f64,
}

impl QuietTenant {
    /// Counts the deliveries. The consumer holds one message at a time, so that none is on its way before the
    /// arrival.
    ///
    /// # Errors
    /// The broker cannot be reached, or nothing is delivered.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        ensure!(self.arrivals > 0, "a tenant has to arrive");
        runtime()?.block_on(async {
            let mut queue = TenantQueue::create(bench, self.size, Vec::new()).await?;
            queue.publish(0, 1, self.noisy).await?;
            // No other tenant's backlog ends before the last arrival.
            let each = 2 * u64::from(self.arrivals) + 2;
            for other in 1..=self.others {
                queue.publish(other, 1, each).await?;
            }
            queue.flush().await?;
            let mut consumer = queue.consumer(1).await?;
            let (mut most, mut sum) = (0, 0);
            let (mut held, _) = queue.next(&mut consumer).await?;
            for arrival in 0..self.arrivals {
                let quiet = self.others + 1 + arrival;
                queue.publish(quiet, 1, 1).await?;
                queue.flush().await?;
                let mut before = 0;
                loop {
                    held.ack();
                    let tenant;
                    (held, tenant) = queue.next(&mut consumer).await?;
                    if tenant == Some(quiet) {
                        break;
                    }
                    before += 1;
                }
                (most, sum) = (before.max(most), sum + before);
                (bench.progress)(row, (arrival + 1).into(), Some(self.arrivals.into()));
            }
            held.ack();
            consumer.close().await?;
            let mut result = Row::default();
            queue.finish(bench, &mut result).await?;
            // A message of each other tenant and one of the noisy one.
            let round = f64::from(self.others + 1);
            let results = QuietResults {
                pending: self.noisy + each * u64::from(self.others),
                tenants: self.others + 1,
                arrivals: self.arrivals,
                deliveries_before_max: most,
                deliveries_before_mean: f64::from(sum) / f64::from(self.arrivals),
                rounds_max: f64::from(most) / round,
            };
            if results.rounds_max > self.limit_rounds {
                result.errors += 1;
                let (most, limit) = (results.rounds_max, self.limit_rounds);
                result.error_texts.push(format!("a tenant waited for {most:.2} rounds of {limit}"));
            }
            result.fair = Some(FairResults::Quiet(results));
            result.config = json!({ "noisy": self.noisy, "others": self.others,
                "arrivals": self.arrivals, "size": self.size });
            bench.name(&mut result, row);
            Ok(result)
        })
    }
}
