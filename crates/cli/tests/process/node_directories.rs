//! Data directories that belong to a node of a cluster, by the flag `--node-id`: they serve, survive kills, are
//! verified, backed up and restored as others are, and say themselves what they are.

use std::{
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::Value;

use crate::{
    backup::restore,
    bounds::until,
    broker::{Broker, run, sennit},
    cluster_nodes::cluster,
};

const MESSAGES: usize = 500;

/// The value of a line of FORMAT.
fn line(data: &Path, name: &str) -> Option<String> {
    let text = std::fs::read_to_string(data.join("FORMAT")).unwrap();
    let values = text.lines().filter_map(|line| line.split_once(" = "));
    values.into_iter().find(|(key, _)| *key == name).map(|(_, value)| value.to_owned())
}

fn numbered(from: usize) -> Vec<u8> {
    (from..from + MESSAGES).flat_map(|n| format!("message {n}\n").into_bytes()).collect()
}

/// The messages of a topic, from its begin to its end.
fn messages(broker: &Broker, topic: &str) -> Vec<u8> {
    broker.ok(&["read", topic, "--from", "earliest"], b"")
}

/// A command on a data directory.
fn on(arguments: &[&str], data: &Path) -> Output {
    let mut command = sennit(arguments);
    command.arg("--data").arg(data);
    run(command, b"")
}

/// What a command says that has to fail with this exit code.
fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

fn serve(data: &Path, flags: &[&str]) -> Output {
    let serve = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    on(&[&serve[..], flags].concat(), data)
}

/// A broker of node 7 with messages, in `data` of a new folder.
fn node() -> (tempfile::TempDir, PathBuf, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let broker = Broker::start_with(&data, &["--node-id", "7", "--shards", "2"]);
    broker.ok(&["publish", "kept", "--create"], &numbered(0));
    (folder, data, broker)
}

#[test]
fn a_directory_of_a_node_keeps_what_was_confirmed_and_needs_no_flag_again() {
    let (_folder, data, mut broker) = node();
    let known = ["format", "cluster", "node", "start_epoch"].map(|name| line(&data, name).unwrap());
    let [format, cluster, ..] = &known;
    assert_eq!(known, [format, cluster, "7", "1"].map(str::to_owned), "of {format}");
    assert_eq!(format, "2");
    assert!(cluster.parse::<u64>().is_ok_and(|cluster| cluster > 0), "{cluster}");
    broker.kill();

    // The directory says what it is.
    let mut broker = Broker::start(&data);
    assert_eq!(messages(&broker, "kept"), numbered(0));
    broker.ok(&["publish", "kept"], &numbered(MESSAGES));
    broker.kill();
    let broker = Broker::start_with(&data, &["--node-id", "7"]);
    assert_eq!(
        messages(&broker, "kept"),
        numbered(0).into_iter().chain(numbered(MESSAGES)).collect::<Vec<_>>()
    );
    let now = ["format", "cluster", "node", "start_epoch"].map(|name| line(&data, name).unwrap());
    assert_eq!(now, ["2", cluster, "7", "3"]);
}

#[test]
fn a_node_of_several_is_not_served_as_if_it_were_the_only_one() {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster(folder.path(), &[]);
    brokers.iter_mut().for_each(Broker::kill);
    for node in ["1", "3"] {
        let said = refused(&serve(&folder.path().join(node), &[]), 1);
        assert!(said.contains(&format!("node {node} of a cluster with 2 other nodes")), "{said}");
        assert!(said.contains("--peers"), "{said}");
    }
    // The refused starts have changed nothing.
    brokers.iter_mut().for_each(Broker::start_again);
    until("a name can be made", || {
        brokers[0].run(&["topic", "create", "after"], b"").status.success()
    });
}

#[test]
fn a_directory_made_without_the_flag_is_of_the_first_format_and_stays_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut broker = Broker::start(&data);
    broker.ok(&["publish", "kept", "--create"], &numbered(0));
    broker.kill();
    let before = std::fs::read_to_string(data.join("FORMAT")).unwrap();
    assert!(before.contains("\nformat = 1\n") && before.lines().count() == 5, "{before}");

    let said = refused(&serve(&data, &["--node-id", "7"]), 1);
    assert!(said.contains("belongs to no cluster") && said.contains("node 7"), "{said}");
    assert!(said.contains("without --node-id"), "{said}");
    broker.start_again();
    assert_eq!(messages(&broker, "kept"), numbered(0));
    assert_eq!(std::fs::read_to_string(data.join("FORMAT")).unwrap(), before);
}

#[test]
fn a_directory_of_another_node_and_an_impossible_node_are_refused() {
    let (folder, data, mut broker) = node();
    broker.kill();
    let said = refused(&serve(&data, &["--node-id", "8"]), 1);
    assert!(said.contains("belongs to node 7, not to node 8"), "{said}");
    let new = folder.path().join("new");
    for id in ["0", "4096", "one"] {
        let said = refused(&serve(&new, &["--node-id", id]), 2);
        assert!(said.contains(id), "{said}");
    }
    assert!(!new.exists());
}

#[test]
fn a_directory_of_a_node_is_verified_and_not_repaired() {
    let (_folder, data, mut broker) = node();
    broker.kill();
    let verified = on(&["storage", "verify", "--json"], &data);
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stderr));
    let shards = serde_json::Deserializer::from_slice(&verified.stdout).into_iter::<Value>();
    let records = shards.map(|shard| shard.unwrap()["records"].as_u64().unwrap());
    assert!(records.sum::<u64>() > 0);
    assert_eq!(line(&data, "start_epoch").unwrap(), "1", "looking at it is no start");
    let said = refused(&on(&["storage", "repair"], &data), 1);
    assert!(said.contains("belongs to a node of a cluster and cannot be repaired"), "{said}");
}

#[test]
fn a_backup_of_a_node_is_restored_as_the_only_node_of_a_new_cluster() {
    let (folder, data, broker) = node();
    let (file, copy) = (folder.path().join("backup"), folder.path().join("copy"));
    broker.ok(&["backup", "--to", file.to_str().unwrap()], b"");
    let output = restore(&file, &copy);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for same in ["format", "shards", "incarnation", "node"] {
        assert_eq!(line(&copy, same), line(&data, same), "{same}");
    }
    // Both may run: the copy is another cluster's.
    assert_ne!(line(&copy, "cluster"), line(&data, "cluster"));
    let copied = Broker::start(&copy);
    assert_eq!(messages(&copied, "kept"), numbered(0));
    assert_eq!(line(&copy, "start_epoch").unwrap(), "1");
    assert_eq!(messages(&broker, "kept"), numbered(0));
}
