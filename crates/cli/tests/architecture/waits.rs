//! Tests wait for facts, with a time limit. A scan of the text of tests: a list with reasons names the tests that
//! sleep, and those that run futures without the helper that limits them.

use std::path::Path;

use crate::tree::{read, root, workspace_rust_files};

/// Tests that let time pass, and why no fact can be waited for instead.
const SLEEPERS: &[(&str, &str)] = &[
    ("crates/cli/tests/process/atomic.rs", "a life ends at any moment of the work"),
    ("crates/cli/tests/process/backup.rs", "a publisher that goes on all the while, slowly"),
    ("crates/cli/tests/process/bounds.rs", "the helper that looks again and again"),
    ("crates/cli/tests/process/crash.rs", "a publisher that goes on all the while, slowly"),
    ("crates/cli/tests/process/durability.rs", "lives of a while; a publisher that is slow"),
    ("crates/cli/tests/process/full_disk.rs", "that nothing changes any more shows in time alone"),
    ("crates/cli/tests/process/golden.rs", "writes a directory, by hand; tests nothing"),
    ("crates/cli/tests/process/histories/nemesis.rs", "a fault begins and ends at any moment"),
    ("crates/cli/tests/process/histories/proxy.rs", "a link that is late or slow"),
    (
        "crates/cli/tests/process/histories/workload.rs",
        "a call is made again; publishers that wait",
    ),
    ("crates/cli/tests/process/http_streams.rs", "lives of a while; a request is sent again"),
    ("crates/cli/tests/process/reading.rs", "a life ends at any moment of the work"),
    ("crates/cli/tests/process/soak.rs", "the load goes on for as long as is asked"),
    ("crates/cli/tests/process/soak/watch.rs", "looks every while, until it is ended"),
    ("crates/cli/tests/process/stream_ends.rs", "streams end in time; a last life of a while"),
    ("crates/cli/tests/process/subscriptions.rs", "a life ends at any moment of the work"),
    ("crates/cli/tests/process/together.rs", "lives of any length; a publisher that waits"),
    ("crates/cli/tests/process/torture.rs", "lives of any length; a publisher that waits"),
    ("crates/client/src/auto_commit.rs", "a clock that runs only while everybody waits"),
    ("crates/client/tests/client/read.rs", "a line has this length"),
    (
        "crates/server/src/doors/native/connection.rs",
        "a clock that runs only while everybody waits",
    ),
    ("crates/server/src/http/connection.rs", "a clock that runs only while everybody waits"),
    ("crates/server/src/http/http1/tests.rs", "a clock that runs only while everybody waits"),
    ("crates/server/src/http/http1/tests/times.rs", "a clock that runs only while everybody waits"),
    ("crates/server/src/http/http2/tests.rs", "a clock that runs only while everybody waits"),
    (
        "crates/server/src/doors/native/outbox/tests.rs",
        "a clock that runs only while everybody waits",
    ),
    (
        "crates/server/src/identity/token_issuer/tests.rs",
        "a clock that runs only while everybody waits",
    ),
    ("crates/server/src/runtime/reader_pacing.rs", "what rings rings by the clock"),
    ("crates/server/src/runtime/memory_release.rs", "a clock that runs only while everybody waits"),
    ("crates/server/tests/footprint.rs", "the least that is held is seen in many looks"),
    ("crates/server/tests/server/http_parked.rs", "readers that come and go at any moment"),
    ("crates/server/tests/server/world.rs", "the helper that looks again and again"),
];

/// Where futures run without `bounds::within`, and what bounds them.
const RUNNERS: &[(&str, &str)] = &[
    ("bench/src/clock.rs", "three waits for the clock of less than a millisecond each"),
    ("crates/cli/src/printer.rs", "it prints no more than a pipe has room for"),
    ("crates/cli/tests/process/bounds.rs", "the helper"),
    ("crates/cli/tests/process/histories/proxy.rs", "links, until their test drops them"),
    ("crates/client/tests/client/connection.rs", "`soon` is inside"),
    ("crates/server/src/cluster/links/tests.rs", "a timeout is inside"),
    ("crates/server/src/core_thread/tests.rs", "its clock jumps to the end of what is waited for"),
    (
        "crates/server/src/doors/http_router/tests.rs",
        "nothing lies behind the door that could be waited for",
    ),
    ("crates/server/src/http/http1/tests.rs", "a day of a clock that jumps to what is next"),
    ("crates/server/src/http/http2/tests.rs", "a day of a clock that jumps to what is next"),
    ("crates/server/tests/server/emulated.rs", "a timeout is inside"),
    ("crates/server/tests/server/http_connections.rs", "a timeout is inside"),
];

/// The code of tests in a file, without comments: all of it below `tests`, its end below `src`.
fn code_of_tests(path: &Path) -> String {
    let text = read(path);
    let name = path.to_string_lossy();
    let is_all = name.contains("/tests/") || name.ends_with("/tests.rs");
    let tests = if is_all { Some(&text[..]) } else { after_first(&text, "#[cfg(test)]\nmod ") };
    let lines = tests.unwrap_or_default().lines();
    lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

fn after_first<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, after)| after)
}

/// Files whose tests hold `word` and are not listed, and those that are listed and do not hold it.
fn not_as_listed(
    list: &[(&str, &str)],
    holds: impl Fn(&str) -> bool,
) -> (Vec<String>, Vec<String>) {
    let found: Vec<String> = workspace_rust_files()
        .iter()
        .filter(|path| !path.ends_with("architecture/waits.rs") && holds(&code_of_tests(path)))
        .map(|path| path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned())
        .collect();
    let is_listed = |file: &&String| list.iter().any(|(listed, _)| listed == file);
    let unlisted = found.iter().filter(|file| !is_listed(file)).cloned().collect();
    let gone = list.iter().map(|(listed, _)| (*listed).to_owned());
    (unlisted, gone.filter(|listed| !found.contains(listed)).collect())
}

fn sleeps(code: &str) -> bool {
    ["sleep(", "sleep_until("].iter().any(|call| code.contains(call))
}

#[test]
fn tests_that_sleep_are_listed_with_their_reason() {
    let (unlisted, gone) = not_as_listed(SLEEPERS, sleeps);
    assert!(
        unlisted.is_empty(),
        "wait for a fact instead, or say why there is none: {unlisted:#?}"
    );
    assert!(gone.is_empty(), "these sleep no more; take them off the list: {gone:#?}");
}

#[test]
fn futures_of_tests_run_within_a_bound() {
    let (unlisted, gone) = not_as_listed(RUNNERS, |code| code.contains("block_on("));
    assert!(unlisted.is_empty(), "run these by a helper with a bound: {unlisted:#?}");
    assert!(gone.is_empty(), "take these off the list: {gone:#?}");
}

#[test]
fn code_of_tests_is_found_where_it_is() {
    assert!(sleeps("thread::sleep(Duration::ZERO)") && !sleeps("asleep"));
    assert_eq!(
        after_first("fn a() {}\n#[cfg(test)]\nmod tests { b }", "#[cfg(test)]\nmod "),
        Some("tests { b }")
    );
    assert_eq!(after_first("fn a() {}", "#[cfg(test)]\nmod "), None);
}
