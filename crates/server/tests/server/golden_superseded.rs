//! A data directory in which compaction has left messages where they were (`Superseded`), opened by this version.
//! `SENNIT_WRITE_GOLDEN=superseded cargo test -p sennit-server --test server golden_superseded` creates it; a committed
//! one is never created again.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    time::Duration,
};

use sennit_engine::{Command, Origin, Publish};
use sennit_journal::{
    LaneConfig,
    disk::{Access, RealDisk},
};
use sennit_model::{
    BatchBuilder, Message, PartitionId, PartitionIndex, ProducerStamp, Timestamp, TopicId,
};
use sennit_protocol::{Deliver, Reply, Request, control};
use sennit_server::{Config, restore};
use sennit_shard::{PackLengths, Recovered, Settings, recover};
use tempfile::TempDir;

use crate::{
    archives::archive_of,
    reading::{begin, read, reader},
    world::{Broker, config, texts_of},
};

const SEGMENT_BYTES: u64 = 64 << 10;
const INCARNATION: u64 = 42;
/// Later than the messages are to be compacted.
const LATER: Duration = Duration::from_secs(60);

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/golden/superseded.backup")
}

fn start(data: &Path) -> Broker {
    Broker::start(Config { shards: Some(1), segment_bytes: None, ..config(data) })
}

/// A shard of a broker that is stopped.
struct Shard {
    parts: Recovered<RealDisk>,
    now: Timestamp,
}

impl Shard {
    fn of(data: &Path, now: Timestamp) -> Self {
        let (directory, segment_bytes) = (data.join("lane-0"), SEGMENT_BYTES);
        let lane = LaneConfig { directory, lane: 0, segment_bytes, incarnation: INCARNATION };
        let (packs, writes_superseded) = (PackLengths::default(), true);
        let settings = Settings {
            cache_bytes: 0,
            journal_segments: 8,
            packs,
            writes_superseded,
            replica: None,
        };
        let parts = recover(&RealDisk::new(Access::Buffered), lane, settings, now).unwrap();
        Self { parts, now }
    }

    fn commit(&mut self) {
        let Recovered { shard, lane, slots, .. } = &mut self.parts;
        loop {
            shard.effects().clear();
            let mut frames = Vec::new();
            shard.take_frames(&mut frames);
            if frames.is_empty() {
                return;
            }
            for _ in frames.iter().filter(|frame| frame.first_of_segment) {
                lane.add_spare(slots.make().unwrap());
            }
            let end = lane.append(&frames).unwrap();
            shard.handle_commit(end, self.now);
        }
    }

    fn publish(&mut self, topic: TopicId, pairs: &[(&str, &str)]) {
        let mut batch = BatchBuilder::new();
        for (key, payload) in pairs {
            let key = key.to_string().into();
            batch.push(&Message { key, ..Message::new(payload.to_string()) }).unwrap();
        }
        let partition = PartitionId { topic, index: PartitionIndex(0) };
        let (origin, producer) = (Origin::default(), ProducerStamp::default());
        let batch = batch.take().unwrap();
        let publish = Publish { origin, partition, producer, batch };
        self.parts.shard.handle(&mut vec![Command::Publish(publish)], self.now);
        self.commit();
    }

    /// Compacts what is due; returns the number of batches of which only a part stays.
    fn compact(&mut self) -> usize {
        let mut superseded = 0;
        self.parts.shard.advance(self.now);
        self.commit();
        while let Some(step) = self.parts.shard.next_compaction(self.now) {
            let done = self.parts.mover.compact(&step).unwrap();
            superseded += done.superseded.len();
            self.parts.shard.handle_compaction(done, self.now);
            self.commit();
        }
        superseded
    }
}

fn make() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(&data).unwrap();
    let format = format!(
        "sennit data directory\nformat = 1\nshards = 1\nsegment_bytes = {SEGMENT_BYTES}\n\
         incarnation = {INCARNATION}\n"
    );
    fs::write(data.join("FORMAT"), format).unwrap();
    let broker = start(&data);
    let retention = control::Retention { latest_per_key: true, ..<_>::default() };
    let config =
        control::TopicConfig { partitions: Some(1), retention: Some(retention), ..<_>::default() };
    let create = control::CreateTopic { name: "rates".into(), config: Some(config), beside: None };
    let Reply::Done(done) = broker.greeted().ask(&Request::CreateTopic(create)) else {
        panic!("it is there")
    };
    broker.stop();
    let mut shard = Shard::of(&data, Timestamp(1_800_000_000_000));
    let topic = TopicId(done.topic_id);
    shard.publish(topic, &[("EUR", "1.07"), ("GBP", "1.25"), ("EUR", "1.08"), ("JPY", "0.0066")]);
    shard.publish(topic, &[("GBP", "1.26"), ("CHF", "1.13")]);
    shard.publish(topic, &[("CHF", "1.12"), ("EUR", "1.09")]);
    shard.now = shard.now.plus(LATER);
    assert_eq!(shard.compact(), 2);
    drop(shard);
    let broker = start(&data);
    fs::write(golden(), archive_of(&broker)).unwrap();
    broker.stop();
}

#[test]
fn a_golden_directory_without_what_was_superseded_gives_what_stays_of_each_batch() {
    if std::env::var_os("SENNIT_WRITE_GOLDEN").is_some_and(|wanted| wanted == "superseded") {
        make();
    }
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    restore(File::open(golden()).unwrap(), &data, false).unwrap();
    let broker = start(&data);
    let mut peer = reader(&broker);
    begin(&mut peer, read("rates"));
    let (_, deliveries) = peer.deliveries(4);
    let each =
        |deliver: &Deliver| (deliver.head.first.0..).zip(texts_of(deliver)).collect::<Vec<_>>();
    let came: Vec<_> = deliveries.iter().flat_map(each).collect();
    let expected = [(3, "0.0066"), (4, "1.26"), (6, "1.12"), (7, "1.09")];
    assert_eq!(came, expected.map(|(offset, text)| (offset, text.to_owned())));
    broker.stop();
}
