//! Tests of `.ci/count`, which makes the closing line of `make test`, with known logs, and of `.ci/parts.bash`, which runs its
//! parts.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output},
};

use crate::tree::root;

/// Two programs: in one a test fails, in the other one is skipped, by name and by itself.
const LOG: &str = "\
   Compiling sennit v0.1.0
     Running unittests src/lib.rs (target/debug/deps/sennit_engine-0a1b2c)

running 3 tests
test a ... ok
test b ... FAILED
test c ... ok

failures:

---- b stdout ----

thread 'b' panicked at src/lib.rs:1:1:
no

failures:
    b

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s

     Running tests/process/main.rs (/somewhere/debug/deps/process-f00d)

running 4 tests
test disk::d ... ok
test disk::e ... ok
test f ... ok
test b ... ok

test result: ok. 4 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s

   Doc-tests sennit_client

running 1 test
test src/lib.rs - (line 3) ... ok

test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.10s
";

fn count(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(root().join(".ci/count"));
    command.args(arguments).current_dir(folder).output().expect("the counting runs")
}

fn text(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// What passed and what failed of a log, with what was said to be skipped.
fn counted(log: &str, skipped: &str) -> String {
    let folder = tempfile::tempdir().expect("there is room");
    fs::write(folder.path().join("log"), log).expect("there is room");
    fs::write(folder.path().join("skipped"), skipped).expect("there is room");
    text(&count(&["libtest", "skipped", "log"], folder.path()).stdout).trim().to_owned()
}

#[test]
fn what_passed_and_what_failed_is_counted_over_all_programs() {
    assert_eq!(counted(LOG, ""), "7 1");
    assert_eq!(counted("error: could not compile `sennit`\n", ""), "0 0");
}

#[test]
fn a_test_that_is_skipped_has_not_passed_however_often_it_says_so() {
    let skipped =
        "process disk::d\tno namespace\nprocess disk::d\tno namespace\nprocess disk::e\tno\n";
    assert_eq!(counted(LOG, skipped), "5 1");
}

#[test]
fn a_test_that_says_it_is_skipped_and_fails_has_failed() {
    assert_eq!(counted(LOG, "sennit_engine b\tno reason\n"), "7 1");
}

#[test]
fn a_skipped_test_of_a_program_that_did_not_run_takes_nothing_away() {
    assert_eq!(counted(LOG, "server b\tno reason\n"), "7 1");
}

#[test]
fn a_program_that_ends_without_a_result_is_a_failure() {
    let cut = LOG.find("test result: ok. 4").expect("it is there");
    assert_eq!(counted(&LOG[..cut], ""), "2 2");
    let rest = LOG.find("   Doc-tests").expect("it is there");
    let aborted = [&LOG[..cut], &LOG[rest..]].concat();
    assert_eq!(counted(&aborted, "process disk::d\tno namespace\n"), "3 2");
}

#[test]
fn a_test_that_is_switched_off_is_a_failure() {
    let ignored = LOG.replace("4 passed; 0 failed; 0 ignored", "3 passed; 0 failed; 1 ignored");
    assert_eq!(counted(&ignored, ""), "6 2");
}

#[test]
fn what_a_log_says_of_its_failures_is_said_again_in_few_lines() {
    let folder = tempfile::tempdir().expect("there is room");
    let said = |log: &str| {
        fs::write(folder.path().join("log"), log).expect("there is room");
        text(&count(&["failures", "log"], folder.path()).stdout)
    };
    let of_tests = said(LOG);
    assert!(of_tests.starts_with("---- b stdout ----\n\nthread 'b' panicked"), "{of_tests}");
    assert_eq!(said("ok     it\nFAILED it\n       why\n"), "FAILED it\n       why\n");
    assert_eq!(said("fuzz: a ok, 3 inputs\nfuzz: b broke\nwhy\n"), "fuzz: b broke\nwhy\n");
    let lines: Vec<_> = (0..99).map(|line| format!("{line}\n")).collect();
    assert_eq!(said(&lines.concat()), lines[75..].concat());
    let all_fail: String = (0..999).map(|line| format!("not ok {line}\n")).collect();
    assert_eq!(said(&all_fail).lines().count(), 120);
}

/// The line of the table for a part that ended with `status`, and wrote these files.
fn part(status: &str, counts: &str, skipped: &str) -> String {
    let folder = tempfile::tempdir().expect("there is room");
    for (name, text) in [("counts", counts), ("skipped", skipped), ("amount", "")] {
        fs::write(folder.path().join(name), text).expect("there is room");
    }
    let arguments = ["part", "lint", status, "9", "counts", "skipped", "amount"];
    text(&count(&arguments, folder.path()).stdout).trim().to_owned()
}

#[test]
fn a_part_that_counts_nothing_is_one_check() {
    assert_eq!(part("0", "", ""), "lint\t1 check\t1\t0\t0\t9");
    assert_eq!(part("1", "", ""), "lint\t1 check\t0\t1\t0\t9");
    assert_eq!(part("0", "", "browser\tnone here\n"), "lint\t0 tests\t0\t0\t1\t9");
}

#[test]
fn a_part_that_counts_is_what_it_counted_and_a_failure_if_it_failed() {
    assert_eq!(part("0", "10 0\n5 0\n", "a\tb\na\tb\nc\td\n"), "lint\t15 tests\t15\t0\t2\t9");
    assert_eq!(part("1", "10 2\n", ""), "lint\t12 tests\t10\t2\t0\t9");
    assert_eq!(part("1", "10 0\n", ""), "lint\t11 tests\t10\t1\t0\t9");
    // One that counted a failure has failed, whatever it ended with.
    assert_eq!(part("0", "10 1\n", ""), "lint\t11 tests\t10\t1\t0\t9");
}

#[test]
fn the_closing_line_sums_up_and_the_end_is_a_failure_if_anything_failed() {
    let folder = tempfile::tempdir().expect("there is room");
    let table = |text: &str| fs::write(folder.path().join("table"), text).expect("there is room");
    let sum = || count(&["sum", "test", "61", "table"], folder.path());
    table("lint\t1 check\t1\t0\t0\t9\ntests\t100 tests\t98\t0\t2\t50\n");
    let output = sum();
    assert_eq!(text(&output.stdout).lines().last(), Some("99 passed, 0 failed, 2 skipped"));
    assert!(output.status.success());
    table("lint\t1 check\t0\t1\t0\t9\ntests\t100 tests\t100\t0\t0\t50\n");
    let output = sum();
    assert_eq!(text(&output.stdout).lines().last(), Some("100 passed, 1 failed, 0 skipped"));
    assert!(!output.status.success());
    table("");
    assert!(!sum().status.success(), "nothing ran");
}

/// Parts of which each waits for the other, then one that fails and one that does not end.
const PARTS: &str = r#"
set -euo pipefail
meet() { touch "$RESULTS/$1.here"; until [ -e "$RESULTS/$2.here" ]; do sleep 0.01; done; }
part_one() { meet one two; echo "3 0" >>"$TEST_COUNTS"; }
part_two() { meet two one; echo "2 0" >>"$TEST_COUNTS"; echo "it said this"; }
part_fails() { echo "it broke here"; false; }
part_hangs() { exec sleep 1000; }
source .ci/parts.bash
run_parts "${*:-}" one:60 +two:60 fails:60 "~hangs:1"
"#;

#[test]
fn a_part_runs_beside_another_and_counts_as_if_it_had_run_alone() {
    let folder = tempfile::tempdir().expect("there is room");
    let script = folder.path().join("parts");
    fs::write(&script, format!("#!/usr/bin/env bash{PARTS}")).expect("there is room");
    fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).expect("it is ours");
    let results = folder.path().join("results");
    let run = |chosen: &[&str]| {
        let mut command = Command::new("bash");
        command.arg(&script).args(chosen).current_dir(root()).env("RESULTS", &results);
        text(&command.output().expect("it runs").stdout)
    };
    let said = run(&["one", "two"]);
    assert!(said.contains("=== two said:\nit said this\n"), "{said}");
    assert_eq!(said.lines().last(), Some("5 passed, 0 failed, 0 skipped"), "{said}");
    let said = run(&["fails", "hangs"]);
    assert!(said.contains("=== hangs: HANGS: not done after 1 s, and ended"), "{said}");
    assert!(said.contains("\n=== fails failed:\nit broke here\n"), "{said}");
    assert_eq!(said.lines().last(), Some("0 passed, 2 failed, 0 skipped"), "{said}");
}

/// Two tests of which one does not end, as libtest tells of them.
const HANGS: &str = "\
echo 'test a has been running for over 60 seconds'
echo 'test b has been running for over 60 seconds'
echo 'test a ... ok'
exec sleep 1000";

#[test]
fn a_test_program_that_hangs_is_ended_and_its_tests_are_named() {
    let mut command = Command::new(root().join(".ci/bounded"));
    let output = command.args(["sh", "-c", HANGS]).env("TEST_PROGRAM_SECONDS", "1").output();
    let output = output.expect("it runs");
    assert!(!output.status.success());
    let said = text(&output.stdout);
    let (_, named) = said.split_once("HANGS: sh").expect("it says so");
    assert!(named.contains("\n    b\n") && !named.contains("\n    a\n"), "{said}");
}

#[test]
fn a_test_program_that_ends_is_what_it_was() {
    for code in [0, 101] {
        let mut command = Command::new(root().join(".ci/bounded"));
        let output = command.args(["sh", "-c", &format!("echo done; exit {code}")]).output();
        let output = output.expect("it runs");
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), "done\n".to_owned()));
    }
}
