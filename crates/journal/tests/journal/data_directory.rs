//! A data directory is created once, belongs to one process, and other directories are refused with a clear error.
#![expect(clippy::disallowed_methods, reason = "it is the real disk's, and so are its tests")]

use std::{fs, path::Path};

use sennit_journal::{DataDirectory, DirectorySettings, Fault, UnfinishedDirectory};

const WANTED: DirectorySettings =
    DirectorySettings { shards: 2, segment_bytes: 64 << 20, incarnation: 0xfeed, node: None };

/// Opens a directory that must be refused, and gives the text.
fn refusal(path: &Path) -> String {
    DataDirectory::open(path, WANTED).expect_err("it has to be refused").to_string()
}

fn with_format(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("FORMAT"), text).unwrap();
    let text = refusal(folder.path());
    assert!(text.contains(folder.path().to_str().unwrap()), "{text}");
    text
}

#[test]
fn a_new_directory_is_made_as_wanted_with_all_above_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one/two");
    let directory = DataDirectory::open(&path, WANTED).unwrap();
    assert_eq!(*directory.settings(), WANTED);
    assert_eq!(directory.lane_directory(1), path.join("lane-1"));
}

#[test]
fn what_a_directory_was_made_with_stands_over_what_is_wanted() {
    let folder = tempfile::tempdir().unwrap();
    drop(DataDirectory::open(folder.path(), WANTED).unwrap());
    let other = DirectorySettings { shards: 8, segment_bytes: 1 << 20, incarnation: 1, node: None };
    let directory = DataDirectory::open(folder.path(), other).unwrap();
    assert_eq!(*directory.settings(), WANTED);
}

#[test]
fn a_directory_that_is_filled_belongs_to_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let _unmade = UnfinishedDirectory::begin(&folder.path().join("data")).unwrap();
    assert!(UnfinishedDirectory::begin(&folder.path().join("data")).is_err());
}

#[test]
fn a_second_opener_is_refused_until_the_first_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let first = DataDirectory::open(folder.path(), WANTED).unwrap();
    let refused = DataDirectory::open(folder.path(), WANTED);
    assert!(matches!(&refused, Err(Fault::InUse { path }) if path == folder.path()));
    drop(first);
    DataDirectory::open(folder.path(), WANTED).unwrap();
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let text = with_format("sennit data directory\nformat = 3\nsomething = else\n");
    assert!(text.contains("has format 3, this program reads format 2"), "{text}");
}

#[test]
fn a_format_file_that_says_something_else_is_refused_with_what_it_says() {
    for (file, said) in [
        ("", "does not begin with"),
        ("another broker\nformat = 1\n", "does not begin with"),
        ("sennit data directory\nformat = one\n", "format = one"),
        ("sennit data directory\nformat = 1\n", "where shards belongs"),
        (
            "sennit data directory\nformat = 1\nshards = 0\nsegment_bytes = 16384\nincarnation = 1\n",
            "0 shards",
        ),
        (
            "sennit data directory\nformat = 1\nshards = 1\nsegment_bytes = 5000\nincarnation = 1\n",
            "segments of 5000 bytes",
        ),
    ] {
        let text = with_format(file);
        assert!(text.contains(said), "{file:?} gives {text}");
    }
}

#[test]
fn what_no_directory_can_be_is_refused_before_anything_is_written() {
    for (shards, segment_bytes) in [(0, 64 << 20), (1025, 64 << 20), (1, 8 << 10), (1, 20_000)] {
        let folder = tempfile::tempdir().unwrap();
        let wanted = DirectorySettings { shards, segment_bytes, incarnation: 1, node: None };
        let refused = DataDirectory::open(folder.path(), wanted);
        assert!(matches!(refused, Err(Fault::Impossible { .. })), "{refused:?}");
        assert!(!folder.path().join("FORMAT").exists());
    }
}

#[test]
fn a_directory_that_holds_something_else_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("photo.jpg"), "not ours").unwrap();
    let text = refusal(folder.path());
    assert!(text.contains("holds photo.jpg"), "{text}");
    assert!(!folder.path().join("FORMAT").exists());
}

