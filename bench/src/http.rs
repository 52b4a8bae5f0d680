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
    closed_loop::{Asked, Clients},
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

/// Between the order to start and the start: every worker is awake by then.
const START_DELAY_NS: u64 = 200_000_000;

/// Bytes that a log needs for a record besides what it is to keep: a length, a checksum, whose it is.
const RECORD_HEAD_BYTES: usize = 32;

/// Connections that streams are made with.
const SETUP_CONNECTIONS: u64 = 32;

/// The path that streams lie below, where nobody names another.
const PREFIX: &str = "/v1/stream";

/// Whom a row asks.
#[derive(Clone, Debug, Serialize)]
pub enum Target {
    /// A server that runs already.
    There(Server),
    /// A broker of our own in a storage mode.
    Own(String),
    /// Who does nothing.
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
    /// What it is called in the table.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::There(server) => &server.name,
            Self::Own(mode) => mode,
            Self::Null => "null",
        }
    }
}

/// A server that runs already.
#[derive(Clone, Debug, Serialize)]
pub struct Server {
    /// What it is called in the table.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// The path that streams lie below, without a slash at its end.
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

/// Streams under load.
#[derive(Clone, Debug, Serialize)]
pub struct HttpStreams {
    /// Whom it asks.
    pub target: Target,
    /// What is asked.
    pub mode: HttpMode,
    /// How many connections, or pairs of them.
    pub connections: u32,
    /// How many streams they go round.
    pub streams: u64,
    /// Bytes of an append.
    pub size: usize,
    /// Appends that each stream has before it is read.
    pub prefill: u64,
    /// Threads that load has.
    pub threads: u32,
    /// Who does nothing is measured too.
    pub beside_null: bool,
    /// And who does nothing but write and sync.
    pub beside_synced_null: bool,
    /// Turns that they and whom the row asks take.
    pub turns: u32,
    /// Threads of each of the two.
    pub null_threads: u32,
    /// Seconds before what happens counts.
    pub warmup_s: f64,
    /// Seconds that count.
    pub duration_s: f64,
}

impl HttpStreams {
    /// Measures once: whom the row asks, and in turns with it who does nothing.
    ///
    /// # Errors
    /// A server cannot be reached or ends a connection.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        // It knows nobody who waits, and would answer at once.
        let may_null = !self.mode.is_live();
        if matches!(self.target, Target::Null) {
            ensure!(may_null, "the null server has no waiting readers");
            let mut null = self.null(None)?;
            null.turn(bench, row, self, 1)?;
            let mut made = self.made(&mut null)?;
            bench.name(&mut made, row);
            (made.target, made.durability) = ("null".into(), "none".into());
            return Ok(made);
        }
        let mut null = match self.beside_null && may_null {
            true => Some(self.null(None)?),
            false => None,
        };
        let folder = match self.beside_synced_null && may_null {
            true => Some(folder_beside(bench.options.data.as_deref())?),
            false => None,
        };
        let mut synced = match &folder {
            Some(folder) => Some(self.null(Some(folder.path()))?),
            None => None,
        };
        let (_own, mut asked) = self.asked(bench)?;
        let turns = if null.is_some() || synced.is_some() { self.turns } else { 1 };
        for turn in 0..turns {
            let beside = null.iter_mut().chain(&mut synced);
            let mut sides: Vec<_> = beside.chain([&mut asked]).collect();
            if turn % 2 == 1 {
                sides.reverse();
            }
            sides.into_iter().try_for_each(|side| side.turn(bench, row, self, turns))?;
        }
        let mut made = self.made(&mut asked)?;
        if let Some(answered) = &mut made.answered {
            if let Some(null) = &mut null {
                answered.null_per_s = Some(self.rate(null.answered));
                answered.null_request_to_answer_us = null.request_to_answer();
                answered.of_null = asked.share_of(null);
            }
            if let Some(synced) = &mut synced {
                answered.synced_null_per_s = Some(self.rate(synced.answered));
                answered.synced_null_request_to_answer_us = synced.request_to_answer();
                answered.of_synced_null = asked.share_of(synced);
            }
        }
        for null in null.iter().chain(&synced) {
            ensure!(null.errors.is_empty(), "the null server: {:?}", null.errors);
        }
        bench.name(&mut made, row);
        made.target = asked.server.name;
        made.durability = match &self.target {
            Target::Own(mode) => mode.clone(),
            _ => "as the target has it".into(),
        };
        Ok(made)
    }

    /// Whom the row asks, with its streams made; a broker of our own, if it is one.
    fn asked(&self, bench: &Bench<'_>) -> Result<(Option<Broker>, TargetResults)> {
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

    /// Starts who does nothing; with a folder, who writes there first.
    fn null(&self, folder: Option<&Path>) -> Result<TargetResults> {
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
            // Streams of an earlier run would not be there yet, nor empty.
            run: format!("bench-{:x}", now.as_micros()),
            connections: self.connections,
            // Each pair has a stream of its own.
            streams: if self.mode.is_live() { self.connections.into() } else { self.streams },
            size: self.size,
            threads: self.threads.min(self.connections),
        }
    }

