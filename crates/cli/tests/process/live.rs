//! `sennit live` as people use it: publications come once and in order, over kills of the broker too, what is missing is
//! told, and refusals have their exit codes.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    auth::{guarded, text, with_key},
    bounds::{Watch, joined, until},
    broker::{Broker, run, sennit},
    tls,
};

/// A child whose standard output is read by the test.
fn spawned(mut command: Command) -> (Child, impl Iterator<Item = String>) {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary starts");
    let out = child.stdout.take().expect("it was piped");
    (child, BufReader::new(out).lines().map(|line| line.expect("it is text")))
}

fn json_of(line: &str) -> Value {
    serde_json::from_str(line).expect("a line is JSON")
}

fn lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(json_of).collect()
}

#[test]
fn what_is_published_in_any_way_is_printed_as_it_comes() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "news"], b"");
    let arguments = ["live", "subscribe", "news", "--from", "earliest", "--json", "-n", "6"];
    let (mut child, mut said) = spawned(broker.command(&arguments));
    let _watch = Watch::over(&child, "live subscribe");
    let mut next = |payload: &str| {
        let line = json_of(&said.next().expect("a publication"));
        assert_eq!((&line["channel"], &line["payload"]), (&json!("news"), &json!(payload)));
        line["offset"].as_u64().unwrap()
    };
    broker.ok(&["publish", "news", "of the native protocol"], b"");
    assert_eq!(next("of the native protocol"), 1);
    let summary = broker.ok(&["live", "publish", "news", "one", "two", "--json"], b"");
    assert_eq!(lines(&summary), [json!({ "channel": "news", "confirmed": 2 })]);
    assert_eq!((next("one"), next("two")), (2, 3));
    broker.ok(&["live", "publish", "news"], b"a line\n\nlast");
    assert_eq!((next("a line"), next(""), next("last")), (4, 5, 6));
    assert!(child.wait().unwrap().success(), "it has as many as it wanted");
}

#[test]
fn payloads_are_bytes_and_several_channels_are_told_apart() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "images", "--whole", "--create"], b"\xff\x00\n");
    // The channel is percent-encoded in the topic's name.
    broker.ok(&["publish", "chat%3Aindex", "hello", "--create"], b"");
    let subscribe = ["live", "subscribe", "--from", "earliest", "-n"];
    let raw = broker.ok(&[&subscribe[..], &["1", "images", "--raw"]].concat(), b"");
    assert_eq!(raw, b"\xff\x00\n");
    let shown = broker.ok(&[&subscribe[..], &["1", "images", "--json"]].concat(), b"");
    assert_eq!(lines(&shown)[0]["payload_base64"], "/wAK");
    let both = broker.ok(&[&subscribe[..], &["2", "chat:index", "images"]].concat(), b"");
    assert_eq!(both, b"chat:index\thello\nimages\t\xff\x00\n\n");
    // What one verb prints, another publishes.
    let printed = broker.ok(&[&subscribe[..], &["1", "images", "--json"]].concat(), b"");
    broker.ok(&["publish", "copies", "--json-lines", "--create"], &printed);
    assert_eq!(broker.ok(&["read", "copies", "--raw"], b""), b"\xff\x00\n");
}

#[test]
fn a_subscriber_has_each_publication_once_and_in_order_over_kills_of_the_broker() {
    const COUNT: u64 = 20_000;
    let folder = TempDir::new().unwrap();
    let mut broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "news"], b"");
    let count = COUNT.to_string();
    let arguments = ["live", "subscribe", "news", "--from", "earliest", "--json", "-n", &count];
    let (mut subscriber, said) = spawned(broker.command(&arguments));
    let _watch = Watch::over(&subscriber, "live subscribe");
    let publish = broker.command(&["publish", "news"]);
    let input: Vec<u8> =
        (1..=COUNT).flat_map(|number| format!("{number}\n").into_bytes()).collect();
    // It comes back by itself, and the broker takes nothing of it twice.
    let publisher = std::thread::spawn(move || run(publish, &input));
    let mut expected = 0;
    for line in said {
        expected += 1;
        let line = json_of(&line);
        assert_eq!(line["payload"], expected.to_string(), "{line}");
        assert_eq!(line["offset"], expected, "{line}");
        if [1, COUNT / 4, COUNT / 2].contains(&expected) {
            broker.kill();
            broker.start_again();
        }
    }
    assert_eq!(expected, COUNT);
    assert!(subscriber.wait().unwrap().success());
    assert!(joined("all is published", publisher).status.success());
}

