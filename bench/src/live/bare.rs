//! The bare limit of a live fan-out: a program that only writes frames, encoded before, to as many loopback sockets as
//! there are subscribers, as many in a write as the broker wrote together. In rows with a Redis, the frames go through it.

use std::{
    io::Write as _,
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread::{self, ScopedJoinHandle},
};

use anyhow::{Result, anyhow, ensure};
use sennit_centrifuge::{DataView, Encoding, PublicationView, put_publication};
use sennit_websocket::{Opcode, frame as websocket_frame};

use super::{bare_redis::RedisWay, frames::Frames, publication::PublicationReader};
use crate::{
    bare_fan_out::BareRates,
    clock::now_ns,
    load::share,
    socket::{Poller, Socket},
    stamp::{Payloads, Stamp},
};

/// The duration of each measurement.
const DURATION_NS: u64 = 1_000_000_000;

/// The number of different writes, so that the caches do not hold the next one.
const WRITES: u64 = 64;

/// The size of a read in bytes, as subscribers have it.
const READ_BYTES: usize = 128 << 10;

/// The longest wait for bytes before a thread looks whether the measurement is over.
const WAIT_NS: u64 = 20_000_000;

/// A bare fan-out.
#[derive(Clone, Debug)]
pub struct Bare {
    /// The number of sockets.
    pub sockets: u32,
    /// The number of threads that read.
    pub threads: u32,
    /// The frames of a write.
    pub batch: u64,
    /// The encoding of the frames.
    pub encoding: Encoding,
    /// Their channel.
    pub channel: String,
    /// The length of their data in bytes.
    pub size: usize,
    /// The Redis through which all writes go, one for all sockets.
    pub redis: Option<RedisWay>,
}

/// A frame with a publication, as the broker writes it.
#[must_use]
pub fn frame(encoding: Encoding, channel: &str, size: usize) -> Vec<u8> {
    let mut out = Vec::new();
    put_frame(encoding, channel, 1, &mut Payloads::json(size), &mut out);
    out
}

/// Writes to all sockets in turn until the end. Returns them: the readers must have all of it.
fn write_to_all(
    writes: &[Vec<u8>],
    mut streams: Vec<TcpStream>,
    end_ns: u64,
) -> Result<Vec<TcpStream>> {
    for write in writes.iter().cycle().take_while(|_| now_ns() < end_ns) {
        for stream in &mut streams {
            stream.write_all(write)?;
        }
    }
    Ok(streams)
}

fn put_frame(
    encoding: Encoding,
    channel: &str,
    offset: u64,
    payloads: &mut Payloads,
    out: &mut Vec<u8>,
) {
    let stamp = Stamp { producer: 0, sequence: offset, intended_ns: now_ns() };
    let payload = payloads.make(stamp);
    let view = PublicationView {
        data: DataView::of_payload(&payload),
        info: None,
        offset,
        tags: &[],
        time_ms: 0,
    };
    let mut message = Vec::new();
    put_publication(encoding, channel, &view, &mut message);
    let opcode = match encoding {
        Encoding::Json => Opcode::Text,
        Encoding::Protobuf => Opcode::Binary,
    };
    if encoding == Encoding::Json && message.last() == Some(&b'\n') {
        message.pop();
    }
    websocket_frame::put_frame(opcode, &message, out);
}

impl Bare {
    /// Measures with readers that look at nothing, and with readers that check every offset. A thread for each core
    /// writes to its sockets in turn; one thread, if the writes come from a Redis.
    ///
    /// # Errors
    /// The loopback or the Redis does not work.
    pub fn measure(&self) -> Result<BareRates> {
        let mut payloads = Payloads::json(self.size);
        let writes: Vec<Vec<u8>> = (0..WRITES)
            .map(|write| {
                let mut out = Vec::new();
                // The first offset of a channel is 1.
                for offset in write * self.batch + 1..=(write + 1) * self.batch {
                    put_frame(self.encoding, &self.channel, offset, &mut payloads, &mut out);
                }
                out
            })
            .collect();
        Ok(BareRates {
            thrown_away_per_s: self.run(&writes, false)?,
            checked_per_s: self.run(&writes, true)?,
        })
    }