    /// When one of so many turns that begins now is what.
    fn window(&self, turns: u32) -> Window {
        let part_ns = |seconds: f64| (seconds / f64::from(turns) * 1e9) as u64;
        let start_ns = now_ns() + START_DELAY_NS;
        let from_ns = start_ns + part_ns(self.warmup_s);
        Window { start_ns, from_ns, until_ns: from_ns + part_ns(self.duration_s) }
    }

    /// Makes the streams, and fills those that are read.
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
            let asked = clients.ask(&requests, &window, next, &AtomicU64::new(0))?;
            ensure!(asked.refused.is_empty(), "{what}: {}", show_refused(&asked));
            Ok(())
        };
        each("create", load.streams, Request::Create)?;
        match self.mode {
            HttpMode::Read => each("fill", load.streams * self.prefill, Request::Append),
            _ => Ok(()),
        }
    }

    /// So many per second, over all turns.
    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.duration_s
    }

    /// A row of what came of a side.
    fn made(&self, side: &mut TargetResults) -> Result<Row> {
        let is_live = self.mode.is_live();
        let mut made = Row {
            errors: side.asked - side.answered + side.errors.len() as u64,
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
            made.set_usage(usage);
        }
        Ok(made)
    }
}

/// A folder on the disk of a broker's data: beside it, or where a fresh one would be.
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

fn show_refused(asked: &Asked) -> String {
    let each = asked.refused.iter().map(|(status, count)| format!("{status} {count} times"));
    each.collect::<Vec<_>>().join(", ")
}

fn plan(address: &str, role: Role) -> Plan {
    Plan {
        server: address.to_owned(),
        topic: String::new(),
        partitions: 0,
        group: String::new(),
        size: 0,
        role,
    }
}

fn worker(address: &str, load: &HttpLoad) -> Result<Worker> {
    Worker::start(&plan(address, Role::Http(load.clone())))
}

/// The connections of a load, for each of its threads.
pub struct Connected {
    load: HttpLoad,
    requests: Requests,
    threads: Vec<Part>,
}

enum Part {
    Clients(Clients),
    Pairs(Pairs),
}

/// Connects all that `load` has to the server at `address`.
///
/// # Errors
/// It cannot be reached.
pub fn connect(address: &str, load: &HttpLoad) -> Result<Connected> {
    let threads = u64::from(load.threads.max(1));
    let parts = (0..threads).map(|thread| {
        let numbers = (thread..load.connections.into()).step_by(threads as usize);
        Ok(match load.mode.is_live() {
            true => Part::Pairs(Pairs::connect(address, numbers)?),
            false => Part::Clients(Clients::connect(address, numbers)?),
        })
    });
    let requests = Requests::new(address, load);
    Ok(Connected { load: load.clone(), requests, threads: parts.collect::<Result<_>>()? })
}

/// Asks until the window ends.
///
/// # Errors
/// A connection ends, or nothing is answered any more.
pub fn ask(connected: Connected, window: Window, progress: &AtomicU64) -> Result<Report> {
    let Connected { load, requests, threads } = connected;
    let (load, requests) = (&load, &requests);
    let watch = thread::spawn(move || {
        crate::clock::sleep_until(window.from_ns);
        let before = cpu_s(std::process::id());
        crate::clock::sleep_until(window.until_ns);
        before.zip(cpu_s(std::process::id())).map(|(before, after)| after - before)
    });
    let parts: Vec<Result<Asked>> = thread::scope(|scope| {
        let each = threads.into_iter().map(|part| {
            scope.spawn(move || {
                crate::clock::sleep_until(window.start_ns);
                match part {
                    Part::Pairs(pairs) => pairs.go(requests, load.mode, &window, progress),
                    Part::Clients(clients) => clients.ask(
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
        ended.map(|asked| asked.unwrap_or_else(|_| Err(anyhow!("load panicked")))).collect()
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

/// What connection `number` asks in its turn, and of which stream: each connection goes round streams
/// of its own, as far as there are so many.
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

/// Answers at `address` and does nothing else, in threads of its own, until the process ends.
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
        let asked: BTreeSet<_> = (0..4)
            .flat_map(|number| (0..3).map(move |turn| (number, turn)))
            .map(|(number, turn)| request_of(&all, number, turn).1)
            .collect();
        assert_eq!(asked, (0..12).collect());
        let few = load(HttpMode::Append, 4, 2);
        assert!((0..4).all(|number| request_of(&few, number, 9).1 == number % 2));
        let made = load(HttpMode::Create, 4, 2);
        let names: BTreeSet<_> = (0..4)
            .flat_map(|n| (0..9).map(move |t| (n, t)))
            .map(|(n, t)| request_of(&made, n, t).1)
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