#[test]
fn what_is_missing_is_told_and_what_is_kept_is_printed() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    let limit = [
        "topic",
        "create",
        "news",
        "--kind",
        "stream",
        "--limit-messages",
        "3",
        "--when-full",
        "drop-oldest",
    ];
    broker.ok(&limit, b"");
    for number in 1..=7 {
        broker.ok(&["publish", "news", &number.to_string()], b"");
    }
    let behind_2 = ["live", "subscribe", "news", "--from", "2", "-n", "3"];
    let told = lines(&broker.ok(&[&behind_2[..], &["--json"]].concat(), b""));
    assert_eq!(told[0]["gap"], "missing", "{told:?}");
    assert_eq!((&told[0]["first_offset"], &told[0]["count"]), (&json!(3), &json!(2)));
    let payloads: Vec<_> = told[1..].iter().map(|line| line["payload"].clone()).collect();
    assert_eq!(payloads, ["5", "6", "7"]);
    let plain = broker.run(&behind_2, b"");
    assert_eq!(text(&plain.stdout), "5\n6\n7");
    assert_eq!(text(&plain.stderr), "gap: news: 2 publications from offset 3 on are missing");
    // Another topic of the same name.
    let epoch = told[1]["epoch"].as_str().unwrap();
    broker.ok(&["topic", "delete", "news"], b"");
    broker.ok(&["publish", "news", "new", "--create"], b"");
    let position = format!("{epoch}:7");
    let behind_7 = ["live", "subscribe", "news", "--from", &position, "-n", "1"];
    let told = lines(&broker.ok(&[&behind_7[..], &["--json"]].concat(), b""));
    assert_eq!((&told[0]["gap"], &told[1]["payload"]), (&json!("another topic"), &json!("new")));
    assert_ne!(told[1]["epoch"], epoch);
    let plain = broker.run(&behind_7, b"");
    assert_eq!(text(&plain.stdout), "new");
    assert!(text(&plain.stderr).contains("another topic of the same name"));
}

#[test]
fn a_start_far_beyond_the_end_is_the_end() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "news", "old", "--create"], b"");
    let beyond = u64::MAX.to_string();
    let (mut child, mut said) =
        spawned(broker.command(&["live", "subscribe", "news", "--from", &beyond, "-n", "1"]));
    let _watch = Watch::over(&child, "live subscribe");
    until("it has one", || {
        broker.ok(&["publish", "news", "new"], b"");
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(said.next().as_deref(), Some("new"));
    assert!(child.wait().unwrap().success(), "it has as many as it wanted");
}

#[test]
fn the_position_that_is_told_at_the_end_goes_on_behind_the_last_one() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["publish", "news", "one", "two", "--create"], b"");
    let arguments = ["live", "subscribe", "news", "--from", "earliest"];
    let (mut child, mut said) = spawned(broker.command(&arguments));
    let _watch = Watch::over(&child, "live subscribe");
    assert_eq!((said.next().as_deref(), said.next().as_deref()), (Some("one"), Some("two")));
    let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupted.unwrap().success());
    assert!(child.wait().unwrap().success());
    let mut talk = String::new();
    child.stderr.take().unwrap().read_to_string(&mut talk).unwrap();
    let position =
        talk.strip_prefix("news: --from ").and_then(|rest| rest.strip_suffix(" goes on\n"));
    let position = position.unwrap_or_else(|| panic!("{talk}"));
    broker.ok(&["publish", "news", "three"], b"");
    let again = broker.ok(&["live", "subscribe", "news", "--from", position, "-n", "1"], b"");
    assert_eq!(again, b"three\n");
}

#[test]
fn who_is_there_who_comes_and_who_has_published_is_told() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(folder.path());
    let watch = ["live", "subscribe", "room", "--join-leave", "--json"];
    let (mut watcher, mut said) = spawned(broker.command(&watch));
    let _watch = Watch::over(&watcher, "live subscribe");
    let counts = |told: &str| {
        until("as many are there", || {
            let output = broker.run(&["live", "presence", "room", "--counts"], b"");
            text(&output.stdout) == told
        });
    };
    counts("1\t1");
    let ada = ["live", "subscribe", "room", "--info", "{\"name\":\"ada\"}", "-n", "1", "--json"];
    let (mut other, heard) = spawned(broker.command(&ada));
    let _other = Watch::over(&other, "live subscribe");
    counts("2\t1");
    let there = lines(&broker.ok(&["live", "presence", "room", "--json"], b""));
    let is_ada = |client: &Value| client["channel_info"] == json!({ "name": "ada" });
    assert_eq!(there.iter().filter(|client| is_ada(client)).count(), 1, "{there:?}");
    assert!(text(&broker.ok(&["live", "presence", "room"], b"")).contains("{\"name\":\"ada\"}"));
    broker.ok(&["live", "publish", "room", "hello"], b"");
    let published: Vec<_> = heard.map(|line| json_of(&line)).collect();
    assert_eq!(published[0]["payload"], "hello");
    assert!(published[0]["publisher"]["client"].is_string(), "{published:?}");
    assert!(other.wait().unwrap().success());
    let told: Vec<_> = said
        .by_ref()
        .map(|line| json_of(&line))
        .find_map(|line| is_ada(&line["left"]).then_some(line))
        .into_iter()
        .collect();
    assert_eq!(told[0]["channel"], "room");
    watcher.kill().unwrap();
    watcher.wait().unwrap();
    // What was told of presence is no message to publish.
    let line = b"{\"joined\":{\"client\":\"a\"},\"channel\":\"room\"}\n";
    broker.ok(&["publish", "copies", "--json-lines", "--create"], line);
    assert_eq!(broker.ok(&["read", "copies"], b""), b"");
    let none = broker.run(&["live", "presence", "copies"], b"");
    assert_eq!(none.status.code(), Some(1), "it keeps no presence: {}", text(&none.stderr));
}

