//! Compares two loads that run in turns: a base, and one that differs from it in a single thing.

use anyhow::Result;
use serde_json::json;

use crate::{
    broker::Broker,
    comparison_results::ComparisonResults,
    load::{Bench, Load},
    options::Options,
    parked::make_room,
    phases::{Phase, Phases},
    row::Row,
};

/// Two loads in turns.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The name of the base.
    pub base_name: &'static str,
    /// The base.
    pub base: Load,
    /// The load that the row is about.
    pub load: Load,
    /// How many turns count, after one that does not.
    pub turns: u32,
    /// Whether each of the two has a new broker of its own, so that their memory can be compared.
    pub brings_brokers: bool,
}

impl Comparison {
    /// A fair group beside one that delivers by offset, as the topic names no header.
    #[must_use]
    pub fn beside_fifo(load: Load, turns: u32) -> Self {
        let base = Load { fields: None, ..load.clone() };
        Self { base_name: "FIFO", base, load, turns, brings_brokers: false }
    }

    /// Runs the turns. The row has medians over the turns, and the errors of all of them.
    ///
    /// # Errors
    /// The broker cannot be reached, or a worker fails.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        make_room(u64::from(self.load.consumers))?;
        if !self.brings_brokers {
            return self.run_on(bench, bench, row);
        }
        let start = |name: &str| {
            let data = bench.options.data.as_ref().map(|data| data.join(name));
            Broker::start(&Options { data, ..bench.options.clone() }, &[])
        };
        let (base, broker) = (start("base")?, start("row")?);
        let base = Bench { broker: &base, ..bench.clone() };
        self.run_on(&base, &Bench { broker: &broker, ..bench.clone() }, row)
    }

    /// Runs the turns on two brokers.
    pub(crate) fn run_on(&self, base: &Bench<'_>, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let (mut bases, mut rows) = (Vec::new(), Vec::new());
        for turn in 0..=self.turns {
            // Every other turn begins with the other one.
            if turn % 2 == 0 {
                bases.push(base.run_phases(self.base_name, &self.base)?);
                rows.push(bench.run_phases(row, &self.load)?);
            } else {
                rows.push(bench.run_phases(row, &self.load)?);
                bases.push(base.run_phases(self.base_name, &self.base)?);
            }
        }
        let mut result = self.row(&bases, &rows);
        bench.name(&mut result, row);
        Ok(result)
    }

    fn row(&self, bases: &[Phases], rows: &[Phases]) -> Row {
        // The first turn is on a new broker: its memory counts, its rates do not.
        let counted = |of: &[Phases]| -> Vec<Phases> { of.iter().skip(1).cloned().collect() };
        let (counted_bases, counted_rows) = (counted(bases), counted(rows));
        let publish = |phases: &Phases| Some(phases.publish);
        let consume = |phases: &Phases| phases.consume;
        let per_s = |phase: Phase| Some(phase.per_s);
        let cpu_us = |phase: Phase| phase.cpu_us;
        let of = |turns: &[Phases],
                  phase: fn(&Phases) -> Option<Phase>,
                  figure: fn(Phase) -> Option<f64>| {
            median(turns.iter().filter_map(|phases| phase(phases).and_then(figure)).collect())
        };
        let pairs = || counted_bases.iter().zip(&counted_rows);
        let ratio = |phase: fn(&Phases) -> Option<Phase>| {
            let ratios = pairs()
                .filter_map(|(base, row)| Some(phase(row)?.per_s / phase(base)?.per_s.max(1e-9)));
            median(ratios.collect())
        };
        let cost = |phase: fn(&Phases) -> Option<Phase>| {
            let costs =
                pairs().filter_map(|(base, row)| Some(phase(row)?.cpu_us? - phase(base)?.cpu_us?));
            median(costs.collect())
        };
        let mut latencies: Vec<_> =
            counted_rows.iter().filter_map(|phases| phases.publish_to_confirm_us).collect();
        latencies.sort_by_key(|latency| latency.p99);
        let all = || bases.iter().chain(rows);
        let mut result = Row {
            confirmed_per_s: of(&counted_rows, publish, per_s),
            delivered_per_s: of(&counted_rows, consume, per_s),
            publish_to_confirm_us: latencies.get(latencies.len().saturating_sub(1) / 2).copied(),
            errors: all().map(|phases| phases.errors).sum(),
            error_texts: all().flat_map(|phases| phases.error_texts.clone()).collect(),
            comparison: Some(ComparisonResults {
                base: self.base_name.into(),
                base_confirmed_per_s: of(&counted_bases, publish, per_s),
                publish_ratio: ratio(publish),
                base_delivered_per_s: of(&counted_bases, consume, per_s),
                consume_ratio: ratio(consume),
                publish_cpu_us: of(&counted_rows, publish, cpu_us),
                publish_cost_us: cost(publish),
                consume_cpu_us: of(&counted_rows, consume, cpu_us),
                consume_cost_us: cost(consume),
                rss_bytes: rows.first().and_then(|phases| phases.rss_bytes),
                base_rss_bytes: bases.first().and_then(|phases| phases.rss_bytes),
            }),
            config: json!({ "load": self.load, "base": self.base, "turns": self.turns }),
            ..Row::default()
        };
        for phases in all() {
            result.message_errors.add(&phases.message_errors);
        }
        result
    }
}

/// The median; of an even number the lower one of the middle.
fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequence_check::MessageErrors;

    fn phases(publish: f64, consume: f64, missing: u64) -> Phases {
        let phase = |per_s: f64| Phase { per_s, cpu_us: Some(1e6 / per_s) };
        Phases {
            publish: phase(publish),
            consume: Some(phase(consume)),
            publish_to_confirm_us: None,
            rss_bytes: Some(7),
            message_errors: MessageErrors { missing, ..MessageErrors::default() },
            error_texts: Vec::new(),
            errors: 0,
        }
    }

    #[test]
    fn ratios_are_those_of_turns_and_the_first_turn_counts_only_for_losses() {
        let load = Load::new();
        let comparison = Comparison {
            base_name: "FIFO",
            base: load.clone(),
            load,
            turns: 3,
            brings_brokers: false,
        };
        // The machine is twice as fast in the second counted turn.
        let bases = [
            phases(1.0, 1.0, 1),
            phases(100.0, 200.0, 0),
            phases(200.0, 400.0, 0),
            phases(100.0, 200.0, 0),
        ];
        let rows = [
            phases(1.0, 1.0, 0),
            phases(90.0, 160.0, 0),
            phases(180.0, 320.0, 0),
            phases(95.0, 170.0, 0),
        ];
        let row = comparison.row(&bases, &rows);
        let results = row.comparison.unwrap();
        assert_eq!((results.publish_ratio, results.consume_ratio), (Some(0.9), Some(0.8)));
        assert_eq!((row.confirmed_per_s, results.base_confirmed_per_s), (Some(95.0), Some(100.0)));
        assert_eq!(row.message_errors.missing, 1);
        assert_eq!(results.rss_bytes, Some(7));
    }
}
