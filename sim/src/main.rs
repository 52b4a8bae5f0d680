//! The simulator's command line: one seed with its steps, or a range of seeds.

use std::{io::Write, process::ExitCode, time::Duration};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use sennit_sim::{run, run_all};

/// Runs everything below the waterline on a disk that fails, as seeds tell it to.
#[derive(Debug, Parser)]
struct Arguments {
    /// One seed.
    #[arg(long, default_value_t = 0, conflicts_with = "seeds")]
    seed: u64,
    /// Many seeds: FROM..TO, without TO.
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    seeds: Option<(u64, u64)>,
    /// How many operations each seed has.
    #[arg(long, default_value_t = 2_000)]
    operations: u64,
    /// How many seeds run at a time.
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Write each step to standard error.
    #[arg(long)]
    trace: bool,
}

fn range(text: &str) -> Result<(u64, u64), String> {
    let (from, to) = text.split_once("..").ok_or("it has no `..`")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| format!("{text:?}: {error}"));
    Ok((number(from)?, number(to)?))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, to) = arguments.seeds.unwrap_or((arguments.seed, arguments.seed + 1));
    let mut out = std::io::stdout();
    if arguments.seeds.is_none() {
        let ended = run(from, arguments.operations, arguments.trace);
        let (line, code) = match ended {
            Ok(finished) => (format!("seed {from}: {finished:?}"), ExitCode::SUCCESS),
            Err(failure) => (failure.to_string(), ExitCode::FAILURE),
        };
        // Where nobody reads any more, nobody misses it.
        let _ = writeln!(out, "{line}");
        return code;
    }
    let style =
        ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {msg} failed, {eta} left");
    let progress = ProgressBar::new(to.saturating_sub(from));
    if let Ok(style) = style {
        progress.set_style(style);
    }
    progress.enable_steady_tick(Duration::from_millis(200));
    let failed = std::sync::atomic::AtomicU64::new(0);
    let failures = run_all(from..to, arguments.operations, arguments.threads, |_, ended| {
        let now = failed.fetch_add(u64::from(ended.is_err()), std::sync::atomic::Ordering::Relaxed);
        progress.set_message((now + u64::from(ended.is_err())).to_string());
        progress.inc(1);
    });
    progress.finish_and_clear();
    for failure in &failures {
        let _ = writeln!(out, "{failure}");
    }
    let count = to.saturating_sub(from);
    let _ = writeln!(out, "{count} seeds, {} failed", failures.len());
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
