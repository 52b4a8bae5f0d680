//! The bare latency of a fan-out: a program that only writes each message to as many loopback sockets as there are
//! readers, at the row's rate. It shows the share of the machine and the kernel in a fan-out's latency.

use std::{
    io::Write,
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
};

use anyhow::{Result, anyhow};

use crate::{
    clock::{now_ns, sleep_until},
    latency::Latencies,
    socket::{Poller, Socket},
};

/// The duration of the measurement.
const DURATION_NS: u64 = 2_000_000_000;

/// The longest time that a reader waits for bytes before it checks whether it has all messages.
const WAIT_NS: u64 = 50_000_000;

/// The size of a read in bytes.
const READ_BYTES: usize = 64 << 10;

/// The greatest number of messages in one write.
const TOGETHER_MAX: u64 = 64;

/// The length of the intended instant in a message, in bytes.
const INSTANT_BYTES: usize = size_of::<u64>();

/// Measures the time from the intended instant of each message until it is read, in microseconds. One thread writes
/// due messages to one socket after the other, and `threads` threads read.
///
/// # Errors
/// The loopback does not work.
pub fn measure(sockets: u32, threads: u32, size: usize, rate: f64) -> Result<Latencies> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..sockets {
        let stream = TcpStream::connect(listener.local_addr()?)?;
        stream.set_nodelay(true)?;
        near.push(stream);
        far.push(Socket::new(listener.accept()?.0)?);
    }
    // The number of messages, once it is known.
    let messages = AtomicU64::new(u64::MAX);
    thread::scope(|scope| {
        let each = far.len().div_ceil(threads.max(1) as usize).max(1);
        let mut readers = Vec::new();
        while !far.is_empty() {
            let sockets = far.split_off(far.len().saturating_sub(each));
            readers.push(scope.spawn(|| read(sockets, size, &messages)));
        }
        let written = write(&mut near, size, rate);
        messages.store(*written.as_ref().unwrap_or(&0), Relaxed);
        let mut latencies = Latencies::new();
        for reader in readers {
            let read = reader.join().map_err(|_| anyhow!("a bare reader panicked"))??;
            latencies.add(&read.buckets());
        }
        written.map(|_| latencies)
    })
}

/// Writes each message to all sockets at its instant, and several that are due together in one write. Returns the
/// number of messages.
fn write(sockets: &mut [TcpStream], size: usize, rate: f64) -> Result<u64> {
    let begin = now_ns();
    let end = begin + DURATION_NS;
    let instant = |number: u64| begin + (number as f64 * 1e9 / rate) as u64;
    let (mut number, mut bytes) = (0, Vec::new());
    while instant(number) < end {
        sleep_until(instant(number));
        // A late writer may pass the end of the measurement.
        let (last, first) = (now_ns().min(end - 1), number);
        bytes.clear();
        while instant(number) <= last && number - first < TOGETHER_MAX {
            let length = bytes.len() + size;
            bytes.extend_from_slice(&instant(number).to_le_bytes());
            bytes.resize(length, 0);
            number += 1;
        }
        for socket in &mut *sockets {
            socket.write_all(&bytes)?;
        }
    }
    Ok(number)
}

/// Reads all sockets until each has received `messages` messages. Returns their latencies.
fn read(mut sockets: Vec<Socket>, size: usize, messages: &AtomicU64) -> Result<Latencies> {
    let mut poller = Poller::new()?;
    for (number, socket) in sockets.iter().enumerate() {
        poller.handle().add(socket, number)?;
    }
    let mut parts = vec![Vec::new(); sockets.len()];
    let (mut buffer, mut latencies) = (vec![0; READ_BYTES], Latencies::new());
    let mut had = 0;
    while had < messages.load(Relaxed).saturating_mul(sockets.len() as u64) {
        for &number in poller.wait(WAIT_NS)? {
            let part: &mut Vec<u8> = &mut parts[number];
            sockets[number].receive(&mut buffer, |bytes| {
                part.extend_from_slice(bytes);
                let now = now_ns();
                for message in part.chunks_exact(size) {
                    let (instant, _) = message
                        .split_first_chunk::<INSTANT_BYTES>()
                        .ok_or_else(|| anyhow!("a message has at least {INSTANT_BYTES} bytes"))?;
                    latencies.record(u64::from_le_bytes(*instant), now);
                    had += 1;
                }
                part.drain(..part.len() / size * size);
                Ok(())
            })?;
        }
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_socket_is_given_every_message_at_its_pace() {
        const SOCKETS: u32 = 5;
        let mut latencies = measure(SOCKETS, 2, 1024, 500.0).unwrap();
        assert!(latencies.percentiles().is_some());
        let count: u64 = latencies.buckets().iter().map(|(_, count)| count).sum();
        let messages = DURATION_NS / 1_000_000_000 * 500;
        assert_eq!(count, u64::from(SOCKETS) * messages);
    }
}
