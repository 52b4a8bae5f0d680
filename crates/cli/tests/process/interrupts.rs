//! Ctrl-C: the first lets a verb finish its current work, the second does not.

use std::{
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use crate::{
    bounds::{Watch, until},
    broker::{Broker, sennit},
};

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Stops a broker that answers nothing, until it is dropped.
struct Stopped(u32);

impl Stopped {
    fn new(process: u32) -> Self {
        signal("-STOP", process);
        Self(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal("-CONT", self.0);
    }
}

/// How it ends. Two that come at once may be one.
fn interrupted_until_it_ends(child: &mut Child) -> Option<i32> {
    let mut code = None;
    until("it ends", || {
        let ended = child.try_wait().unwrap();
        code = ended.and_then(|status| status.code());
        if ended.is_none() {
            signal("-INT", child.id());
        }
        ended.is_some()
    });
    code
}

#[test]
fn a_second_ctrl_c_ends_a_verb_that_waits_for_a_broker_that_answers_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    broker.ok(&["publish", "orders"], b"first\n");
    for verb in [&["read", "--from", "earliest"][..], &["consume"]] {
        let interrupted = || {
            let mut command = broker.command(&[verb, &["orders", "--follow"]].concat());
            let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
            let _watch = Watch::over(&child, "the verb");
            // Kept: a verb whose reader has left ends by itself.
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, "first\n");
            let _stopped = Stopped::new(broker.pid());
            interrupted_until_it_ends(&mut child)
        };
        // A verb waits for the broker's goodbye for a second and then ends well: on a busy machine the second
        // Ctrl-C may come later than that, but not every time.
        let mut codes = (0..20).map(|_| interrupted());
        assert!(codes.any(|code| code == Some(130)), "{verb:?}");
    }
}

#[test]
fn a_second_ctrl_c_ends_a_verb_whose_output_nobody_reads() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    // More than a pipe holds: who prints it waits.
    broker.ok(&["publish", "orders"], &[b'x'; 1 << 20]);
    for verb in ["read", "consume"] {
        let mut command = broker.command(&[verb, "orders", "--follow"]);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let _watch = Watch::over(&child, "the verb");
        let mut unread = child.stdout.take().unwrap();
        unread.read_exact(&mut [0]).unwrap();
        assert_eq!(interrupted_until_it_ends(&mut child), Some(130), "{verb}");
    }
}

#[test]
fn the_first_ctrl_c_lets_a_verb_finish_what_it_has_begun() {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(folder.path());
    broker.ok(&["topic", "create", "orders"], b"");
    broker.ok(&["publish", "orders"], b"first\n");
    let mut command = broker.command(&["consume", "orders", "--follow"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let _watch = Watch::over(&child, "the verb");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    signal("-INT", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(broker.ok(&["consume", "orders"], b""), b"");
}

#[test]
fn a_benchmark_that_ctrl_c_ends_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let results = folder.path().join("bench-results");
    let entries = || std::fs::read_dir(&results).map_or(0, Iterator::count);
    let mut command = sennit(&["bench", "publish", "--serve", "--duration", "600"]);
    command.current_dir(folder.path()).process_group(0);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let _watch = Watch::over(&child, "the benchmark");
    until("the benchmark writes results", || entries() > 0);
    assert_eq!(entries(), 1);
    // As a terminal does: all of its processes hear it.
    let group = format!("-{}", child.id());
    assert!(Command::new("kill").args(["-INT", "--", &group]).status().unwrap().success());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.contains("ended by Ctrl-C"), "{said}");
    assert_eq!(entries(), 0);
}

#[test]
fn a_broker_that_ctrl_c_ends_has_ended_all_its_threads() {
    let folder = tempfile::tempdir().unwrap();
    let listen = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let mut command = sennit(&[&["serve", "--json"][..], &listen].concat());
    command.arg("--data").arg(folder.path().join("data"));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let _watch = Watch::over(&child, "the broker");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    signal("-INT", child.id());
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), &said[..]), (Some(0), ""));
}
