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

/// Connections that requests are spread over.
const CONNECTIONS: u64 = 128;

/// How long an answer may take to come.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Headers that an answer may have.
const HEADERS_MAX: usize = 64;

/// Told how far what is done has come: what it is, and how many of how many.
pub type Tell<'a> = &'a dyn Fn(&str, u64, Option<u64>);

/// Streams below one name at the broker whose HTTP port is `address`.
#[derive(Clone, Copy, Debug)]
pub struct ManyStreams<'a> {
    /// Where it listens.
    pub address: &'a str,
    /// How many.
    pub streams: u64,
    /// Bytes of an append.
    pub size: usize,
}

/// The first line of a request to stream number `number`, with the headers that all have.
fn head(method: &str, number: u64) -> String {
    format!(
        "{method} /v1/stream/bench/streams/{number} HTTP/1.1\r\nHost: localhost\r\n\
         Content-Type: application/octet-stream\r\n"
    )
}

impl ManyStreams<'_> {
    /// Makes them, and appends once to each; how long each of both took.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached.
    pub async fn fill(&self, tell: Tell<'_>) -> Result<(Duration, Duration)> {
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

    /// Reads `sample` of them, drawn at random; how many hold something else than they should.
    ///
    /// # Errors
    /// The broker refuses, or cannot be reached.
    pub async fn compare(&self, sample: u64, tell: Tell<'_>) -> Result<u64> {
        let streams = self.streams;
        let drawn = move |turn: u64| xxh3_64(&turn.to_le_bytes()) % streams;
        let wrong = Rc::new(Cell::new(0));
        let (counted, payloads) = (Rc::clone(&wrong), Payloads::new(self.size));
        let read = move |turn, out: &mut Vec<u8>| {
            out.extend_from_slice(head("GET", drawn(turn)).as_bytes());
            out.extend_from_slice(b"\r\n");
        };
        let look = move |turn, status, body: &[u8]| {
            let stamp = payloads.read(body);
            let is_it = status == 200 && stamp.is_some_and(|it| it.sequence == drawn(turn));
            counted.set(counted.get() + u64::from(!is_it));
            Ok(())
        };
        self.each("sample", sample, tell, read, look).await?;
        Ok(wrong.get())
    }

    /// Asks `ask` for each number below `count`, and gives what is answered to `take`.
    async fn each(
        &self,
        what: &str,
        count: u64,
        tell: Tell<'_>,
        ask: impl Fn(u64, &mut Vec<u8>) + 'static,
        take: impl Fn(u64, u16, &[u8]) -> Result<()> + 'static,
    ) -> Result<()> {
        let (next, does) = (Rc::new(Cell::new(0)), Rc::new((ask, take)));
        let mut tasks = JoinSet::new();
        for _ in 0..CONNECTIONS.min(count) {
            let mut connection = Connection::open(self.address).await?;
            let (next, does) = (Rc::clone(&next), Rc::clone(&does));
            tasks.spawn_local(async move {
                while next.get() < count {
                    let number = next.replace(next.get() + 1);
                    connection.request.clear();
                    does.0(number, &mut connection.request);
                    let (status, body) = connection.answer().await?;
                    does.1(number, status, body)?;
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

/// A connection with one request on the way.
#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    request: Vec<u8>,
    came: Vec<u8>,
}

impl Connection {
    async fn open(address: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| address.to_owned())?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, request: Vec::new(), came: Vec::new() })
    }

    /// Sends the request; the status and the body of what is answered.
    async fn answer(&mut self) -> Result<(u16, &[u8])> {
        self.stream.write_all(&self.request).await?;
        self.came.clear();
        let (status, head, body) = loop {
            let read = self.stream.read_buf(&mut self.came);
            let count = timeout(ANSWER_TIMEOUT, read).await.context("no answer comes")??;
            ensure!(count > 0, "the broker has closed a connection");
            if let Some((status, head, body)) = lengths(&self.came)?
                && self.came.len() >= head + body
            {
                break (status, head, body);
            }
        };
        Ok((status, &self.came[head..head + body]))
    }
}

/// The status of an answer, and how long its head and body are, once its head is there.
fn lengths(came: &[u8]) -> Result<Option<(u16, usize, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = answer.parse(came).context("this is no HTTP")? else {
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
