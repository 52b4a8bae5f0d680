//! What a parked reader costs: heap bytes of a whole broker for each connection that waits, with its real
//! sockets.
#![expect(clippy::unwrap_used, reason = "a step that fails ends the test")]

mod counting;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

use counting::HELD_BYTES;
use rustix::process::{Resource, getrlimit};
use sennit_server::{Config, serve};
use tempfile::TempDir;
use tokio::sync::oneshot;

/// Readers of a measurement, where the process may have so many descriptors: two for each.
const READERS: usize = 6000;
/// What they may cost, in bytes: 187 and 562 when this was written, some bytes more or less from run to run.
const OF_ONE_STREAM_BYTES_MAX: usize = 200;
const OF_A_STREAM_EACH_BYTES_MAX: usize = 600;

/// Longer than anything takes that is to happen.
const SOON: Duration = Duration::from_secs(60);

/// A client of the port.
struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        Self(stream)
    }

    fn say(&mut self, request: &str) {
        self.0.write_all(request.as_bytes()).unwrap();
    }

    /// An answer, as far as one read gives it.
    fn ask(&mut self, request: &str) -> String {
        self.say(request);
        let mut bytes = vec![0; 64 << 10];
        let count = self.0.read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    fn parked(&mut self) -> usize {
        let metrics = self.ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let lines = metrics.lines().filter(|line| line.starts_with("sennit_http_parked{"));
        lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum()
    }

    fn until_parked(&mut self, count: usize) {
        let begun = Instant::now();
        while self.parked() != count {
            assert!(begun.elapsed() < SOON, "{} are parked, not {count}", self.parked());
        }
    }

    fn put(&mut self, stream: usize) {
        let headers = "Host: localhost\r\nContent-Type: text/plain\r\nContent-Length: 0";
        let answer = self.ask(&format!("PUT /v1/stream/s{stream} HTTP/1.1\r\n{headers}\r\n\r\n"));
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
}

/// What is held, without what comes and goes.
fn held_bytes() -> usize {
    let looks = (0..50).map(|_| {
        std::thread::sleep(Duration::from_millis(10));
        HELD_BYTES.load(Ordering::Relaxed)
    });
    looks.min().unwrap()
}

/// Heap bytes for each of `readers` that wait so, going round so many streams.
fn each_costs(readers: usize, streams: usize, live: &str) -> usize {
    let folder = TempDir::new().unwrap();
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config {
        data: folder.path().to_owned(),
        listen: local,
        http: local,
        shards: Some(2),
        segment_bytes: Some(20 << 20),
        streams_long_poll_timeout: Duration::from_secs(600),
        streams_events_span: Duration::from_secs(600),
        streams_events_silence: Duration::from_secs(600),
        ..Config::default()
    };
    let (stop, stopped) = oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let stop = async {
            let _ = stopped.await;
        };
        serve(config, stop, |started| ready.send(started.addresses.http).unwrap())
    });
    let address = is_ready.recv_timeout(SOON).unwrap();
    let mut writer = Client::connect(address);
    (0..streams).for_each(|stream| writer.put(stream));
    let request = |stream: usize| {
        format!(
            "GET /v1/stream/s{stream}?offset=-1&live={live} HTTP/1.1\r\nHost: localhost\r\n\r\n"
        )
    };
    let mut clients = Vec::with_capacity(readers);
    let mut held = [0; 2];
    // The first quarter makes room for what all of them share: what comes and goes with a connection.
    for (held, count) in held.iter_mut().zip([readers / 4, readers]) {
        for number in clients.len()..count {
            let mut client = Client::connect(address);
            client.say(&request(number % streams));
            clients.push(client);
            if number % 50 == 49 {
                writer.until_parked(number + 1);
            }
        }
        writer.until_parked(count);
        *held = held_bytes();
    }
    drop((clients, writer));
    let _ = stop.send(());
    let begun = Instant::now();
    while !thread.is_finished() {
        assert!(begun.elapsed() < SOON, "the broker has not stopped after {SOON:?}");
        std::thread::yield_now();
    }
    thread.join().unwrap().unwrap();
    held[1].saturating_sub(held[0]) / (readers - readers / 4)
}

#[test]
fn a_parked_reader_costs_two_hundred_bytes() {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    let readers = READERS.min((most as usize).saturating_sub(500) / 2);
    let cases = [
        (readers, 4, "long-poll", OF_ONE_STREAM_BYTES_MAX),
        (readers, 4, "sse", OF_ONE_STREAM_BYTES_MAX),
        (readers / 2, readers / 2, "sse", OF_A_STREAM_EACH_BYTES_MAX),
    ];
    let costs = cases.map(|(readers, streams, live, most)| {
        let each = each_costs(readers, streams, live);
        eprintln!("{readers} readers of {streams} streams by {live}: {each} bytes each");
        (each, most)
    });
    assert!(costs.iter().all(|(each, most)| each <= most), "bytes each, and most: {costs:?}");
}
