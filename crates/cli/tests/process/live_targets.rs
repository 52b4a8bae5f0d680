//! `sennit live connections`, `send` and `disconnect` as people use them.

use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    auth::{guarded, text, with_key},
    bounds::{Watch, until},
    broker::Broker,
};

/// A subscriber of a channel, as it runs.
fn subscriber(broker: &Broker, key: &str, channel: &str) -> Child {
    let mut command = broker.command(&["live", "subscribe", channel]);
    command.env("SENNIT_KEY", key).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the binary starts")
}

#[test]
fn connections_are_listed_reached_and_sent_away() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let as_admin = |arguments: &[&str], input: &str| with_key(&broker, &admin, arguments, input);
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let said = as_admin(arguments, "");
        assert!(said.status.success(), "{arguments:?} {}", text(&said.stderr));
        let lines = text(&said.stdout);
        lines.lines().map(|line| serde_json::from_str(line).expect("it is JSON")).collect()
    };
    let rights = ["auth", "key", "create", "page", "--right", "subscribe,create >", "--json"];
    let created = &lines(&rights)[0];
    let (key, id) = (created["key"].as_str().unwrap(), created["id"].as_str().unwrap());
    let mut first = subscriber(&broker, key, "news");
    let _first = Watch::over(&first, "live subscribe");
    let mut second = subscriber(&broker, key, "chat:index");
    let _second = Watch::over(&second, "live subscribe");
    let of_user = ["live", "connections", "--of-user", id, "--json"];
    until("both are subscribed", || {
        let all = lines(&of_user);
        all.len() == 2 && all.iter().all(|one| one["channels"] != json!([]))
    });
    let one = lines(&of_user).into_iter().find(|one| one["channels"] == json!(["news"])).unwrap();
    assert_eq!(one["user"], id);
    let shown = text(&as_admin(&["live", "connections"], "").stdout);
    assert!(shown.contains("chat:index") && shown.contains("127.0.0.1:"), "{shown}");

    let sent = as_admin(&["live", "send", "--to-user", id, "{\"a\": 1}"], "");
    assert_eq!((sent.status.code(), text(&sent.stderr).as_str()), (Some(0), "2 reached, 0 missed"));
    let connection = one["id"].as_str().unwrap();
    let told = lines(&["live", "send", "--to-connection", connection, "no JSON", "--json"]);
    assert_eq!(told, [json!({ "reached": 1, "missed": 0 })]);
    let sent = as_admin(&["live", "send", "--to-all", "-"], "of standard input");
    assert_eq!(text(&sent.stderr), "2 reached, 0 missed");

    let gone = as_admin(&["live", "disconnect", connection], "");
    assert_eq!(text(&gone.stderr), "1 connection disconnected");
    assert!(!first.wait().unwrap().success(), "it does not come back");
    let told = lines(&["live", "disconnect", "--of-user", id, "--json"]);
    assert_eq!(told, [json!({ "disconnected": 1 })]);
    assert!(!second.wait().unwrap().success());
    assert!(lines(&of_user).is_empty());

    for (key, arguments, exit, said) in [
        (&*admin, &["live", "disconnect", connection][..], 3, "there is no such connection"),
        (&admin, &["live", "disconnect", "x"], 2, "20 hexadecimal digits"),
        (&admin, &["live", "disconnect", "--of-user", id, "--code", "7"], 2, "code is 3503"),
        (&admin, &["live", "send", "x"], 2, "--to-user"),
        (key, &["live", "connections"], 5, "missing right: live"),
        (key, &["live", "send", "--to-all", "x"], 5, "missing right: live"),
    ] {
        let refused = with_key(&broker, key, arguments, "");
        let talk = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(exit), "{arguments:?}: {talk}");
        assert!(talk.contains(said), "{arguments:?}: {talk}");
    }
}
