//! Reads a stream from its start after a restart, without cached data: measures the speed, beside that of reading
//! the same files, and of sending as many bytes through a bare connection.

use std::{fs::File, os::unix::fs::FileExt, path::Path, time::Instant};

use anyhow::{Context, Result, ensure};
use rustix::fs::{Mode, OFlags};
use sennit_client::ReadFrom;
use sennit_model::TopicName;
use serde::Serialize;

use crate::connect::connect;
use crate::{
    broker::Broker,
    load::{Bench, Load},
    probe::loopback_bytes_per_s,
    row::{CatchUpResults, Row},
    sequence_check::MessageErrors,
    stamp::Payloads,
};

/// The size of a read in bytes.
const READ_BYTES: usize = 1 << 20;
/// One of this number of messages is compared with the published one.
const COMPARED: u64 = 64;

/// A stream that a reader reads from its start.
#[derive(Clone, Debug, Serialize)]
pub struct CatchUp {
    /// The number of messages.
    pub messages: u64,
    /// The length of a payload in bytes.
    pub size: usize,
}

impl CatchUp {
    /// Publishes, kills the broker, starts it again, and reads the stream.
    ///
    /// # Errors
    /// The broker does not start, or does not deliver messages.
    pub fn run(&self, bench: &Bench<'_>, row: &str) -> Result<Row> {
        let mut broker = Broker::start(bench.options, &[])?;
        let topic: TopicName = "bench.catch-up".parse()?;
        let load = Load {
            consumers: 0,
            messages: Some(self.messages),
            size: self.size,
            retain_bytes: Some(u64::MAX >> 1),
            ..Load::new()
        };
        let here = Bench { broker: &broker, topic: Some(topic.to_string()), ..bench.clone() };
        let published = here.run("publish", &load)?;
        ensure!(published.is_clean(), "not all was confirmed: {:?}", published.error_texts);
        broker.kill()?;
        let data = broker.data.clone().context("the broker has no folder of its own")?;
        // This comes first: reads through the broker would fill the page cache for it.
        let (file_bytes, disk_bytes_per_s) = read_files(&data)?;
        broker.start_again()?.ready()?;
        (bench.progress)("read", 0, Some(self.messages));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let read = runtime.block_on(self.read(&broker.server, &topic))?;
        let bytes_per_s = read.bytes as f64 / read.seconds;
        let loopback_bytes_per_s = loopback_bytes_per_s(read.bytes)?;
        let least = disk_bytes_per_s.min(loopback_bytes_per_s);
        let mut result = Row {
            message_errors: read.message_errors,
            seconds: read.seconds,
            delivered_per_s: Some(self.messages as f64 / read.seconds),
            catch_up: Some(CatchUpResults {
                bytes: read.bytes,
                bytes_per_s,
                file_bytes,
                disk_bytes_per_s,
                loopback_bytes_per_s,
                ratio: bytes_per_s / least,
            }),
            config: serde_json::to_value(self)?,
            ..Row::default()
        };
        bench.name(&mut result, row);
        Ok(result)
    }

    /// Reads all messages, and compares some of them.
    async fn read(&self, server: &str, topic: &TopicName) -> Result<Read> {
        let client = connect(server).await?;
        let payloads = Payloads::new(self.size);
        let (mut next, mut bytes, mut message_errors) = (0, 0, MessageErrors::default());
        let begun = Instant::now();
        let mut reader = client.reader(topic).from(ReadFrom::Earliest).start().await?;
        while next < self.messages {
            let run = reader.next_run().await.context("the reader ended")??;
            let first = run.first_offset().0;
            message_errors.missing += first.saturating_sub(next);
            message_errors.duplicates += next.saturating_sub(first);
            for (offset, message) in (first..).zip(run.messages()) {
                if offset.is_multiple_of(COMPARED) {
                    let stamp = payloads.read(message.payload());
                    message_errors.corrupt += u64::from(stamp.is_none_or(|s| s.sequence != offset));
                }
            }
            next = first + u64::from(run.count());
            bytes += run.byte_count() as u64;
        }
        let seconds = begun.elapsed().as_secs_f64();
        reader.close().await?;
        Ok(Read { bytes, seconds, message_errors })
    }
}

struct Read {
    /// Bytes of encoded messages.
    bytes: u64,
    seconds: f64,
    message_errors: MessageErrors,
}

/// Reads every slot and pack below `data` around the page cache, one after the other. Returns the number of bytes,
/// and the bytes per second.
fn read_files(data: &Path) -> Result<(u64, f64)> {
    let mut paths = Vec::new();
    for lane in std::fs::read_dir(data)?.flatten().filter(|entry| entry.path().is_dir()) {
        paths.extend(std::fs::read_dir(lane.path())?.flatten().map(|entry| entry.path()));
    }
    // Memory with the alignment that O_DIRECT needs.
    let mut room = vec![0; READ_BYTES + 4096];
    let skipped = room.as_ptr().align_offset(4096);
    let piece = &mut room[skipped..skipped + READ_BYTES];
    let (mut bytes, begun) = (0, Instant::now());
    for path in paths {
        let direct = rustix::fs::open(&path, OFlags::RDONLY | OFlags::DIRECT, Mode::empty());
        let file: File =
            direct.with_context(|| format!("{} cannot be read", path.display()))?.into();
        let mut at = 0;
        loop {
            match file.read_at(piece, at)? {
                0 => break,
                read => at += read as u64,
            }
        }
        bytes += at;
    }
    Ok((bytes, bytes as f64 / begun.elapsed().as_secs_f64()))
}