#[test]
fn refusals_say_why_with_their_exit_codes() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let created = with_key(
        &broker,
        &admin,
        &["auth", "key", "create", "reader", "--right", "subscribe news"],
        "",
    );
    let reader = text(&created.stdout);
    with_key(&broker, &admin, &["publish", "news", "one", "--create"], "");
    with_key(&broker, &admin, &["topic", "create", "wide", "--partitions", "2"], "");
    let subscribe = ["live", "subscribe", "news", "--from", "earliest", "-n", "1"];
    let heard = with_key(&broker, &reader, &subscribe, "");
    assert_eq!(text(&heard.stdout), "one");
    for (key, arguments, exit, said) in [
        (&reader, &["live", "publish", "news", "two"][..], 5, "publication 1 was not confirmed"),
        (&reader, &["live", "subscribe", "secrets"], 5, "secrets: "),
        (&"sennit_00000000_wrong".to_owned(), &subscribe, 5, ""),
        (&admin, &["live", "subscribe", "wide"], 2, "partitions"),
        (&admin, &["live", "subscribe", "news", "news"], 2, "twice"),
        (&admin, &["live", "subscribe", "news", "more", "--from", "7"], 2, "name one channel"),
    ] {
        let refused = with_key(&broker, key, arguments, "");
        let talk = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(exit), "{arguments:?}: {talk}");
        assert!(talk.contains(said), "{arguments:?}: {talk}");
    }
    let nobody = run(sennit(&["live", "subscribe", "news", "--http", "127.0.0.1:1"]), b"");
    assert_eq!(nobody.status.code(), Some(6));
    // At the port of the native protocol somebody listens who does not speak HTTP.
    let odd = run(sennit(&["live", "subscribe", "news", "--http", &broker.listen]), b"");
    assert_eq!(odd.status.code(), Some(6), "{}", text(&odd.stderr));
}

#[test]
fn a_right_that_is_taken_away_ends_the_subscriber() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let created = with_key(&broker, &admin, &["auth", "key", "create", "reader"], "");
    let reader = text(&created.stdout);
    let listed = with_key(&broker, &admin, &["auth", "key", "list", "--json"], "");
    let keys = lines(&listed.stdout);
    let id = keys.iter().find(|key| key["name"] == "reader").unwrap()["id"].as_str().unwrap();
    with_key(&broker, &admin, &["auth", "grant", id, "--right", "subscribe news"], "");
    with_key(&broker, &admin, &["publish", "news", "one", "--create"], "");
    let mut command = broker.command(&["live", "subscribe", "news", "--from", "earliest"]);
    command.env("SENNIT_KEY", &reader);
    let (mut child, mut said) = spawned(command);
    let _watch = Watch::over(&child, "live subscribe");
    assert_eq!(said.next().as_deref(), Some("one"));
    with_key(&broker, &admin, &["auth", "revoke", id, "--right", "subscribe news"], "");
    assert_eq!(said.next(), None);
    assert_eq!(child.wait().unwrap().code(), Some(5));
}

#[test]
fn live_connections_go_over_tls() {
    let folder = TempDir::new().unwrap();
    let (broker, authority) = tls::secure(folder.path());
    tls::ok(&broker, &authority, &["live", "publish", "news", "one"], b"");
    let subscribe = ["live", "subscribe", "news", "--from", "earliest", "-n", "1"];
    assert_eq!(tls::ok(&broker, &authority, &subscribe, b""), b"one\n");
    let talk = tls::refused(&broker.run(&subscribe, b""), 2);
    assert!(talk.contains("--tls"), "{talk}");
}
