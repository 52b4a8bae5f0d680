//! A command for each message: it receives all of the message, its exit code is the verdict, and signals end it.

use std::{
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

use crate::{bounds::until, broker::Broker};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn broker() -> (tempfile::TempDir, Broker) {
    let folder = tempfile::tempdir().unwrap();
    let broker = Broker::start(&folder.path().join("data"));
    broker.ok(&["topic", "create", "q"], b"");
    (folder, broker)
}

fn signal(name: &str, process: u32) {
    let sent = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(sent.success());
}

fn group(broker: &Broker) -> Value {
    let said = broker.ok(&["group", "describe", "q", "default", "--json"], b"");
    serde_json::from_slice(&said).unwrap()
}

#[test]
fn a_command_is_told_all_of_its_message_and_acks_by_succeeding() {
    let (_folder, broker) = broker();
    let message = ["publish", "q", "the payload", "--key", "k 1", "-H", "content-type=text"];
    broker.ok(&message, b"");
    let line = "cat; echo \" $SENNIT_TOPIC $SENNIT_GROUP $SENNIT_PARTITION:$SENNIT_OFFSET \
        $SENNIT_ATTEMPT $SENNIT_KEY $SENNIT_HEADER_CONTENT_TYPE\"";
    let printed = broker.ok(&["consume", "q", "--exec", line], b"");
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(printed, "the payload q default 0:0 1 k 1 text\n");
    assert_eq!((&group(&broker)["ready"], &group(&broker)["leased"]), (&0.into(), &0.into()));
}

#[test]
fn what_a_command_fails_with_is_said_and_comes_again_or_is_a_dead_letter() {
    let (_folder, broker) = broker();
    broker.ok(&["publish", "q", "good", "bad", "fine"], b"");
    let work = ["consume", "q", "--exec", "! grep -q bad"];
    let output = broker.run(&[&work[..], &["--retry-after", "1h"]].concat(), b"");
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    for words in ["q 0:1 attempt 1", "exit code 1", "again in 1h", "1 of 3 commands failed"] {
        assert!(said(&output).contains(words), "{words}: {}", said(&output));
    }
    assert_eq!(group(&broker)["delayed"], 1);
    broker.ok(&["publish", "q", "very bad"], b"");
    let output = broker.run(&[&work[..], &["--on-failure", "dead-letter"]].concat(), b"");
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let dead = broker.ok(&["consume", "q.dead-letter", "--json"], b"");
    let dead = String::from_utf8(dead).unwrap();
    assert!(dead.contains("very bad") && dead.contains("exit code 1"), "{dead}");
}

#[test]
fn so_many_commands_run_at_once_and_no_more_messages_are_taken() {
    let (folder, broker) = broker();
    broker.ok(&["publish", "q", "1", "2", "3", "4", "5", "6"], b"");
    // Each waits until three have begun.
    let line = format!(
        "touch {0}/$SENNIT_OFFSET; until [ $(ls {0} | wc -l) -ge 3 ]; do sleep 0.01; done; \
         until [ -e {1} ]; do sleep 0.01; done",
        folder.path().join("begun").display(),
        folder.path().join("go").display()
    );
    let begun = folder.path().join("begun");
    std::fs::create_dir(&begun).unwrap();
    let mut command = broker.command(&["consume", "q", "--jobs", "3", "--exec", &line]);
    let mut child = command.spawn().unwrap();
    let count = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
    until("three commands", || count(&begun) == 3);
    assert_eq!((&group(&broker)["leased"], &group(&broker)["ready"]), (&3.into(), &3.into()));
    std::fs::write(folder.path().join("go"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(count(&begun), 6);
    assert_eq!((&group(&broker)["ready"], &group(&broker)["leased"]), (&0.into(), &0.into()));
}

#[test]
fn a_lease_does_not_end_while_its_command_runs() {
    let (folder, broker) = broker();
    broker.ok(&["group", "create", "q", "quick", "--lease", "200ms"], b"");
    broker.ok(&["publish", "q", "long"], b"");
    let go = folder.path().join("go");
    let line = format!("touch {0}.begun; until [ -e {0} ]; do sleep 0.01; done", go.display());
    let mut command = broker.command(&["consume", "q", "--group", "quick", "--exec", &line]);
    let mut child = command.spawn().unwrap();
    until("the command", || go.with_extension("begun").exists());
    // A delay of several leases is the clock: what ends it comes to another, and nothing else does.
    broker.ok(&["publish", "q", "clock", "--delay", "1s"], b"");
    let other = ["consume", "q", "--group", "quick", "--follow", "--count", "1"];
    assert_eq!(broker.ok(&other, b""), b"clock\n");
    std::fs::write(&go, "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(broker.ok(&["consume", "q", "--group", "quick"], b""), b"");
}

/// A consumer whose command has begun and does not end by itself; it writes its process into `file`.
fn stuck(broker: &Broker, file: &Path, command: &str) -> (Child, u32) {
    let line = format!(
        "{command} echo $$ > {0}.new; mv {0}.new {0}; while :; do sleep 0.05; done",
        file.display()
    );
    let mut consume = broker.command(&["consume", "q", "--follow", "--exec", &line]);
    let child = consume.stderr(Stdio::piped()).spawn().unwrap();
    until("the command", || file.exists());
    let pid = std::fs::read_to_string(file).unwrap().trim().parse().unwrap();
    (child, pid)
}

fn runs(pid: u32) -> bool {
    let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn a_signal_ends_the_commands_and_hands_their_messages_back() {
    let (folder, broker) = broker();
    broker.ok(&["publish", "q", "one"], b"");
    for name in ["-INT", "-TERM"] {
        let (child, pid) = stuck(&broker, &folder.path().join(name), "");
        signal(name, child.id());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        assert!(said(&output).contains("handed back"), "{}", said(&output));
        until("the end of the command", || !runs(pid));
        assert_eq!((&group(&broker)["ready"], &group(&broker)["leased"]), (&1.into(), &0.into()));
    }
}

#[test]
fn a_command_that_finishes_its_work_at_a_signal_acks_it() {
    let (folder, broker) = broker();
    broker.ok(&["publish", "q", "one"], b"");
    let (child, _) = stuck(&broker, &folder.path().join("pid"), "trap 'exit 0' TERM;");
    signal("-INT", child.id());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!((&group(&broker)["ready"], &group(&broker)["leased"]), (&0.into(), &0.into()));
}

#[test]
fn a_second_signal_kills_commands_that_do_not_want_to_end() {
    let (folder, broker) = broker();
    broker.ok(&["publish", "q", "one"], b"");
    let (mut child, pid) = stuck(&broker, &folder.path().join("pid"), "trap '' TERM;");
    until("the end of the verb", || {
        signal("-INT", child.id());
        child.try_wait().unwrap().is_some()
    });
    assert_eq!(child.wait().unwrap().code(), Some(130));
    until("the end of the command", || !runs(pid));
}

#[test]
fn a_message_whose_command_kills_the_consumer_has_failed_an_attempt() {
    let (_folder, broker) = broker();
    broker.ok(&["group", "create", "q", "once", "--attempts", "1", "--lease", "1s"], b"");
    // Not the oldest one: that the broker takes for worked on by itself.
    broker.ok(&["publish", "q", "waits", "kills"], b"");
    let line =
        "if grep -q kills; then kill -9 $PPID; fi; while kill -0 $PPID 2>&-; do sleep 0.01; done";
    let consume = ["consume", "q", "--group", "once", "--jobs", "2", "--exec", line];
    let mut child = broker.command(&consume).spawn().unwrap();
    until("the end of the consumer", || child.try_wait().unwrap().is_some());
    let mut dead = String::new();
    until("the dead letter", || {
        let letters = broker.run(&["consume", "q.dead-letter"], b"");
        dead.push_str(&String::from_utf8_lossy(&letters.stdout));
        dead.contains("kills")
    });
}

#[test]
fn a_count_of_messages_is_worked_on_and_no_more() {
    let (_folder, broker) = broker();
    broker.ok(&["publish", "q", "1", "2", "3"], b"");
    let printed = broker
        .ok(&["consume", "q", "--count", "2", "--jobs", "8", "--exec", "echo \"$(cat)\""], b"");
    let mut lines: Vec<_> = std::str::from_utf8(&printed).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1", "2"]);
    assert_eq!((&group(&broker)["ready"], &group(&broker)["leased"]), (&1.into(), &0.into()));
}
