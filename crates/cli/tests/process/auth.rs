//! A broker that asks for credentials: every verb of the command line with a key and without, the first start, and
//! changes of who may do what that are interrupted by a kill.

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use sennit_client::{AccessKind, Client, Credential, Error, Holder, PrincipalName, Reconnect};
use tempfile::TempDir;

use crate::{
    bounds::{Watch, until, within},
    broker::{Broker, run, sennit},
};

/// A broker with an admin, and the admin's key.
pub fn guarded(folder: &TempDir) -> (Broker, String) {
    let broker = Broker::start_with(folder.path(), &["--init-admin"]);
    let key = broker.admin_key.clone().expect("the first start makes an admin key");
    (broker, key)
}

pub fn with_key(broker: &Broker, key: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = broker.command(arguments);
    command.env("SENNIT_KEY", key);
    run(command, input.as_bytes())
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

/// Every verb that asks a broker, in an order in which each has what it needs; with its input.
const VERBS: &[(&[&str], &str)] = &[
    (&["topic", "create", "jobs"], ""),
    (&["topic", "list"], ""),
    (&["topic", "describe", "jobs"], ""),
    (&["group", "create", "jobs", "mail"], ""),
    (&["group", "list", "jobs"], ""),
    (&["publish", "jobs", "--delay", "1h"], "later\n"),
    (&["delayed", "list", "jobs"], ""),
    (&["publish", "jobs"], "now\n"),
    (&["explain", "jobs", "0"], ""),
    (&["messages", "jobs", "count"], ""),
    (&["consume", "jobs", "-n", "1"], ""),
    (&["read", "jobs", "-n", "1"], ""),
    (&["cursor", "list", "jobs"], ""),
    (&["dead-letters", "jobs.dead-letter", "count"], ""),
    (&["schedule", "create", "yearly", "--topic", "jobs", "--cron", "0 0 1 1 *"], ""),
    (&["schedule", "list"], ""),
    (&["kv", "set", "color", "green"], ""),
    (&["kv", "get", "color"], ""),
    (&["throttle", "set", "tenant:*", "100/s"], ""),
    (&["throttle", "list"], ""),
    (&["hook", "list"], ""),
    (&["stream", "create", "notes"], ""),
    (&["stream", "append", "notes"], "line\n"),
    (&["stream", "read", "notes"], ""),
    (&["live", "publish", "news", "hello"], ""),
    (&["live", "subscribe", "news", "--from", "earliest", "-n", "1"], ""),
    (&["live", "connections"], ""),
    (&["live", "send", "--to-all", "hello"], ""),
    (&["live", "disconnect", "--of-user", "nobody"], ""),
    (&["subscription", "list"], ""),
    (&["auth", "key", "list"], ""),
    (&["auth", "user", "list"], ""),
    (&["auth", "role", "list"], ""),
    (&["auth", "tenant", "list"], ""),
    (&["topic", "delete", "jobs"], ""),
];

#[test]
fn every_verb_does_its_work_with_a_key_and_nothing_without() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let created = with_key(&broker, &admin, &["auth", "key", "create", "none"], "");
    let powerless = text(&created.stdout);
    for (arguments, input) in VERBS {
        let without = broker.run(arguments, input.as_bytes());
        assert_eq!(without.status.code(), Some(5), "{arguments:?} {}", text(&without.stderr));
        assert!(without.stdout.is_empty(), "{arguments:?} {}", text(&without.stdout));
        let may_list = arguments.last() == Some(&"list") && arguments[0] != "auth";
        let is_empty_list = may_list && arguments.len() == 2 && arguments[0] != "subscription";
        let no_right = with_key(&broker, &powerless, arguments, input);
        let expected = if is_empty_list { 0 } else { 5 };
        let said = text(&no_right.stderr);
        assert_eq!(no_right.status.code(), Some(expected), "{arguments:?} {said}");
        assert!(no_right.stdout.is_empty(), "{arguments:?} {}", text(&no_right.stdout));
        let done = with_key(&broker, &admin, arguments, input);
        // Nothing has died.
        let expected = if arguments[0] == "dead-letters" { 3 } else { 0 };
        assert_eq!(done.status.code(), Some(expected), "{arguments:?} {}", text(&done.stderr));
    }
    let archive = folder.path().join("archive.tar");
    let backup = ["backup", "--to", archive.to_str().unwrap()];
    assert_eq!(broker.run(&backup, b"").status.code(), Some(5));
    let done = with_key(&broker, &admin, &backup, "");
    assert!(done.status.success(), "{}", text(&done.stderr));
}

