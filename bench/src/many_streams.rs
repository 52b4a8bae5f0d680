//! Many HTTP streams with an append each: created, filled, read and compared, with one request in flight for each
//! connection.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::stamp::{Payloads, Stamp};

/// The number of connections.
const CONNECTIONS: u64 = 128;

/// Time within which the broker answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time between two reports of progress.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The greatest number of headers of an answer.
const HEADERS_MAX: usize = 64;

/// A callback for progress: the name of the step, the number of finished parts, and the number of all parts.
pub type ReportProgress<'a> = &'a dyn Fn(&str, u64, Option<u64>);

/// Streams below one name at the broker whose HTTP port is `address`.
#[derive(Clone, Copy, Debug)]
pub struct ManyStreams<'a> {
    /// The broker's address.
    pub address: &'a str,
    /// The number of streams.
    pub streams: u64,
    /// The length of an append in bytes.
    pub size: usize,
}

/// The first line and the common headers of a request to stream number `number`.
fn head(method: &str, number: u64) -> String {
    format!(
        "{method} /v1/stream/bench/streams/{number} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/octet-stream\r\n"
    )
}

impl ManyStreams<'_> {
    /// Creates the streams, and appends once to each. Returns the time that each of the two steps took.
    ///
    /// # Errors
    /// The broker refuses a request, or cannot be reached.
    pub async fn fill(&self, tell: ReportProgress<'_>) -> Result<(Duration, Duration)> {
        let begun = Instant::now();
        let create = |number, out: &mut Vec<u8>| {
            out.extend_from_slice(head("PUT", number).as_bytes());
            out.extend_from_slice(b"Content-Length: 0\r\n\r\n");
        };
        let is = |wanted: u16| {
            move |number, status, _: &[u8]| {
                ensure!(status == wanted, "stream {number}: {status}, not {wanted}");
                Ok(())
            }
        };
        self.each("create", self.streams, tell, create, is(201)).await?;
        let created = begun.elapsed();
        let begun = Instant::now();
        let payloads = RefCell::new(Payloads::new(self.size));
        let append = move |number, out: &mut Vec<u8>| {
            let stamp = Stamp { producer: 0, sequence: number, intended_ns: 0 };
            let payload = payloads.borrow_mut().make(stamp);
            out.extend_from_slice(head("POST", number).as_bytes());
            out.extend_from_slice(format!("Content-Length: {}\r\n\r\n", payload.len()).as_bytes());
            out.extend_from_slice(&payload);
        };
        self.each("publish", self.streams, tell, append, is(204)).await?;
        Ok((created, begun.elapsed()))
    }

    /// Reads `sample` streams, drawn at random. Returns the number of those with wrong contents.
    ///
    /// # Errors
    /// The broker refuses a request, or cannot be reached.
    pub async fn compare(&self, sample: u64, tell: ReportProgress<'_>) -> Result<u64> {
        let streams = self.streams;
        let sampled = move |turn: u64| xxh3_64(&turn.to_le_bytes()) % streams;
        let wrong = Rc::new(Cell::new(0));
        let (counted, payloads) = (Rc::clone(&wrong), Payloads::new(self.size));
        let read = move |turn, out: &mut Vec<u8>| {
            out.extend_from_slice(head("GET", sampled(turn)).as_bytes());
            out.extend_from_slice(b"\r\n");
        };
        let look = move |turn, status, body: &[u8]| {
            let stamp = payloads.read(body);
            let is_it = status == 200 && stamp.is_some_and(|it| it.sequence == sampled(turn));
            counted.set(counted.get() + u64::from(!is_it));
            Ok(())
        };
        self.each("sample", sample, tell, read, look).await?;
        Ok(wrong.get())
    }

    /// Sends the request that `ask` writes for each number below `count`, and passes each answer to `take`.
    async fn each(
        &self,
        what: &str,
        count: u64,
        tell: ReportProgress<'_>,
        ask: impl Fn(u64, &mut Vec<u8>) + 'static,
        take: impl Fn(u64, u16, &[u8]) -> Result<()> + 'static,
    ) -> Result<()> {
        let (next, handlers) = (Rc::new(Cell::new(0)), Rc::new((ask, take)));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS.min(count) {
            let mut connection = Connection::open(self.address).await?;
            let (next, handlers) = (Rc::clone(&next), Rc::clone(&handlers));
            tasks.spawn_local(async move {
                while next.get() < count {
                    let number = next.replace(next.get() + 1);
                    connection.request.clear();
                    handlers.0(number, &mut connection.request);
                    let (status, body) = connection.answer().await?;
                    handlers.1(number, status, body)?;
                }
                Ok::<_, anyhow::Error>(())
            });
        }
        loop {
            match timeout(TELL_EVERY, tasks.join_next()).await {
                Ok(None) => return Ok(()),
                Ok(Some(ended)) => ended??,
                Err(_) => tell(what, next.get(), Some(count)),
            }
        }
    }
}

/// A connection with one request in flight.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    received: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::new(), received: Vec::new() })
    }

    /// Sends the request. Returns the status and the body of the answer.
    async fn answer(&mut self) -> Result<(u16, &[u8])> {
        self.stream.write_all(&self.request).await?;
        self.received.clear();
        let (status, head, body) = loop {
            let read = self.stream.read_buf(&mut self.received);
            let count = timeout(ANSWER_TIMEOUT, read).await.context("no answer comes")??;
            ensure!(count > 0, "the broker has closed a connection");
            if let Some((status, head, body)) = lengths(&self.received)?
                && self.received.len() >= head + body
            {
                break (status, head, body);
            }
        };
        Ok((status, &self.received[head..head + body]))
    }
}

/// The status of an answer and the lengths of its head and body, once its head is complete.
fn lengths(received: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = answer.parse(received).context("this is no HTTP")?
    else {
        return Ok(None);
    };
    let mut body = 0;
    for header in answer.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        ensure!(!is("transfer-encoding"), "an answer has no length");
        if is("content-length") {
            body = std::str::from_utf8(header.value)?.parse()?;
        }
    }
    Ok(Some((answer.code.context("an answer has no status")?, head, body)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_as_long_as_it_says() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
        assert_eq!(lengths(whole).unwrap(), Some((200, whole.len() - 3, 3)));
        assert_eq!(lengths(&whole[..20]).unwrap(), None);
        let empty = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(lengths(empty).unwrap(), Some((204, empty.len(), 0)));
        assert!(lengths(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").is_err());
    }
}
