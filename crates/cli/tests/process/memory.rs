//! The broker returns the memory of connections that have ended.

use std::{fs, io::Write, net::TcpStream};

use crate::{bounds::until, broker::Broker};

const CONNECTIONS: usize = 400;

/// Of a request that is not whole, and is held until it is: less than a head may have.
const BEGUN_BYTES: usize = 15 << 10;

/// Bytes of memory that a process has.
pub fn rss_bytes(pid: u32) -> u64 {
    status_bytes(pid, "VmRSS:")
}

/// Bytes of memory that a process has made its own: without its code, which comes in as it is used.
fn own_bytes(pid: u32) -> u64 {
    status_bytes(pid, "RssAnon:")
}

fn status_bytes(pid: u32, field: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// Waits until the broker's memory is so.
fn wait_until(broker: &Broker, what: &str, is_so: impl Fn(u64) -> bool) {
    until(what, || is_so(own_bytes(broker.pid())));
}

#[test]
fn what_connections_had_is_given_back_when_they_are_gone() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start_with(folder.path(), &["--shards", "2"]);
    let before = own_bytes(broker.pid());
    let begun = [b"GET /healthz HTTP/1.1\r\nx: ".as_slice(), &[b'x'; BEGUN_BYTES]].concat();
    let connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut stream = TcpStream::connect(&broker.http).unwrap();
            stream.write_all(&begun).unwrap();
            stream
        })
        .collect();
    let held = (CONNECTIONS * BEGUN_BYTES) as u64;
    // Some of it may lie in what the process had already.
    wait_until(&broker, "the broker holds more", |own| own >= before + held * 3 / 4);
    drop(connections);
    wait_until(&broker, "the broker gives it back", |own| own < before + held / 2);
}
