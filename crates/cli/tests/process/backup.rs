//! A backup of a running broker, restored: all messages that were confirmed before exist, and none that was never
//! published.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{
    asking,
    bounds::{BOUND, Watch, joined, until},
    broker::{Broker, run, sennit},
};

/// A new data directory with segments so short that some are filled soon.
pub fn short_segments(data: &Path, shards: u32, segment_bytes: u64) {
    std::fs::create_dir_all(data).unwrap();
    let text = format!(
        "sennit data directory\nformat = 1\nshards = {shards}\nsegment_bytes = {segment_bytes}\n\
         incarnation = 42\n"
    );
    std::fs::write(data.join("FORMAT"), text).unwrap();
}

/// The packs of a lane, in order, when there are so many.
pub fn moved(lane: &Path, packs: usize) -> Vec<PathBuf> {
    let mut held: Vec<PathBuf> = Vec::new();
    until("so much is moved", || {
        let names = std::fs::read_dir(lane).unwrap().map(|entry| entry.unwrap().path());
        held = names.filter(|path| path.extension() == Some("pack".as_ref())).collect();
        held.len() >= packs
    });
    held.sort();
    held
}

/// The body of what the HTTP port answers.
pub fn get(http: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(http).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// Lines of about 1 KB that begin with their number.
pub fn lines(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let line = |number| format!("{number} {}\n", "x".repeat(1000)).into_bytes();
    numbers.flat_map(line).collect()
}

fn numbers(lines: &[u8]) -> Vec<u32> {
    let lines = std::str::from_utf8(lines).unwrap().lines();
    lines.map(|line| line.split(' ').next().unwrap().parse().unwrap()).collect()
}

/// The names in a list of topics.
fn topics(listed: &[u8]) -> Vec<String> {
    let lines = std::str::from_utf8(listed).unwrap().lines();
    lines.map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

pub fn restore(file: &Path, data: &Path) -> Output {
    let mut command = sennit(&["restore", "--json"]);
    command.arg(file).arg("--data").arg(data);
    run(command, b"")
}

fn restored(file: &Path, data: &Path) -> Value {
    let output = restore(file, data);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// A folder and a broker in it with two shards of short segments.
fn broker() -> (TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    short_segments(&data, 2, 1 << 20);
    let broker = Broker::start_with(&data, &["--journal-segments", "4"]);
    (folder, broker)
}

fn back_up(broker: &Broker, folder: &TempDir, name: &str) -> PathBuf {
    let file = folder.path().join(name);
    let said = broker.ok(&["backup", "--json", "--to", file.to_str().unwrap()], b"");
    let said: Value = serde_json::from_slice(&said).unwrap();
    assert_eq!(said["shards"], 2, "{said}");
    assert!(!folder.path().join(format!("{name}.part")).exists());
    file
}

/// A backup that nobody takes further than the pipe goes, and its first block.
pub fn stalled(broker: &Broker) -> (Child, Vec<u8>, Watch) {
    let mut child = broker
        .command(&["backup", "--to", "-"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let watch = Watch::over(&child, "the backup");
    let mut first = vec![0; 512];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert!(first.starts_with(b"BACKUP"));
    (child, first, watch)
}

#[test]
fn a_backup_to_standard_output_says_what_it_is_beside_it() {
    let (folder, broker) = broker();
    broker.ok(&["topic", "create", "orders"], b"");
    broker.ok(&["publish", "orders"], &lines(0..100));
    let output = broker.run(&["backup", "--json", "--to", "-"], b"");
    assert!(output.status.success());
    let said: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(said["file"], "-");
    let file = folder.path().join("taken");
    std::fs::write(&file, &output.stdout).unwrap();
    let restored = restored(&file, &folder.path().join("restored"));
    for counted in ["shards", "files", "bytes"] {
        assert_eq!(said[counted], restored[counted], "{counted}: {said}, {restored}");
    }
    assert!(said["bytes"].as_u64() > Some(100_000), "{said}");
}

#[test]
fn a_restored_broker_signs_with_the_keys_of_the_one_that_was_backed_up() {
    let (folder, broker) = broker();
    let subscription = r#"{"type":"pull-wake","pattern":"jobs/*","wake_stream":"wake"}"#;
    let json = [("content-type", "application/json")];
    let put = asking::ask(&broker.http, "PUT", "__ds/subscriptions/s", &json, subscription);
    assert_eq!(put.unwrap().status, 201);
    let keys = |http: &str| get(http, "/v1/stream/__ds/jwks.json");
    let before = keys(&broker.http);
    assert!(before.contains("Ed25519"), "{before}");
    let file = back_up(&broker, &folder, "sennit.backup");
    let data = folder.path().join("restored");
    restored(&file, &data);
    let other = Broker::start(&data);
    assert_eq!(keys(&other.http), before);
    let found = asking::ask(&other.http, "GET", "__ds/subscriptions/s", &[], "").unwrap();
    assert_eq!(found.status, 200);
    // Both are for their owner alone.
    for secret in [file, data.join("subscription-keys")] {
        let mode = std::fs::metadata(&secret).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", secret.display());
    }
}

#[test]
fn what_was_confirmed_before_a_backup_is_in_it_while_producers_and_consumers_go_on() {
    let (folder, broker) = broker();
    broker.ok(&["topic", "create", "kept", "--partitions", "4"], b"");
    broker.ok(&["topic", "create", "ordered"], b"");
    broker.ok(&["publish", "kept"], &lines(0..3000));
    broker.ok(&["publish", "ordered"], &lines(0..3000));
    let taken = broker.ok(&["consume", "ordered", "--count", "1000"], b"");
    assert_eq!(numbers(&taken), (0..1000).collect::<Vec<_>>());

    // From here on somebody always publishes, and somebody always consumes.
    let stop = Arc::new(AtomicBool::new(false));
    let mut publishers = Vec::new();
    for topic in ["kept", "ordered", "passing"] {
        let publish = ["publish", topic, "--create"];
        let mut child = broker.command(&publish).stdin(Stdio::piped()).spawn().unwrap();
        let (mut input, stop) = (child.stdin.take().unwrap(), stop.clone());
        publishers.push(std::thread::spawn(move || {
            let mut next = 3000;
            while !stop.load(SeqCst) {
                input.write_all(&lines(next..next + 25)).unwrap();
                next += 25;
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(input);
            let _watch = Watch::over(&child, "the publisher");
            assert!(child.wait().unwrap().success());
            next
        }));
    }
    // Topics come and go too: each gets a message, and every other one is deleted.
    let (server, stopped) = (broker.listen.clone(), stop.clone());
    let made: Arc<AtomicU32> = Arc::default();
    let making = made.clone();
    let catalogue = std::thread::spawn(move || {
        let run = |arguments: &[&str]| {
            let mut command = sennit(arguments);
            command.env("SENNIT_SERVER", &server);
            assert!(run(command, b"").status.success(), "{arguments:?}");
        };
        for number in 0.. {
            if stopped.load(SeqCst) {
                break;
            }
            let name = format!("made-{number}");
            run(&["topic", "create", &name, "--partitions", "4"]);
            run(&["publish", &name, "hello"]);
            if number % 2 == 1 {
                run(&["topic", "delete", &name]);
            }
            making.store(number + 1, SeqCst);
        }
    });
    let mut consumer = broker
        .command(&["consume", "passing", "--follow"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut files = Vec::new();
    for n in 0..3 {
        until("topics are made", || made.load(SeqCst) >= 2 * n + 2);
        let made_before = made.load(SeqCst);
        files.push((back_up(&broker, &folder, &format!("backup-{n}")), made_before));
    }
    stop.store(true, SeqCst);
    let ends: Vec<u32> =
        publishers.into_iter().map(|thread| joined("it publishes", thread)).collect();
    joined("topics come and go", catalogue);
    consumer.kill().unwrap();
    consumer.wait().unwrap();
    let all = numbers(&broker.ok(&["consume", "ordered"], b""));
    assert_eq!(all, (1000..ends[1]).collect::<Vec<_>>(), "the broker itself lost something");
    drop(broker);

    let mut ended = 3000;
    for (n, (file, made_before)) in files.iter().enumerate() {
        let data = folder.path().join(format!("data-{n}"));
        assert!(restored(file, &data)["records"].as_u64().unwrap() > 0);
        let broker = Broker::start(&data);
        let listed = topics(&broker.ok(&["topic", "list"], b""));
        for number in 0..*made_before {
            let name = format!("made-{number}");
            assert_eq!(listed.contains(&name), number % 2 == 0, "{name}: {listed:?}");
            if number % 2 == 0 {
                assert_eq!(broker.ok(&["consume", &name], b""), b"hello\n", "{name}");
            }
        }
        for name in &listed {
            // Each partition of each topic is served.
            let said = broker.ok(&["topic", "describe", name, "--json"], b"");
            let said: Value = serde_json::from_slice(&said).unwrap();
            let count = said["partitions"].as_u64().unwrap();
            assert_eq!(said["partition"].as_array().unwrap().len() as u64, count, "{said}");
        }
        let mut kept = numbers(&broker.ok(&["consume", "kept"], b""));
        kept.sort_unstable();
        let whole: Vec<u32> = (0..3000).collect();
        assert_eq!(kept[..3000], whole, "what was confirmed is missing, or came twice");
        assert!(kept.windows(2).all(|two| two[0] < two[1]) && kept.last() < Some(&ends[0]));
        let ordered = numbers(&broker.ok(&["consume", "ordered"], b""));
        let end = *ordered.last().unwrap() + 1;
        assert_eq!(ordered, (1000..end).collect::<Vec<_>>());
        assert!(end >= ended && end <= ends[1], "{end} after {ended}");
        ended = end;
        // It goes on where it stopped.
        broker.ok(&["publish", "ordered"], &lines(7..8));
        assert_eq!(numbers(&broker.ok(&["consume", "ordered"], b"")), [7]);
    }
}

#[test]
fn what_a_backup_copies_stays_as_it_was_while_the_broker_goes_on() {
    let (folder, broker) = broker();
    broker.ok(&["topic", "create", "kept"], b"");
    broker.ok(&["publish", "kept"], &lines(0..30_000));
    let (mut backup, mut archive, _watch) = stalled(&broker);
    // All of what is copied comes free, and is wanted again many times over.
    assert_eq!(broker.ok(&["consume", "kept"], b""), lines(0..30_000));
    for _ in 0..4 {
        broker.ok(&["publish", "kept"], &lines(50_000..65_000));
        broker.ok(&["consume", "kept"], b"");
    }
    let second = broker.run(&["backup", "--to", "-"], b"");
    assert_eq!(second.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&second.stderr).contains("under way"));

    backup.stdout.take().unwrap().read_to_end(&mut archive).unwrap();
    assert!(backup.wait().unwrap().success());
    drop(broker);
    let (file, data) = (folder.path().join("backup"), folder.path().join("restored"));
    std::fs::write(&file, archive).unwrap();
    restored(&file, &data);
    let broker = Broker::start(&data);
    assert!(broker.ok(&["consume", "kept"], b"") == lines(0..30_000), "other lines came");
}

#[test]
fn a_backup_that_is_abandoned_leaves_room_for_the_next() {
    let (folder, broker) = broker();
    broker.ok(&["publish", "kept", "--create"], &lines(0..30_000));
    let (mut backup, _, _watch) = stalled(&broker);
    backup.kill().unwrap();
    backup.wait().unwrap();
    let file = folder.path().join("backup");
    until("the abandoned backup is over", || {
        let output = broker.run(&["backup", "--to", file.to_str().unwrap()], b"");
        match output.status.code() {
            Some(0) => true,
            Some(4) => false,
            code => panic!("{code:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    });
    // Its name is taken now.
    let again = broker.run(&["backup", "--to", file.to_str().unwrap()], b"");
    assert_eq!(again.status.code(), Some(4));
    broker.ok(&["backup", "--overwrite", "--to", file.to_str().unwrap()], b"");
    let data = folder.path().join("restored");
    restored(&file, &data);
    let twice = restore(&file, &data);
    assert_eq!(twice.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("not empty"));
}

#[test]
fn a_broker_that_is_killed_in_the_middle_leaves_a_backup_that_says_so() {
    let (folder, mut broker) = broker();
    broker.ok(&["publish", "kept", "--create"], &lines(0..30_000));
    let (mut backup, mut archive, _watch) = stalled(&broker);
    broker.kill();
    backup.stdout.take().unwrap().read_to_end(&mut archive).unwrap();
    let output = backup.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.contains("ended the backup after"), "{said}");
    broker.start_again();
    let file = back_up(&broker, &folder, "backup");
    let cut_file = folder.path().join("cut");
    std::fs::write(&cut_file, archive).unwrap();
    let data = folder.path().join("restored");
    let output = restore(&cut_file, &data);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("not whole"));
    assert!(!data.exists());
    restored(&file, &data);
    let broker = Broker::start(&data);
    assert!(broker.ok(&["consume", "kept"], b"") == lines(0..30_000), "other lines came");
}

#[test]
fn an_archive_that_does_not_come_whole_gets_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap().to_string();
    let broker = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        assert!(stream.read(&mut request).unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 5120\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&[0; 2048]).unwrap();
    });
    let file = folder.path().join("backup");
    let mut command = sennit(&["backup", "--http", &http, "--to"]);
    command.arg(&file);
    let output = run(command, b"");
    joined("the command asks", broker);
    assert!(!output.status.success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    let mut command = sennit(&["backup", "--http", &http, "--to"]);
    command.arg(&file);
    assert_eq!(run(command, b"").status.code(), Some(6), "nobody listens");
}

/// Where the content of each entry lies: name, first byte, length.
fn entries(archive: &[u8]) -> Vec<(String, usize, usize)> {
    let mut archive = tar::Archive::new(archive);
    let entries = archive.entries().unwrap().map(|entry| {
        let entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        (name, entry.raw_file_position() as usize, entry.size() as usize)
    });
    entries.collect()
}

#[test]
fn an_archive_that_was_cut_or_changed_is_refused_and_leaves_nothing() {
    let (folder, broker) = broker();
    // One on each shard.
    broker.ok(&["publish", "kept", "--create"], &lines(0..100));
    broker.ok(&["publish", "other", "--create"], &lines(0..100));
    let whole = std::fs::read(back_up(&broker, &folder, "backup")).unwrap();
    drop(broker);
    let entries = entries(&whole);
    assert!(entries.len() > 4, "{entries:?}");
    let (file, data) = (folder.path().join("changed"), folder.path().join("restored"));
    let refused = |bytes: &[u8], what: &str| {
        std::fs::write(&file, bytes).unwrap();
        let output = restore(&file, &data);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert!(!data.exists(), "{what} left something");
        said
    };
    for (name, at, length) in &entries {
        // Before its header, within it, behind it, within it itself, and behind it.
        for cut in [at - 512, at - 300, *at, at + length / 2, at + length - 1] {
            let said = refused(&whole[..cut], &format!("cut at {cut} in {name}"));
            assert!(said.contains("not whole") || cut < 512, "{cut} in {name}: {said}");
        }
        for flip in [at - 500, *at, at + length / 2, at + length - 1] {
            let mut changed = whole.clone();
            changed[flip] ^= 4;
            let said = refused(&changed, &format!("flipped {flip} in {name}"));
            let is_said = ["damaged", "no sennit backup", "holds", "not a data directory", "newer"]
                .iter()
                .any(|words| said.contains(words));
            assert!(is_said, "{flip} in {name}: {said}");
        }
    }
    // A whole entry is left out.
    let (_, at, length) = &entries[3];
    let without = [&whole[..at - 512], &whole[at + length..]].concat();
    assert!(refused(&without, "an entry less").contains("entries are missing"));
    std::fs::write(&file, &whole).unwrap();
    restored(&file, &data);
}

#[test]
fn a_newer_format_is_refused_by_all_who_read_it() {
    let (folder, broker) = broker();
    broker.ok(&["publish", "kept", "--create"], &lines(0..10));
    let whole = std::fs::read(back_up(&broker, &folder, "backup")).unwrap();
    drop(broker);
    let data = folder.path().join("data");
    let format = std::fs::read_to_string(data.join("FORMAT")).unwrap();
    std::fs::write(data.join("FORMAT"), format.replace("format = 1", "format = 3")).unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"];
    for command in [&serve[..], &["storage", "verify", "--data"]] {
        let mut command = sennit(command);
        command.arg(&data);
        let output = run(command, b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("has format 3") && said.contains("newer version"), "{said}");
    }
    // The archive's own format, and that of the directory in it.
    for (_, at, length) in &entries(&whole)[..2] {
        let mut newer = whole.clone();
        let text = std::str::from_utf8(&whole[*at..at + length]).unwrap();
        let text = text.replace("format = 1", "format = 3");
        newer[*at..at + length].copy_from_slice(text.as_bytes());
        let file = folder.path().join("newer");
        std::fs::write(&file, newer).unwrap();
        let restored = folder.path().join("restored");
        let output = restore(&file, &restored);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("has format 3") && said.contains("newer version"), "{said}");
        assert!(!restored.exists());
    }
}

#[test]
fn what_was_damaged_before_it_was_backed_up_is_said_and_restored_only_if_that_is_wanted() {
    let (folder, broker) = broker();
    broker.ok(&["topic", "create", "kept", "--partitions", "4"], b"");
    broker.ok(&["publish", "kept"], &lines(0..6000));
    let slot = folder.path().join("data/lane-0/slot-00000.journal");
    let slot = std::fs::File::options().read(true).write(true).open(slot).unwrap();
    let mut byte = [0];
    slot.read_exact_at(&mut byte, 4096 + 20).unwrap();
    slot.write_all_at(&[byte[0] ^ 1], 4096 + 20).unwrap();
    let file = back_up(&broker, &folder, "backup");
    let data = folder.path().join("restored");
    let output = restore(&file, &data);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("damaged in 1 places when it was backed up"), "{said}");
    assert!(said.contains("slot-00000.journal") && !data.exists(), "{said}");
    let mut command = sennit(&["restore", "--json", "--keep-damaged"]);
    command.arg(&file).arg("--data").arg(&data);
    let output = run(command, b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("slot-00000.journal"), "{said}");
    let restored: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(restored["damaged"], 1);
}

#[test]
fn a_pack_that_is_gone_is_named_when_a_backup_without_it_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    short_segments(&folder.path().join("data"), 1, 1 << 20);
    let lane = folder.path().join("data/lane-0");
    let broker = Broker::start_with(&folder.path().join("data"), &["--journal-segments", "1"]);
    broker.ok(&["publish", "kept", "--create"], &lines(0..20_000));
    // Of two the first is referred to.
    std::fs::remove_file(&moved(&lane, 2)[0]).unwrap();
    let file = folder.path().join("backup");
    broker.ok(&["backup", "--to", file.to_str().unwrap()], b"");
    let output = restore(&file, &folder.path().join("restored"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("damaged in 1 places when it was backed up"), "{said}");
    assert!(said.contains("a pack with messages that are wanted is missing"), "{said}");
}
