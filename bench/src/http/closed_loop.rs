//! Load with one request in flight for each connection: a client sends the next request when it has the answer.

use std::{
    collections::BTreeMap,
    net::TcpStream,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result, ensure};

use super::{
    answer::AnswerReader,
    request::{Request, Requests},
};
use crate::{
    clock::now_ns,
    latency::Latencies,
    plan::Window,
    socket::{Poller, Socket},
};

/// The size of a read in bytes.
pub const BUFFER_BYTES: usize = 256 << 10;

/// The longest time without any answer.
pub const SILENCE_NS: u64 = 30_000_000_000;

/// The requests of a window and their answers.
#[derive(Debug)]
pub struct RequestResults {
    /// The number of answers with any status.
    pub answered: u64,
    /// The number of answers with a status of success.
    pub done: u64,
    /// The number of deliveries to waiting readers.
    pub delivered: u64,
    /// The time from a request to its answer.
    pub request_to_answer: Latencies,
    /// The time from an append to the reader that waits for it.
    pub append_to_delivery: Latencies,
    /// The count of each other status, inside and outside the window.
    pub refused: BTreeMap<u16, u64>,
}

impl RequestResults {
    /// Results without requests.
    #[must_use]
    pub fn new() -> Self {
        Self {
            answered: 0,
            done: 0,
            delivered: 0,
            request_to_answer: Latencies::new(),
            append_to_delivery: Latencies::new(),
            refused: BTreeMap::new(),
        }
    }

    /// Counts an answer to a request that was sent at `sent_ns`.
    pub fn answered(&mut self, status: u16, sent_ns: u64, now: u64, window: &Window) {
        let is_done = (200..300).contains(&status);
        if !is_done {
            *self.refused.entry(status).or_default() += 1;
        }
        if window.holds(now) {
            self.answered += 1;
            self.done += u64::from(is_done);
        }
        if window.holds(sent_ns) {
            self.request_to_answer.record(sent_ns, now);
        }
    }
}

/// A connection that sends requests.
#[derive(Debug)]
struct Client {
    socket: Socket,
    answer: AnswerReader,
    turn: u64,
    is_head: bool,
    sent_ns: u64,
}

/// The connections of one thread, each with its number in the run.
#[derive(Debug)]
pub struct Clients {
    poller: Poller,
    clients: Vec<(u64, Client)>,
}

impl Clients {
    /// Connects `numbers` to the server at `address`.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(address: &str, numbers: impl Iterator<Item = u64>) -> Result<Self> {
        let poller = Poller::new()?;
        let mut clients = Vec::new();
        for number in numbers {
            let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
            let socket = Socket::new(stream)?;
            poller.handle().add(&socket, clients.len())?;
            let answer = AnswerReader::default();
            let client = Client { socket, answer, turn: 0, is_head: false, sent_ns: 0 };
            clients.push((number, client));
        }
        Ok(Self { poller, clients })
    }

    /// Sends the requests that `next` returns for a connection's number and its turn, until it returns `None` for
    /// all connections or the window ends.
    ///
    /// # Errors
    /// A connection ends, or the server does not answer any more.
    pub fn ask(
        self,
        requests: &Requests,
        window: &Window,
        next: impl Fn(u64, u64) -> Option<(Request<'static>, u64)>,
        progress: &AtomicU64,
    ) -> Result<RequestResults> {
        let Self { mut poller, mut clients } = self;
        let mut results = RequestResults::new();
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut busy = 0;
        for (number, client) in &mut clients {
            busy += u64::from(client.ask(*number, requests, &next)?);
        }
        while busy > 0 {
            let mut is_silent = true;
            for &index in poller.wait(SILENCE_NS)? {
                is_silent = false;
                let (number, client) = &mut clients[index];
                client.socket.send_on()?;
                let (answer, is_head) = (&mut client.answer, client.is_head);
                let mut answered = None;
                client.socket.receive(&mut buffer, |bytes| {
                    let (taken, whole) = answer.take(bytes, is_head)?;
                    ensure!(taken == bytes.len(), "more came than was asked for");
                    answered = answered.or(whole);
                    Ok(())
                })?;
                let Some(answer) = answered else { continue };
                let now = now_ns();
                results.answered(answer.status, client.sent_ns, now, window);
                progress.fetch_add(1, Ordering::Relaxed);
                if now >= window.until_ns || !client.ask(*number, requests, &next)? {
                    busy -= 1;
                }
            }
            ensure!(!is_silent, "{busy} connections wait for an answer that does not come");
        }
        Ok(results)
    }
}

impl Client {
    /// Sends the next request. Returns whether there is one.
    fn ask(
        &mut self,
        number: u64,
        requests: &Requests,
        next: &impl Fn(u64, u64) -> Option<(Request<'static>, u64)>,
    ) -> Result<bool> {
        let Some((request, stream)) = next(number, self.turn) else { return Ok(false) };
        self.turn += 1;
        self.is_head = request == Request::Head;
        self.sent_ns = now_ns();
        self.socket.send(|out| requests.write(request, stream, out))?;
        Ok(true)
    }
}
