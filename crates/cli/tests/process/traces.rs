//! A refused, failed or interrupted verb leaves no file behind, or one that names itself.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use crate::{
    bounds::{Watch, until},
    broker::{Broker, run, sennit},
};

/// All that lies below a folder.
fn below(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        found.append(&mut below(&path));
        found.insert(path);
    }
    found
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// The binary, which takes signals as a terminal's programs do: one that `nohup` starts ignores some, and so
/// would its children.
fn sennit_with_signals(arguments: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT,TERM,HUP");
    for name in ["SENNIT_SERVER", "SENNIT_HTTP"] {
        command.args(["--unset", name]);
    }
    command.arg("RUST_LOG=warn").arg(env!("CARGO_BIN_EXE_sennit")).args(arguments);
    command
}

/// A verb on a folder, with nothing on its standard input.
fn on(data: &Path, verb: &[&str]) -> Output {
    let mut command = sennit(verb);
    command.arg("--data").arg(data);
    run(command, b"")
}

const SERVE: &[&str] = &["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];

#[test]
fn a_foreign_folder_is_left_as_it_was_by_every_verb() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("photos");
    std::fs::create_dir(&foreign).unwrap();
    std::fs::write(foreign.join("photo.jpg"), "not ours").unwrap();
    let before = below(folder.path());
    for (verb, code) in [
        (SERVE, 1),
        (&["storage", "verify"], 3),
        (&["storage", "repair"], 3),
        (&["restore", "/dev/null"], 4),
    ] {
        let output = on(&foreign, verb);
        assert_eq!(output.status.code(), Some(code), "{verb:?}: {}", said(&output));
        assert_eq!(below(folder.path()), before, "{verb:?}");
    }
}

#[test]
fn what_cannot_be_made_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("one/two");
    for (verb, code) in [
        (&[SERVE, &["--shards", "0"]].concat()[..], 2),
        (&[SERVE, &["--segment-size", "1MiB"]].concat(), 2),
        (&["storage", "verify"], 3),
        (&["storage", "repair"], 3),
        (&["restore", "/dev/null"], 1),
        (&["restore", "/no/such/file"], 3),
    ] {
        let output = on(&new, verb);
        assert_eq!(output.status.code(), Some(code), "{verb:?}: {}", said(&output));
        assert!(below(folder.path()).is_empty(), "{verb:?}: {:?}", below(folder.path()));
    }
}

#[test]
fn a_probe_of_a_folder_that_is_not_there_does_not_make_it() {
    let folder = tempfile::tempdir().unwrap();
    let broker_data = folder.path().join("broker");
    let broker = Broker::start(&broker_data);
    let probed = folder.path().join("one/two");
    let mut bench = broker.command(&["bench", "publish", "--messages", "10", "--probe"]);
    bench.args(["--http", &broker.http]).arg("--data").arg(&probed);
    let output = run(bench, b"");
    assert!(output.status.success(), "{}", said(&output));
    assert!(!folder.path().join("one").exists());
}

/// The archive of a broker that holds something.
fn archive(folder: &Path) -> Vec<u8> {
    let broker = Broker::start(&folder.join("source"));
    broker.ok(&["publish", "orders", "one", "--create"], b"");
    broker.ok(&["backup", "--to", "-"], b"")
}

/// A restore that has begun, and waits for the rest of its archive.
fn restoring(archive: &[u8], data: &Path) -> Child {
    let mut command = sennit_with_signals(&["restore", "-"]);
    command.arg("--data").arg(data).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let half = &archive[..archive.len() / 2];
    child.stdin.as_mut().unwrap().write_all(half).unwrap();
    until("a lane", || data.join("lane-0").exists());
    child
}

#[test]
fn a_restore_that_a_signal_ends_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    for name in ["-INT", "-TERM", "-HUP"] {
        let mut child = restoring(&archive, &folder.path().join("one/two"));
        let _open = child.stdin.take();
        signal(name, child.id());
        let _watch = Watch::over(&child, "the restore");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name}");
        assert!(said(&output).contains("ended by"), "{}", said(&output));
        assert!(!folder.path().join("one").exists(), "{name}");
    }
}

#[test]
fn what_a_killed_restore_leaves_names_itself_to_every_verb_and_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    let data = folder.path().join("restored");
    let mut child = restoring(&archive, &data);
    child.kill().unwrap();
    child.wait().unwrap();
    let before = below(&data);
    for (verb, code) in [
        (SERVE, 1),
        (&["storage", "verify"], 4),
        (&["storage", "repair"], 4),
        (&["restore", "-"], 4),
    ] {
        let output = on(&data, verb);
        assert_eq!(output.status.code(), Some(code), "{verb:?}: {}", said(&output));
        assert!(said(&output).contains("part of a restore"), "{verb:?}: {}", said(&output));
        assert_eq!(below(&data), before, "{verb:?}");
    }
}

#[test]
fn a_backup_that_a_signal_ends_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let archive = archive(folder.path());
    // One that sends half of what it promises, and goes silent.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", archive.len());
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(&archive[..archive.len() / 2]).unwrap();
        stream
    });
    let backups = folder.path().join("backups");
    std::fs::create_dir(&backups).unwrap();
    let mut command = sennit_with_signals(&["backup", "--http", &http, "--to"]);
    let command = command.arg(backups.join("backup")).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let _stream = server.join().unwrap();
    until("a file", || !below(&backups).is_empty());
    signal("-TERM", child.id());
    let _watch = Watch::over(&child, "the backup");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("ended by SIGTERM"), "{}", said(&output));
    assert!(below(&backups).is_empty());
}

/// The processes that this one has started.
fn children(pid: u32) -> Vec<u32> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let listed = listed.unwrap_or_default();
    listed.split_whitespace().map(|child| child.parse().unwrap()).collect()
}

fn runs(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody waits for has ended all the same.
    !state.is_empty() && !state.contains(") Z ")
}

/// A benchmark on a broker of its own that is at work, and its processes.
fn bench(folder: &Path) -> (Child, Vec<u32>) {
    let mut command = sennit_with_signals(&["bench", "steady", "--serve", "--duration", "600"]);
    command.current_dir(folder).process_group(0);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    // The broker, and a worker.
    until("a worker", || children(child.id()).len() >= 2);
    let processes = children(child.id());
    (child, processes)
}

#[test]
fn a_benchmark_that_a_signal_ends_takes_its_processes_and_its_data_along() {
    for name in ["-TERM", "-HUP"] {
        let folder = tempfile::tempdir().unwrap();
        let (mut child, processes) = bench(folder.path());
        signal(name, child.id());
        let _watch = Watch::over(&child, "the benchmark");
        assert_eq!(child.wait().unwrap().code(), Some(1), "{name}");
        until("the end of its processes", || !processes.iter().any(|&pid| runs(pid)));
        assert!(below(folder.path()).is_empty(), "{name}: {:?}", below(folder.path()));
    }
}

#[test]
fn the_processes_of_a_benchmark_that_was_killed_end_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let (mut child, processes) = bench(folder.path());
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of its processes", || !processes.iter().any(|&pid| runs(pid)));
}
