//! When API keys were last used: listed to the minute, kept off the way of logins, and there after a restart.

use sennit_protocol::{Reply, Request, control};

use crate::{
    access::{Guarded, Key, logged_in},
    browser::Browser,
    http_streams::{TEXT, ask},
    world::until,
};

/// When a key was last used, as the list of keys says.
fn last_used(guarded: &mut Guarded, key: &Key) -> Option<u64> {
    let list = control::ListAccess { kind: control::AccessKind::Keys.into(), ..<_>::default() };
    let Reply::AccessList(list) = guarded.admin.ask(&Request::ListAccess(list)) else { panic!() };
    list.entries.into_iter().find(|entry| entry.id == key.id).unwrap().last_used_ms
}

/// The changes that the configuration has had since the start.
fn changes(guarded: &Guarded) -> u64 {
    let mut browser = Browser::of(&guarded.broker);
    let key = &guarded.admin_key;
    browser.say(format!(
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n"
    ));
    let metrics = browser.hear(true).body;
    let lines = metrics.lines().filter(|it| it.starts_with("sennit_configuration_changes_total"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn the_last_use_of_a_key_is_listed_by_each_door_and_kept_over_a_restart() {
    let mut guarded = Guarded::start();
    let keys = ["native", "http", "never"].map(|name| guarded.key("", &[&format!("* {name}.>")]));
    let created = keys.each_ref().map(|key| last_used(&mut guarded, key));
    assert_eq!(created, [None; 3], "who creates a key does not use it");
    let peer = logged_in(&guarded.broker, &keys[0].text);
    let headers = format!("Authorization: Bearer {}\r\n{TEXT}", keys[1].text);
    assert_eq!(ask(&mut Browser::of(&guarded.broker), "HEAD", "http.a", &headers, "").status, 404);
    let used = keys.each_ref().map(|key| last_used(&mut guarded, key));
    let [Some(native), Some(http), None] = used else { panic!("{used:?}") };
    assert!(native % 60_000 == 0 && http % 60_000 == 0, "to the minute: {used:?}");
    let wrong = format!("Authorization: Bearer {}x\r\n{TEXT}", keys[2].text);
    assert_eq!(ask(&mut Browser::of(&guarded.broker), "HEAD", "http.a", &wrong, "").status, 401);
    assert_eq!(last_used(&mut guarded, &keys[2]), None, "a wrong key is nobody's use");
    drop(peer);

    // The first use is kept at once, and a restart may come before that: then it is used again.
    for key in &keys[..2] {
        loop {
            guarded = guarded.restarted();
            if let Some(kept) = last_used(&mut guarded, key) {
                assert!(kept >= native && kept % 60_000 == 0, "{kept} of {used:?}");
                break;
            }
            logged_in(&guarded.broker, &key.text);
        }
    }
    assert_eq!(last_used(&mut guarded, &keys[2]), None);
}

#[test]
fn logins_write_nothing_once_the_hour_has_been_kept() {
    let mut guarded = Guarded::start();
    let key = guarded.key("", &["* >"]);
    logged_in(&guarded.broker, &key.text);
    // The key of the admin, and this one.
    let others = changes(&guarded);
    until("no use is kept", || changes(&guarded) > 1);
    for _ in 0..50 {
        logged_in(&guarded.broker, &key.text);
        let headers = format!("Authorization: Bearer {}\r\n{TEXT}", key.text);
        ask(&mut Browser::of(&guarded.broker), "HEAD", "a", &headers, "");
    }
    // The two that are kept, each once more if the hour ends now.
    assert!(changes(&guarded) <= others + 4, "{} after {others}", changes(&guarded));
    guarded.broker.stop();
}
