//! `sennit bench`: runs the benchmark harness, and its worker processes.

use std::time::Duration;

use sennit_bench::{Options, RedisError, Workload, worker};

use crate::{
    address::{http_brokers, native_brokers},
    connect_options::unreachable,
    exit::{Exit, Failure},
    interrupt::{first_signal, signal_name},
};

const EXAMPLES: &str = "\
Examples:
  sennit bench publish --serve --probe --size 64,1024 --producers 1,10
  sennit bench steady --serve --rate 50000,100000,250000 --runs 3 --json rows.ndjson
  sennit bench round-trip --pid $(pidof sennit)

Load comes from processes of its own, on a schedule that does not wait for the broker. A row that
is not clean (missing, duplicates, out of order, corrupt, errors) ends with exit code 1.
bench/README.md says what each figure means.";

/// The time by which a failing run may receive a signal later than its processes.
const SIGNAL_LATE: Duration = Duration::from_secs(1);

/// The arguments of `sennit bench`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    workload: Workload,
}

/// Runs the verb.
///
/// # Errors
/// The broker cannot be reached, or a row is not clean.
pub fn run(mut args: Args) -> Result<(), Failure> {
    let usage = |text| Failure::new(Exit::Usage, text);
    args.options.server = native_brokers(&args.options.server).map_err(usage)?.to_string();
    // Metrics are those of the first node.
    let http = http_brokers(&args.options.http).map_err(usage)?;
    args.options.http = http.host_ports.into_iter().next().unwrap_or_default();
    // Its brokers and workers end then. So the run fails, and clears up behind itself.
    let mut signal = first_signal(sennit_bench::end_children);
    let run = sennit_bench::run(&args.workload, &args.options, &mut || signal.has_come());
    // A Ctrl-C ends a broker of the run as well, and that may be noticed before the signal is.
    run.map_err(|error| match signal.comes_within(SIGNAL_LATE) {
        true => Failure::new(Exit::Failed, format!("ended by {}", signal_name())),
        false => failure(&error),
    })
}

/// Runs the worker that the plan on standard input describes.
///
/// # Errors
/// Standard input has no plan.
pub fn run_worker() -> Result<(), Failure> {
    worker::run().map_err(|error| failure(&error))
}

fn failure<E: AsRef<dyn std::error::Error + Send + Sync> + std::fmt::Display>(
    error: &E,
) -> Failure {
    let of = error.as_ref();
    if let Some(failure) = of.downcast_ref().and_then(unreachable) {
        return failure;
    }
    let exit = match of.downcast_ref() {
        Some(RedisError::Silent { .. }) => Exit::Unreachable,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{error:#}"))
}
