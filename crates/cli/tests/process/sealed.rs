//! Sealed messages from the command line: keys in files, what the broker and its disk see, who can read, and what becomes
//! of a message that cannot be opened.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Output,
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    auth::text,
    broker::{Broker, run, sennit},
};

/// A folder for keys.
struct Keys(TempDir);

impl Keys {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Makes a key in a file; its public half goes to a file of its own.
    fn make(&self, kind: &str, name: &str) {
        let file = self.path(&format!("{name}.keys"));
        let made = run(sennit(&["seal", "new", kind, &file, "--label", name]), b"");
        assert!(made.status.success(), "{}", text(&made.stderr));
        fs::write(self.path(&format!("{name}.pub")), made.stdout).unwrap();
    }
}

fn seal(arguments: &[&str]) -> Output {
    run(sennit(&[&["seal"], arguments].concat()), b"")
}

fn json_lines(bytes: &[u8]) -> Vec<Value> {
    text(bytes).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found
}

#[test]
fn keys_are_made_shown_and_kept_from_others() {
    let keys = Keys::new();
    let file = keys.path("ada.keys");
    let made = seal(&["new", "recipient", &file, "--label", "ada of sales"]);
    assert!(text(&made.stdout).starts_with("sennit-recipient-key:"));
    assert!(text(&made.stdout).ends_with(" ada of sales"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(seal(&["new", "channel", &file]).status.code(), Some(4), "it is there already");
    assert!(seal(&["new", "channel", &file, "--add"]).status.success());
    assert!(seal(&["new", "shared-signing", &file, "--add", "--json"]).status.success());
    let shown = seal(&["show", &file, "--json"]);
    let kinds: Vec<_> = json_lines(&shown.stdout).iter().map(|key| key["kind"].clone()).collect();
    let first = ["sennit-shared-signing-key", "sennit-channel-key", "sennit-recipient-private-key"];
    assert_eq!(kinds, first);
    for line in fs::read_to_string(&file).unwrap().lines() {
        let (_, secret) = line.split_once(':').unwrap();
        for shown in [&shown, &seal(&["show", &file])] {
            assert!(!text(&shown.stdout).contains(&secret[..20]), "{line}");
        }
    }
    assert_eq!(seal(&["public", &file]).stdout, made.stdout);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let refused = seal(&["show", &file]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(text(&refused.stderr).contains("chmod 600"), "{}", text(&refused.stderr));
    fs::write(keys.path("none"), "\nsennit-channel-key:c2VjcmV0\n").unwrap();
    let refused = seal(&["show", &keys.path("none")]);
    assert_eq!(refused.status.code(), Some(2));
    let talk = text(&refused.stderr);
    assert!(talk.contains("line 2") && !talk.contains("c2VjcmV0"), "{talk}");
    assert_eq!(seal(&["show", &keys.path("missing")]).status.code(), Some(3));
}

#[test]
fn those_with_the_key_read_and_the_broker_and_its_disk_do_not() {
    const SECRET: &str = "for us only: the heron flies at nine";
    let (folder, keys) = (TempDir::new().unwrap(), Keys::new());
    let mut broker = Broker::start(folder.path());
    keys.make("channel", "news");
    let key = keys.path("news.keys");
    broker.ok(&["publish", "news", SECRET, "--seal", &key, "--create"], b"");
    broker.ok(&["live", "publish", "news", SECRET, "--seal", &key], b"");
    let twice = format!("{SECRET}\n{SECRET}\n");
    assert_eq!(text(&broker.ok(&["read", "news", "--unseal", &key], b"")), twice.trim());
    let live = ["live", "subscribe", "news", "--from", "earliest", "-n", "2", "--unseal", &key];
    assert_eq!(text(&broker.ok(&live, b"")), twice.trim());
    let sealed = broker.ok(&["read", "news", "--raw"], b"");
    assert!(sealed[0] == 0xf8 && !String::from_utf8_lossy(&sealed).contains("heron"));
    let told = json_lines(&broker.ok(&["read", "news", "--unseal", &key, "--json"], b""));
    assert_eq!((&told[0]["payload"], &told[0]["offset"]), (&json!(SECRET), &json!(0)));
    assert!(told[0]["sealed_at_ms"].as_u64() > Some(1_700_000_000_000), "{}", told[0]);
    // What was printed may be published again.
    let printed = broker.ok(&["read", "news", "--unseal", &key, "--json"], b"");
    let copy = ["publish", "copy", "--json-lines", "--create", "--seal", &key];
    broker.ok(&copy, &printed);
    assert_eq!(text(&broker.ok(&["read", "copy", "--unseal", &key], b"")), twice.trim());
    assert_eq!(text(&broker.ok(&["consume", "news", "--unseal", &key], b"")), twice.trim());
    assert_eq!(broker.terminate(), Some(0));
    for file in files(folder.path()) {
        let bytes = fs::read(&file).unwrap();
        let found = bytes.windows(5).any(|bytes| bytes == b"heron");
        assert!(!found, "{} has it", file.display());
    }
}

#[test]
fn a_channel_whose_name_has_signs_is_bound_to_its_topic() {
    let (folder, keys) = (TempDir::new().unwrap(), Keys::new());
    let broker = Broker::start(folder.path());
    keys.make("channel", "chat");
    let key = keys.path("chat.keys");
    broker.ok(&["live", "publish", "chat:größe", "hello", "--seal", &key], b"");
    let read = ["read", "chat%3Agr%C3%B6%C3%9Fe", "--unseal", &key];
    assert_eq!(text(&broker.ok(&read, b"")), "hello");
    broker.ok(&["publish", "chat%3Agr%C3%B6%C3%9Fe", "back", "--seal", &key], b"");
    let live =
        ["live", "subscribe", "chat:größe", "--from", "earliest", "--unseal", &key, "-n", "2"];
    assert_eq!(text(&broker.ok(&live, b"")), "hello\nback");
}

#[test]
fn what_is_not_for_these_keys_is_told_and_the_rest_is_printed() {
    let (folder, keys) = (TempDir::new().unwrap(), Keys::new());
    let broker = Broker::start(folder.path());
    for (kind, name) in [("recipient", "ada"), ("recipient", "bob"), ("signing", "shop")] {
        keys.make(kind, name);
    }
    let [ada, ada_public, bob_public, shop, shop_public] =
        ["ada.keys", "ada.pub", "bob.pub", "shop.keys", "shop.pub"].map(|name| keys.path(name));
    broker.ok(&["topic", "create", "orders"], b"");
    let publish = |body: &str, files: &[&str]| {
        let seals: Vec<_> = files.iter().flat_map(|file| ["--seal", file]).collect();
        broker.ok(&[&["publish", "orders", body][..], &seals].concat(), b"");
    };
    publish("for both", &[&ada_public, &bob_public, &shop]);
    publish("not sealed", &[]);
    publish("for bob", &[&bob_public, &shop]);
    publish("nobody's", &[&ada_public]);
    publish("for ada", &[&ada_public, &shop]);
    // The first message comes again.
    let sealed = broker.ok(&["read", "orders", "--raw", "-n", "1"], b"");
    broker.ok(&["publish", "orders", "--whole"], &sealed);
    let keys_of_ada = ["--unseal", &ada, "--unseal", &shop_public];
    let read = broker.run(&[&["read", "orders"][..], &keys_of_ada].concat(), b"");
    assert_eq!((text(&read.stdout).as_str(), read.status.code()), ("for both\nfor ada", Some(7)));
    let talk = text(&read.stderr);
    for said in ["not sealed", "sealed for others", "not signed", "came before", "4 messages"] {
        assert!(talk.contains(said), "{said}: {talk}");
    }
    let read = broker.run(&[&["read", "orders", "--json"][..], &keys_of_ada].concat(), b"");
    let lines = json_lines(&read.stdout);
    let told: Vec<_> = lines.iter().map(|line| line["refused"].as_str().unwrap_or("")).collect();
    assert_eq!(told, ["", "not-sealed", "no-recipient", "not-signed", "", "replayed"]);
    assert_eq!((&lines[0]["signed_by"], &lines[2]["offset"]), (&json!("shop"), &json!(2)));
    let live = ["live", "subscribe", "orders", "--from", "earliest", "-n", "5", "--json"];
    let live = broker.run(&[&live[..], &keys_of_ada].concat(), b"");
    let lines = json_lines(&live.stdout);
    let told: Vec<_> = lines.iter().map(|line| line["refused"].as_str().unwrap_or("")).collect();
    assert_eq!(told, ["", "not-sealed", "no-recipient", "not-signed", ""]);
    assert_eq!(live.status.code(), Some(7));
    let none = broker.run(&["read", "orders", "--unseal", &shop_public], b"");
    assert_eq!(none.status.code(), Some(1), "nothing was opened");
}

#[test]
fn a_consumer_leaves_what_it_cannot_open() {
    let (folder, keys) = (TempDir::new().unwrap(), Keys::new());
    let broker = Broker::start(folder.path());
    keys.make("channel", "jobs");
    let key = keys.path("jobs.keys");
    broker.ok(&["publish", "jobs", "one", "--seal", &key, "--create"], b"");
    broker.ok(&["publish", "jobs", "not sealed"], b"");
    broker.ok(&["publish", "jobs", "two", "--seal", &key], b"");
    let consumed = broker.run(&["consume", "jobs", "--unseal", &key], b"");
    assert_eq!((text(&consumed.stdout).as_str(), consumed.status.code()), ("one", Some(1)));
    assert!(text(&consumed.stderr).contains("not sealed"), "{}", text(&consumed.stderr));
    // The other two are in the group.
    let exec =
        ["consume", "jobs", "--unseal", &key, "--exec", "cat; echo", "--on-failure", "dead-letter"];
    let consumed = broker.run(&exec, b"");
    assert_eq!((text(&consumed.stdout).as_str(), consumed.status.code()), ("two", Some(7)));
    // A message that was moved is opened with the name of the topic for which it was sealed.
    broker.ok(&["publish", "jobs", "three", "--seal", &key], b"");
    let dead = ["consume", "jobs", "--verdict", "dead-letter"];
    broker.ok(&dead, b"");
    let moved = ["read", "jobs.dead-letter", "--from", "-1", "--unseal", &key];
    assert_eq!(broker.run(&moved, b"").status.code(), Some(1));
    let named = [&moved[..], &["--sealed-for", "jobs"]].concat();
    assert_eq!(text(&broker.ok(&named, b"")), "three");
}

#[test]
fn a_file_that_says_not_for_whom_to_seal_publishes_nothing() {
    let (folder, keys) = (TempDir::new().unwrap(), Keys::new());
    let broker = Broker::start(folder.path());
    for (kind, name) in [("recipient", "ada"), ("signing", "shop"), ("channel", "news")] {
        keys.make(kind, name);
    }
    let [ada, shop, news] = ["ada.pub", "shop.keys", "news.keys"].map(|name| keys.path(name));
    for (files, said) in [
        (&["--seal", &shop][..], "neither a channel key nor"),
        (&["--seal", &ada, "--seal", &news], "a channel or for recipients"),
    ] {
        for publish in
            [&["publish", "news", "one", "--create"][..], &["live", "publish", "news", "one"]]
        {
            let refused = broker.run(&[publish, files].concat(), b"");
            assert_eq!(refused.status.code(), Some(2));
            assert!(text(&refused.stderr).contains(said), "{}", text(&refused.stderr));
        }
    }
    assert_eq!(text(&broker.ok(&["topic", "list"], b"")), "");
}