#[test]
fn a_request_is_replied_to_between_two_keys_with_the_rights_for_it_alone() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let key = |name: &str, rights: &[&str]| {
        let mut arguments = vec!["auth", "key", "create", name];
        rights.iter().for_each(|right| arguments.extend(["--right", right]));
        text(&with_key(&broker, &admin, &arguments, "").stdout)
    };
    assert!(with_key(&broker, &admin, &["topic", "create", "upper"], "").status.success());
    let asks =
        key("asks", &["publish upper", "create,consume,settle,delete,describe,read inbox.>"]);
    let replies = key("replies", &["consume,settle upper", "publish inbox.>"]);
    let mut replying = broker
        .command(&["reply", "upper", "--exec", "tr a-z A-Z", "-n", "1"])
        .env("SENNIT_KEY", replies)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let reply = with_key(&broker, &asks, &["request", "upper", "hello"], "");
    assert_eq!(text(&reply.stdout), "HELLO", "{}", text(&reply.stderr));
    assert!(replying.wait().unwrap().success());
}

#[test]
fn a_user_logs_in_with_a_password_from_a_file_and_changes_it() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let file = folder.path().join("password");
    let file = file.to_str().unwrap();
    std::fs::write(file, "correct horse battery\n").unwrap();
    let create = ["auth", "user", "create", "ada", "--role", "viewer", "--new-password-file", file];
    let created = with_key(&broker, &admin, &create, "");
    assert!(created.status.success(), "{}", text(&created.stderr));
    assert_eq!(with_key(&broker, &admin, &create, "").status.code(), Some(4));
    let list = ["topic", "list", "--user", "ada", "--password-file", file];
    assert!(broker.run(&list, b"").status.success());
    let new = folder.path().join("new");
    std::fs::write(&new, "another horse battery").unwrap();
    let change = ["auth", "user", "password", "ada", "--new-password-file", new.to_str().unwrap()];
    assert!(with_key(&broker, &admin, &change, "").status.success());
    assert_eq!(broker.run(&list, b"").status.code(), Some(5));
    let short = ["auth", "user", "password", "ada", "--new-password-file", "-"];
    let refused = with_key(&broker, &admin, &short, "short");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    assert!(!text(&refused.stderr).contains("short"), "{}", text(&refused.stderr));
}

#[test]
fn a_broker_beyond_loopback_has_a_key_or_does_not_start() {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("data");
    let serve = |flags: &[&str]| -> Command {
        let mut command = sennit(&["serve", "--json", "--until-stdin-ends", "--data"]);
        command.arg(&data).args(["--listen", "0.0.0.0:0", "--http", "127.0.0.1:0"]).args(flags);
        command
    };
    let refused = said_by(serve(&[]));
    assert_eq!((refused.0, refused.1.as_str()), (Some(2), ""));
    assert!(!data.exists(), "nothing is made");
    let open = said_by(serve(&["--insecure-no-auth"]));
    assert!(open.0 == Some(0) && !open.1.contains("admin_key"), "{open:?}");
    assert_eq!(said_by(serve(&[])).0, Some(2), "there is a directory and no key");
    let mut contained = serve(&[]);
    contained.env("container", "oci").env_remove("SENNIT_INIT_ADMIN");
    let first = said_by(contained);
    assert!(first.1.contains("\"admin_key\":\"sennit_"), "{first:?}");
    for flags in [&[][..], &["--init-admin"]] {
        let again = said_by(serve(flags));
        assert_eq!(again.0, Some(0), "{again:?}");
        assert!(!again.1.contains("admin_key"), "it is shown once");
    }
}

/// The exit code of a broker that is asked to end once it serves, and what it says of itself.
fn said_by(mut serve: Command) -> (Option<i32>, String) {
    let serve = serve.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let _watch = Watch::over(&child, "a broker");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    drop(child.stdin.take());
    (child.wait().unwrap().code(), line)
}

/// The knowledge of one writer about its key: the rights that were confirmed, and the one that was tried last.
#[derive(Debug, Default)]
struct Granted {
    confirmed: Vec<String>,
    tried: Option<String>,
    /// The secrets of the key, the last one confirmed at the end.
    secrets: Vec<String>,
}