#[test]
fn a_crash_while_it_was_made_is_no_obstacle() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("LOCK"), "").unwrap();
    fs::write(folder.path().join("FORMAT.new"), "sennit da").unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    assert_eq!(*DataDirectory::open(folder.path(), WANTED).unwrap().settings(), WANTED);
}

#[test]
fn a_path_that_is_a_file_is_refused_by_name() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = refusal(file.path());
    assert!(text.contains(file.path().to_str().unwrap()), "{text}");
    let below = file.path().join("data");
    let text = refusal(&below);
    assert!(text.contains(below.to_str().unwrap()), "{text}");
}

#[test]
fn a_directory_that_is_filled_from_elsewhere_is_one_when_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let unmade = UnfinishedDirectory::begin(&path).unwrap();
    fs::create_dir(unmade.lane_directory(0)).unwrap();
    unmade.finish(WANTED).unwrap();
    drop(unmade);
    assert_eq!(*DataDirectory::open_existing(&path).unwrap().settings(), WANTED);
    let text = fs::read_to_string(path.join("FORMAT")).unwrap();
    assert_eq!(DirectorySettings::parse(&text, &path).unwrap(), WANTED);
    assert_eq!(text, WANTED.to_string());
    assert_eq!(listed(&path), ["FORMAT", "LOCK", "lane-0"]);
}

#[test]
fn a_directory_that_was_filled_in_part_says_so_to_whoever_opens_or_fills_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let unmade = UnfinishedDirectory::begin(&path).unwrap();
    fs::create_dir(unmade.lane_directory(0)).unwrap();
    // As a killed process leaves it.
    drop(unmade);
    let before = listed(&path);
    for fault in [
        DataDirectory::open(&path, WANTED).unwrap_err(),
        DataDirectory::open_existing(&path).unwrap_err(),
        UnfinishedDirectory::begin(&path).unwrap_err(),
    ] {
        assert!(matches!(fault, Fault::UnfinishedRestore { .. }), "{fault}");
        assert!(fault.to_string().contains("restore that has not ended"), "{fault}");
    }
    assert_eq!(listed(&path), before);
}

#[test]
fn a_restore_that_was_killed_behind_its_last_step_is_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    UnfinishedDirectory::begin(&path).unwrap().finish(WANTED).unwrap();
    fs::write(path.join("RESTORING"), "").unwrap();
    drop(DataDirectory::open(&path, WANTED).unwrap());
    assert_eq!(listed(&path), ["FORMAT", "LOCK"]);
}

#[test]
fn what_is_abandoned_leaves_nothing_not_even_the_directories_above() {
    let folder = tempfile::tempdir().unwrap();
    UnfinishedDirectory::begin(&folder.path().join("one/two/data")).unwrap().abandon();
    assert!(listed(folder.path()).is_empty());
    let there = folder.path().join("there");
    fs::create_dir(&there).unwrap();
    UnfinishedDirectory::begin(&there).unwrap().abandon();
    assert!(there.exists() && listed(&there).is_empty());
}

#[test]
fn whatever_is_refused_is_left_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let foreign = folder.path().join("foreign");
    let newer = folder.path().join("newer");
    let damaged = folder.path().join("damaged");
    for (path, file, text) in [
        (&foreign, "photo.jpg", "not ours"),
        (&newer, "FORMAT", "sennit data directory\nformat = 3\n"),
        (&damaged, "FORMAT", ""),
    ] {
        fs::create_dir(path).unwrap();
        fs::write(path.join(file), text).unwrap();
        DataDirectory::open(path, WANTED).unwrap_err();
        DataDirectory::open_existing(path).unwrap_err();
        UnfinishedDirectory::begin(path).unwrap_err();
        assert_eq!(listed(path), [file]);
    }
    let none = DirectorySettings { shards: 0, ..WANTED };
    DataDirectory::open(&folder.path().join("new/below"), none).unwrap_err();
    DataDirectory::open_existing(&folder.path().join("new/below")).unwrap_err();
    assert_eq!(listed(folder.path()), ["damaged", "foreign", "newer"]);
}

/// What lies in a directory.
fn listed(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}
