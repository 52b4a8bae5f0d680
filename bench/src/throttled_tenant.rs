//! The pace of a throttled tenant beside thousands of tenants that wait.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sennit_client::{GroupChange, KeyRule, ThrottlePattern, ThrottleRate};
use serde_json::json;

use crate::{
    fair_results::{FairResults, ThrottleResults},
    load::Bench,
    row::Row,
    tenant_queue::{TenantQueue, runtime},
};

/// Messages that the consumer may hold.
const CREDIT: u32 = 1000;

/// The throttled tenant's number.
const TENANT: u32 = 0;

/// Seconds of messages that the tenant has beyond those that are counted.
const SPARE_S: f64 = 30.0;

/// A throttled tenant, and others that have messages and wait for an hour.
#[derive(Clone, Debug)]
pub struct ThrottledTenant {
    /// Messages per second of the tenant, with a burst of 1.
    pub rate: f64,
    /// Seconds that are counted.
    pub seconds: u64,
    /// The number of others.
    pub others: u32,
    /// The length of a payload in bytes.
    pub size: usize,
    /// The greatest deviation of the number of deliveries, in percent.
    pub limit_percent: f64,
}

impl ThrottledTenant {
    /// Counts the tenant's deliveries, once each of the others waits.
    ///
    /// # Errors
    /// The broker cannot be reached, or the tenant's messages stop.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let own: ThrottlePattern = TenantQueue::key(TENANT).parse()?;
        let others: ThrottlePattern = "tenant-*".parse()?;
        let rule = |pattern: &ThrottlePattern, text: &str| -> Result<KeyRule> {
            let throttle = Some(ThrottleRate::parse(text)?);
            Ok(KeyRule { throttle, ..KeyRule::new(pattern.clone()) })
        };
        let rules =
            vec![rule(&own, &format!("{}/s burst 1", self.rate))?, rule(&others, "1/h burst 1")?];
        runtime()?.block_on(async {
            let mut queue = TenantQueue::create(bench, self.size, rules).await?;
            for other in 1..=self.others {
                queue.publish(other, 1, 2).await?;
            }
            let messages = (self.rate * (self.seconds as f64 + SPARE_S)) as u64;
            queue.publish(TENANT, 1, messages).await?;
            queue.flush().await?;
            let mut consumer = queue.consumer(CREDIT).await?;
            // One message of each of the others passes, and the next one waits for an hour.
            let mut waiting = 0;
            while waiting < self.others {
                let (delivery, tenant) = queue.next(&mut consumer).await?;
                delivery.ack();
                waiting += u32::from(tenant != Some(TENANT));
            }
            let (first, _) = queue.next(&mut consumer).await?;
            first.ack();
            let mut instants = vec![Instant::now()];
            let until = Duration::from_secs(self.seconds);
            loop {
                let (delivery, _) = queue.next(&mut consumer).await?;
                delivery.ack();
                let now = Instant::now();
                if now - instants[0] >= until {
                    break;
                }
                instants.push(now);
                (bench.progress)(row, instants.len() as u64, None);
            }
            let mut results = self.results(&instants);
            results.waiting = u64::from(waiting);
            consumer.close().await?;
            // Without the rules, the rest comes at once.
            let (client, topic, group) = queue.client();
            let key_rules = vec![KeyRule::new(own), KeyRule::new(others)];
            let change = GroupChange { key_rules, ..GroupChange::default() };
            client.alter_group(topic, group, change).await.context("remove the rules")?;
            let mut result = Row::default();
            queue.finish(bench, &mut result).await?;
            if results.deviation_percent.abs() > self.limit_percent {
                result.errors += 1;
                let text = format!("the throttle is off by {:.2} %", results.deviation_percent);
                result.error_texts.push(text);
            }
            result.seconds = self.seconds as f64;
            result.fair = Some(FairResults::Throttle(results));
            result.config = json!({ "rate": self.rate, "seconds": self.seconds,
                "others": self.others, "size": self.size, "credit": CREDIT });
            bench.name(&mut result, row);
            Ok(result)
        })
    }

    fn results(&self, instants: &[Instant]) -> ThrottleResults {
        let mut of_second = vec![0; self.seconds as usize];
        for instant in instants {
            let second = (*instant - instants[0]).as_secs() as usize;
            if let Some(count) = of_second.get_mut(second) {
                *count += 1;
            }
        }
        let gap = instants.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default();
        let (delivered, expected) = (instants.len() as u64, self.rate * self.seconds as f64);
        ThrottleResults {
            expected: expected as u64,
            delivered,
            deviation_percent: (delivered as f64 / expected.max(1e-9) - 1.0) * 100.0,
            second_min: of_second.iter().min().copied().unwrap_or_default(),
            second_max: of_second.iter().max().copied().unwrap_or_default(),
            gap_max_ms: gap.as_millis() as u64,
            waiting: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deliveries_are_counted_by_the_second() {
        let throttled =
            ThrottledTenant { rate: 50.0, seconds: 2, others: 0, size: 100, limit_percent: 1.0 };
        let begun = Instant::now();
        let at = |number: u32| begun + number * Duration::from_millis(20);
        let instants: Vec<_> = (0..100).filter(|number| *number != 60).map(at).collect();
        let results = throttled.results(&instants);
        assert_eq!((results.delivered, results.second_min, results.second_max), (99, 49, 50));
        assert_eq!(results.gap_max_ms, 40);
        assert!((results.deviation_percent + 1.0).abs() < 1e-9);
    }
}
