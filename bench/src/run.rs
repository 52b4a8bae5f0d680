//! A run of a workload, from its options to its table: the broker, the repeats, the rows.

use std::{
    fs::OpenOptions,
    io::{self, IsTerminal, Write},
    path::Path,
    process::Command,
};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    broker::{Broker, fresh_folder, lies_in_memory, nearest_folder},
    load::Bench,
    options::Options,
    probe::Probe,
    row::Row,
    workload::{
        Measurement, burst::Burst, catch_up::CatchUp, checkpoint::Checkpoint, cluster::Cluster,
        consumers::Consumers, fair_keys::FairKeys, fairness::Fairness, hooks::Hooks,
        http_streams::HttpStreams, idle_connections::IdleConnections, lifecycle::Lifecycle,
        live_fan_out::LiveFanOut, parked_readers::ParkedReaders, publish::Publish,
        restart::Restart, round_trip::RoundTrip, slow_consumer::SlowConsumer, steady::Steady,
        stream::Stream, stream_fan_out::StreamFanOut,
    },
};

/// Which workload, with its options.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Workload {
    /// Messages in and out, as fast as possible
    Burst(Burst),
    /// A rate that is kept up, and the latency it costs
    Steady(Steady),
    /// Messages confirmed per second, by producers, sizes and batches
    Publish(Publish),
    /// From publish to delivery, one in flight and under load, to p99.99
    RoundTrip(RoundTrip),
    /// Publish, take and ack: one after the other, and over a backlog
    Lifecycle(Lifecycle),
    /// From kill -9 to ready and to the first delivery, with messages pending or many topics; on a
    /// broker of its own
    Restart(Restart),
    /// What checkpoints and moves to packs cost: bytes written, and the confirms beside them; on
    /// brokers of its own
    Checkpoint(Checkpoint),
    /// A few readers of a stream at a rate, and what latency it costs
    Stream(Stream),
    /// How many can read the same stream, live or under cursors of their own
    StreamFanOut(StreamFanOut),
    /// What a reader that does not keep up costs the others
    SlowConsumer(SlowConsumer),
    /// How fast a reader comes through a stream that lies on disk; on a broker of its own
    CatchUp(CatchUp),
    /// Requests of the Durable Streams protocol, to any server of it, beside one that does nothing; with
    /// --serve on a broker of its own for each row
    HttpStreams(HttpStreams),
    /// Connections over HTTP that wait for streams: what each costs, and how fast all of them hear; with
    /// --serve on a broker of its own for each row
    ParkedReaders(ParkedReaders),
    /// How many subscribers over WebSocket get how much of a topic, flooded or at a rate; with --serve on a
    /// broker of its own for each row
    LiveFanOut(LiveFanOut),
    /// What a live connection costs on which nothing happens; with --serve on a broker of its own for each
    /// row
    IdleConnections(IdleConnections),
    /// Fair groups: what they cost beside delivery by offset, shares by weight, and how long a quiet
    /// tenant waits behind a noisy one
    Fairness(Fairness),
    /// How fast and how large a fair group is with so many keys; on brokers of its own
    FairKeys(FairKeys),
    /// What a hook costs for each published message, beside the same load without one
    Hooks(Hooks),
    /// What replication costs beside one node, how long the end of a leader is felt, and what idle nodes
    /// cost; on brokers of its own
    Cluster(Cluster),
    /// How fast the consumers of one group are together, by their number, fair beside by offset
    Consumers(Consumers),
}

