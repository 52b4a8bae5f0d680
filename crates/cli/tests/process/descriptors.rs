//! Connections up to the limit of open files: the log keeps the descriptors that it needs.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use crate::{bounds::until, broker::Broker};

/// How many files the broker may have open.
const LIMIT: usize = 400;

/// Longer than it takes to be answered, or to be gone.
const SOON: Duration = Duration::from_secs(10);

/// A connection whose request was answered, and that stays.
fn answered(address: &str) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").ok()?;
    let count = stream.read(&mut [0; 1024]).ok()?;
    (count > 0).then_some(stream)
}

fn open_files(broker: &Broker) -> usize {
    fs::read_dir(format!("/proc/{}/fd", broker.pid())).unwrap().count()
}

#[test]
fn connections_leave_the_log_the_files_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let mut program = Command::new("sh");
    let limited = format!("ulimit -Sn 100 && ulimit -Hn {LIMIT} && exec \"$0\" \"$@\"");
    program.args(["-c", &limited, env!("CARGO_BIN_EXE_sennit")]).env("RUST_LOG", "error");
    let flags = ["--shards", "1", "--segment-size", "20MiB"];
    let broker = Broker::start_by(program, folder.path(), &flags);
    broker.ok(&["topic", "create", "logs"], b"");
    let mut connections: Vec<_> = (0..LIMIT).map_while(|_| answered(&broker.http)).collect();
    let all = connections.len();
    assert!((LIMIT / 3..LIMIT).contains(&all), "{all} connections");
    let most = open_files(&broker);
    // Some go; what the log has open for a moment may be among what was counted.
    connections.truncate(all - 10);
    until("files come free", || open_files(&broker) <= most - 10);
    // Several segments.
    let line = [&[b'x'; 1 << 20], b"\n".as_slice()].concat();
    broker.ok(&["publish", "logs"], &line.repeat(70));
}
