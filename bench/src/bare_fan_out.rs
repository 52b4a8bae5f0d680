//! The bare limit of a fan-out: a program that only writes to as many loopback sockets as there are readers.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    thread,
};

use bytes::{Bytes, BytesMut};
use sennit_client::{Batch, BatchBuilder, Message};

use crate::{
    clock::{now_ns, sleep_until},
    stamp::{Payloads, Stamp, message_bytes},
};

/// The length of a batch, which is one write and one read, in bytes.
const BATCH_BYTES: usize = 256 << 10;

/// The number of different batches, so that the caches do not hold the next one.
const BATCHES: usize = 64;

/// The duration of each measurement.
const DURATION_NS: u64 = 1_000_000_000;

/// Messages per second through all sockets together.
#[derive(Clone, Copy, Debug)]
pub struct BareRates {
    /// The rate of readers that do not check messages.
    pub thrown_away_per_s: f64,
    /// The rate of readers that verify the checksum and the stamp of each message.
    pub checked_per_s: f64,
}

impl BareRates {
    /// The average of measurements before and after a row.
    #[must_use]
    pub fn and(self, after: Self) -> Self {
        Self {
            thrown_away_per_s: f64::midpoint(self.thrown_away_per_s, after.thrown_away_per_s),
            checked_per_s: f64::midpoint(self.checked_per_s, after.checked_per_s),
        }
    }
}

/// Measures with messages of `size` bytes. A thread for each core writes each batch to all sockets in turn, and
/// each socket has a thread that reads.
///
/// # Errors
/// The loopback does not work.
pub fn measure(sockets: u32, size: usize) -> io::Result<BareRates> {
    let batches = batches(size)?;
    Ok(BareRates {
        thrown_away_per_s: run(sockets, size, &batches, false)?,
        checked_per_s: run(sockets, size, &batches, true)?,
    })
}

/// Batches of the same length, with the payloads of producers.
fn batches(size: usize) -> io::Result<Vec<Bytes>> {
    let mut payloads = Payloads::new(size);
    let mut sequence = 0;
    let each = message_bytes(size);
    let mut batch = || {
        let mut builder = BatchBuilder::new();
        for _ in 0..(BATCH_BYTES / each).max(1) {
            let stamp = Stamp { producer: 0, sequence, intended_ns: now_ns() };
            builder.push(&Message::new(payloads.make(stamp))).map_err(io::Error::other)?;
            sequence += 1;
        }
        let batch = builder.take().ok_or_else(|| io::Error::other("no message in a batch"))?;
        Ok(batch.bytes().clone())
    };
    (0..BATCHES).map(|_| batch()).collect()
}

fn run(sockets: u32, size: usize, batches: &[Bytes], checked: bool) -> io::Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let cores = thread::available_parallelism().map_or(1, usize::from).min(sockets as usize);
    let mut near: Vec<Vec<TcpStream>> = (0..cores).map(|_| Vec::new()).collect();
    let mut readers = Vec::new();
    let length = batches[0].len();
    for socket in 0..sockets as usize {
        let stream = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        near[socket % cores].push(stream);
        readers.push(thread::spawn(move || read(far, (length, size), checked)));
    }
    let begin = now_ns();
    let end = begin + DURATION_NS;
    let write = |mut streams: Vec<TcpStream>| {
        let batches = batches.to_vec();
        thread::spawn(move || {
            for batch in batches.iter().cycle().take_while(|_| now_ns() < end) {
                for stream in &mut streams {
                    stream.write_all(batch)?;
                }
            }
            Ok::<_, io::Error>(())
        })
    };
    let writers: Vec<_> = near.into_iter().map(write).collect();
    sleep_until(end);
    for writer in writers {
        writer.join().map_err(|_| io::Error::other("a bare writer panicked"))??;
    }
    let mut messages = 0;
    for reader in readers {
        messages += reader.join().map_err(|_| io::Error::other("a bare reader panicked"))??;
    }
    Ok(messages as f64 / ((now_ns() - begin) as f64 / 1e9))
}

/// Reads batches of `length` bytes with payloads of `size` bytes until the end. Returns the number of their
/// messages.
fn read(mut stream: TcpStream, (length, size): (usize, usize), checked: bool) -> io::Result<u64> {
    let (payloads, mut messages) = (Payloads::new(size), 0);
    let each = message_bytes(size);
    let mut buffer = BytesMut::zeroed(length);
    while stream.read_exact(&mut buffer).is_ok() {
        messages += (length / each) as u64;
        if checked {
            let bytes = buffer.freeze();
            let batch = Batch::check_delivered(bytes.clone()).map_err(io::Error::other)?;
            let whole = |payload| payloads.read_stamp(payload).is_some();
            if !batch.messages().all(|message| whole(message.payload())) {
                return Err(io::Error::other("a bare message is damaged"));
            }
            drop(batch);
            buffer = bytes.try_into_mut().unwrap_or_else(|_| BytesMut::zeroed(length));
        }
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_fan_out_gets_whole_messages_through_every_socket() {
        let bare = measure(3, 1024).unwrap();
        assert!(bare.thrown_away_per_s > 1000.0 && bare.checked_per_s > 1000.0, "{bare:?}");
    }
}
