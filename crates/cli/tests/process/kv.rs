//! The configuration of a broker that is killed, restored or asked by many: each confirmed change is there, once, and
//! watches miss none.

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use sennit_client::{
    Client, ConfigurationEvent, ConfigurationKey, ConfigurationWatch, Error, ErrorCode, Reconnect,
};
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::{
    backup::{restore, short_segments},
    bounds::{until, within},
    broker::{Broker, is_one_node},
};

const WRITERS: usize = 8;

fn key(text: &str) -> ConfigurationKey {
    text.parse().unwrap()
}

fn json_lines(bytes: &[u8]) -> Vec<Value> {
    let lines = std::str::from_utf8(bytes).unwrap().lines();
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn exit_of(broker: &Broker, arguments: &[&str]) -> (i32, String) {
    let output = broker.run(arguments, b"");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap(), said)
}

/// What one writer knows.
#[derive(Debug, Default)]
struct Written {
    tried: u64,
    confirmed: u64,
    revisions: Vec<u64>,
}

/// Sets one key to ever higher numbers until the broker is gone.
async fn write(client: Client, key: ConfigurationKey, from: u64, count: Arc<AtomicU64>) -> Written {
    let mut written = Written { tried: from, confirmed: from, revisions: Vec::new() };
    loop {
        written.tried += 1;
        match client.configuration().set(&key, written.tried.to_string(), None).await {
            Ok(changed) => {
                written.confirmed = written.tried;
                written.revisions.push(changed.revision);
                count.fetch_add(1, SeqCst);
            }
            Err(Error::Refused { retryable: true, .. } | Error::OutcomeUnknown) => return written,
            Err(Error::Unreachable { .. } | Error::Closed) => return written,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn each_confirmed_set_survives_a_kill_and_no_revision_is_given_twice() {
    let folder = TempDir::new().unwrap();
    let mut broker = Broker::start(folder.path());
    let mut numbers = [0; WRITERS];
    let mut revisions = BTreeSet::new();
    let mut last = 0;
    for life in 1..=5 {
        let address = broker.listen.clone();
        let count: Arc<AtomicU64> = Arc::default();
        let writers: Vec<_> = (0..WRITERS)
            .map(|n| {
                let (address, count, from) = (address.clone(), count.clone(), numbers[n]);
                std::thread::spawn(move || {
                    within("a writer's life", async {
                        // It does not wait for the next life.
                        let reconnect = Reconnect { attempts_max: Some(0), ..Reconnect::default() };
                        let client = Client::builder(&address).reconnect(reconnect);
                        let client = client.connect().await.unwrap();
                        write(client, key(&format!("w{n}")), from, count).await
                    })
                })
            })
            .collect();
        until("some sets are confirmed", || count.load(SeqCst) > 100 * life);
        broker.kill();
        let written: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        broker.start_again();
        for (n, written) in written.iter().enumerate() {
            let value = broker.ok(&["kv", "get", &format!("w{n}")], b"");
            let value: u64 = std::str::from_utf8(&value).unwrap().trim().parse().unwrap();
            assert!(
                [written.confirmed, written.tried].contains(&value),
                "life {life}: w{n} is {value} after {written:?}"
            );
            numbers[n] = value;
            for &revision in &written.revisions {
                assert!(revision > last, "life {life}: revision {revision} came before");
                assert!(revisions.insert(revision), "life {life}: revision {revision} came twice");
            }
            assert!(written.revisions.is_sorted());
        }
        last = *revisions.last().unwrap();
    }
}

#[test]
fn of_clients_that_expect_one_revision_exactly_one_wins() {
    const EACH: u64 = 25;
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    let address = broker.listen.clone();
    within("all have added their numbers", async move {
        let mut clients = JoinSet::new();
        for _ in 0..WRITERS {
            let address = address.clone();
            clients.spawn(async move {
                let client = Client::connect(&address).await.unwrap();
                let (configuration, key) = (client.configuration(), key("sum"));
                let mut won = Vec::new();
                while (won.len() as u64) < EACH {
                    let (revision, sum) = match configuration.get(&key).await.unwrap() {
                        Some(entry) => {
                            let text = std::str::from_utf8(&entry.value).unwrap();
                            (entry.revision, text.parse::<u64>().unwrap())
                        }
                        None => (0, 0),
                    };
                    let next = (sum + 1).to_string();
                    match configuration.set(&key, next, Some(revision)).await {
                        Ok(changed) => won.push(changed.revision),
                        Err(Error::RevisionMismatch { found }) => assert!(found > revision),
                        Err(error) => panic!("{error}"),
                    }
                }
                won
            });
        }
        let won: BTreeSet<u64> = clients.join_all().await.into_iter().flatten().collect();
        assert_eq!(won.len() as u64, WRITERS as u64 * EACH, "a revision was won twice");
        let client = Client::connect(&address).await.unwrap();
        let sum = client.configuration().get(&key("sum")).await.unwrap().unwrap();
        assert_eq!(&sum.value[..], (WRITERS as u64 * EACH).to_string().as_bytes());
        assert_eq!(Some(&sum.revision), won.last());
    });
}

/// What a watch has told: the entries, and the revision up to which it has.
#[derive(Debug, Default)]
struct Seen {
    entries: BTreeMap<String, (u64, Vec<u8>)>,
    revision: u64,
    changes: usize,
}

impl Seen {
    async fn take(&mut self, watch: &mut ConfigurationWatch) {
        match watch.next().await.unwrap().unwrap() {
            ConfigurationEvent::All { entries, revision } => {
                let entries = entries.into_iter();
                self.entries = entries
                    .map(|entry| (entry.key.to_string(), (entry.revision, entry.value.to_vec())))
                    .collect();
                self.revision = revision;
            }
            ConfigurationEvent::Changes { changes, revision } => {
                for change in changes {
                    assert!(change.revision > self.revision, "{change:?} after {self:?}");
                    self.revision = change.revision;
                    self.changes += 1;
                    match change.value {
                        Some(value) => {
                            let entry = (change.revision, value.to_vec());
                            self.entries.insert(change.key.to_string(), entry);
                        }
                        None => drop(self.entries.remove(change.key.as_str())),
                    }
                }
                assert!(revision >= self.revision);
                self.revision = revision;
            }
        }
    }
}

#[test]
fn a_watch_tells_each_change_in_order_and_goes_on_over_a_restart() {
    let folder = TempDir::new().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["kv", "set", "a.old", "1"], b"");
    let address = broker.listen.clone();
    within("the watch tells all", async move {
        let client = Client::connect(&address).await.unwrap();
        let configuration = client.configuration();
        let mut watch = configuration.watch("a.", None).await.unwrap();
        let mut seen = Seen::default();
        seen.take(&mut watch).await;
        assert_eq!((seen.entries.len(), seen.revision), (1, 1));
        for n in 0..20 {
            configuration.set(&key("a.n"), n.to_string(), None).await.unwrap();
            configuration.set(&key("b.n"), n.to_string(), None).await.unwrap();
        }
        while seen.changes < 20 {
            seen.take(&mut watch).await;
        }
        broker.kill();
        broker.start_again();
        let run = |arguments: &[&str]| broker.ok(arguments, b"");
        run(&["kv", "delete", "a.old"]);
        run(&["kv", "set", "a.new", "2"]);
        let last =
            json_lines(&run(&["kv", "set", "a.n", "last", "--json"]))[0]["revision"].as_u64();
        while Some(seen.revision) < last {
            seen.take(&mut watch).await;
        }
        let listed = configuration.list("a.").await.unwrap();
        let listed = listed.into_iter();
        let listed: BTreeMap<_, _> = listed
            .map(|entry| (entry.key.to_string(), (entry.revision, entry.value.to_vec())))
            .collect();
        assert_eq!(seen.entries, listed);
        // The history is read back: nothing had to be told anew.
        assert_eq!(seen.changes, 23);
    });
}

#[test]
fn a_watch_whose_program_is_busy_or_that_comes_too_late_gets_the_state() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    let address = broker.listen.clone();
    within("the watch catches up", async move {
        let client = Client::connect(&address).await.unwrap();
        let configuration = client.configuration();
        let mut busy = configuration.watch("", None).await.unwrap();
        let value = "x".repeat(60_000);
        for n in 0..400 {
            let key = key(&format!("k{}", n % 5));
            configuration.set(&key, format!("{n} {value}"), None).await.unwrap();
        }
        let mut late = configuration.watch("", Some(1)).await.unwrap();
        for watch in [&mut busy, &mut late] {
            let mut seen = Seen::default();
            while seen.revision < 400 {
                seen.take(watch).await;
            }
            let numbers = seen.entries.values().map(|(revision, _)| *revision);
            assert_eq!(numbers.collect::<Vec<_>>(), [396, 397, 398, 399, 400]);
        }
    });
}

#[test]
fn a_key_that_is_set_again_and_again_does_not_grow_its_stream() {
    let folder = TempDir::new().unwrap();
    let mut broker = Broker::start(folder.path());
    let address = broker.listen.clone();
    within("it is set often", async move {
        let client = Client::connect(&address).await.unwrap();
        let mut writers = JoinSet::new();
        for n in 0..16 {
            let configuration = client.configuration();
            writers.spawn(async move {
                for _ in 0..50 {
                    let value = vec![b'x'; 30_000];
                    configuration.set(&key(&format!("k{}", n % 2)), value, None).await.unwrap();
                }
            });
        }
        writers.join_all().await;
    });
    broker.kill();
    broker.start_again();
    broker.ok(&["kv", "set", "k0", "last"], b"");
    let topic = broker.ok(&["topic", "describe", "__ds/configuration", "--json"], b"");
    let partition = json_lines(&topic)[0]["partition"][0].clone();
    // 24 MB were written; 1 MiB may lie there, and what was trimmed with it a moment later.
    let bytes = partition["bytes"].as_u64().unwrap();
    assert!(bytes < 6 << 20 && partition["start"].as_u64() > Some(0), "{partition}");
    let listed = json_lines(&broker.ok(&["kv", "list", "--json"], b""));
    assert_eq!(listed[0]["value"], "last");
    assert_eq!((listed.len(), listed[0]["revision"].as_u64()), (2, Some(801)));
}

#[test]
fn a_backup_has_the_configuration_and_its_revisions_go_on() {
    if !is_one_node("a backup is refused") {
        return;
    }
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    short_segments(&data, 2, 1 << 20);
    let broker = Broker::start(&data);
    for (key, value) in [("a", "1"), ("throttle.tenant:*", "10/s"), ("a", "2"), ("b", "3")] {
        broker.ok(&["kv", "set", key, value], b"");
    }
    broker.ok(&["kv", "delete", "b"], b"");
    let listed = broker.ok(&["kv", "list", "--json"], b"");
    let file = folder.path().join("kv.backup");
    broker.ok(&["backup", "--to", file.to_str().unwrap()], b"");
    broker.ok(&["kv", "set", "a", "after the backup"], b"");
    let again = folder.path().join("again");
    assert!(restore(&file, &again).status.success());
    let restored = Broker::start(&again);
    assert_eq!(restored.ok(&["kv", "list", "--json"], b""), listed);
    let set = restored.ok(&["kv", "set", "c", "4", "--json"], b"");
    assert_eq!(json_lines(&set)[0]["revision"], 6);
    let rules = json_lines(&restored.ok(&["throttle", "list", "--json"], b""));
    assert_eq!((rules.len(), &rules[0]["rate"]), (1, &Value::from("10/s")));
}

#[test]
fn the_commands_end_with_their_codes_and_say_what_would_be_right() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["kv", "set", "color", "-"], b"\xff\x00");
    assert_eq!(broker.ok(&["kv", "get", "color", "--raw"], b""), b"\xff\x00");
    let json = json_lines(&broker.ok(&["kv", "get", "color", "--json"], b""));
    assert_eq!((&json[0]["value_base64"], &json[0]["revision"]), (&"/wA=".into(), &1.into()));
    for (arguments, code, part) in [
        (&["kv", "get", "none"][..], 3, "there is no such key"),
        (&["kv", "delete", "none"], 3, "there is no such key"),
        (&["kv", "set", "color", "x", "--if-revision", "0"], 4, "the entry has revision 1"),
        (&["kv", "delete", "color", "--if-revision", "7"], 4, "the entry has revision 1"),
        (&["kv", "set", "none", "x", "--if-revision", "7"], 4, "there is no such entry"),
        (&["kv", "set", "throttle.a", "fast"], 2, "10/s burst 20"),
        (&["kv", "set", "throttle.a*b", "1/s"], 2, "* stands for any rest"),
        (&["throttle", "set", "a", "fast"], 2, "10/s burst 20"),
        (&["throttle", "delete", "a"], 3, "no throttle rule"),
        (&["publish", "__ds/configuration", "x"], 2, "__ds/"),
        (&["topic", "delete", "__ds/configuration"], 2, "__ds/"),
    ] {
        let (exit, said) = exit_of(&broker, arguments);
        assert!(exit == code && said.contains(part), "{arguments:?}: {exit} {said}");
    }
    let long = vec![b'x'; 70_000];
    let output = broker.run(&["kv", "set", "long", "-"], &long);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("CONFIGURATION_VALUE_BYTES_MAX is 65536"), "{said}");
    broker.ok(&["throttle", "set", "tenant:*", "2.5/s", "--burst", "50"], b"");
    assert_eq!(broker.ok(&["throttle", "list"], b""), b"tenant:*\t150/m\t50\n");
    assert_eq!(broker.ok(&["kv", "list", "t"], b""), b"throttle.tenant:*\t2\t150/m burst 50\n");
    broker.ok(&["throttle", "delete", "tenant:*"], b"");
    let told = broker.ok(&["kv", "watch", "--after", "1", "--count", "2", "--json"], b"");
    let told = json_lines(&told);
    assert_eq!((&told[0]["value"], &told[1]["deleted"]), (&"150/m burst 50".into(), &true.into()));
    assert!(broker.ok(&["throttle", "list"], b"").is_empty());
}

#[test]
fn a_watch_on_the_command_line_goes_on_until_it_is_stopped() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["kv", "set", "a", "1"], b"");
    let mut child = broker
        .command(&["kv", "watch"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "a\t1\t1");
    broker.ok(&["kv", "delete", "a"], b"");
    assert_eq!(lines.next().unwrap().unwrap(), "a\t2");
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    assert!(child.wait().unwrap().success());
}

#[test]
fn nobody_publishes_into_the_configuration_by_its_number() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["kv", "set", "a", "1"], b"");
    let address = broker.listen.clone();
    within("it is refused", async move {
        let client = Client::connect(&address).await.unwrap();
        let topic = "__ds/configuration".parse().unwrap();
        let refused = client.publisher(&topic).open().await.map(drop).unwrap_err();
        assert_eq!(refused.code(), Some(ErrorCode::TopicReserved));
    });
}
