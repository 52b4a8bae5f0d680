//! Quotas of tenants and the last use of credentials from the command line, over kills.

use tempfile::TempDir;

use crate::{
    auth::{guarded, text, with_key},
    broker::Broker,
};

/// Runs a verb that has to succeed; what it prints.
fn ok(broker: &Broker, key: &str, arguments: &[&str], input: &str) -> String {
    let done = with_key(broker, key, arguments, input);
    assert!(done.status.success(), "{arguments:?}: {}", text(&done.stderr));
    text(&done.stdout)
}

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"))
}

#[test]
fn a_quota_of_stored_bytes_is_set_shown_and_counts_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let (mut broker, admin) = guarded(&folder);
    let tenant = ["auth", "tenant", "create", "acme", "--stored-bytes", "20kB"];
    ok(&broker, &admin, &tenant, "");
    let create = ["auth", "key", "create", "app", "--tenant", "acme", "--right", "* >"];
    let key = ok(&broker, &admin, &create, "");
    ok(&broker, &key, &["topic", "create", "acme.log", "--kind", "stream"], "");
    let payload = "x".repeat(9000);
    let publish = ["publish", "acme.log"];
    ok(&broker, &key, &publish, &payload);
    ok(&broker, &key, &publish, &payload);
    let refused = with_key(&broker, &key, &publish, &payload);
    let said = text(&refused.stderr);
    // Nothing of a stream without an age goes by itself: the publisher is told at once.
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("stored_bytes is 20000") && said.contains("delete messages"), "{said}");
    broker.kill();
    broker.start_again();
    assert!(!with_key(&broker, &key, &publish, &payload).status.success());
    let list = json(&ok(&broker, &admin, &["auth", "tenant", "list", "--json"], ""));
    assert_eq!(list["stored_bytes"], 20_000);
    assert!((18_000..20_000).contains(&list["bytes_stored"].as_u64().unwrap()), "{list}");
    let table = ok(&broker, &admin, &["auth", "tenant", "list"], "");
    assert!(table.contains(&format!("\t{}\t20000\t", list["bytes_stored"])), "{table}");
    // The operator publishes on, and a larger quota counts at once.
    ok(&broker, &admin, &publish, &payload);
    ok(&broker, &admin, &["auth", "tenant", "quotas", "acme", "--stored-bytes", "1MB"], "");
    ok(&broker, &key, &publish, &payload);
}

#[test]
fn the_list_of_keys_says_when_each_was_last_used_also_after_a_kill() {
    let folder = TempDir::new().unwrap();
    let (mut broker, admin) = guarded(&folder);
    let key = ok(&broker, &admin, &["auth", "key", "create", "app", "--right", "* app.>"], "");
    let list = |broker: &Broker| {
        let text = ok(broker, &admin, &["auth", "key", "list", "--json"], "");
        let keys: Vec<_> = text.lines().map(json).collect();
        keys.into_iter().find(|key| key["name"] == "app").unwrap()["last_used_ms"].as_u64()
    };
    assert_eq!(list(&broker), None);
    // Neither used nor with an end.
    let table = ok(&broker, &admin, &["auth", "key", "list"], "");
    assert!(
        table.lines().any(|row| row.contains("\tapp\t") && row.contains("\tnever\tnever\t")),
        "{table}"
    );
    // A kill may come before the first use is kept: then it is used again.
    let mut last = None;
    while last.is_none() {
        ok(&broker, &key, &["topic", "list"], "");
        assert!(list(&broker).is_some());
        broker.kill();
        broker.start_again();
        last = list(&broker);
    }
    assert_eq!(last.map(|at| at % 60_000), Some(0), "to the minute");
}
