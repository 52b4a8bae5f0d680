//! The bare way through a Redis: one thread publishes writes that were encoded before, another takes them from there and
//! writes them to all sockets. It decides, encodes and keeps nothing.

use std::{
    io::{self, Read as _, Write as _},
    net::TcpStream,
    process,
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Result, anyhow, bail, ensure};

use super::redis::command;
use crate::clock::now_ns;

/// The writes that are published in one go, as brokers and WSE do.
const TOGETHER_MAX: u64 = 64;

/// The size of a read from Redis in bytes.
const READ_BYTES: usize = 256 << 10;

/// The longest wait for room, or for bytes, before a thread looks whether the time is over.
const WAIT: Duration = Duration::from_millis(20);

/// The answer of Redis to a publication that one connection gets.
const ONE_HAS_IT: &[u8] = b":1\r\n";

/// A way through a Redis.
#[derive(Clone, Debug)]
pub struct RedisWay {
    /// The address of the Redis.
    pub address: String,
    /// The greatest number of writes that are on their way.
    pub ahead: u64,
}

impl RedisWay {
    /// Publishes `writes`, over and over, until `end_ns`, and writes what comes back to all of `streams`. Returns them
    /// when all has come back.
    ///
    /// # Errors
    /// The Redis or the loopback does not work.
    pub fn pass(
        &self,
        writes: &[Vec<u8>],
        mut streams: Vec<TcpStream>,
        end_ns: u64,
    ) -> Result<Vec<TcpStream>> {
        let channel = format!("sennit-bench-bare:{}", process::id());
        let mut taker = Taker::subscribe(&self.address, &channel)?;
        let (room, has_room) = mpsc::channel();
        thread::scope(|scope| {
            let to = &channel;
            let publisher = scope.spawn(move || self.publish(to, writes, &has_room, end_ns));
            let mut passed = 0;
            let mut out = Vec::new();
            loop {
                out.clear();
                // Asked before the socket is, so that nothing comes behind both.
                let is_last = publisher.is_finished();
                let count = match taker.take(&mut out)? {
                    None if is_last => break,
                    None | Some(0) => continue,
                    Some(count) => count,
                };
                for stream in &mut streams {
                    stream.write_all(&out)?;
                }
                passed += count;
                // The publisher may have ended.
                let _ = room.send(count);
            }
            drop(room);
            let published =
                publisher.join().map_err(|_| anyhow!("a bare publisher panicked"))??;
            ensure!(passed == published, "{passed} of {published} came back from the Redis");
            Ok(streams)
        })
    }

    /// Publishes until the end; says how many writes.
    fn publish(
        &self,
        channel: &str,
        writes: &[Vec<u8>],
        has_room: &Receiver<u64>,
        end_ns: u64,
    ) -> Result<u64> {
        let commands: Vec<Vec<u8>> =
            writes.iter().map(|write| command(&[b"PUBLISH", channel.as_bytes(), write])).collect();
        let mut stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        let (mut room, mut published) = (self.ahead.max(1), 0);
        let (mut bytes, mut answers) = (Vec::new(), Vec::new());
        let mut next = commands.iter().cycle();
        while now_ns() < end_ns {
            room += has_room.try_iter().sum::<u64>();
            if room == 0 {
                match has_room.recv_timeout(WAIT) {
                    Ok(more) => room += more,
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => bail!("nobody takes from the Redis"),
                }
                continue;
            }
            let count = room.min(TOGETHER_MAX);
            bytes.clear();
            next.by_ref().take(count as usize).for_each(|command| bytes.extend_from_slice(command));
            stream.write_all(&bytes)?;
            answers.resize(count as usize * ONE_HAS_IT.len(), 0);
            stream.read_exact(&mut answers)?;
            ensure!(
                answers.chunks(ONE_HAS_IT.len()).all(|answer| answer == ONE_HAS_IT),
                "the Redis answers {:?}",
                String::from_utf8_lossy(&answers[..ONE_HAS_IT.len()])
            );
            published += count;
            room -= count;
        }
        Ok(published)
    }
}

/// A connection that gets what is published.
struct Taker {
    stream: TcpStream,
    /// The bytes before the length of each message.
    head: Vec<u8>,
    input: Vec<u8>,
    buffer: Vec<u8>,
}

impl Taker {
    fn subscribe(address: &str, channel: &str) -> Result<Self> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&command(&[b"SUBSCRIBE", channel.as_bytes()]))?;
        let length = channel.len();
        let answer = format!("*3\r\n$9\r\nsubscribe\r\n${length}\r\n{channel}\r\n:1\r\n");
        let mut answered = vec![0; answer.len()];
        stream.read_exact(&mut answered)?;
        ensure!(answered == answer.as_bytes(), "the Redis does not subscribe");
        stream.set_read_timeout(Some(WAIT))?;
        let head = format!("*3\r\n$7\r\nmessage\r\n${length}\r\n{channel}\r\n$").into_bytes();
        Ok(Self { stream, head, input: Vec::new(), buffer: vec![0; READ_BYTES] })
    }

    /// Appends what has come of whole messages. Returns their number; `None` if nothing comes for a while.
    fn take(&mut self, out: &mut Vec<u8>) -> Result<Option<u64>> {
        use io::ErrorKind::{TimedOut, WouldBlock};
        let read = match self.stream.read(&mut self.buffer) {
            Ok(0) => bail!("the Redis has closed a connection"),
            Ok(count) => count,
            Err(error) if matches!(error.kind(), WouldBlock | TimedOut) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        self.input.extend_from_slice(&self.buffer[..read]);
        let (mut count, mut at) = (0, 0);
        while let Some((from, until)) = message(&self.input[at..], &self.head)? {
            out.extend_from_slice(&self.input[at + from..at + until]);
            // The end of a line is behind it.
            at += until + 2;
            count += 1;
        }
        self.input.drain(..at);
        Ok(Some(count))
    }
}

/// Where the message that `bytes` begin with is; `None` if it is not whole.
fn message(bytes: &[u8], head: &[u8]) -> Result<Option<(usize, usize)>> {
    let known = bytes.len().min(head.len());
    ensure!(bytes[..known] == head[..known], "the Redis sends what is no message");
    let Some(rest) = bytes.get(head.len()..) else { return Ok(None) };
    let Some(line) = rest.iter().position(|&byte| byte == b'\r') else { return Ok(None) };
    let length: usize = std::str::from_utf8(&rest[..line])?.parse()?;
    let from = head.len() + line + 2;
    let until = from + length;
    Ok((until + 2 <= bytes.len()).then_some((from, until)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_wherever_reads_cut_them() {
        let head = b"*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$";
        let whole = [&head[..], b"5\r\nhello\r\n"].concat();
        let from = whole.len() - 7;
        assert_eq!(message(&whole, head).unwrap(), Some((from, from + 5)));
        for length in 0..whole.len() {
            assert_eq!(message(&whole[..length], head).unwrap(), None, "{length} bytes");
        }
        assert!(message(b"-ERR no\r\n", head).is_err());
    }
}
