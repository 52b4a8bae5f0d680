//! The house rules that a program can check: the walls between crates are where ARCHITECTURE.md
//! says, the waterline holds, modules do not turn in circles, files say what room they are.
//! Knows the repository's files and nothing of what the code does.

mod modules;
mod tree;
mod walls;

use std::fs;

use tree::{read, root, workspace_rust_files};

/// The only prose at the root; everything else is under docs/ or beside its code.
const ROOT_PROSE: [&str; 6] =
    ["ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"];

/// A file longer than this is more than one concept.
const FILE_LINES_MAX: usize = 800;

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
fn no_test_is_switched_off() {
    for path in workspace_rust_files() {
        for (index, line) in read(&path).lines().enumerate() {
            let switched_off = line.trim_start().starts_with(concat!("#[", "ignore"));
            assert!(!switched_off, "{}:{} switches a test off", path.display(), index + 1);
        }
    }
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
