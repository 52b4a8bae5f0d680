//! The house rules that a program can check: the walls between crates are those of ARCHITECTURE.md, the waterline
//! holds, modules do not depend on each other in circles, names are made of known words, files have a `//!` line,
//! tests wait for facts, and `make test` counts correctly. CONTRIBUTING.md lists the checks, with the same numbers.
//! Knows the repository's files and nothing of what the code does.

mod counting;
mod files;
mod modules;
mod tree;
mod waits;
mod walls;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

use modules::code_of;
use serde_json::Value;
use tree::{cargo_metadata, read, root, rust_files, workspace_rust_files};

/// The only prose at the root; everything else is under docs/ or beside its code.
const ROOT_PROSE: [&str; 6] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"];

/// A file longer than this is more than one concept.
const FILE_LINES_MAX: usize = 600;

/// Half of all files are shorter than this.
const FILE_LINES_MEDIAN_MAX: usize = 200;

/// Names of files and folders that say nothing of what is inside.
const DRAWERS: [&str; 7] = ["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// The files with `unsafe` blocks; clippy sees to it that each says why it is sound.
const UNSAFE: [&str; 4] = [
    "crates/cli/src/allocator.rs",
    "crates/engine/tests/footprint.rs",
    "crates/server/src/runtime/socket_events.rs",
    "crates/server/tests/counting/mod.rs",
];

/// The files of the server that name a TCP stream, with the reason. All others know a connection by its wire, so
/// that TLS is added in one place.
const TCP_STREAMS: [(&str, &str); 3] = [
    ("crates/server/src/runtime/wire.rs", "the wire of every connection that is accepted"),
    ("crates/server/src/runtime/wire/dial.rs", "the wires that the broker dials"),
    ("crates/server/src/http/client.rs", "requests to servers elsewhere, with TLS of its own"),
];

/// The parts of every decision, in this order.
const PARTS_OF_A_DECISION: [&str; 4] =
    ["**Context.**", "**Decision.**", "**Consequences.**", "**What would change our mind.**"];

/// A decision is one page: so many words, tables not counted. Measurements are in bench/results/.
const DECISION_WORDS_MAX: usize = 650;

#[test]
fn every_file_says_what_room_it_is() {
    for path in workspace_rust_files() {
        assert!(read(&path).starts_with("//! "), "{} does not open with //!", path.display());
    }
}

#[test]
fn no_file_is_longer_than_a_concept() {
    for path in workspace_rust_files() {
        let lines = read(&path).lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines", path.display());
    }
}

#[test]
fn files_are_short_as_a_rule() {
    let lines = |path: &PathBuf| read(path).lines().count();
    let mut lengths: Vec<_> = workspace_rust_files().iter().map(lines).collect();
    lengths.sort_unstable();
    let median = lengths[lengths.len() / 2];
    assert!(median <= FILE_LINES_MEDIAN_MAX, "half of all files have more than {median} lines");
}

#[test]
fn contributing_states_the_limits_that_are_checked() {
    let page = read(&root().join("CONTRIBUTING.md"));
    for limit in [FILE_LINES_MAX, FILE_LINES_MEDIAN_MAX] {
        assert!(page.contains(&format!("{limit} lines")), "CONTRIBUTING.md does not say {limit}");
    }
    for drawer in ["utils", "common", "helpers", "misc", "types"] {
        assert!(page.contains(&format!("`{drawer}`")), "CONTRIBUTING.md does not name {drawer}");
    }
}

#[test]
fn no_file_is_a_drawer() {
    for path in workspace_rust_files() {
        let inside = path.strip_prefix(root()).expect("it lies below the root");
        for part in inside.with_extension("").iter() {
            let part = part.to_string_lossy();
            assert!(!DRAWERS.contains(&&*part), "{} is a drawer", path.display());
        }
    }
}

#[test]
fn unsafe_is_in_few_files_and_these_are_known() {
    let is_unsafe = |path: &PathBuf| {
        let text = read(path);
        let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
        lines.into_iter().any(|line| line.contains(concat!("unsafe", " {")))
    };
    let files = workspace_rust_files();
    let found: Vec<_> = files.iter().filter(|path| is_unsafe(path)).collect();
    let known: Vec<_> = UNSAFE.iter().map(|path| root().join(path)).collect();
    assert_eq!(found, known.iter().collect::<Vec<_>>());
}

#[test]
fn connections_are_known_by_their_wires_alone() {
    let server = root().join("crates/server/src");
    let is_test = |path: &PathBuf| path.with_extension("").iter().any(|part| part == "tests");
    let mut files = rust_files(&server);
    files.retain(|path| !is_test(path) && code_of(&read(path)).contains("TcpStream"));
    let is_listed =
        |path: &&PathBuf| TCP_STREAMS.iter().any(|(file, _)| **path == root().join(file));
    let unlisted: Vec<_> = files.iter().filter(|path| !is_listed(path)).collect();
    assert!(unlisted.is_empty(), "use `runtime/wire`, or these would not speak TLS: {unlisted:#?}");
    assert_eq!(files.len(), TCP_STREAMS.len(), "one that is listed names no `TcpStream` any more");
}

#[test]
fn http_knows_no_header_of_streams() {
    let is_named = |path: &PathBuf| {
        let code = code_of(&read(path));
        ["stream-", "producer-"].iter().any(|name| code.contains(name))
    };
    let mut files = rust_files(&root().join("crates/server/src/http"));
    files.retain(is_named);
    assert!(files.is_empty(), "headers of streams belong to `doors/streams/names`: {files:#?}");
}

#[test]
fn decisions_are_numbered_and_say_why_and_until_when() {
    let folder = fs::read_dir(root().join("docs/decisions")).expect("the decisions are there");
    let mut pages: Vec<_> = folder.map(|entry| entry.expect("readable").path()).collect();
    pages.sort();
    for (number, path) in (1..).zip(&pages) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        assert!(name.starts_with(&format!("{number:04}-")), "{name} is not number {number}");
        let page = read(path);
        let places = PARTS_OF_A_DECISION
            .map(|part| page.find(part).unwrap_or_else(|| panic!("{name} has no {part}")));
        assert!(places.is_sorted(), "{name} has its parts in another order");
        let prose = page.lines().filter(|line| !line.starts_with('|'));
        let words = prose.flat_map(str::split_whitespace).count();
        assert!(words <= DECISION_WORDS_MAX, "{name} has {words} words: one page is enough");
    }
}

