//! Backups and full disks: the broker's disk or the disk of the archive fills during a backup. The broker
//! continues, the backup reports the error, no incomplete archive is accepted, and pinned files come free. Acks
//! continue, also when the broker is killed meanwhile. The small disk is a file system in memory, in a mount
//! namespace of a process of its own; where the system does not allow one, these tests are skipped.

use std::{
    fs,
    io::Read,
    ops::Range,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use sennit_client::{Client, Error, ErrorCode, Message, TopicConfig, TopicKind};
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    backup::{lines, restore, short_segments, stalled},
    bounds::{BOUND, Watch, within},
    broker::Broker,
    skipped::skipped,
    torture::{Choices, seed_of},
};

const SEGMENT_BYTES: u64 = 1 << 20;

const DISK_BYTES: u64 = 80 << 20;

/// How often a broker is killed: more often than there are slots in reserve.
const KILLS: u32 = 12;

/// Lines that are kept: more than what waits between a broker and who does not take its archive.
const KEPT: Range<u32> = 0..30_000;

/// Mounts the disk, says so, and keeps it until nobody holds the other end of its input.
const MOUNTED: &str = r#"
mount -t tmpfs -o "size=$1" tmpfs "$0"
echo
read -r _ || :"#;

/// A disk of its own, and a folder beside it.
pub struct SmallDisk {
    pub folder: TempDir,
    /// The disk, as it can be reached from here.
    pub path: PathBuf,
    _mounted: Mounted,
}

/// A broker with one shard of short segments on a disk of its own.
struct Small {
    folder: TempDir,
    broker: Broker,
    /// The disk, as it can be reached from here.
    disk: PathBuf,
    _mounted: Mounted,
}

/// The process that keeps the disk.
struct Mounted(Child);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // It ends, or has ended.
        let _ = self.0.wait();
    }
}

impl SmallDisk {
    /// One of so many bytes; none where the system does not allow it.
    pub fn of(bytes: u64) -> Option<Self> {
        let apart = apart()?;
        let folder = tempfile::tempdir().unwrap();
        let disk = folder.path().join("disk");
        fs::create_dir(&disk).unwrap();
        let mut mounting = Command::new("unshare");
        mounting.args(apart).args(["sh", "-ec", MOUNTED]).arg(&disk).arg(bytes.to_string());
        let mut child =
            mounting.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it was tried");
        let mut said = child.stdout.take().expect("it was piped");
        let root = PathBuf::from(format!("/proc/{}/root", child.id()));
        let mounted = Mounted(child);
        said.read_exact(&mut [0]).expect("it says that the disk is there");
        let path = root.join(disk.strip_prefix("/").unwrap());
        Some(Self { folder, path, _mounted: mounted })
    }
}

impl Small {
    /// None where the system does not allow it.
    fn begin() -> Option<Self> {
        let SmallDisk { folder, path: disk, _mounted } = SmallDisk::of(DISK_BYTES)?;
        let data = disk.join("data");
        short_segments(&data, 1, SEGMENT_BYTES);
        let broker = Broker::start_with(&data, &["--journal-segments", "4"]);
        Some(Self { folder, broker, disk, _mounted })
    }

    fn data_bytes(&self) -> u64 {
        let lane = self.disk.join("data/lane-0");
        let files = fs::read_dir(lane).unwrap().map(|entry| entry.unwrap().metadata());
        // What was removed meanwhile is gone.
        files.filter_map(|metadata| Some(metadata.ok()?.len())).sum()
    }

