//! The latency of a tenant beside one that floods the broker, in turns with the same load without the flood.

use anyhow::{Context, Result, ensure};
use sennit_client::{AccessKind, Client, Holder, Quotas};
use serde_json::json;

use crate::{
    clock::now_ns,
    connect::{connect, with_key},
    fair_results::{FairResults, FloodResults},
    flood::{Flood, FloodCounts},
    latency::Percentiles,
    load::{Bench, Load},
    row::Row,
    tenant_queue::runtime,
};

/// The path below which streams are over HTTP.
const STREAMS_PATH: &str = "/v1/stream";

/// A tenant with a steady load, and one that floods.
#[derive(Clone, Debug)]
pub struct FloodedTenant {
    /// The load of the steady tenant.
    pub load: Load,
    /// Appends per second that the other one tries; 0 for as many as go.
    pub flood: f64,
    /// Messages per second that it may publish; 0 for no quota.
    pub quota: u64,
    /// How many turns count, after one that does not.
    pub turns: u32,
    /// The greatest ratio of the p99 with the flood to that without it.
    pub limit: f64,
}

/// A turn: the load without the flood, with it, and what became of the flood.
struct Turn {
    calm: Row,
    flooded: Row,
    flood: FloodCounts,
    seconds: f64,
}

impl FloodedTenant {
    /// Runs the turns.
    ///
    /// # Errors
    /// The broker cannot be reached, or asks nobody for credentials.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let (key, server) = bench
            .broker
            .server
            .split_once('#')
            .context("it needs a broker that asks for credentials: --serve --serve-auth")?;
        let runtime = runtime()?;
        let admin = runtime.block_on(connect(&with_key(key, server)))?;
        let number = now_ns();
        let (steady, loud) = (format!("steady-{number}"), format!("loud-{number}"));
        let steady_key = runtime.block_on(tenant(&admin, &steady, 0))?;
        let loud_key = runtime.block_on(tenant(&admin, &loud, self.quota))?;
        let broker = bench.broker.reached_at(with_key(&steady_key.1, server));
        let path = format!("{STREAMS_PATH}/{loud}/flood");
        let mut turns = Vec::new();
        for turn in 0..=self.turns {
            let load = |name: &str| {
                let topic = Some(format!("{steady}.{name}-{turn}"));
                Bench { broker: &broker, topic, ..bench.clone() }.run(row, &self.load)
            };
            let flooded = || -> Result<(Row, FloodCounts, f64)> {
                let began = now_ns();
                let size = self.load.size;
                let flood = Flood::start(&bench.broker.http, &loud_key.1, &path, size, self.flood)?;
                let row = load("flooded")?;
                let counts = flood.end()?;
                Ok((row, counts, (now_ns() - began) as f64 / 1e9))
            };
            // Every other turn begins with the flood.
            let (calm, (flooded, flood, seconds)) = if turn % 2 == 0 {
                let calm = load("calm")?;
                (calm, flooded()?)
            } else {
                let flooded = flooded()?;
                (load("calm")?, flooded)
            };
            turns.push(Turn { calm, flooded, flood, seconds });
            for name in ["calm", "flooded"] {
                let topic = format!("{steady}.{name}-{turn}").parse()?;
                runtime.block_on(admin.delete_topic(&topic))?;
            }
        }
        runtime.block_on(async {
            admin.delete_topic(&format!("{loud}/flood").parse()?).await?;
            let access = admin.access();
            for (id, _) in [steady_key, loud_key] {
                access.delete(AccessKind::Keys, &id).await?;
            }
            for name in [&steady, &loud] {
                access.delete(AccessKind::Tenants, name).await?;
            }
            anyhow::Ok(())
        })?;
        let mut result = self.row(&turns)?;
        bench.name(&mut result, row);
        Ok(result)
    }

    fn row(&self, turns: &[Turn]) -> Result<Row> {
        // The first turn is on a new broker.
        let counted = turns.get(1..).unwrap_or_default();
        let confirm = |row: &Row| row.publish_to_confirm_us;
        let deliver = |row: &Row| row.publish_to_deliver_us;
        let p99 = |pick: fn(&Turn) -> &Row, of: fn(&Row) -> Option<Percentiles>| {
            median(counted.iter().filter_map(|turn| Some(of(pick(turn))?.p99 as f64)).collect())
        };
        let ratio = |of: fn(&Row) -> Option<Percentiles>| {
            let ratios = counted.iter().filter_map(|turn| {
                let (calm, flooded) = (of(&turn.calm)?, of(&turn.flooded)?);
                Some(flooded.p99 as f64 / (calm.p99 as f64).max(1.0))
            });
            median(ratios.collect())
        };
        let per_s = |of: fn(&FloodCounts) -> u64| {
            median(counted.iter().map(|turn| of(&turn.flood) as f64 / turn.seconds).collect())
        };
        let results = FloodResults {
            calm_confirm_p99_us: p99(|turn| &turn.calm, confirm),
            confirm_p99_us: p99(|turn| &turn.flooded, confirm),
            confirm_ratio: ratio(confirm),
            calm_deliver_p99_us: p99(|turn| &turn.calm, deliver),
            deliver_p99_us: p99(|turn| &turn.flooded, deliver),
            deliver_ratio: ratio(deliver),
            limit: self.limit,
            taken_per_s: per_s(|flood| flood.taken),
            refused_per_s: per_s(|flood| flood.refused),
        };
        let mut result = Row {
            fair: Some(FairResults::Flood(results)),
            config: json!({ "load": self.load, "flood": self.flood, "quota": self.quota,
                "turns": self.turns }),
            ..Row::default()
        };
        for row in turns.iter().flat_map(|turn| [&turn.calm, &turn.flooded]) {
            result.message_errors.add(&row.message_errors);
            result.errors += row.errors;
            result.error_texts.extend(row.error_texts.iter().cloned());
        }
        let is_flood = results.refused_per_s > results.taken_per_s;
        ensure!(self.quota == 0 || is_flood, "the flood stayed within twice its quota");
        let worst = results.confirm_ratio.max(results.deliver_ratio);
        if worst > self.limit {
            result.errors += 1;
            let limit = self.limit;
            result.error_texts.push(format!("p99 is {worst:.2} times that without, of {limit}"));
        }
        Ok(result)
    }
}

