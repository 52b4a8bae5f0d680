//! HTTP streams under load: any server of the Durable Streams protocol, beside a null server. The load runs in a
//! process of its own. This knows sockets and requests, and nothing of how a server stores streams.

mod answer;
mod closed_loop;
mod null;
mod pairs;
mod request;
mod target_results;
mod waiters;

use std::{
    net::TcpListener,
    path::Path,
    str::FromStr,
    sync::atomic::AtomicU64,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;

pub use self::waiters::Waiters;
use self::{
    closed_loop::{Clients, RequestResults},
    pairs::Pairs,
    request::{Request, Requests},
    target_results::TargetResults,
};
use crate::{
    broker::{Broker, FreshFolder, fresh_folder},
    child::Worker,
    clock::now_ns,
    http_stream_results::HttpStreamResults,
    latency::Latencies,
    load::Bench,
    plan::{HttpLoad, HttpMode, Null, NullLog, Plan, Report, Role, Window},
    row::Row,
    usage::cpu_s,
};

/// The time between the start command and the start, in nanoseconds: every worker is awake by then.
const START_DELAY_NS: u64 = 200_000_000;

/// Bytes of a record besides its contents: a length, a checksum and the stream's number.
const RECORD_HEAD_BYTES: usize = 32;

/// The number of connections that create streams.
const SETUP_CONNECTIONS: u64 = 32;

/// The default path of streams.
const PREFIX: &str = "/v1/stream";

/// The server that a row measures.
#[derive(Clone, Debug, Serialize)]
pub enum Target {
    /// A running server.
    There(Server),
    /// A broker that the benchmark starts, in a storage mode.
    Own(String),
    /// The null server.
    Null,
}

impl FromStr for Target {
    type Err = String;

    /// `null`, or a [`Server`].
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "null" => Ok(Self::Null),
            text => text.parse().map(Self::There),
        }
    }
}

impl Target {
    /// The name in the table.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::There(server) => &server.name,
            Self::Own(mode) => mode,
            Self::Null => "null",
        }
    }
}

/// A running server.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// The name in the table.
    pub name: String,
    /// The address.
    pub address: String,
    /// The path of streams, without a final slash.
    pub prefix: String,
}

impl FromStr for Server {
    type Err = String;

    /// `[NAME=]http://HOST:PORT[/PREFIX]`
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, url) = text.split_once('=').unwrap_or((text, text));
        let rest = url.strip_prefix("http://").ok_or_else(|| format!("{url} is no http:// URL"))?;
        let (address, prefix) = match rest.find('/') {
            Some(slash) if rest.len() > slash + 1 => rest.split_at(slash),
            Some(slash) => (&rest[..slash], PREFIX),
            None => (rest, PREFIX),
        };
        let address = match address.contains(':') {
            true => address.to_owned(),
            false => format!("{address}:80"),
        };
        Ok(Self { name: name.into(), address, prefix: prefix.trim_end_matches('/').into() })
    }
}

/// HTTP streams under load.
#[derive(Clone, Debug, Serialize)]
pub struct HttpStreams {
    /// The server.
    pub target: Target,
    /// The kind of requests.
    pub mode: HttpMode,
    /// The number of connections, or of pairs.
    pub connections: u32,
    /// The number of streams that the connections share.
    pub streams: u64,
    /// The length of an append in bytes.
    pub size: usize,
    /// Appends to each stream before the reads.
    pub prefill: u64,
    /// Threads of the load.
    pub threads: u32,
    /// Whether the null server is measured too.
    pub beside_null: bool,
    /// Whether the null server with a synced log is measured too.
    pub beside_synced_null: bool,
    /// The number of turns of each server.
    pub turns: u32,
    /// Threads of each null server.
    pub null_threads: u32,
    /// Seconds before the window.
    pub warmup_s: f64,
    /// Seconds of the window.
    pub duration_s: f64,
}

