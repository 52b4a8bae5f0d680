//! Waiting HTTP readers: measures the costs of each while nothing comes, and the time until all of them get an
//! append.

use std::{fs, thread, time::Duration};

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::{
    broker::Broker,
    child::Worker,
    children::pause,
    clock::now_ns,
    latency::Latencies,
    load::Bench,
    parked_reader_results::ParkedReaderResults,
    plan::{HttpLoad, HttpMode, HttpWait, Plan, Role, Window, WorkerCommand},
    row::Row,
    usage::{cpu_s, metric, rss_bytes},
};

/// Descriptors that a process needs besides the sockets of readers.
const OTHER_DESCRIPTORS: u64 = 300;

/// Time within which the broker parks all readers.
const PARKED_WITHIN: Duration = Duration::from_secs(60);

/// Time before the memory is measured.
const SETTLE: Duration = Duration::from_secs(2);

/// HTTP readers that wait for appends.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingReaders {
    /// The number of readers.
    pub readers: u32,
    /// The number of streams that the readers share.
    pub streams: u64,
    /// The way in which the readers wait.
    pub mode: HttpMode,
    /// The storage mode of the streams.
    pub storage: String,
    /// The number of appends, each to one stream.
    pub rounds: u64,
    /// The length of an append in bytes.
    pub size: usize,
    /// Seconds of the idle measurement.
    pub idle_s: f64,
    /// Milliseconds between two appends.
    pub pause_ms: u64,
}

impl WaitingReaders {
    /// Measures one row.
    ///
    /// # Errors
    /// There are not enough descriptors, or a reader does not receive an append.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let needed = make_room(u64::from(self.readers))?;
        let own = match bench.options.serve {
            true => Some(self.broker(bench, needed)?),
            false => None,
        };
        let address = own.as_ref().map_or(&bench.options.http, |broker| &broker.http).clone();
        let pid = own.as_ref().and_then(|broker| broker.pid).or(bench.options.pid);
        let (rss_before, kernel_before) = (settled_rss(pid), kernel_bytes()?);
        (bench.progress)("connect", 0, None);
        let mut worker = Worker::start(&self.plan(&address))?;
        let counted = self.until_parked(&address)?;
        let (rss, kernel) = (settled_rss(pid), kernel_bytes()?);
        let each = |before: u64, after: u64| after.saturating_sub(before) / u64::from(self.readers);
        let cpu_before = pid.and_then(cpu_s);
        pause(Duration::from_secs_f64(self.idle_s))?;
        let cpu = cpu_before.zip(pid.and_then(cpu_s)).map(|(before, after)| after - before);
        let now = now_ns();
        worker.send(WorkerCommand::Start(Window {
            start_ns: now,
            from_ns: now,
            until_ns: u64::MAX,
        }))?;
        let reports = bench.reports(std::slice::from_mut(&mut worker), row, Some(self.rounds))?;
        let report = reports.into_iter().next().context("a worker reports once")?;
        let percentiles = |buckets| {
            let mut latencies = Latencies::new();
            latencies.add(buckets);
            latencies.percentiles()
        };
        let seconds = report.telling_ns as f64 / 1e9;
        let mut result = Row {
            errors: report.published - report.confirmed,
            seconds,
            delivered_per_s: Some(report.delivered as f64 / seconds),
            publish_to_deliver_us: percentiles(&report.publish_to_deliver),
            config: serde_json::to_value(self)?,
            waited: Some(ParkedReaderResults {
                parked: self.readers,
                counted,
                rss_each_bytes: rss_before.zip(rss).map(|(before, after)| each(before, after)),
                kernel_each_bytes: each(kernel_before, kernel),
                idle_cpu: cpu.map(|cpu| cpu / self.idle_s),
                append_to_last_us: percentiles(&report.publish_to_last),
            }),
            ..Row::default()
        };
        bench.name(&mut result, row);
        result.durability.clone_from(&self.storage);
        Ok(result)
    }

    fn broker(&self, bench: &Bench<'_>, connections: u64) -> Result<Broker> {
        let connections = connections.to_string();
        let flags = ["--http-connections", &connections, "--streams-storage", &self.storage];
        let patient = ["--streams-long-poll-timeout", "10m"];
        Broker::start(bench.options, &[&flags[..], &patient[..]].concat())
    }

    fn plan(&self, address: &str) -> Plan {
        let load = HttpLoad {
            mode: self.mode,
            prefix: "/v1/stream".into(),
            run: format!("bench-parked-{:x}", now_ns()),
            connections: self.readers,
            streams: self.streams,
            size: self.size,
            threads: 1,
        };
        let wait = HttpWait { rounds: self.rounds, pause_ms: self.pause_ms };
        Plan {
            server: address.to_owned(),
            topic: String::new(),
            partitions: 0,
            group: String::new(),
            size: self.size,
            keys: None,
            role: Role::Wait(load, wait),
        }
    }

    /// Waits until the broker has parked all readers. Returns the number that the broker counts, if it counts them.
    fn until_parked(&self, address: &str) -> Result<Option<u64>> {
        let until_ns = now_ns() + PARKED_WITHIN.as_nanos() as u64;
        loop {
            let Some(counted) = metric(address, "sennit_http_parked") else { return Ok(None) };
            if counted >= u64::from(self.readers) {
                return Ok(Some(counted));
            }
            ensure!(now_ns() < until_ns, "{counted} of {} are parked", self.readers);
            pause(Duration::from_millis(100))?;
        }
    }
}

/// Raises the descriptor limit of this process and its children for `readers` connections. Returns the number of
/// connections.
///
/// # Errors
/// The system's limit is lower.
pub(crate) fn make_room(readers: u64) -> Result<u64> {
    let needed = readers + OTHER_DESCRIPTORS;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_some_and(|current| current < needed) {
        let most = maximum.unwrap_or(u64::MAX);
        ensure!(
            most >= needed,
            "{readers} readers need {needed} descriptors in the broker and as many in the load, and a \
             process here has {most} at most (RLIMIT_NOFILE, the hard limit); `ulimit -Hn {needed}` as \
             root, LimitNOFILE= of a service or nofile in limits.conf raise it, up to fs.nr_open"
        );
        let limit = Rlimit { current: Some(needed), maximum };
        setrlimit(Resource::Nofile, limit).context("raise the number of descriptors")?;
    }
    Ok(needed)
}

/// Resident bytes of a process in which nothing happens.
pub(crate) fn settled_rss(pid: Option<u32>) -> Option<u64> {
    thread::sleep(SETTLE);
    rss_bytes(pid?)
}

/// Bytes of the kernel: its slabs, which hold sockets, and the contents of socket buffers.
pub(crate) fn kernel_bytes() -> Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let slab = meminfo.lines().find_map(|line| line.strip_prefix("Slab:")).context("no Slab")?;
    let kib: u64 = slab.trim().trim_end_matches(" kB").parse()?;
    let sockstat = fs::read_to_string("/proc/net/sockstat")?;
    let tcp = sockstat.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let pages = tcp.rsplit(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    Ok(kib * 1024 + pages.unwrap_or_default() * rustix::param::page_size() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_system_allows_is_refused_by_the_name_of_the_limit() {
        let refused = make_room(1 << 40).unwrap_err().to_string();
        for hint in ["RLIMIT_NOFILE", "ulimit -Hn", "LimitNOFILE="] {
            assert!(refused.contains(hint), "{refused}");
        }
    }
}