    fn run(&self, writes: &[Vec<u8>], is_checked: bool) -> Result<f64> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let cores = match self.redis {
            None => thread::available_parallelism().map_or(1, usize::from),
            Some(_) => 1,
        };
        let mut near: Vec<Vec<TcpStream>> = (0..cores).map(|_| Vec::new()).collect();
        let mut far = Vec::new();
        for socket in 0..self.sockets as usize {
            let stream = TcpStream::connect(listener.local_addr()?)?;
            stream.set_nodelay(true)?;
            near[socket % cores].push(stream);
            far.push(Socket::new(listener.accept()?.0)?);
        }
        let is_over = &AtomicBool::new(false);
        let threads = self.threads.clamp(1, self.sockets);
        let begin = now_ns();
        let end = begin + DURATION_NS;
        thread::scope(|scope| {
            let mut readers = Vec::new();
            for thread in (0..threads).rev() {
                let sockets = far.split_off(share(self.sockets, threads, thread).0 as usize);
                readers.push(scope.spawn(move || self.read(sockets, is_over, is_checked)));
            }
            let mut writers = Vec::new();
            for streams in near {
                writers.push(scope.spawn(move || match &self.redis {
                    None => write_to_all(writes, streams, end),
                    Some(way) => way.pass(writes, streams, end),
                }));
            }
            let written: Vec<_> = writers.into_iter().map(ScopedJoinHandle::join).collect();
            let seconds = (now_ns() - begin) as f64 / 1e9;
            // Whatever became of the writers, the readers end.
            is_over.store(true, Ordering::Release);
            let mut open = Vec::new();
            for streams in written {
                open.push(streams.map_err(|_| anyhow!("a bare writer panicked"))??);
            }
            let mut bytes = 0;
            for reader in readers {
                bytes += reader.join().map_err(|_| anyhow!("a bare reader panicked"))??;
            }
            let length: usize = writes.iter().map(Vec::len).sum();
            drop(open);
            let messages = bytes as f64 / length as f64 * (WRITES * self.batch) as f64;
            Ok(messages / seconds)
        })
    }

    /// Reads until the measurement is over. Returns the number of bytes.
    fn read(
        &self,
        mut sockets: Vec<Socket>,
        is_over: &AtomicBool,
        is_checked: bool,
    ) -> Result<u64> {
        let mut poller = Poller::new()?;
        for (number, socket) in sockets.iter().enumerate() {
            poller.handle().add(socket, number)?;
        }
        let publications = PublicationReader::new(self.encoding, &self.channel, self.size);
        let mut states: Vec<(Frames, u64)> =
            sockets.iter().map(|_| (Frames::default(), 1)).collect();
        let (mut buffer, mut count) = (vec![0; READ_BYTES], 0);
        while !is_over.load(Ordering::Acquire) {
            for &number in poller.wait(WAIT_NS)? {
                let (frames, next) = &mut states[number];
                sockets[number].receive(&mut buffer, |bytes| {
                    count += bytes.len() as u64;
                    if !is_checked {
                        return Ok(());
                    }
                    frames.read(bytes, |_, message| {
                        let offset = publications.read(message).map(|(offset, _)| offset);
                        ensure!(offset == Some(*next), "a bare message is damaged");
                        *next = *next % (WRITES * self.batch) + 1;
                        Ok(())
                    })
                })?;
            }
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_fan_out_gets_whole_frames_through_every_socket() {
        for encoding in [Encoding::Json, Encoding::Protobuf] {
            let channel = "bench.live".to_owned();
            let (sockets, threads, batch, size, redis) = (5, 2, 10, 110, None);
            let bare = Bare { sockets, threads, batch, encoding, channel, size, redis };
            let rates = bare.measure().unwrap();
            assert!(rates.thrown_away_per_s > 1000.0 && rates.checked_per_s > 1000.0, "{rates:?}");
        }
    }
}