/// Gives its key one right after the other and rotates it, until the broker is gone.
async fn grant(client: Client, name: String, done: Arc<AtomicU64>) -> Granted {
    let access = client.access();
    let mut granted = Granted::default();
    let Ok(created) = access.create_key(&name, Holder::default(), None).await else {
        return granted;
    };
    granted.secrets.extend(created.key);
    let who = PrincipalName::Key(created.id.clone());
    for number in 0.. {
        let right = format!("allow read {name}.{number}");
        granted.tried = Some(right.clone());
        if access.grant(&who, Vec::new(), vec![right.clone()]).await.is_err() {
            return granted;
        }
        granted.confirmed.push(right);
        granted.tried = None;
        done.fetch_add(1, SeqCst);
        match access.rotate_key(&created.id, std::time::Duration::ZERO).await {
            Ok(changed) => granted.secrets.extend(changed.key),
            // The next generation may count or not.
            Err(_) => return granted,
        }
    }
    granted
}

#[test]
fn what_was_confirmed_of_grants_and_rotations_holds_over_kills() {
    let folder = TempDir::new().unwrap();
    let (mut broker, admin) = guarded(&folder);
    for life in 0..4_u64 {
        let done: Arc<AtomicU64> = Arc::default();
        let writers: Vec<_> = (0..4)
            .map(|n| {
                let (address, done) = (broker.listen.clone(), done.clone());
                let credential = Credential::Key(admin.clone());
                std::thread::spawn(move || {
                    within("a writer's life", async {
                        let client = Client::builder(&address).reconnect(Reconnect::off());
                        let client = client.credential(credential).connect().await.unwrap();
                        grant(client, format!("w{life}-{n}"), done).await
                    })
                })
            })
            .collect();
        until("some grants are confirmed", || done.load(SeqCst) > 40);
        broker.kill();
        let granted: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        broker.start_again();
        let address = broker.listen.clone();
        within("all is looked at", async {
            let builder = Client::builder(&address).credential(Credential::Key(admin.clone()));
            let admin = builder.connect().await.unwrap();
            let keys = admin.access().list(AccessKind::Keys).await.unwrap();
            for (n, granted) in granted.iter().enumerate() {
                let name = format!("w{life}-{n}");
                let Some(kept) = keys.iter().find(|key| key.name == name) else {
                    assert!(granted.secrets.is_empty(), "{name} is gone: {granted:?}");
                    continue;
                };
                let mut expected = granted.confirmed.clone();
                if kept.holder.rights.len() > expected.len() {
                    expected.extend(granted.tried.clone());
                }
                assert_eq!(kept.holder.rights, expected, "{name}");
                // One rotation may have been under way.
                let confirmed = granted.secrets.len() as u64;
                assert!(
                    [confirmed, confirmed + 1].contains(&kept.generation),
                    "{name} has generation {} after {confirmed}",
                    kept.generation
                );
                for (generation, secret) in (1..).zip(&granted.secrets) {
                    if generation + 3 < confirmed {
                        continue;
                    }
                    let credential = Credential::Key(secret.clone());
                    let login = Client::builder(&address).credential(credential).connect().await;
                    let counts = generation == kept.generation;
                    assert_eq!(login.is_ok(), counts, "{name} generation {generation}");
                }
            }
        });
    }
}

#[test]
fn a_client_whose_key_is_deleted_is_told_and_does_not_come_back() {
    let folder = TempDir::new().unwrap();
    let (broker, admin) = guarded(&folder);
    let address = broker.listen.clone();
    within("the client ends", async move {
        let connect =
            |key: String| Client::builder(&address).credential(Credential::Key(key)).connect();
        let admin = connect(admin).await.unwrap();
        let holder = Holder { rights: vec!["describe >".into()], ..Holder::default() };
        let key = admin.access().create_key("short", holder, None).await.unwrap();
        let client = connect(key.key.unwrap()).await.unwrap();
        assert!(client.access().decide(None, "describe", "a").await.unwrap().is_allowed);
        admin.access().delete(AccessKind::Keys, &key.id).await.unwrap();
        let ended = AtomicBool::new(false);
        while !ended.load(SeqCst) {
            match client.access().decide(None, "describe", "a").await {
                // The connection was lost while it was asked.
                Err(Error::OutcomeUnknown) => {}
                Err(Error::Closed | Error::Refused { .. }) => ended.store(true, SeqCst),
                other => panic!("{other:?}"),
            }
        }
    });
}
