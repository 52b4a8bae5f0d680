//! The null server: finds the end of each request and sends a prepared answer. No server of streams can be faster.
//! With a log it writes and syncs the requests before it answers: no server that stores streams can be faster.

use std::{
    net::TcpListener,
    sync::{
        Arc,
        mpsc::{self, Receiver},
    },
    thread,
};

use anyhow::{Context, Result, ensure};

use crate::{
    plan::Null,
    socket::{Poller, Socket},
    synced_file::SyncedFile,
};

/// Bytes that are read at once, and that a request may have before it is thrown away in pieces.
const BUFFER_BYTES: usize = 64 << 10;

/// Headers that a request may have.
const HEADERS_MAX: usize = 64;

/// How long a thread waits for something to do before it looks again.
const WAIT_NS: u64 = 1_000_000_000;

/// Looks at the sockets, at most, before what they have brought is written.
const LOOKS_MAX: usize = 16;

/// Answers at `address`, in threads of its own, until the process ends.
///
/// # Errors
/// The address cannot be listened on, or what is to be written has no room.
pub fn serve(address: &str, null: &Null) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    let answers = Arc::new(Answers::new(null.read_bytes));
    let mut doors = Vec::new();
    for number in 0..null.threads.max(1) {
        let poller = Poller::new()?;
        let (sender, sockets) = mpsc::channel();
        doors.push((poller.door(), sender));
        let log = match &null.log {
            Some(log) => {
                let file = SyncedFile::create(&log.folder.join(format!("null-{number}")))?;
                Some(Log { file, record_bytes: log.record_bytes, held: Vec::new() })
            }
            None => None,
        };
        let answers = Arc::clone(&answers);
        let (connections, buffer) = (Vec::new(), vec![0; BUFFER_BYTES]);
        let mut lane = Lane { poller, sockets, connections, buffer, answers, log };
        thread::spawn(move || while lane.turn().is_ok() {});
    }
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let (door, sender) = &doors[number % doors.len()];
            let Ok(socket) = Socket::new(stream) else { return };
            if door.add(&socket, number / doors.len()).is_err() || sender.send(socket).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Answers made beforehand.
struct Answers {
    create: Vec<u8>,
    append: Vec<u8>,
    head: Vec<u8>,
    read: Vec<u8>,
}

impl Answers {
    fn new(read_bytes: usize) -> Self {
        let said = "Content-Type: application/octet-stream\r\n\
                    Stream-Next-Offset: 0000000000000000_0000000000000000\r\n";
        let mut read = format!(
            "HTTP/1.1 200 OK\r\n{said}Stream-Up-To-Date: true\r\nContent-Length: {read_bytes}\r\n\r\n"
        )
        .into_bytes();
        read.resize(read.len() + read_bytes, b'x');
        Self {
            create: format!("HTTP/1.1 201 Created\r\n{said}Content-Length: 0\r\n\r\n").into(),
            append: format!("HTTP/1.1 204 No Content\r\n{said}\r\n").into(),
            head: format!("HTTP/1.1 200 OK\r\n{said}Content-Length: 0\r\n\r\n").into(),
            read,
        }
    }

    fn to(&self, method: &[u8]) -> &[u8] {
        match method {
            b"PUT" => &self.create,
            b"POST" => &self.append,
            b"HEAD" => &self.head,
            _ => &self.read,
        }
    }
}

/// A connection and the part of a request that has come.
struct Connection {
    socket: Socket,
    /// A head that is not whole.
    head: Vec<u8>,
    /// Bytes of a body that are still to come.
    body_left: usize,
}

/// What is written before anything is answered.
struct Log {
    file: SyncedFile,
    /// Bytes for each request.
    record_bytes: usize,
    /// Answers that wait for it, each with the number of its connection.
    held: Vec<(usize, Vec<u8>)>,
}

/// A thread's connections.
struct Lane {
    poller: Poller,
    /// Those that are new; they count from zero in that order.
    sockets: Receiver<Socket>,
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    answers: Arc<Answers>,
    log: Option<Log>,
}