impl HttpStreams {
    /// Measures the row once: the server, in turns with the null servers.
    ///
    /// # Errors
    /// A server cannot be reached or ends a connection.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        // The null server has no waiting reads: it answers all of them immediately.
        let may_null = !self.mode.is_live();
        if matches!(self.target, Target::Null) {
            ensure!(may_null, "the null server has no waiting readers");
            let mut null = self.start_null(None)?;
            null.turn(bench, row, self, 1)?;
            let mut result = self.result_row(&mut null)?;
            bench.name(&mut result, row);
            (result.target, result.durability) = ("null".into(), "none".into());
            return Ok(result);
        }
        let mut null = match self.beside_null && may_null {
            true => Some(self.start_null(None)?),
            false => None,
        };
        let folder = match self.beside_synced_null && may_null {
            true => Some(folder_beside(bench.options.data.as_deref())?),
            false => None,
        };
        let mut synced = match &folder {
            Some(folder) => Some(self.start_null(Some(folder.path()))?),
            None => None,
        };
        let (_own, mut target) = self.prepare_target(bench)?;
        let turns = if null.is_some() || synced.is_some() { self.turns } else { 1 };
        for turn in 0..turns {
            let beside = null.iter_mut().chain(&mut synced);
            let mut sides: Vec<_> = beside.chain([&mut target]).collect();
            if turn % 2 == 1 {
                sides.reverse();
            }
            sides.into_iter().try_for_each(|side| side.turn(bench, row, self, turns))?;
        }
        let mut result = self.result_row(&mut target)?;
        if let Some(answered) = &mut result.answered {
            if let Some(null) = &mut null {
                answered.null_per_s = Some(self.rate(null.answered));
                answered.null_request_to_answer_us = null.request_to_answer();
                answered.of_null = target.share_of(null);
            }
            if let Some(synced) = &mut synced {
                answered.synced_null_per_s = Some(self.rate(synced.answered));
                answered.synced_null_request_to_answer_us = synced.request_to_answer();
                answered.of_synced_null = target.share_of(synced);
            }
        }
        for null in null.iter().chain(&synced) {
            ensure!(null.errors.is_empty(), "the null server: {:?}", null.errors);
        }
        bench.name(&mut result, row);
        result.target = target.server.name;
        result.durability = match &self.target {
            Target::Own(mode) => mode.clone(),
            _ => "as the target has it".into(),
        };
        Ok(result)
    }

    /// Prepares the server of the row and creates its streams. Returns the broker too, if the benchmark starts it.
    fn prepare_target(&self, bench: &Bench<'_>) -> Result<(Option<Broker>, TargetResults)> {
        let (own, server) = match &self.target {
            Target::Own(mode) => {
                let flags = ["--streams-storage", mode.as_str()];
                let broker = Broker::start(bench.options, &flags)?;
                let (name, address) = ("sennit".into(), broker.http.clone());
                (Some(broker), Server { name, address, prefix: PREFIX.into() })
            }
            Target::There(server) => (None, server.clone()),
            Target::Null => unreachable!("the null server was measured above"),
        };
        let load = self.load(&server);
        self.set_up(bench, &server, &load).with_context(|| server.name.clone())?;
        let mut side = TargetResults::new(server, load);
        side.pid = own.as_ref().and_then(|broker| broker.pid).or(bench.options.pid);
        Ok((own, side))
    }

    /// Starts a null server; with a folder, it has a synced log there.
    fn start_null(&self, folder: Option<&Path>) -> Result<TargetResults> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
        let null = Null {
            threads: self.null_threads,
            read_bytes: self.size * usize::try_from(self.prefill)?,
            log: folder.map(|folder| NullLog {
                folder: folder.to_owned(),
                record_bytes: self.size + RECORD_HEAD_BYTES,
            }),
        };
        let worker = Worker::start(&plan(&address, Role::Null(null)))?;
        let server = Server { name: "null".into(), address, prefix: PREFIX.into() };
        let load = self.load(&server);
        let mut side = TargetResults::new(server, load);
        side.null = Some(worker);
        Ok(side)
    }

    fn load(&self, server: &Server) -> HttpLoad {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        HttpLoad {
            mode: self.mode,
            prefix: server.prefix.clone(),
            // Each run has new names, because the streams of earlier runs exist.
            run: format!("bench-{:x}", now.as_micros()),
            connections: self.connections,
            // Each pair has a stream of its own.
            streams: if self.mode.is_live() { self.connections.into() } else { self.streams },
            size: self.size,
            threads: self.threads.min(self.connections),
        }
    }

    /// The window of one of `turns` turns, which begins now.
    fn window(&self, turns: u32) -> Window {
        let part_ns = |seconds: f64| (seconds / f64::from(turns) * 1e9) as u64;
        let start_ns = now_ns() + START_DELAY_NS;
        let from_ns = start_ns + part_ns(self.warmup_s);
        Window { start_ns, from_ns, until_ns: from_ns + part_ns(self.duration_s) }
    }

    /// Creates the streams, and fills those that the load reads.
    fn set_up(&self, bench: &Bench<'_>, server: &Server, load: &HttpLoad) -> Result<()> {
        if self.mode == HttpMode::Create {
            return Ok(());
        }
        let each = |what: &str, turns: u64, request: Request<'static>| {
            (bench.progress)(what, 0, Some(turns));
            let count = SETUP_CONNECTIONS.min(load.streams);
            let clients = Clients::connect(&server.address, 0..count)?;
            let window = Window { start_ns: 0, from_ns: 0, until_ns: u64::MAX };
            let next = |number: u64, turn: u64| {
                let turn = turn * count + number;
                (turn < turns).then_some((request, turn % load.streams))
            };
            let requests = Requests::new(&server.address, load);
            let results = clients.ask(&requests, &window, next, &AtomicU64::new(0))?;
            ensure!(results.refused.is_empty(), "{what}: {}", show_refused(&results));
            Ok(())
        };
        each("create", load.streams, Request::Create)?;
        match self.mode {
            HttpMode::Read => each("fill", load.streams * self.prefill, Request::Append),
            _ => Ok(()),
        }
    }

    /// The rate of `count` per second, over all turns.
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.duration_s
    }

    /// The row with the results of a server.
    fn result_row(&self, side: &mut TargetResults) -> Result<Row> {
        let is_live = self.mode.is_live();
        let mut result = Row {
            errors: side.requests - side.answered + side.errors.len() as u64,
            error_texts: side.errors.clone(),
            seconds: self.duration_s,
            config: serde_json::to_value(self)?,
            delivered_per_s: is_live.then(|| self.rate(side.delivered)),
            answered: Some(HttpStreamResults {
                answered_per_s: self.rate(side.answered),
                request_to_answer_us: side.request_to_answer(),
                append_to_delivery_us: side.append_to_delivery(),
                load_cpu_s: side.load_cpu_s,
                ..HttpStreamResults::default()
            }),
            ..Row::default()
        };
        if let Some(usage) = side.usage {
            result.set_usage(usage);
        }
        Ok(result)
    }
}

