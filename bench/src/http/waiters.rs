//! Load of waiting connections: many wait by long-poll or for events, and one appends and checks that all of them
//! get every append. Knows bytes and no broker.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    closed_loop::{BUFFER_BYTES, SILENCE_NS},
    request::{Request, Requests},
};
use crate::{
    clock::now_ns,
    latency::Latencies,
    plan::{HttpLoad, HttpMode, HttpWait, Report},
    socket::{Poller, Socket},
};

/// The end of the control event of a reader at the stream's end, and of its chunk.
const CAUGHT_UP: &str = "\"upToDate\":true}\n\n\r\n";

/// Connections that wait, and one that appends.
#[derive(Debug)]
pub struct Waiters {
    load: HttpLoad,
    wait: HttpWait,
    requests: Requests,
    poller: Poller,
    readers: Vec<Waiter>,
    writer: TcpStream,
    /// The last append to each stream, and the expected one.
    expected: Vec<String>,
}

/// A connection that waits.
#[derive(Debug)]
struct Waiter {
    socket: Socket,
    /// The received part of an answer or an event.
    received: Vec<u8>,
    /// The offset from which it reads.
    at: String,
}

impl Waiters {
    /// Creates the streams, connects the waiting connections, and sends their reads.
    ///
    /// # Errors
    /// The server cannot be reached, or does not accept so many connections.
    pub fn connect(address: &str, load: &HttpLoad, wait: &HttpWait) -> Result<Self> {
        let requests = Requests::new(address, load);
        let mut writer = TcpStream::connect(address).with_context(|| address.to_owned())?;
        writer.set_nodelay(true)?;
        let mut bytes = Vec::new();
        for stream in 0..load.streams {
            requests.write(Request::Create, stream, &mut bytes);
            writer.write_all(&bytes)?;
            let head = head(&mut writer)?;
            ensure!(head.starts_with("HTTP/1.1 201"), "a stream was not made: {head}");
        }
        let poller = Poller::new()?;
        let mut readers = Vec::with_capacity(load.connections as usize);
        for number in 0..load.connections as usize {
            let stream = TcpStream::connect(address);
            let stream = stream.with_context(|| format!("connection {number} to {address}"))?;
            let socket = Socket::new(stream)?;
            poller.handle().add(&socket, number)?;
            readers.push(Waiter { socket, received: Vec::new(), at: "-1".into() });
        }
        let expected = vec![String::new(); load.streams as usize];
        let (load, wait) = (load.clone(), *wait);
        let mut this = Self { load, wait, requests, poller, readers, writer, expected };
        for number in 0..this.readers.len() {
            this.ask(number)?;
        }
        if this.load.mode == HttpMode::Sse {
            let all = this.readers.len();
            this.hear(all, |waiter, _| {
                let is_there = waiter.received.ends_with(CAUGHT_UP.as_bytes());
                if is_there {
                    waiter.received = Vec::new();
                }
                Ok(is_there)
            })?;
        }
        Ok(this)
    }

    fn ask(&mut self, number: usize) -> Result<()> {
        let stream = number as u64 % self.load.streams;
        let Waiter { socket, at, .. } = &mut self.readers[number];
        let request = match self.load.mode {
            HttpMode::Sse => Request::Sse(at),
            _ => Request::LongPoll(at),
        };
        Ok(socket.send(|out| self.requests.write(request, stream, out))?)
    }

