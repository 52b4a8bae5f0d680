//! Measures the limits of the disk and the loopback in the same run as the broker, because a result means little
//! without them.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use serde::{Deserialize, Serialize};

use crate::{
    clock::now_ns,
    synced_file::{BLOCK_BYTES, SyncedFile},
};

const SYNCS: usize = 500;
const ROUND_TRIPS: usize = 20_000;
const WRITE_BYTES: usize = 1 << 20;
const WRITES: usize = 2048;
const MESSAGE_BYTES: f64 = 1024.0;

/// The limits of the machine without a broker.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Probe {
    /// The median time to write 4 KiB around the page cache into a full file and sync it, in microseconds.
    #[serde(rename = "probe_sync_4k_us_p50", skip_serializing_if = "Option::is_none")]
    pub sync_us: Option<f64>,
    /// The median time of a byte to another thread and back over loopback, in microseconds.
    #[serde(rename = "probe_loopback_round_trip_us_p50")]
    pub round_trip_us: f64,
    /// Messages of 1 KiB per second over one loopback connection, written a MiB at a time.
    #[serde(rename = "probe_loopback_1k_messages_per_s")]
    pub messages_per_s: f64,
}

impl Probe {
    /// Measures for about two seconds. `folder` is the folder of the journal.
    ///
    /// # Errors
    /// The loopback does not work. If the disk cannot be written to, its figure is absent.
    pub fn run(folder: &Path) -> io::Result<Self> {
        Ok(Self {
            sync_us: sync_us(folder).ok(),
            round_trip_us: round_trip_us()?,
            messages_per_s: loopback_bytes_per_s((WRITES * WRITE_BYTES) as u64)? / MESSAGE_BYTES,
        })
    }
}

fn sync_us(folder: &Path) -> io::Result<f64> {
    let path = folder.join(format!("probe-{}", std::process::id()));
    let measured = (|| {
        let mut file = SyncedFile::create(&path)?;
        let mut took = Vec::with_capacity(SYNCS);
        for _ in 0..SYNCS {
            let begin = now_ns();
            file.append(BLOCK_BYTES)?;
            took.push(now_ns() - begin);
        }
        Ok(median_us(took))
    })();
    // The file may not exist.
    let _ = std::fs::remove_file(&path);
    measured
}

fn median_us(mut took_ns: Vec<u64>) -> f64 {
    took_ns.sort_unstable();
    took_ns.get(took_ns.len() / 2).map_or(0.0, |&ns| ns as f64 / 1000.0)
}

fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

fn round_trip_us() -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let echo = thread::spawn(move || {
        let mut byte = [0];
        while far.read_exact(&mut byte).is_ok() && far.write_all(&byte).is_ok() {}
    });
    let mut took = Vec::with_capacity(ROUND_TRIPS);
    let mut byte = [0];
    for _ in 0..ROUND_TRIPS {
        let begin = now_ns();
        near.write_all(&byte)?;
        near.read_exact(&mut byte)?;
        took.push(now_ns() - begin);
    }
    drop(near);
    // The thread ends with its connection.
    let _ = echo.join();
    Ok(median_us(took))
}

/// Bytes per second of `bytes` bytes over one loopback connection, written a MiB at a time.
///
/// # Errors
/// The loopback does not work.
pub fn loopback_bytes_per_s(bytes: u64) -> io::Result<f64> {
    let (mut near, mut far) = pair()?;
    let sink = thread::spawn(move || {
        let mut buffer = vec![0; WRITE_BYTES];
        let mut read = 0_u64;
        while let Ok(n @ 1..) = far.read(&mut buffer) {
            read += n as u64;
        }
        (read, now_ns())
    });
    let block = vec![0x5a; WRITE_BYTES];
    let begin = now_ns();
    for _ in 0..bytes.div_ceil(WRITE_BYTES as u64) {
        near.write_all(&block)?;
    }
    drop(near);
    let (read, end) = sink.join().unwrap_or((0, begin + 1));
    Ok(read as f64 / ((end - begin) as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_finds_a_disk_and_a_loopback() {
        let folder = tempfile::tempdir().unwrap();
        assert!(sync_us(folder.path()).unwrap() > 0.0);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(round_trip_us().unwrap() > 0.1);
        assert!(loopback_bytes_per_s(64 << 20).unwrap() > 1e6);
    }
}