impl Lane {
    /// Answers what comes next.
    fn turn(&mut self) -> Result<()> {
        self.look(WAIT_NS)?;
        // The broker's own rule (`CoreHandle::gather`), written again because the load knows nothing of
        // the broker: as long as each look brings another, and once after who is about to ask had the
        // processor, one sync is for all of them.
        let (mut seen, mut gives_way) = (1, false);
        for _ in 0..LOOKS_MAX {
            let held = self.log.as_ref().map_or(0, |log| log.held.len());
            if held > seen {
                gives_way = true;
            } else if gives_way {
                gives_way = false;
                thread::yield_now();
            } else {
                break;
            }
            seen = held;
            self.look(0)?;
        }
        let Some(log) = &mut self.log else { return Ok(()) };
        if log.held.is_empty() {
            return Ok(());
        }
        log.file.append(log.held.len() * log.record_bytes)?;
        for (number, mut out) in log.held.drain(..) {
            send(&mut self.connections[number], &mut out);
        }
        Ok(())
    }

    /// Takes what has come, and answers it where nothing is to be written first.
    fn look(&mut self, wait_ns: u64) -> Result<()> {
        let Self { poller, sockets, connections, buffer, answers, log } = self;
        for &number in poller.wait(wait_ns)? {
            while connections.len() <= number {
                // It is told of a moment before it is handed over.
                let socket = sockets.recv()?;
                connections.push(Some(Connection { socket, head: Vec::new(), body_left: 0 }));
            }
            let Some(connection) = &mut connections[number] else { continue };
            let mut out = Vec::new();
            if connection.take(buffer, answers, &mut out).is_err() {
                connections[number] = None;
            } else if out.is_empty() {
                continue;
            } else if let Some(log) = log {
                log.held.push((number, out));
            } else {
                send(&mut connections[number], &mut out);
            }
        }
        Ok(())
    }
}

/// Sends `out`; a connection that takes nothing has ended.
fn send(connection: &mut Option<Connection>, out: &mut Vec<u8>) {
    // Answers are short and asked for one by one: what went out before has gone.
    let swap = |kept: &mut Vec<u8>| std::mem::swap(kept, out);
    if connection.as_mut().is_some_and(|it| it.socket.send(swap).is_err()) {
        *connection = None;
    }
}

impl Connection {
    /// Reads what has come, and puts the answers to it into `out`.
    fn take(&mut self, buffer: &mut [u8], answers: &Answers, out: &mut Vec<u8>) -> Result<()> {
        let Self { socket, head, body_left } = self;
        socket.send_on()?;
        socket.receive(buffer, |bytes| {
            if head.is_empty() {
                let left = answer_whole(bytes, body_left, answers, out)?;
                head.extend_from_slice(left);
            } else {
                head.extend_from_slice(bytes);
                let gathered = std::mem::take(head);
                let left = answer_whole(&gathered, body_left, answers, out)?;
                head.extend_from_slice(left);
            }
            ensure!(head.len() <= BUFFER_BYTES, "a head without an end");
            Ok(())
        })
    }
}

/// Answers the requests that `bytes` hold whole, as far as their heads; what is left of them is a head
/// that has begun.
fn answer_whole<'a>(
    mut bytes: &'a [u8],
    body_left: &mut usize,
    answers: &Answers,
    out: &mut Vec<u8>,
) -> Result<&'a [u8]> {
    loop {
        let skipped = (*body_left).min(bytes.len());
        *body_left -= skipped;
        bytes = &bytes[skipped..];
        if bytes.is_empty() {
            return Ok(bytes);
        }
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let httparse::Status::Complete(length) = request.parse(bytes)? else { return Ok(bytes) };
        for header in request.headers.iter() {
            if header.name.eq_ignore_ascii_case("content-length") {
                *body_left = std::str::from_utf8(header.value)?.trim().parse()?;
            }
        }
        // An answer before the body has come is not waited for by load, which sends all at once.
        out.extend_from_slice(answers.to(request.method.context("no method")?.as_bytes()));
        bytes = &bytes[length..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const APPEND: &[u8] = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";

    #[test]
    fn each_request_is_answered_once_wherever_it_is_cut() {
        let answers = Answers::new(4);
        let two = [APPEND, b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n"].concat();
        let wanted = [answers.append.as_slice(), &answers.head].concat();
        for at in 0..=two.len() {
            let (mut out, mut body_left) = (Vec::new(), 0);
            let left = answer_whole(&two[..at], &mut body_left, &answers, &mut out).unwrap();
            let rest = [left, &two[at..]].concat();
            let left = answer_whole(&rest, &mut body_left, &answers, &mut out).unwrap();
            assert!(left.is_empty());
            assert_eq!(out, wanted, "cut at {at}");
        }
    }
}