/// Creates a folder on the disk of the broker's data: beside the data, or where a new data directory would be.
fn folder_beside(data: Option<&Path>) -> Result<FreshFolder> {
    match data.and_then(Path::parent) {
        Some(parent) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let folder = tempfile::tempdir_in(parent);
            Ok(folder.with_context(|| parent.display().to_string())?.into())
        }
        None => fresh_folder(),
    }
}

fn show_refused(results: &RequestResults) -> String {
    let each = results.refused.iter().map(|(status, count)| format!("{status} {count} times"));
    each.collect::<Vec<_>>().join(", ")
}

fn plan(address: &str, role: Role) -> Plan {
    Plan {
        server: address.to_owned(),
        topic: String::new(),
        partitions: 0,
        group: String::new(),
        size: 0,
        keys: None,
        role,
    }
}

fn worker(address: &str, load: &HttpLoad) -> Result<Worker> {
    Worker::start(&plan(address, Role::Http(load.clone())))
}

/// The connections of a load, by thread.
pub struct LoadConnections {
    load: HttpLoad,
    requests: Requests,
    threads: Vec<ThreadLoad>,
}

enum ThreadLoad {
    Clients(Clients),
    Pairs(Pairs),
}

/// Connects all connections of `load` to the server at `address`.
///
/// # Errors
/// The server cannot be reached.
pub fn connect(address: &str, load: &HttpLoad) -> Result<LoadConnections> {
    let threads = u64::from(load.threads.max(1));
    let parts = (0..threads).map(|thread| {
        let numbers = (thread..load.connections.into()).step_by(threads as usize);
        Ok(match load.mode.is_live() {
            true => ThreadLoad::Pairs(Pairs::connect(address, numbers)?),
            false => ThreadLoad::Clients(Clients::connect(address, numbers)?),
        })
    });
    let requests = Requests::new(address, load);
    Ok(LoadConnections { load: load.clone(), requests, threads: parts.collect::<Result<_>>()? })
}

/// Sends requests until the window ends.
///
/// # Errors
/// A connection ends, or the server does not answer any more.
pub fn ask(connected: LoadConnections, window: Window, progress: &AtomicU64) -> Result<Report> {
    let LoadConnections { load, requests, threads } = connected;
    let (load, requests) = (&load, &requests);
    let watch = thread::spawn(move || {
        crate::clock::sleep_until(window.from_ns);
        let before = cpu_s(std::process::id());
        crate::clock::sleep_until(window.until_ns);
        before.zip(cpu_s(std::process::id())).map(|(before, after)| after - before)
    });
    let parts: Vec<Result<RequestResults>> = thread::scope(|scope| {
        let each = threads.into_iter().map(|part| {
            scope.spawn(move || {
                crate::clock::sleep_until(window.start_ns);
                match part {
                    ThreadLoad::Pairs(pairs) => pairs.go(requests, load.mode, &window, progress),
                    ThreadLoad::Clients(clients) => clients.ask(
                        requests,
                        &window,
                        |number, turn| Some(request_of(load, number, turn)),
                        progress,
                    ),
                }
            })
        });
        let each: Vec<_> = each.collect();
        let ended = each.into_iter().map(|thread| thread.join());
        ended.map(|results| results.unwrap_or_else(|_| Err(anyhow!("load panicked")))).collect()
    });
    let mut report = Report::default();
    let (mut answers, mut deliveries) = (Latencies::new(), Latencies::new());
    for part in parts {
        let part = part?;
        report.published += part.answered;
        report.confirmed += part.done;
        report.delivered += part.delivered;
        if !part.refused.is_empty() {
            report.errors.push(format!("{:?}: {}", load.mode, show_refused(&part)));
        }
        answers.add(&part.request_to_answer.buckets());
        deliveries.add(&part.append_to_delivery.buckets());
    }
    report.publish_to_confirm = answers.buckets();
    report.publish_to_deliver = deliveries.buckets();
    report.cpu_s = watch.join().unwrap_or_default();
    Ok(report)
}