    /// What the data takes when nothing moves any more.
    fn rests(&self) -> u64 {
        let mut before = 0;
        loop {
            let now = self.data_bytes();
            if now == before {
                return now;
            }
            before = now;
            // That nothing changes any more shows only in time.
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// Messages come and go until the disk holds no more than `most`, and some more: a journal lets go of
    /// segments as it goes on.
    fn comes_free(&self, most: u64) {
        let begun = Instant::now();
        while self.data_bytes() > most {
            assert!(begun.elapsed() < BOUND, "{} bytes, {most} before", self.data_bytes());
            self.broker.ok(&["publish", "passing", "--create"], &lines(0..500));
            self.broker.ok(&["consume", "passing"], b"");
        }
    }
}

/// The next backup, which waits until the one before is over and the broker sees that there is room. It comes back as it was.
fn is_backed_up(broker: &Broker, folder: &TempDir, kept: &[u8]) {
    let (begun, file) = (Instant::now(), folder.path().join("whole"));
    let output = loop {
        let output = broker.run(&["backup", "--to", file.to_str().unwrap()], b"");
        let is_to_wait = output.status.code() == Some(4) || said(&output).contains("disk is full");
        if !is_to_wait || begun.elapsed() > BOUND {
            break output;
        }
    };
    assert!(output.status.success(), "{}", said(&output));
    let data = folder.path().join("restored");
    let output = restore(&file, &data);
    assert!(output.status.success(), "{}", said(&output));
    let restored = Broker::start(&data);
    assert!(restored.ok(&["consume", "kept"], b"") == kept, "other lines came");
}

/// How a program gets a mount namespace of its own; none where the system allows nobody to have one, as
/// containers do by default. The test that asked is skipped then.
fn apart() -> Option<&'static [&'static str]> {
    let ways: [&[&str]; 2] = [&["--user", "--map-root-user", "--mount"], &["--mount"]];
    let mut why = String::new();
    for way in ways {
        let mount = ["sh", "-ec", "mount -t tmpfs tmpfs /tmp"];
        match Command::new("unshare").args(way).args(mount).output() {
            Ok(output) if output.status.success() => return Some(way),
            Ok(output) => why = said(&output),
            Err(error) => why = error.to_string(),
        }
    }
    skipped(&format!("this system gives no mount namespace: {}", why.trim()));
    None
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Publishes until the broker says that its disk is full, and returns how many were confirmed.
fn publish_until_full(broker: &Broker, topic: &str) -> u32 {
    within("the disk fills", async {
        let client = Client::connect(&broker.listen).await.unwrap();
        let publisher = client.publisher(&topic.parse().unwrap()).create_if_missing(true);
        let publisher = publisher.give_up_after(Duration::from_millis(1)).open().await.unwrap();
        for number in 0..2000 {
            let message = Message::new(vec![b'y'; 64 << 10]);
            match publisher.publish(message).await.unwrap().await {
                Ok(_) => {}
                Err(Error::Refused { code: ErrorCode::StorageFull, .. }) => return number,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("the disk is never full");
    })
}

/// Publishes without waiting until the broker says that its disk is full, in messages of so many bytes;
/// returns how many were confirmed.
async fn publish_in_a_hurry(client: &Client, topic: &str, bytes: usize) -> u64 {
    let publisher = client.publisher(&topic.parse().unwrap()).create_if_missing(true);
    let publisher = publisher.window_bytes(64 << 20).window_messages(100_000);
    let publisher = publisher.give_up_after(Duration::from_millis(1)).open().await.unwrap();
    let mut pending = Vec::new();
    for _ in 0..DISK_BYTES / bytes as u64 {
        match publisher.publish(Message::new(vec![b'y'; bytes])).await {
            Ok(published) => pending.push(published),
            Err(_) => break,
        }
    }
    let mut confirmed = 0;
    for published in pending {
        match timeout(BOUND, published).await.expect("it is answered") {
            Ok(_) => confirmed += 1,
            Err(Error::Refused { code: ErrorCode::StorageFull, .. }) => return confirmed,
            Err(other) => panic!("{other}"),
        }
    }
    panic!("the disk is never full");
}

/// Takes these messages, which are the next, acks each by itself, and waits until it is told that it is
/// acked.
async fn ack_singly(client: &Client, topic: &str, offsets: Range<u64>) {
    let (topic, group) = (topic.parse().unwrap(), "workers".parse().unwrap());
    let consumer = client.consumer(&topic, &group).create_group_if_missing(true);
    let mut consumer = consumer.credit_messages(100).subscribe().await.unwrap();
    for number in offsets {
        let came = timeout(BOUND, consumer.next()).await.expect("acks make the next come");
        let delivery = came.unwrap().unwrap();
        assert_eq!(delivery.offset().0, number);
        timeout(BOUND, delivery.ack_confirmed()).await.expect("acks go on").unwrap();
    }
}

#[test]
fn acks_go_on_one_by_one_while_the_disk_is_full_and_publishes_once_it_is_not() {
    // Most of what acks take frees nothing; and few take much more than the room that is left.
    for (bytes, acks) in [(100, 2000), (5_000, 2000), (300_000, u64::MAX)] {
        let Some(small) = Small::begin() else { return };
        let broker = &small.broker;
        within("acks go on", async {
            let client = Client::connect(&broker.listen).await.unwrap();
            let confirmed = publish_in_a_hurry(&client, "filling", bytes).await;
            ack_singly(&client, "filling", 0..acks.min(confirmed)).await;
        });
        broker.ok(&["topic", "delete", "filling"], b"");
        small.comes_free(DISK_BYTES / 2);
        broker.ok(&["publish", "kept", "--create"], &lines(KEPT));
        assert!(broker.ok(&["consume", "kept"], b"") == lines(KEPT), "other lines came");
    }
}

#[test]
fn acks_go_on_where_a_checkpoint_is_as_long_as_several_segments() {
    let Some(small) = Small::begin() else { return };
    within("acks go on", async {
        let client = Client::connect(&small.broker.listen).await.unwrap();
        for number in 0..60 {
            let config = TopicConfig { partitions: 1000, ..TopicConfig::of_kind(TopicKind::Queue) };
            client.create_topic(&format!("idle-{number}").parse().unwrap(), config).await.unwrap();
        }
        let confirmed = publish_in_a_hurry(&client, "filling", 5_000).await;
        assert!(confirmed > 4000, "{confirmed}");
        ack_singly(&client, "filling", 0..4000).await;
    });
}

#[test]
fn a_broker_that_is_killed_again_and_again_on_a_full_disk_keeps_its_promises() {
    let Some(mut small) = Small::begin() else { return };
    let mut choices = Choices::new(seed_of("killed on a full disk"));
    let confirmed = within("the disk fills", async {
        let client = Client::connect(&small.broker.listen).await.unwrap();
        publish_in_a_hurry(&client, "filling", 5_000).await
    });
    let mut acked = 0;
    for _ in 0..KILLS {
        small.broker.kill();
        small.broker.start_again();
        let next = (acked + choices.below(200)).min(confirmed);
        within("acks go on", async {
            let client = Client::connect(&small.broker.listen).await.unwrap();
            ack_singly(&client, "filling", acked..next).await;
        });
        acked = next;
    }
    small.broker.kill();
    small.broker.start_again();

    // What was confirmed and not acked is there, and room for others too once it is gone.
    let rest = small.broker.ok(&["consume", "filling", "--group", "workers", "--json"], b"");
    let rest = rest.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let offsets = rest.map(|line| {
        let message: Value = serde_json::from_slice(line).unwrap();
        message["offset"].as_u64().unwrap()
    });
    let offsets: Vec<_> = offsets.collect();
    assert!(offsets.iter().copied().eq(acked..acked + offsets.len() as u64));
    assert!(
        acked + offsets.len() as u64 >= confirmed,
        "{acked} and {} of {confirmed}",
        offsets.len()
    );
    small.broker.ok(&["topic", "delete", "filling"], b"");
    small.comes_free(DISK_BYTES / 2);
    small.broker.ok(&["publish", "kept", "--create"], &lines(KEPT));
    assert!(small.broker.ok(&["consume", "kept"], b"") == lines(KEPT), "other lines came");
}

#[test]
fn a_dead_letter_topic_that_a_full_disk_refused_is_made_once_there_is_room() {
    let Some(small) = Small::begin() else { return };
    let broker = &small.broker;
    let empty = small.data_bytes();
    broker.ok(&["publish", "jobs", "--create"], b"it cannot be done\n");
    publish_until_full(broker, "filling");
    let give_up = ["consume", "jobs", "--count", "1", "--verdict", "dead-letter"];
    broker.ok(&give_up, b"");
    let letters = ["topic", "describe", "jobs.dead-letter"];
    let output = broker.run(&letters, b"");
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));

    broker.ok(&["topic", "delete", "filling"], b"");
    small.comes_free(empty + DISK_BYTES / 2);
    let begun = Instant::now();
    while !broker.run(&letters, b"").status.success() {
        assert!(begun.elapsed() < BOUND, "there is no dead-letter topic");
    }
    assert_eq!(broker.ok(&["consume", "jobs.dead-letter"], b""), b"it cannot be done\n");
}

#[test]
fn a_backup_is_given_up_when_the_brokers_disk_fills_and_all_that_it_pinned_comes_free() {
    let Some(small) = Small::begin() else { return };
    let broker = &small.broker;
    broker.ok(&["publish", "kept", "--create"], &lines(KEPT));
    let before = small.rests();
    let (mut backup, mut archive, _watch) = stalled(broker);
    let filled = publish_until_full(broker, "filling");
    assert!(filled > 0);

    // Whoever takes it is told, and what came does not pass for whole.
    backup.stdout.take().unwrap().read_to_end(&mut archive).unwrap();
    let output = backup.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{}", said(&output));
    assert!(said(&output).contains("ended the backup after"), "{}", said(&output));
    let cut = small.folder.path().join("cut");
    fs::write(&cut, archive).unwrap();
    let data = small.folder.path().join("of-cut");
    let output = restore(&cut, &data);
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("not whole") && !data.exists(), "{}", said(&output));
    // As long as it is full there is no other.
    let output = broker.run(&["backup", "--to", "-"], b"");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("the disk is full"), "{}", said(&output));

