//! Small disks: the slots that a broker holds, publishing after messages were freed, and the error of a start with
//! too little room.

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    time::Instant,
};

use serde_json::Value;

use crate::{
    backup::short_segments,
    bounds::BOUND,
    broker::{Broker, run, sennit},
    full_disk::SmallDisk,
};

const MIB: u64 = 1 << 20;

/// What the HTTP port answers: status line, head and body.
fn get(broker: &Broker, path: &str) -> String {
    let mut socket = TcpStream::connect(&broker.http).unwrap();
    write!(socket, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", broker.http)
        .unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

fn ready(broker: &Broker) -> Value {
    let answer = get(broker, "/readyz");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// The sum of a metric over all shards.
fn metric(broker: &Broker, name: &str) -> u64 {
    let text = get(broker, "/metrics");
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

/// Publishes lines of 70 kB until the broker refuses them.
fn publish_until_full(broker: &Broker) {
    let lines = [vec![b'x'; 70_000], b"\n".to_vec()].concat().repeat(10);
    let begun = Instant::now();
    loop {
        let arguments = ["publish", "filling", "--create", "--patience", "2s"];
        let output = broker.run(&arguments, &lines);
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("storage-full"), "{said}");
            return;
        }
        assert!(begun.elapsed() < 4 * BOUND, "the disk is never full");
    }
}

/// Publishes a line, and again until it is accepted.
fn is_accepted(broker: &Broker, topic: &str) {
    let begun = Instant::now();
    loop {
        let output = broker.run(&["publish", topic, "--create", "--patience", "1s"], b"a line\n");
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(begun.elapsed() < BOUND, "{said} {}", ready(broker));
    }
}

/// The case of users, in a twentieth: 420 MB, two shards, segments of 20 MiB.
#[test]
fn publishing_goes_on_once_what_filled_a_small_disk_is_consumed_and_deleted() {
    let Some(disk) = SmallDisk::of(420_000_000 / 20) else { return };
    let data = disk.path.join("data");
    short_segments(&data, 2, MIB);
    let mut broker = Broker::start(&data);
    assert_eq!(ready(&broker).get("storage"), None);
    publish_until_full(&broker);

    let storage = &ready(&broker)["storage"];
    assert_eq!(storage["full"], true);
    let needed = storage["needed_bytes"].as_u64().unwrap();
    assert!(needed >= MIB && storage["free_bytes"].as_u64().is_some(), "{storage}");
    assert!(metric(&broker, "sennit_storage_full{") >= 1);
    assert!(metric(&broker, "sennit_storage_needed_bytes{") >= MIB);

    broker.ok(&["consume", "filling"], b"");
    broker.ok(&["topic", "delete", "filling"], b"");
    is_accepted(&broker, "later");
    assert_eq!((ready(&broker).get("storage"), metric(&broker, "sennit_storage_full{")), (None, 0));
    // Again, with a broker that is killed while it is full.
    publish_until_full(&broker);
    broker.kill();
    broker.start_again();
    broker.ok(&["topic", "delete", "filling"], b"");
    is_accepted(&broker, "later");
}

#[test]
fn what_a_few_messages_hold_of_a_full_disk_comes_free_and_publishing_goes_on() {
    let Some(disk) = SmallDisk::of(20 * MIB) else { return };
    let data = disk.path.join("data");
    short_segments(&data, 1, MIB);
    let broker = Broker::start(&data);
    // One of ten is kept: what is full of them is emptied into packs, for which there is room.
    broker.ok(&["publish", "kept", "--create"], b"first\n");
    let line = [vec![b'x'; 70_000], b"\n".to_vec()].concat();
    let begun = Instant::now();
    for number in 0.. {
        let kept = format!("kept {number} {}\n", "y".repeat(1000));
        let arguments = ["--create", "--patience", "2s"];
        let kept = broker.run(&[&["publish", "kept"], &arguments[..]].concat(), kept.as_bytes());
        let filled =
            broker.run(&[&["publish", "filling"], &arguments[..]].concat(), &line.repeat(4));
        if !kept.status.success() || !filled.status.success() {
            break;
        }
        assert!(begun.elapsed() < 4 * BOUND, "the disk is never full");
    }
    broker.ok(&["consume", "filling"], b"");
    broker.ok(&["topic", "delete", "filling"], b"");
    is_accepted(&broker, "kept");
    let kept = broker.ok(&["consume", "kept"], b"");
    assert!(kept.starts_with(b"first\nkept 0 y"), "{}", String::from_utf8_lossy(&kept[..30]));
    assert!(kept.ends_with(b"a line\n"));
}

#[test]
fn a_new_broker_on_a_small_disk_takes_less_of_it_and_serves() {
    let Some(disk) = SmallDisk::of(220_000_000) else { return };
    let data = disk.path.join("data");
    let broker = Broker::start(&data);
    is_accepted(&broker, "orders");
    let format = fs::read_to_string(data.join("FORMAT")).unwrap();
    assert!(format.contains("shards = 1\nsegment_bytes = 20971520"), "{format}");
    assert_eq!(broker.ok(&["consume", "orders"], b""), b"a line\n");
}

#[test]
fn a_new_broker_for_which_there_is_no_room_says_how_much_it_needs_and_leaves_nothing() {
    let Some(disk) = SmallDisk::of(150 * MIB) else { return };
    let data = disk.path.join("data");
    let serve = |flags: &[&str]| {
        let mut command = sennit(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
        command.arg("--data").arg(&data).args(flags);
        let output = run(command, b"");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = serve(&[]);
    assert!(said.contains("150 MiB are free"), "{said}");
    assert!(said.contains("1 shards with segments of 20 MiB need 180 MiB"), "{said}");
    let said = serve(&["--shards", "4", "--segment-size", "32MiB"]);
    assert!(said.contains("4 shards with segments of 32 MiB need 1152 MiB"), "{said}");
    assert!(!data.exists());
}

#[test]
fn a_broker_that_finds_no_room_for_a_start_says_how_much_it_needs() {
    let Some(disk) = SmallDisk::of(16 * MIB) else { return };
    let data = disk.path.join("data");
    short_segments(&data, 1, MIB);
    drop(Broker::start(&data));
    // All that it held is gone, and others have the room.
    for slot in fs::read_dir(data.join("lane-0")).unwrap() {
        fs::remove_file(slot.unwrap().path()).unwrap();
    }
    let ballast = File::create(disk.path.join("ballast")).unwrap();
    let zeros = vec![0; 64 << 10];
    while (&ballast).write_all(&zeros).is_ok() {}
    let mut command = sennit(&["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]);
    command.arg("--data").arg(&data);
    let output = run(command, b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("0 MiB are free, and a start needs 1 MiB"), "{said}");
}