/// The request of connection `number` in a turn, and its stream. Each connection uses streams of its own in turn,
/// if there are enough.
fn request_of(load: &HttpLoad, number: u64, turn: u64) -> (Request<'static>, u64) {
    let connections = u64::from(load.connections);
    let nth = turn * connections + number;
    let request = match load.mode {
        HttpMode::Head => Request::Head,
        HttpMode::Read => Request::Read,
        HttpMode::Create => return (Request::Create, nth),
        _ => Request::Append,
    };
    let stream = match load.streams >= connections {
        true => (turn % (load.streams / connections)) * connections + number,
        false => number % load.streams.max(1),
    };
    (request, stream)
}

/// Runs a null server at `address`, in threads of its own, until the process ends.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve_null(address: &str, null: &Null) -> Result<()> {
    null::serve(address, null).with_context(|| address.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    pub(super) fn load(mode: HttpMode, connections: u32, streams: u64) -> HttpLoad {
        HttpLoad {
            mode,
            prefix: PREFIX.into(),
            run: "r".into(),
            connections,
            streams,
            size: 100,
            threads: 2,
        }
    }

    #[test]
    fn a_target_is_a_name_and_a_url() {
        let server: Server = "peer=http://127.0.0.1:4710/v1/streams/".parse().unwrap();
        assert_eq!(server.name, "peer");
        assert_eq!((&*server.address, &*server.prefix), ("127.0.0.1:4710", "/v1/streams"));
        let server: Server = "http://localhost:80".parse().unwrap();
        assert_eq!((&*server.address, &*server.prefix), ("localhost:80", PREFIX));
        assert!("https://localhost".parse::<Server>().is_err());
        assert!(matches!("null".parse(), Ok(Target::Null)));
    }

    #[test]
    fn connections_go_round_all_streams_and_make_none_twice() {
        let all = load(HttpMode::Append, 4, 12);
        let streams: BTreeSet<_> = (0..4)
            .flat_map(|number| (0..3).map(move |turn| (number, turn)))
            .map(|(number, turn)| request_of(&all, number, turn).1)
            .collect();
        assert_eq!(streams, (0..12).collect());
        let few = load(HttpMode::Append, 4, 2);
        assert!((0..4).all(|number| request_of(&few, number, 9).1 == number % 2));
        let created = load(HttpMode::Create, 4, 2);
        let names: BTreeSet<_> = (0..4)
            .flat_map(|n| (0..9).map(move |t| (n, t)))
            .map(|(n, t)| request_of(&created, n, t).1)
            .collect();
        assert_eq!(names.len(), 36);
    }

    #[test]
    fn each_kind_of_request_is_answered_by_the_null_server_also_by_one_that_syncs() {
        let folder = tempfile::tempdir().unwrap();
        let log = NullLog { folder: folder.path().to_owned(), record_bytes: 100 };
        for log in [None, Some(log)] {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let address = address.to_string();
            serve_null(&address, &Null { threads: 2, read_bytes: 1000, log }).unwrap();
            for mode in [HttpMode::Append, HttpMode::Head, HttpMode::Create, HttpMode::Read] {
                let connected = connect(&address, &load(mode, 5, 5)).unwrap();
                let start_ns = now_ns();
                let until_ns = start_ns + 200_000_000;
                let window = Window { start_ns, from_ns: start_ns, until_ns };
                let report = ask(connected, window, &AtomicU64::new(0)).unwrap();
                assert!(report.errors.is_empty(), "{mode:?}: {:?}", report.errors);
                assert!(report.confirmed > 0, "{mode:?}");
                assert_eq!(report.published, report.confirmed);
            }
        }
    }
}
