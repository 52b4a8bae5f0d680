//! Keys, users, roles and tenants on three nodes: a change at one node counts at all, and the first key is made once.

use std::{path::Path, process::Stdio, thread};

use serde_json::Value;

use crate::{
    auth::{text, with_key},
    bounds::until,
    broker::{Broker, run, sennit},
    cluster_nodes::{flags, own_address, three_with},
};

/// The admin key that one of these nodes has told; none has told another one.
fn admin_key(brokers: &[Broker; 3]) -> String {
    let mut told = Vec::new();
    until("a node tells the admin key", || {
        for line in brokers.iter().flat_map(Broker::printed) {
            let said: Value = serde_json::from_str(&line).expect("a line is JSON");
            told.push(said["admin_key"].as_str().expect("it is the key").to_owned());
        }
        !told.is_empty()
    });
    assert_eq!(told.len(), 1, "{told:?}");
    told.remove(0)
}

/// Does it with a key; it has to succeed.
fn ok(broker: &Broker, key: &str, arguments: &[&str]) -> String {
    let output = with_key(broker, key, arguments, "");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn succeeds(broker: &Broker, key: &str, arguments: &[&str]) -> bool {
    with_key(broker, key, arguments, "").status.success()
}

#[test]
fn the_first_admin_key_is_made_once_and_counts_at_all_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster_of_admin(folder.path());
    let admin = admin_key(&brokers);
    for broker in &brokers {
        until("the node knows the key", || succeeds(broker, &admin, &["topic", "list"]));
        assert!(!broker.run(&["topic", "list"], b"").status.success());
    }
    let listed = ok(&brokers[1], &admin, &["auth", "key", "list"]);
    assert_eq!(listed.lines().count(), 1, "{listed}");
    for broker in &mut brokers {
        broker.kill();
        broker.start_again();
    }
    for broker in &brokers {
        until("the node knows the key", || succeeds(broker, &admin, &["topic", "list"]));
        assert_eq!(broker.printed(), Vec::<String>::new());
    }
}

/// Three nodes that create an admin key.
fn cluster_of_admin(folder: &Path) -> [Broker; 3] {
    three_with(folder, &std::array::from_fn(|_| own_address()), &["--init-admin"])
}

#[test]
fn a_key_that_was_made_at_one_node_counts_at_all_and_one_that_was_revoked_ends_connections_at_another()
 {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster_of_admin(folder.path());
    let admin = admin_key(&brokers);
    for broker in &brokers {
        until("the node knows the key", || succeeds(broker, &admin, &["topic", "list"]));
    }
    ok(&brokers[0], &admin, &["auth", "tenant", "create", "acme"]);
    let rights = "publish,consume,settle,describe >";
    ok(&brokers[1], &admin, &["auth", "role", "set", "reader", rights]);
    ok(&brokers[2], &admin, &["topic", "create", "jobs"]);
    // A node that decides knows what was confirmed at others.
    let key = ok(&brokers[0], &admin, &["auth", "key", "create", "worker", "--role", "reader"]);
    for broker in &brokers {
        until("the key is known", || succeeds(broker, &key, &["publish", "jobs", "hello"]));
        assert!(!succeeds(broker, &key, &["topic", "create", "more"]));
    }
    ok(&brokers[1], &key, &["consume", "jobs", "-n", "3"]);

    // A consumer at the first node, which waits for messages.
    let mut waiting = brokers[0].command(&["consume", "jobs", "--follow"]);
    waiting.env("SENNIT_KEY", &key);
    waiting.stdout(Stdio::piped()).stderr(Stdio::piped());
    let waiting = waiting.spawn().expect("it starts");
    until("it takes part", || {
        ok(&brokers[0], &admin, &["group", "describe", "jobs", "default", "--json"])
            .contains("\"consumers\":1")
    });
    let id = id_of(&brokers[2], &admin, "worker");
    ok(&brokers[2], &admin, &["auth", "key", "delete", &id]);
    let ended = waiting.wait_with_output().expect("it ends");
    assert!(!ended.status.success(), "{}", text(&ended.stderr));
    for broker in &brokers {
        until("the key counts no more", || !succeeds(broker, &key, &["publish", "jobs", "no"]));
    }
}

/// The id of the key with this name.
fn id_of(broker: &Broker, key: &str, name: &str) -> String {
    entry_of(broker, key, name)["id"].as_str().expect("it has an id").to_owned()
}

fn entry_of(broker: &Broker, key: &str, name: &str) -> Value {
    let listed = ok(broker, key, &["auth", "key", "list", "--json"]);
    let mut entries = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    entries.find(|entry| entry["name"] == name).expect("the key is listed")
}

