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

/// The size of a read in bytes. The server discards longer requests in pieces of this size.
const BUFFER_BYTES: usize = 64 << 10;

/// The greatest number of headers of a request.
const HEADERS_MAX: usize = 64;

/// The longest time that a thread waits for a socket.
const WAIT_NS: u64 = 1_000_000_000;

/// The greatest number of polls before the log writes its records.
const LOOKS_MAX: usize = 16;

/// Serves requests at `address`, in threads of its own, until the process ends.
///
/// # Errors
/// The address cannot be listened on, or the log's files cannot be created.
pub fn serve(address: &str, null: &Null) -> Result<()> {
    let listener = TcpListener::bind(address)?;
    let answers = Arc::new(Answers::new(null.read_bytes));
    let mut threads = Vec::new();
    for number in 0..null.threads.max(1) {
        let poller = Poller::new()?;
        let (sender, sockets) = mpsc::channel();
        threads.push((poller.handle(), sender));
        let log = match &null.log {
            Some(log) => {
                let file = SyncedFile::create(&log.folder.join(format!("null-{number}")))?;
                Some(SyncedLog { file, record_bytes: log.record_bytes, held: Vec::new() })
            }
            None => None,
        };
        let answers = Arc::clone(&answers);
        let (connections, buffer) = (Vec::new(), vec![0; BUFFER_BYTES]);
        let mut server = NullThread { poller, sockets, connections, buffer, answers, log };
        thread::spawn(move || while server.turn().is_ok() {});
    }
    thread::spawn(move || {
        for (number, stream) in listener.incoming().flatten().enumerate() {
            let (poller, sender) = &threads[number % threads.len()];
            let Ok(socket) = Socket::new(stream) else { return };
            if poller.add(&socket, number / threads.len()).is_err() || sender.send(socket).is_err()
            {
                return;
            }
        }
    });
    Ok(())
}

/// Prepared answers.
struct Answers {
    create: Vec<u8>,
    append: Vec<u8>,
    head: Vec<u8>,
    read: Vec<u8>,
}

impl Answers {
    fn new(read_bytes: usize) -> Self {
        let headers = "Content-Type: application/octet-stream\r\n\
                    Stream-Next-Offset: 0000000000000000_0000000000000000\r\n";
        let mut read = format!(
            "HTTP/1.1 200 OK\r\n{headers}Stream-Up-To-Date: true\r\nContent-Length: {read_bytes}\r\n\r\n"
        )
        .into_bytes();
        read.resize(read.len() + read_bytes, b'x');
        Self {
            create: format!("HTTP/1.1 201 Created\r\n{headers}Content-Length: 0\r\n\r\n").into(),
            append: format!("HTTP/1.1 204 No Content\r\n{headers}\r\n").into(),
            head: format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n").into(),
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

/// A connection and the received part of a request.
struct Connection {
    socket: Socket,
    /// The received part of a head.
    head: Vec<u8>,
    /// The number of bytes of a body that are missing.
    body_left: usize,
}

/// The log, which the server writes and syncs before it answers.
struct SyncedLog {
    file: SyncedFile,
    /// The length of a record in bytes.
    record_bytes: usize,
    /// Answers that wait for the sync, with the numbers of their connections.
    held: Vec<(usize, Vec<u8>)>,
}

/// A thread of the server, with its connections.
struct NullThread {
    poller: Poller,
    /// New connections, which are numbered from zero in this order.
    sockets: Receiver<Socket>,
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
    answers: Arc<Answers>,
    log: Option<SyncedLog>,
}

impl NullThread {
    /// Waits for requests, and answers them.
    fn turn(&mut self) -> Result<()> {
        self.look(WAIT_NS)?;
        // This is the broker's rule (`CoreHandle::gather`), written again because the load knows nothing of the
        // broker: polls go on as long as each brings another request, with a last one after a yield. One
        // sync then serves all of them.
        let (mut seen, mut has_yielded) = (1, false);
        for _ in 0..LOOKS_MAX {
            let held = self.log.as_ref().map_or(0, |log| log.held.len());
            if held > seen {
                has_yielded = true;
            } else if has_yielded {
                has_yielded = false;
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

    /// Reads the requests of all ready sockets, and answers them unless a log must be written first.
    fn look(&mut self, wait_ns: u64) -> Result<()> {
        let Self { poller, sockets, connections, buffer, answers, log } = self;
        for &number in poller.wait(wait_ns)? {
            while connections.len() <= number {
                // The poller may return a socket before it is handed over.
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

/// Sends `out`, and removes a connection that has ended.
fn send(connection: &mut Option<Connection>, out: &mut Vec<u8>) {
    // Answers are short and requested one by one: earlier answers are sent completely.
    let swap = |kept: &mut Vec<u8>| std::mem::swap(kept, out);
    if connection.as_mut().is_some_and(|it| it.socket.send(swap).is_err()) {
        *connection = None;
    }
}

impl Connection {
    /// Reads requests, and appends their answers to `out`.
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

/// Answers the requests in `bytes` whose heads are complete, and removes them. The rest is the start of a head.
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
        // The answer precedes the body, which is no problem for a load that sends both at once.
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
