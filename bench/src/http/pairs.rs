//! Load of pairs: one connection appends to a stream, the other waits for the append. The next append is sent when
//! the last was answered and has reached the waiting connection.

use std::{
    net::TcpStream,
    sync::atomic::{AtomicU64, Ordering},
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    answer::AnswerReader,
    closed_loop::{BUFFER_BYTES, RequestResults, SILENCE_NS},
    request::{Request, Requests},
};
use crate::{
    clock::now_ns,
    plan::{HttpMode, Window},
    socket::{Poller, Socket},
};

/// The line that begins an event with data, without blanks.
const DATA_EVENT: &[u8] = b"event:data";

/// The pairs of one thread, each with the number of its stream.
#[derive(Debug)]
pub struct Pairs {
    poller: Poller,
    pairs: Vec<Pair>,
}

#[derive(Debug)]
struct Pair {
    stream: u64,
    writer: PairConnection,
    reader: PairConnection,
    events: Events,
    state: State,
    appended_ns: u64,
    /// Whether the round waits for the answer to the append.
    waits_for_answer: bool,
    waits_for_delivery: bool,
}

/// A connection of a pair.
#[derive(Debug)]
struct PairConnection {
    socket: Socket,
    answer: AnswerReader,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The reader has requested the end of the stream.
    Asks,
    /// The reader waits, and rounds continue.
    Goes,
    /// The window has ended for this pair.
    Ended,
}

/// Counts events with data in the bytes of a body, chunked or not.
#[derive(Debug, Default)]
struct Events {
    /// The start of the current line, as long as it may be a data event.
    line: Vec<u8>,
}

impl Events {
    fn count(&mut self, bytes: &[u8]) -> u64 {
        let mut count = 0;
        for &byte in bytes {
            match byte {
                b'\n' => {
                    count += u64::from(self.line == DATA_EVENT);
                    self.line.clear();
                }
                b' ' | b'\r' => {}
                byte if self.line.len() <= DATA_EVENT.len() => self.line.push(byte),
                _ => {}
            }
        }
        count
    }
}

impl Pairs {
    /// Connects a pair for each of `streams` to the server at `address`.
    ///
    /// # Errors
    /// The server cannot be reached.
    pub fn connect(address: &str, streams: impl Iterator<Item = u64>) -> Result<Self> {
        let poller = Poller::new()?;
        let mut pairs: Vec<Pair> = Vec::new();
        for stream in streams {
            let end = |number: usize| -> Result<PairConnection> {
                let stream = TcpStream::connect(address).with_context(|| address.to_owned())?;
                let socket = Socket::new(stream)?;
                poller.handle().add(&socket, number)?;
                Ok(PairConnection { socket, answer: AnswerReader::default() })
            };
            let (writer, reader) = (end(2 * pairs.len())?, end(2 * pairs.len() + 1)?);
            pairs.push(Pair {
                stream,
                writer,
                reader,
                events: Events::default(),
                state: State::Asks,
                appended_ns: 0,
                waits_for_answer: false,
                waits_for_delivery: false,
            });
        }
        Ok(Self { poller, pairs })
    }

    /// Runs rounds until the window ends.
    ///
    /// # Errors
    /// A connection ends, or the server does not answer any more.
    pub fn go(
        self,
        requests: &Requests,
        mode: HttpMode,
        window: &Window,
        progress: &AtomicU64,
    ) -> Result<RequestResults> {
        let Self { mut poller, mut pairs } = self;
        let mut round = Round { requests, mode, window, results: RequestResults::new() };
        let mut buffer = vec![0; BUFFER_BYTES];
        for pair in &mut pairs {
            let stream = pair.stream;
            pair.reader.socket.send(|out| requests.write(Request::Head, stream, out))?;
        }
        let mut going = pairs.len();
        while going > 0 {
            let mut is_silent = true;
            for &number in poller.wait(SILENCE_NS)? {
                is_silent = false;
                let pair = &mut pairs[number / 2];
                if pair.state == State::Ended {
                    continue;
                }
                if number % 2 == 0 {
                    round.writer(pair, &mut buffer)?;
                } else {
                    round.reader(pair, &mut buffer)?;
                }
                let waits = pair.waits_for_answer || pair.waits_for_delivery;
                if pair.state == State::Goes && !waits {
                    progress.fetch_add(1, Ordering::Relaxed);
                    round.begin(pair)?;
                    going -= usize::from(pair.state == State::Ended);
                }
            }
            ensure!(!is_silent, "{going} pairs wait for an append that does not come");
        }
        Ok(round.results)
    }
}