#[test]
fn of_two_admins_that_delete_each_other_through_two_nodes_one_stays() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster_of_admin(folder.path());
    let (mut admin, mut name) = (admin_key(&brokers), "first admin".to_owned());
    let until_known = |key: &str| {
        for broker in &brokers {
            until("the node knows the key", || succeeds(broker, key, &["topic", "list"]));
        }
    };
    until_known(&admin);
    for round in 0..5 {
        let rival = format!("rival-{round}");
        let create = ["auth", "key", "create", &rival, "--role", "admin"];
        let key = ok(&brokers[0], &admin, &create);
        until_known(&key);
        let ids = [&name, &rival].map(|name| id_of(&brokers[0], &admin, name));
        let [first, second] = thread::scope(|scope| {
            [(1, &key, &ids[0]), (2, &admin, &ids[1])]
                .map(|(at, key, id)| {
                    let broker = &brokers[at];
                    scope.spawn(move || succeeds(broker, key, &["auth", "key", "delete", id]))
                })
                .map(|deletes| deletes.join().unwrap())
        });
        assert!(!(first && second), "round {round}: there is no admin any more");
        if first {
            (admin, name) = (key, rival);
        }
    }
}

#[test]
fn changes_at_three_nodes_at_once_are_decided_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = cluster_of_admin(folder.path());
    let admin = admin_key(&brokers);
    for broker in &brokers {
        until("the node knows the key", || succeeds(broker, &admin, &["topic", "list"]));
    }
    ok(&brokers[0], &admin, &["auth", "key", "create", "worker", "--right", "describe >"]);
    let id = id_of(&brokers[0], &admin, "worker");
    let generation =
        || entry_of(&brokers[0], &admin, "worker")["generation"].as_u64().expect("it has one");
    let before = generation();
    let rotations = 8;
    thread::scope(|scope| {
        for broker in &brokers {
            let (rotate, admin) = (["auth", "key", "rotate", &id], &admin);
            // It is refused where other nodes were faster each time.
            let once = move || until("it is rotated", || succeeds(broker, admin, &rotate));
            scope.spawn(move || (0..rotations).for_each(|_| once()));
        }
    });
    // One whose outcome is not known may have counted, too.
    until("each rotation has counted", || generation() >= before + 3 * rotations);
}

#[test]
fn a_quota_of_stored_bytes_counts_at_each_node_and_at_one_that_has_just_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut brokers = cluster_of_admin(folder.path());
    let admin = admin_key(&brokers);
    for broker in &brokers {
        until("the node knows the key", || succeeds(broker, &admin, &["topic", "list"]));
    }
    ok(&brokers[0], &admin, &["auth", "tenant", "create", "acme", "--stored-bytes", "20kB"]);
    let create = ["auth", "key", "create", "app", "--tenant", "acme", "--right", "* >"];
    let key = ok(&brokers[0], &admin, &create);
    // In more shards than one node leads.
    let create = ["topic", "create", "acme.log", "--kind", "stream", "--partitions", "3"];
    ok(&brokers[0], &key, &create);
    let payload = "x".repeat(9000);
    let publish = |broker: &Broker, of: &str| {
        with_key(broker, &key, &["publish", "acme.log", "--key", of], &payload)
    };
    for of in ["one", "another"] {
        let published = publish(&brokers[0], of);
        assert!(published.status.success(), "{}", text(&published.stderr));
    }
    let is_refused = |broker: &Broker| {
        let said = text(&publish(broker, "third").stderr);
        said.contains("stored_bytes is 20000, and 18")
    };
    assert!(is_refused(&brokers[0]));
    for broker in &mut brokers {
        broker.kill();
        broker.start_again();
        // It is asked again until it knows the key, and never takes the message.
        until("the node counts what is stored", || is_refused(broker));
        let stored = ok(broker, &admin, &["auth", "tenant", "list", "--json"]);
        let stored: Value = serde_json::from_str(&stored).expect("a line is JSON");
        assert!((18_000..20_000).contains(&stored["bytes_stored"].as_u64().unwrap()), "{stored}");
    }
}

#[test]
fn a_relay_between_brokers_is_refused_on_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let own = own_address();
    let flags = flags("1", &own, "2=127.0.0.1:1,3=127.0.0.1:2", "7");
    let data = folder.path().join("data");
    let mut command = sennit(&["serve", "--live-redis", "redis://127.0.0.1:1"]);
    command.arg("--data").arg(&data).args(&flags);
    let output = run(command, b"");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--live-redis is for brokers that are not one cluster"), "{said}");
    assert!(!data.exists());
}
