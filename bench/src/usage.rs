//! The costs of the broker between two instants, from the kernel's accounts of its process and its own count of
//! syncs.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde::de::DeserializeOwned;

use crate::{
    clock::{Alarm, now_ns, sleep_until},
    plan::Window,
};

/// The time between two measurements of memory.
const SAMPLE_NS: u64 = 100_000_000;

/// Time within which the broker answers over HTTP.
const HTTP_TIMEOUT: Duration = Duration::from_secs(2);

/// The resources that a broker has used within a window; `None` where they are unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Processor seconds in user and kernel mode.
    pub cpu_s: Option<f64>,
    /// The average number of resident bytes.
    pub rss_average_bytes: Option<u64>,
    /// The greatest number of resident bytes since the start of the process.
    pub rss_peak_bytes: Option<u64>,
    /// Bytes written to disks.
    pub bytes_written: Option<u64>,
    /// Syncs of the journal.
    pub syncs: Option<u64>,
    /// Bytes written to the journal.
    pub journal_bytes: Option<u64>,
    /// The number of finished checkpoints.
    pub checkpoints: Option<u64>,
    /// Bytes that moved to packs.
    pub moved_bytes: Option<u64>,
}

impl Usage {
    /// The sum of this window and a `later` one.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        let sum = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
        let rss = |one: Option<u64>, other: Option<u64>| Some(one?.midpoint(other?));
        Self {
            cpu_s: self.cpu_s.zip(later.cpu_s).map(|(one, other)| one + other),
            rss_average_bytes: rss(self.rss_average_bytes, later.rss_average_bytes),
            rss_peak_bytes: later.rss_peak_bytes,
            bytes_written: sum(self.bytes_written, later.bytes_written),
            syncs: sum(self.syncs, later.syncs),
            journal_bytes: sum(self.journal_bytes, later.journal_bytes),
            checkpoints: sum(self.checkpoints, later.checkpoints),
            moved_bytes: sum(self.moved_bytes, later.moved_bytes),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Snapshot {
    cpu_s: Option<f64>,
    bytes_written: Option<u64>,
    syncs: Option<u64>,
    journal_bytes: Option<u64>,
    checkpoints: Option<u64>,
    moved_bytes: Option<u64>,
}

impl Snapshot {
    fn take(pid: Option<u32>, http: &str) -> Self {
        let metrics = get(http, "/metrics").unwrap_or_default();
        Self {
            cpu_s: pid.and_then(cpu_s),
            bytes_written: pid.and_then(|pid| number(pid, "io", "write_bytes:")),
            syncs: sum_of(&metrics, "sennit_journal_syncs_total"),
            journal_bytes: sum_of(&metrics, "sennit_journal_bytes_total"),
            checkpoints: sum_of(&metrics, "sennit_checkpoints_total"),
            moved_bytes: sum_of(&metrics, "sennit_moved_bytes_total"),
        }
    }
}

/// Measures a broker's usage while load runs.
pub struct UsageWatch {
    done: Arc<AtomicBool>,
    thread: JoinHandle<Usage>,
}

impl UsageWatch {
    /// Measures from the start of the window until its end or [`Self::end`].
    #[must_use]
    pub fn begin(pid: Option<u32>, http: &str, window: Window) -> Self {
        let done = Arc::new(AtomicBool::new(false));
        let (http, is_done) = (http.to_owned(), Arc::clone(&done));
        let thread = thread::spawn(move || {
            sleep_until(window.from_ns);
            let before = Snapshot::take(pid, &http);
            let (mut sum, mut count) = (0, 0);
            while !is_done.load(Ordering::Acquire) && now_ns() < window.until_ns {
                if let Some(rss) = pid.and_then(rss_bytes) {
                    sum += rss;
                    count += 1;
                }
                sleep_until((now_ns() + SAMPLE_NS).min(window.until_ns));
            }
            let after = Snapshot::take(pid, &http);
            let both = |before: Option<u64>, after: Option<u64>| Some(after? - before?);
            Usage {
                cpu_s: before.cpu_s.zip(after.cpu_s).map(|(before, after)| after - before),
                rss_average_bytes: (count > 0).then(|| sum / count.max(1)),
                rss_peak_bytes: pid
                    .and_then(|pid| number(pid, "status", "VmHWM:"))
                    .map(|kib| kib * 1024),
                bytes_written: both(before.bytes_written, after.bytes_written),
                syncs: both(before.syncs, after.syncs),
                journal_bytes: both(before.journal_bytes, after.journal_bytes),
                checkpoints: both(before.checkpoints, after.checkpoints),
                moved_bytes: both(before.moved_bytes, after.moved_bytes),
            }
        });
        Self { done, thread }
    }

    /// Ends the measurement. Returns the usage.
    #[must_use]
    pub fn end(self) -> Usage {
        self.done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

/// Processor seconds that a process has used, in user and kernel mode.
pub fn cpu_s(pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in brackets, may hold spaces; after it the state is field 3.
    let fields: Vec<_> = stat[stat.rfind(')')? + 2..].split(' ').collect();
    let ticks = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// Processor seconds that this process uses within `window`, or until `ended` is over.
pub async fn cpu_within(window: Window, ended: impl Future<Output = ()>) -> Option<f64> {
    let (pid, mut alarm) = (std::process::id(), Alarm::new().ok()?);
    alarm.until(window.from_ns).await.ok()?;
    let before = cpu_s(pid)?;
    tokio::select! {
        is_over = alarm.until(window.until_ns) => is_over.ok()?,
        () = ended => (),
    }
    Some(cpu_s(pid)? - before)
}

/// Processor time that the threads of a process have used, in nanoseconds. Threads that have ended do not count.
pub fn cpu_ns(pid: u32) -> Option<u64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let of_thread = |thread: std::io::Result<fs::DirEntry>| {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.map(of_thread).sum()
}

/// Resident bytes of a process.
pub fn rss_bytes(pid: u32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    statm
        .split(' ')
        .nth(1)?
        .parse::<u64>()
        .ok()
        .map(|pages| pages * rustix::param::page_size() as u64)
}

/// The number after `name` in a file of the process in /proc.
pub fn number(pid: u32, file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Whether a broker reports that it is ready.
pub fn is_ready(http: &str) -> bool {
    get(http, "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// The sum of a metric over all its labels, if the broker has the metric.
pub fn metric(http: &str, name: &str) -> Option<u64> {
    sum_of(&get(http, "/metrics")?, name)
}

/// A broker's answer in JSON, if it has the expected form.
pub fn json<T: DeserializeOwned>(http: &str, path: &str) -> Option<T> {
    let answer = get(http, path)?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

fn get(http: &str, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(http).ok()?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT)).ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// The sum of a metric over all its labels.
fn sum_of(metrics: &str, name: &str) -> Option<u64> {
    let values: Vec<f64> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with([' ', '{']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_summed_over_its_labels_and_not_mistaken_for_its_neighbour() {
        let text =
            "# TYPE a counter\na_total{shard=\"0\"} 3\na_total{shard=\"1\"} 4\na_total_x 9\n";
        assert_eq!(sum_of(text, "a_total"), Some(7));
        assert_eq!(sum_of(text, "b"), None);
    }

    #[test]
    fn a_process_that_works_costs_something() {
        let pid = std::process::id();
        let window = Window { start_ns: 0, from_ns: now_ns(), until_ns: u64::MAX };
        let watch = UsageWatch::begin(Some(pid), "127.0.0.1:1", window);
        // The loop ends once the process has used this time, however busy the machine is.
        let begun = cpu_s(pid).unwrap();
        while cpu_s(pid).unwrap() < begun + 0.2 {
            std::hint::black_box(now_ns());
        }
        let usage = watch.end();
        assert!(usage.cpu_s.unwrap() > 0.05, "{usage:?}");
        assert!(usage.rss_average_bytes.unwrap() > 100_000, "{usage:?}");
        assert!(usage.rss_peak_bytes.unwrap() >= usage.rss_average_bytes.unwrap() / 2);
        assert_eq!(usage.syncs, None);
    }
}
