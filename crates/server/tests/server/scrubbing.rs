//! A bit that flips while the broker serves is found by itself, and said.

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use sennit_protocol::{Reply, Request, Verdict, control};
use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    http::get,
    world::{Broker, config, publish, until},
};

fn value(broker: &Broker, name: &str) -> u64 {
    let (_, metrics) = get(broker, "/metrics");
    let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{"))).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

/// A data directory with segments of 1 MiB, and a broker that scrubs it without a rest.
fn settings(folder: &Path, journal_segments: usize) -> Config {
    let format = "sennit data directory\nformat = 1\nshards = 1\nsegment_bytes = 1048576\n\
                  incarnation = 42\n";
    std::fs::write(folder.join("FORMAT"), format).unwrap();
    Config { scrub_every: Some(Duration::from_secs(1)), journal_segments, ..config(folder) }
}

/// The files of the lane whose names end so, by name.
fn files(folder: &Path, end: &str) -> Vec<PathBuf> {
    let lane = std::fs::read_dir(folder.join("lane-0")).unwrap();
    let paths = lane.map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = paths.filter(|path| path.to_str().unwrap().ends_with(end)).collect();
    paths.sort();
    paths
}

fn flip(path: &Path, at: u64) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
}

fn flipped_bit_is_found(journal_segments: usize, end: &str, at: u64) {
    damage_is_found(journal_segments, end, |path| flip(path, at));
}

/// Publishes some segments' worth and damages a file that is at rest.
fn damage_is_found(journal_segments: usize, end: &str, damage: impl Fn(&Path)) {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(settings(folder.path(), journal_segments));
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    let text = "x".repeat(60_000);
    for batch in 0..60 {
        peer.send(&Request::Publish(publish(topic, 0, batch * 2, &[&text, &text])));
        peer.confirmed_up_to(batch * 2 + 2);
    }
    until("nothing lies there", || !files(folder.path(), end).is_empty());
    if end == ".pack" {
        until("no pack is whole", || value(&broker, "sennit_packs") > 0);
    }
    until("nothing is read", || value(&broker, "sennit_scrubbed_bytes_total") > 2 << 20);
    assert_eq!(value(&broker, "sennit_scrub_damage"), 0);
    assert_eq!(get(&broker, "/readyz").1.trim(), r#"{"ready":true,"reasons":[]}"#);
    damage(&files(folder.path(), end)[0]);
    until("the damage is not found", || value(&broker, "sennit_scrub_damage") == 1);
    let (status, body) = get(&broker, "/readyz");
    assert_eq!(status, 200);
    assert!(body.contains(r#""quarantined":{"scrubbed_places":1}"#), "{body}");
    // It is one place, however often it is looked at.
    let read = value(&broker, "sennit_scrubbed_bytes_total");
    let more = || value(&broker, "sennit_scrubbed_bytes_total") > read + (20 << 20);
    until("no pass follows", more);
    assert_eq!(value(&broker, "sennit_scrub_damage"), 1);
    broker.stop();
}

#[test]
fn a_bit_that_flips_in_a_segment_at_rest_is_found() {
    flipped_bit_is_found(100, ".journal", 3 * 4096 + 100);
}

#[test]
fn a_bit_that_flips_in_a_pack_is_found() {
    flipped_bit_is_found(1, ".pack", 3 * 4096 + 100);
}

#[test]
fn a_bit_that_flips_in_the_header_of_a_pack_is_found() {
    flipped_bit_is_found(1, ".pack", 20);
}

#[test]
fn a_pack_that_is_gone_is_found() {
    damage_is_found(1, ".pack", |path| std::fs::remove_file(path).unwrap());
}

#[test]
fn segments_that_come_free_and_are_used_again_are_never_taken_for_damaged() {
    let folder = TempDir::new().unwrap();
    let settings =
        Config { scrub_every: Some(Duration::from_millis(1)), ..settings(folder.path(), 2) };
    let broker = Broker::start(settings);
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    // Nobody else is to settle them.
    let delete = control::DeleteGroup { topic: "orders".into(), name: "default".into() };
    let reply = peer.ask(&Request::DeleteGroup(delete));
    assert!(matches!(reply, Reply::Done(_)), "{reply:?}");
    let group = peer.subscribe("orders", 1, 1000);
    let text = "x".repeat(60_000);
    let begun = Instant::now();
    let mut batch = 0;
    while begun.elapsed() < Duration::from_secs(4) || batch < 100 {
        peer.send(&Request::Publish(publish(topic, 0, batch * 2, &[&text, &text])));
        peer.confirmed_up_to(batch * 2 + 2);
        let (_, deliveries) = peer.deliveries(2);
        peer.settle((topic, group), &deliveries, Verdict::Ack);
        batch += 1;
    }
    assert!(value(&broker, "sennit_checkpoints_total") > 3);
    assert!(value(&broker, "sennit_scrubbed_bytes_total") > 4 << 20);
    assert_eq!(value(&broker, "sennit_scrub_damage"), 0);
    broker.stop();
}