    // What was confirmed is there, what is consumed makes room, and publishes are taken again.
    let filling = broker.ok(&["consume", "filling", "--json"], b"");
    let filling = filling.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let offsets = filling.map(|line| {
        let message: Value = serde_json::from_slice(line).unwrap();
        message["offset"].as_u64().unwrap()
    });
    assert!(offsets.eq(0..u64::from(filled)));
    small.comes_free(before + 4 * SEGMENT_BYTES);
    is_backed_up(broker, &small.folder, &lines(KEPT));
    assert!(broker.ok(&["consume", "kept"], b"") == lines(KEPT), "other lines came");
    small.comes_free(before);
}

#[test]
fn a_backup_whose_own_disk_fills_leaves_no_file_and_the_broker_goes_on() {
    let Some(small) = Small::begin() else { return };
    let broker = &small.broker;
    broker.ok(&["publish", "kept", "--create"], &lines(KEPT));
    let before = small.rests();
    // The archive is to grow beside the data, and more than 4 MiB long.
    let ballast = small.disk.join("ballast");
    fs::write(&ballast, vec![1; (DISK_BYTES - before) as usize - (4 << 20)]).unwrap();
    let file = small.disk.join("backup");
    let output = broker.run(&["backup", "--to", file.to_str().unwrap()], b"");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
    let left = fs::read_dir(&small.disk).unwrap().map(|entry| entry.unwrap().file_name());
    let mut left: Vec<_> = left.collect();
    left.sort_unstable();
    assert_eq!(left, ["ballast", "data"]);

    fs::remove_file(&ballast).unwrap();
    is_backed_up(broker, &small.folder, &lines(KEPT));
    assert!(broker.ok(&["consume", "kept"], b"") == lines(KEPT), "other lines came");
    small.comes_free(before);
}

#[test]
fn a_backup_into_where_nothing_can_be_written_fails_and_the_next_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    broker.ok(&["publish", "kept", "--create"], &lines(KEPT));
    let mut backup = broker.command(&["backup", "--to", "-"]);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let backup = backup.stdout(full).stderr(Stdio::piped()).spawn().unwrap();
    let _watch = Watch::over(&backup, "the backup");
    let output = backup.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("No space left on device"), "{}", said(&output));
    is_backed_up(&broker, &folder, &lines(KEPT));
}