    /// Appends in rounds, to one stream after the other. Each round ends when all waiting connections have received
    /// the append.
    ///
    /// # Errors
    /// A connection ends, or a waiting connection receives something else than the append, or nothing.
    pub fn go(mut self, progress: &AtomicU64) -> Result<Report> {
        let mut report = Report::default();
        let (mut each, mut last) = (Latencies::new(), Latencies::new());
        for round in 0..self.wait.rounds {
            // Those who have asked again wait as long as the others then.
            thread::sleep(Duration::from_millis(self.wait.pause_ms));
            let stream = round % self.load.streams;
            let appended_ns = now_ns();
            let mut body = format!("{round:08} {appended_ns:020} ");
            body.extend(('a'..='z').cycle().take(self.load.size.saturating_sub(body.len())));
            self.append(stream, &body)?;
            self.expected[stream as usize] = body;
            let (readers, streams) = (u64::from(self.load.connections), self.load.streams);
            let hearing = (readers + streams - 1 - stream) / streams;
            let mut last_ns = appended_ns;
            let (mode, expected) = (self.load.mode, self.expected[stream as usize].clone());
            let heard = self.hear(hearing as usize, |waiter, number| {
                let is_told = match mode {
                    HttpMode::Sse => waiter.has_event(&expected),
                    _ => waiter.has_answer(&expected),
                };
                let is_told = is_told.with_context(|| format!("reader {number}"))?;
                if is_told {
                    last_ns = now_ns();
                    each.record(appended_ns, last_ns);
                }
                Ok(is_told)
            })?;
            last.record(appended_ns, last_ns);
            report.mark(last_ns);
            report.delivered += heard;
            report.telling_ns += last_ns - appended_ns;
            report.published += 1;
            let head = head(&mut self.writer)?;
            report.confirmed += u64::from(head.starts_with("HTTP/1.1 204"));
            progress.fetch_add(1, Ordering::Relaxed);
        }
        report.publish_to_deliver = each.buckets();
        report.publish_to_last = last.buckets();
        Ok(report)
    }

    fn append(&mut self, stream: u64, body: &str) -> Result<()> {
        let mut bytes = Vec::new();
        self.requests.write_append(stream, body.as_bytes(), &mut bytes);
        Ok(self.writer.write_all(&bytes)?)
    }

    /// Receives until `count` connections have the append, as `is_told` decides for each. A long-poll connection
    /// sends its next read immediately.
    fn hear(
        &mut self,
        count: usize,
        mut is_told: impl FnMut(&mut Waiter, usize) -> Result<bool>,
    ) -> Result<u64> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut heard = 0;
        while heard < count {
            let numbers = self.poller.wait(SILENCE_NS)?.to_vec();
            ensure!(!numbers.is_empty(), "{} wait for an append that does not come", count - heard);
            for number in numbers {
                let waiter = &mut self.readers[number];
                waiter.socket.send_on()?;
                let received = &mut waiter.received;
                waiter.socket.receive(&mut buffer, |bytes| {
                    received.extend_from_slice(bytes);
                    Ok(())
                })?;
                if !waiter.received.is_empty() && is_told(waiter, number)? {
                    heard += 1;
                    if self.load.mode == HttpMode::LongPoll {
                        self.ask(number)?;
                    }
                }
            }
        }
        Ok(heard as u64)
    }
}

impl Waiter {
    /// Whether the answer is complete. It must have the expected append.
    fn has_answer(&mut self, expected: &str) -> Result<bool> {
        let text = str::from_utf8(&self.received)?;
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(false) };
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        let length: usize = header("content-length: ").context(head.to_owned())?.parse()?;
        if body.len() < length {
            return Ok(false);
        }
        ensure!(
            head.starts_with("HTTP/1.1 200") && body == expected,
            "something else came: {text}"
        );
        self.at = header("stream-next-offset: ").context("no offset")?.to_owned();
        self.received = Vec::new();
        Ok(true)
    }

    /// Whether the event is complete, with its control event. It must have the expected append once.
    fn has_event(&mut self, expected: &str) -> Result<bool> {
        if !self.received.ends_with(CAUGHT_UP.as_bytes()) {
            return Ok(false);
        }
        let text = str::from_utf8(&self.received)?;
        let event = format!("event: data\ndata:{expected}\n\nid: ");
        let count = text.matches("event: data").count();
        ensure!(text.contains(&event) && count == 1, "something else came: {text}");
        self.received = Vec::new();
        Ok(true)
    }
}

/// The head of an answer without a body.
fn head(stream: &mut TcpStream) -> Result<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(stream.read(&mut byte)? == 1, "the server has closed a connection");
        head.push(byte[0]);
    }
    Ok(String::from_utf8(head)?)
}