/// Creates a tenant with a key that may do everything in it. Returns the key's id and the key.
async fn tenant(admin: &Client, name: &str, quota: u64) -> Result<(String, String)> {
    let access = admin.access();
    let messages_per_second = (quota > 0).then_some(quota);
    access.create_tenant(name, Quotas { messages_per_second, ..Quotas::default() }).await?;
    let rights = vec!["* >".to_owned()];
    let holder = Holder { tenant: Some(name.to_owned()), rights, ..Holder::default() };
    let created = access.create_key(name, holder, None).await?;
    Ok((created.id, created.key.context("a new key is shown")?))
}

/// The median; of an even number the lower one of the middle. 0 if there is none.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(p99: u64) -> Row {
        let of = Some(Percentiles { p99, ..Percentiles::default() });
        Row { publish_to_confirm_us: of, publish_to_deliver_us: of, ..Row::default() }
    }

    fn turn(calm: u64, flooded: u64) -> Turn {
        let flood = FloodCounts { taken: 10, refused: 90 };
        Turn { calm: row(calm), flooded: row(flooded), flood, seconds: 2.0 }
    }

    #[test]
    fn ratios_are_those_of_turns_and_the_first_one_does_not_count() {
        let tenant =
            FloodedTenant { load: Load::new(), flood: 0.0, quota: 5, turns: 3, limit: 2.0 };
        let row = tenant.row(&[turn(1, 9), turn(10, 15), turn(100, 110), turn(10, 30)]).unwrap();
        let Some(FairResults::Flood(results)) = row.fair else { panic!("{row:?}") };
        assert_eq!((results.confirm_ratio, results.confirm_p99_us), (1.5, 30.0));
        assert_eq!((results.taken_per_s, results.refused_per_s), (5.0, 45.0));
        assert_eq!(row.errors, 0);
        let row = tenant.row(&[turn(1, 1), turn(10, 21)]).unwrap();
        assert_eq!(row.error_texts, ["p99 is 2.10 times that without, of 2"]);
    }
}