impl Workload {
    fn name(&self) -> &'static str {
        match self {
            Self::Burst(_) => "burst",
            Self::Steady(_) => "steady",
            Self::Publish(_) => "publish",
            Self::RoundTrip(_) => "round-trip",
            Self::Lifecycle(_) => "lifecycle",
            Self::Restart(_) => "restart",
            Self::Checkpoint(_) => "checkpoint",
            Self::Stream(_) => "stream",
            Self::StreamFanOut(_) => "stream-fan-out",
            Self::SlowConsumer(_) => "slow-consumer",
            Self::CatchUp(_) => "catch-up",
            Self::HttpStreams(_) => "http-streams",
            Self::ParkedReaders(_) => "parked-readers",
            Self::LiveFanOut(_) => "live-fan-out",
            Self::IdleConnections(_) => "idle-connections",
            Self::Fairness(_) => "fairness",
            Self::FairKeys(_) => "fair-keys",
            Self::Hooks(_) => "hooks",
            Self::Cluster(_) => "cluster",
            Self::Consumers(_) => "consumers",
        }
    }

    /// Whether each row starts the brokers that it measures.
    fn brings_brokers(&self) -> bool {
        matches!(
            self,
            Self::Restart(_)
                | Self::Checkpoint(_)
                | Self::CatchUp(_)
                | Self::HttpStreams(_)
                | Self::ParkedReaders(_)
                | Self::LiveFanOut(_)
                | Self::IdleConnections(_)
                | Self::FairKeys(_)
                | Self::Cluster(_)
        )
    }

    fn rows(&self, options: &Options) -> Vec<Measurement> {
        let partitions = options.partitions;
        let one = partitions.unwrap_or(1);
        match self {
            Self::Burst(burst) => burst.rows(one),
            Self::Steady(steady) => steady.rows(one),
            Self::Publish(publish) => publish.rows(partitions),
            Self::RoundTrip(round_trip) => round_trip.rows(one),
            Self::Lifecycle(lifecycle) => lifecycle.rows(one),
            Self::Restart(restart) => restart.rows(one),
            Self::Checkpoint(checkpoint) => checkpoint.rows(one),
            Self::Stream(stream) => stream.rows(one),
            Self::StreamFanOut(fan_out) => fan_out.rows(one),
            Self::SlowConsumer(slow) => slow.rows(one),
            Self::CatchUp(catch_up) => catch_up.rows(),
            Self::HttpStreams(http_streams) => http_streams.rows(options),
            Self::ParkedReaders(parked) => parked.rows(),
            Self::LiveFanOut(fan_out) => fan_out.rows(),
            Self::IdleConnections(idle) => idle.rows(),
            Self::Fairness(fairness) => fairness.rows(one),
            Self::FairKeys(keys) => keys.rows(one),
            Self::Hooks(hooks) => hooks.rows(one),
            Self::Cluster(cluster) => cluster.rows(),
            Self::Consumers(consumers) => consumers.rows(one),
        }
    }
}

/// Measures `workload` and prints its rows. `is_stopped` returns true once the user wants to stop.
///
/// # Errors
/// The broker cannot be reached, a worker fails, the user stops the run, or a row is not clean. In the last case
/// all rows are printed first.
pub fn run(
    workload: &Workload,
    options: &Options,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<()> {
    // A new broker fills its slots, during which a sync takes five times as long.
    let probe = options.probe.then(|| probe(options).context("the probe")).transpose()?;
    let serve = options.serve && !workload.brings_brokers();
    let broker = Broker::of(&Options { serve, ..options.clone() })?;
    if lies_in_memory(nearest_folder(&broker.folder())) {
        say("warning: the data lies in memory, where a sync costs nothing")?;
    }
    let (commit, machine) = (commit(), machine());
    let bar = progress_bar();
    let progress = |what: &str, count: u64, total: Option<u64>| {
        bar.set_message(what.to_owned());
        bar.set_length(total.unwrap_or(count).max(count));
        bar.set_position(count);
    };
    let topic = options.topic.clone();
    let bench =
        Bench { options, broker: &broker, topic, workload: workload.name(), progress: &progress };
    let mut rows = Vec::new();
    for measurement in workload.rows(options) {
        let mut measure = |_| {
            anyhow::ensure!(!is_stopped(), "it was stopped");
            measurement.run(&bench)
        };
        let runs: Result<Vec<Row>> = (0..options.runs).map(&mut measure).collect();
        let row =
            Row { probe, commit: commit.clone(), machine: machine.clone(), ..Row::median(runs?) };
        if let Some(path) = &options.json {
            append(path, &row)?;
        }
        rows.push(row);
    }
    bar.finish_and_clear();
    if options.json.as_deref() != Some(Path::new("-")) {
        print(&rows)?;
    }
    if let Some(probe) = probe {
        let sync =
            probe.sync_us.map_or_else(|| "not possible".into(), |us| format!("{us:.0} us p50"));
        let (round_trip, rate) = (probe.round_trip_us, probe.messages_per_s);
        say(&format!(
            "bare: 4 KiB write and sync {sync}, loopback round trip {round_trip:.1} us p50, \
             loopback {rate:.0} messages of 1 KiB/s"
        ))?;
    }
    let wrong: Vec<_> = rows.iter().filter(|row| !row.is_clean()).collect();
    for text in wrong.iter().flat_map(|row| &row.error_texts) {
        say(text)?;
    }
    anyhow::ensure!(wrong.is_empty(), "{} of {} rows are not clean", wrong.len(), rows.len());
    Ok(())
}

/// Measures the machine, with the disk of the journal.
fn probe(options: &Options) -> Result<Probe> {
    if let Some(data) = &options.data {
        return Ok(Probe::run(nearest_folder(data))?);
    }
    if options.serve {
        return Ok(Probe::run(fresh_folder()?.path())?);
    }
    Ok(Probe::run(Path::new("."))?)
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stderr(), "{text}")
}

