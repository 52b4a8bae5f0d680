//! A flood: appends of a tenant over HTTP, more than its quota, by a client that does not wait when it is told to. The
//! threads that send it yield to everybody else on the machine.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

/// Connections of a flood, each with one request in flight.
const CONNECTIONS: u32 = 4;

/// Time within which an answer comes.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest head of an answer in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;

/// The nice value of its threads: on the machine of the broker a flood takes processor time from it that it would not
/// take from elsewhere. With the highest one a flood beside compilers is none.
const NICE: i32 = 5;

/// A flood that goes on.
#[derive(Debug)]
pub struct Flood {
    stopped: Arc<AtomicBool>,
    counts: Arc<Counts>,
    threads: Vec<JoinHandle<Result<()>>>,
}

/// The answers.
#[derive(Debug, Default)]
struct Counts {
    taken: AtomicU64,
    refused: AtomicU64,
}

/// What became of the requests of a flood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FloodCounts {
    /// Appends that were done.
    pub taken: u64,
    /// Appends that were refused for a quota.
    pub refused: u64,
}

impl Flood {
    /// Creates the stream at `path` and floods it with so many requests a second; as many as go with 0.
    ///
    /// # Errors
    /// The broker cannot be reached, or refuses the stream.
    pub fn start(http: &str, key: &str, path: &str, size: usize, rate: f64) -> Result<Self> {
        let head = |verb: &str, length: usize| {
            format!(
                "{verb} {path} HTTP/1.1\r\nHost: {http}\r\nAuthorization: Bearer {key}\r\n\
                 Content-Type: application/octet-stream\r\nContent-Length: {length}\r\n\r\n"
            )
        };
        let mut connection = Connection::open(http)?;
        let status = connection.ask(head("PUT", 0).as_bytes())?;
        ensure!(matches!(status, 200 | 201), "the stream of the flood was refused: {status}");
        let mut request = head("POST", size).into_bytes();
        request.resize(request.len() + size, b'x');
        let request: Arc<[u8]> = request.into();
        let (stopped, counts) = (Arc::<AtomicBool>::default(), Arc::<Counts>::default());
        let each =
            Duration::from_secs_f64(if rate > 0.0 { f64::from(CONNECTIONS) / rate } else { 0.0 });
        let threads = (0..CONNECTIONS)
            .map(|_| {
                let mut connection = Connection::open(http)?;
                let (request, stopped, counts) = (request.clone(), stopped.clone(), counts.clone());
                Ok(thread::spawn(move || {
                    // Where it is not allowed the flood is a harder one.
                    let _ = rustix::process::nice(NICE);
                    let mut next = Instant::now();
                    while !stopped.load(Relaxed) {
                        thread::sleep(next.saturating_duration_since(Instant::now()));
                        next += each;
                        match connection.ask(&request)? {
                            200 | 204 => counts.taken.fetch_add(1, Relaxed),
                            429 | 507 => counts.refused.fetch_add(1, Relaxed),
                            other => anyhow::bail!("the flood was answered with {other}"),
                        };
                    }
                    Ok(())
                }))
            })
            .collect::<Result<_>>()?;
        Ok(Self { stopped, counts, threads })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It ended before, or was answered otherwise than with a quota.
    pub fn end(mut self) -> Result<FloodCounts> {
        self.stopped.store(true, Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the flood panicked"))??;
        }
        let Counts { taken, refused } = &*self.counts;
        Ok(FloodCounts { taken: taken.load(Relaxed), refused: refused.load(Relaxed) })
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stopped.store(true, Relaxed);
    }
}

/// A connection of HTTP/1.1.
struct Connection {
    socket: TcpStream,
    received: Vec<u8>,
}

impl Connection {
    fn open(http: &str) -> Result<Self> {
        let socket = TcpStream::connect(http).with_context(|| http.to_owned())?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self { socket, received: Vec::new() })
    }

    /// Sends a request; the status of the answer, whose body is thrown away.
    fn ask(&mut self, request: &[u8]) -> Result<u16> {
        self.socket.write_all(request)?;
        loop {
            if let Some((status, length)) = answer(&self.received)? {
                while self.received.len() < length {
                    self.read()?;
                }
                self.received.drain(..length);
                return Ok(status);
            }
            ensure!(self.received.len() <= HEAD_BYTES_MAX, "the head of an answer is too long");
            self.read()?;
        }
    }

    fn read(&mut self) -> Result<()> {
        let mut buffer = [0; 4096];
        let count = self.socket.read(&mut buffer)?;
        ensure!(count > 0, "the broker has closed a connection of the flood");
        self.received.extend_from_slice(&buffer[..count]);
        Ok(())
    }
}

/// The status of an answer, and its length in bytes with the body; `None` if its head is not all there.
fn answer(bytes: &[u8]) -> Result<Option<(u16, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(head) = response.parse(bytes)? else { return Ok(None) };
    let length = response.headers.iter().find(|it| it.name.eq_ignore_ascii_case("content-length"));
    let length = match length {
        Some(length) => std::str::from_utf8(length.value)?.trim().parse()?,
        None => 0,
    };
    let status = response.code.context("an answer has a status")?;
    Ok(Some((status, head + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_body_does() {
        let text = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 204";
        assert_eq!(answer(&text[..20]).unwrap(), None);
        let (status, length) = answer(text).unwrap().unwrap();
        assert_eq!((status, &text[length..]), (429, &b"HTTP/1.1 204"[..]));
        let text = b"HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(answer(text).unwrap(), Some((204, text.len())));
        assert!(answer(b"nonsense\r\n\r\n").is_err());
    }
}