#[test]
fn no_test_is_switched_off() {
    for path in workspace_rust_files() {
        for (index, line) in read(&path).lines().enumerate() {
            let switched_off = line.trim_start().starts_with(concat!("#[", "ignore"));
            assert!(!switched_off, "{}:{} switches a test off", path.display(), index + 1);
        }
    }
}

/// Whether a file has an example in its documentation that is a test.
fn has_example(path: &Path) -> bool {
    let mut is_inside = false;
    read(path).lines().any(|line| {
        let text = line.trim_start();
        let text = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"));
        let Some(kind) = text.and_then(|text| text.trim().strip_prefix("```")) else {
            return false;
        };
        is_inside = !is_inside;
        is_inside && kind != "text"
    })
}

#[test]
fn examples_of_the_documentation_are_run_where_there_are_any() {
    let metadata = cargo_metadata();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let targets = list(&metadata["packages"]).into_iter().flat_map(|each| list(&each["targets"]));
    let mut with_examples = 0;
    for target in targets.filter(|target| target["kind"][0] == "lib") {
        let source = PathBuf::from(target["src_path"].as_str().expect("a path"));
        let files = rust_files(source.parent().expect("it is in a folder"));
        let has_examples = files.iter().any(|path| has_example(path));
        with_examples += usize::from(has_examples);
        // Asking a crate that has none takes seconds.
        let name = &target["name"];
        assert_eq!(target["doctest"], has_examples, "`doctest` of [lib] in the crate of {name}");
    }
    assert!(with_examples > 0, "the walk over the crates found no example");
}

#[test]
fn the_root_holds_no_other_prose() {
    for entry in fs::read_dir(root()).expect("the root is readable") {
        let path = entry.expect("a folder entry is readable").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let extension =
            path.extension().map(|extension| extension.to_string_lossy().to_lowercase());
        let prose = match extension.as_deref() {
            None => !name.starts_with('.') && name != "Makefile",
            Some(extension) => ["md", "txt", "rst", "adoc", "org", "pdf"].contains(&extension),
        };
        let allowed = ROOT_PROSE.contains(&name.as_str());
        assert!(path.is_dir() || !prose || allowed, "{name} belongs under docs/");
    }
}