fn append(path: &Path, row: &Row) -> Result<()> {
    let line = serde_json::to_string(row)? + "\n";
    if path == Path::new("-") {
        return Ok(to_standard_output(&line)?);
    }
    let file = OpenOptions::new().append(true).create(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| path.display().to_string())
}

/// Prints a table for each sequence of rows with the same columns.
fn print(rows: &[Row]) -> Result<()> {
    let mut text = String::new();
    for alike in rows.chunk_by(|a, b| a.heads() == b.heads()) {
        let heads = alike[0].heads();
        let cells: Vec<_> = alike.iter().map(Row::cells).collect();
        if io::stdout().is_terminal() {
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_header(heads);
            table.add_rows(cells);
            text += &format!("{}\n", table.trim_fmt());
        } else {
            let lines = std::iter::once(heads.join("\t"));
            let lines = lines.chain(cells.iter().map(|cells| cells.join("\t")));
            text.extend(lines.map(|line| line + "\n"));
        }
    }
    Ok(to_standard_output(&text)?)
}

/// Writes to standard output. A closed pipe is no error.
fn to_standard_output(text: &str) -> io::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// A progress bar, which is hidden unless standard error is a terminal.
fn progress_bar() -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    if let Ok(style) =
        ProgressStyle::with_template("{msg} {wide_bar} {human_pos}/{human_len} {per_sec}")
    {
        bar.set_style(style);
    }
    bar
}

/// The current commit, if the working directory is a checkout.
fn commit() -> Option<String> {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let text = String::from_utf8(git.stdout).ok()?;
    (git.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

/// A short text about the machine: its processor, the number of processors, and its memory.
fn machine() -> Option<String> {
    let after = |text: &str, name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        Some(line.trim_start_matches([' ', '\t', ':']).to_owned())
    };
    let model = after(&std::fs::read_to_string("/proc/cpuinfo").ok()?, "model name")?;
    let memory = after(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal")?;
    let kib: u64 = memory.split_whitespace().next()?.parse().ok()?;
    let cores = std::thread::available_parallelism().ok()?;
    Some(format!("{model}, {cores} cores, {:.1} GiB", kib as f64 / f64::from(1 << 20)))
}

#[cfg(test)]
mod tests {
    use clap::{Parser, Subcommand};

    use super::*;
    use crate::workload::Method;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
        #[command(subcommand)]
        workload: Workload,
    }

    fn rows(line: &[&str]) -> Vec<Measurement> {
        let words = [&["bench"], line].concat();
        let line = Line::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"));
        line.workload.rows(&line.options)
    }

    #[test]
    fn lists_make_a_row_for_each_combination() {
        let measurements =
            rows(&["publish", "--producers", "1,5", "--batch", "auto,1,100", "--size", "64"]);
        assert_eq!(measurements.len(), 6);
        assert_eq!(measurements[0].row, "1 producers, 64 B, batch auto");
        assert_eq!(rows(&["round-trip", "--rates", "1000,50000,0"]).len(), 4);
        assert_eq!(rows(&["steady", "--rate", "50000"])[0].row, "confirmed 50k/s");
    }

    #[test]
    fn each_workload_measures_something_with_its_defaults() {
        let command = Workload::augment_subcommands(clap::Command::new("bench"));
        for workload in command.get_subcommands() {
            assert!(!rows(&[workload.get_name()]).is_empty(), "{}", workload.get_name());
        }
    }

    #[test]
    fn each_target_is_beside_the_others() {
        let targets = "a=http://127.0.0.1:1,b=http://127.0.0.1:2";
        let measurements =
            rows(&["http-streams", "--target", targets, "-c", "1,128", "-s", "1,100000"]);
        assert_eq!(measurements.len(), 8);
        assert_eq!(measurements[1].row, "b: append 100 B, 1 connections, 1 streams");
        assert_eq!(measurements[2].row, "a: append 100 B, 1 connections, 100k streams");
        assert_eq!(rows(&["http-streams", "--serve", "--storage", "memory,acid"]).len(), 2);
    }

    #[test]
    fn publish_only_takes_nobody_to_consume() {
        let measurements = rows(&["steady", "--mode", "publish-only"]);
        let Method::Load(load) = &measurements[0].method else { panic!("load was expected") };
        assert_eq!(load.consumers, 0);
    }
}