struct Round<'a> {
    requests: &'a Requests,
    mode: HttpMode,
    window: &'a Window,
    results: RequestResults,
}

impl Round<'_> {
    /// Starts a round: the reader waits, then the writer appends.
    fn begin(&self, pair: &mut Pair) -> Result<()> {
        if now_ns() >= self.window.until_ns {
            pair.state = State::Ended;
            return Ok(());
        }
        if self.mode == HttpMode::LongPoll {
            self.wait_for(pair)?;
        }
        (pair.waits_for_answer, pair.waits_for_delivery) = (true, true);
        pair.appended_ns = now_ns();
        let stream = pair.stream;
        Ok(pair.writer.socket.send(|out| self.requests.write(Request::Append, stream, out))?)
    }

    fn wait_for(&self, pair: &mut Pair) -> Result<()> {
        let (stream, PairConnection { socket, answer }) = (pair.stream, &mut pair.reader);
        let offset = answer.next_offset();
        let request = match self.mode {
            HttpMode::Sse => Request::Sse(offset),
            _ => Request::LongPoll(offset),
        };
        Ok(socket.send(|out| self.requests.write(request, stream, out))?)
    }

    fn writer(&mut self, pair: &mut Pair, buffer: &mut [u8]) -> Result<()> {
        let PairConnection { socket, answer } = &mut pair.writer;
        socket.send_on()?;
        let mut answered = None;
        socket.receive(buffer, |bytes| {
            answered = answered.or(answer.take(bytes, false)?.1);
            Ok(())
        })?;
        if let Some(answer) = answered {
            ensure!(answer.status < 300, "an append was answered with {}", answer.status);
            self.results.answered(answer.status, pair.appended_ns, now_ns(), self.window);
            pair.waits_for_answer = false;
        }
        Ok(())
    }

    fn reader(&mut self, pair: &mut Pair, buffer: &mut [u8]) -> Result<()> {
        let (is_head, is_sse) = (pair.state == State::Asks, self.mode == HttpMode::Sse);
        let PairConnection { socket, answer } = &mut pair.reader;
        socket.send_on()?;
        let (mut answered, mut events) = (None, 0);
        socket.receive(buffer, |bytes| {
            if !is_head && is_sse && answer.is_within_body() {
                events += pair.events.count(bytes);
                return Ok(());
            }
            let before = answer.is_within_body();
            answered = answered.or(answer.take(bytes, is_head)?.1);
            if is_sse && !before && answer.is_within_body() {
                // The rest of this piece was taken with the head.
                events += pair.events.count(bytes);
            }
            Ok(())
        })?;
        match answered {
            Some(whole) if is_head => {
                ensure!(whole.status == 200, "a stream's state was answered with {}", whole.status);
                pair.state = State::Goes;
                if is_sse {
                    self.wait_for(pair)?;
                }
            }
            Some(whole) if is_sse => bail!("events ended with {}", whole.status),
            // The read has timed out at the server.
            Some(whole) if whole.status == 204 => self.wait_for(pair)?,
            Some(whole) => {
                ensure!(whole.status == 200, "a long-poll was answered with {}", whole.status);
                self.delivered(pair);
            }
            None if events > 0 && pair.waits_for_delivery => self.delivered(pair),
            None => {}
        }
        Ok(())
    }

    fn delivered(&mut self, pair: &mut Pair) {
        pair.waits_for_delivery = false;
        let now = now_ns();
        self.results.delivered += u64::from(self.window.holds(now));
        if self.window.holds(pair.appended_ns) {
            self.results.append_to_delivery.record(pair.appended_ns, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_with_data_counts_once_wherever_it_is_cut() {
        let body = b"1f\r\nevent: data\ndata: a\n\n\r\nevent: control\ndata: {}\n\nevent:data\ndata: b\n\n";
        for at in 0..=body.len() {
            let mut events = Events::default();
            assert_eq!(events.count(&body[..at]) + events.count(&body[at..]), 2, "cut at {at}");
        }
    }
}
