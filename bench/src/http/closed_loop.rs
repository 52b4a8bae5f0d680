//! Load with one request in flight for each connection: the next is sent when the answer has come.

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

/// Bytes that are read at once.
pub const BUFFER_BYTES: usize = 256 << 10;

/// How long nothing may be answered.
pub const SILENCE_NS: u64 = 30_000_000_000;

/// What was asked and answered within the window.
#[derive(Debug)]
pub struct Asked {
    /// Answers of any status.
    pub answered: u64,
    /// Answers that say it was done.
    pub done: u64,
    /// What came to those who waited for it.
    pub delivered: u64,
    /// From the request to its answer.
    pub request_to_answer: Latencies,
    /// From an append to who waited for it.
    pub append_to_delivery: Latencies,
    /// How often each status that does not say so, in the window or not.
    pub refused: BTreeMap<u16, u64>,
}

impl Asked {
    /// Nothing yet.
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

    /// An answer came to a request that was sent at `sent_ns`.
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

/// A connection that asks.
#[derive(Debug)]
struct Client {
    socket: Socket,
    answer: AnswerReader,
    turn: u64,
    is_head: bool,
    sent_ns: u64,
}

/// The connections of one thread, each with its number among all of the run.
#[derive(Debug)]
pub struct Clients {
    poller: Poller,
    clients: Vec<(u64, Client)>,
}

impl Clients {
    /// Connects `numbers` to the server at `address`.
    ///
    /// # Errors
    /// It cannot be reached.
    pub fn connect(address: &str, numbers: impl Iterator<Item = u64>) -> Result<Self> {
        let poller = Poller::new()?;
        let mut clients = Vec::new();
        for number in numbers {
            let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
            let socket = Socket::new(stream)?;
            poller.door().add(&socket, clients.len())?;
            let answer = AnswerReader::default();
            let client = Client { socket, answer, turn: 0, is_head: false, sent_ns: 0 };
            clients.push((number, client));
        }
        Ok(Self { poller, clients })
    }

    /// Asks what `next` says of a connection's number and its turn, until it says `None` for all of
    /// them, or the window ends.
    ///
    /// # Errors
    /// A connection ends, or nothing is answered any more.
    pub fn ask(
        self,
        requests: &Requests,
        window: &Window,
        next: impl Fn(u64, u64) -> Option<(Request<'static>, u64)>,
        progress: &AtomicU64,
    ) -> Result<Asked> {
        let Self { mut poller, mut clients } = self;
        let mut asked = Asked::new();
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
                let mut came = None;
                client.socket.receive(&mut buffer, |bytes| {
                    let (taken, whole) = answer.take(bytes, is_head)?;
                    ensure!(taken == bytes.len(), "more came than was asked for");
                    came = came.or(whole);
                    Ok(())
                })?;
                let Some(answer) = came else { continue };
                let now = now_ns();
                asked.answered(answer.status, client.sent_ns, now, window);
                progress.fetch_add(1, Ordering::Relaxed);
                if now >= window.until_ns || !client.ask(*number, requests, &next)? {
                    busy -= 1;
                }
            }
            ensure!(!is_silent, "{busy} connections wait for an answer that does not come");
        }
        Ok(asked)
    }
}

impl Client {
    /// Sends its next request; whether it has one.
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
