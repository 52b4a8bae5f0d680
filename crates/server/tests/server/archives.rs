//! Archives that somebody made who means harm, or by accident: nothing of them is believed, and
//! nothing outside the folder is touched. And the port that makes honest ones.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::Path,
};

use sennit_protocol::Request;
use sennit_server::{ArchiveError, RestoreError, check_archive, restore};
use tar::{EntryType, Header};
use tempfile::TempDir;

use crate::{
    http::get,
    world::{Broker, SOON, publish},
};

const HEAD: (&str, &[u8]) = ("BACKUP", b"sennit backup\nformat = 1\n");
const FORMAT: (&str, &[u8]) = (
    "FORMAT",
    b"sennit data directory\nformat = 1\nshards = 1\nsegment_bytes = 16384\nincarnation = 42\n",
);

/// An entry as it lies in a tar, whatever its name is.
fn entry(kind: EntryType, name: &str, link: &str, size: u64, bytes: &[u8]) -> Vec<u8> {
    let mut header = Header::new_ustar();
    header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
    header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header.set_entry_type(kind);
    header.set_mode(0o600);
    header.set_size(size);
    header.set_cksum();
    let mut entry = header.as_bytes().to_vec();
    entry.extend_from_slice(bytes);
    entry.resize(entry.len().next_multiple_of(512), 0);
    entry
}

fn file(name: &str, bytes: &[u8]) -> Vec<u8> {
    entry(EntryType::Regular, name, "", bytes.len() as u64, bytes)
}

/// An archive that begins as it should and goes on with these entries.
fn archive(entries: &[Vec<u8>]) -> Vec<u8> {
    let mut archive = [file(HEAD.0, HEAD.1), file(FORMAT.0, FORMAT.1)].concat();
    archive.extend(entries.concat());
    archive.extend([0; 1024]);
    archive
}

/// Asserts that the archive is refused, and leaves nothing in the folder or beside it.
fn refused(archive: &[u8], words: &str) {
    let folder = TempDir::new().unwrap();
    let data = folder.path().join("within/data");
    std::fs::create_dir(folder.path().join("within")).unwrap();
    let error = restore(archive, &data, true).unwrap_err();
    assert!(matches!(error, RestoreError::Archive(_)), "{error}");
    assert!(error.to_string().contains(words), "{words:?} is missing: {error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(folder.path().join("within")).unwrap().count(), 0);
    assert_eq!(check_archive(archive).unwrap_err().to_string(), error.to_string());
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for name in [
        "../evil",
        "/tmp/sennit-evil",
        "lane-0/../../slot-00000.journal",
        "lane-0/../slot-00000.journal",
        "./lane-0/slot-00000.journal",
        "lane-0//slot-00000.journal",
        "lane-00/slot-00000.journal",
        "lane-0/slot-0.journal",
        "lane-0/slot-00000.journal/",
        "lane-1/slot-00000.journal",
        "lane-4294967296/slot-00000.journal",
        "lane-0/LOCK",
        "LOCK",
        "FORMAT",
        "BACKUP",
        "",
    ] {
        refused(&archive(&[file(name, b"evil")]), "which no backup does");
    }
}

#[test]
fn links_folders_and_what_tar_has_besides_files_are_refused() {
    let name = "lane-0/slot-00000.journal";
    for kind in [
        EntryType::Symlink,
        EntryType::Link,
        EntryType::Directory,
        EntryType::Char,
        EntryType::Fifo,
        EntryType::GNUSparse,
        EntryType::XHeader,
        EntryType::XGlobalHeader,
    ] {
        refused(&archive(&[entry(kind, name, "/etc/passwd", 0, b"")]), "which no backup does");
    }
    // A long name is never read, however long it says it is.
    let long = entry(EntryType::GNULongName, "././@LongLink", "", 1 << 40, b"aaaa");
    refused(&archive(&[long]), "which no backup does");
}

#[test]
fn lengths_that_cannot_be_are_refused_before_anything_is_read() {
    let slot = entry(EntryType::Regular, "lane-0/slot-00000.journal", "", 16385, b"");
    refused(&archive(&[slot]), "16385 bytes of lane-0/slot-00000.journal");
    let pack = entry(EntryType::Regular, "lane-0/pack-0000000001.pack", "", 1 << 50, b"");
    refused(&archive(&[pack]), "bytes of lane-0/pack-0000000001.pack");
    let head = entry(EntryType::Regular, "BACKUP", "", 1 << 40, b"sennit backup\n");
    refused(&head, "bytes of BACKUP");
    let last = entry(EntryType::Regular, "WHOLE", "", 1 << 40, b"");
    refused(&archive(&[last]), "entries are missing");
}

#[test]
fn an_archive_without_its_last_entry_or_with_something_behind_it_is_refused() {
    refused(&archive(&[]), "not whole");
    let slot = file("lane-0/slot-00000.journal", &[7; 4096]);
    refused(&archive(std::slice::from_ref(&slot)), "after lane-0/slot-00000.journal");
    refused(&archive(&[slot.clone(), slot]), "twice");
    refused(&[0; 2048], "not whole");
    refused(b"", "not whole");
    refused(&[0x5a; 4096], "no sennit backup");
    refused(&[file("README", b"hello"), vec![0; 1024]].concat(), "no sennit backup");
    refused(&file("BACKUP", b"something else\nformat = 1\n"), "no sennit backup");
}

#[test]
fn a_format_that_asks_for_what_cannot_be_is_refused() {
    for (text, words) in [
        (
            "sennit data directory\nformat = 1\nshards = 0\nsegment_bytes = 16384\nincarnation = 1\n",
            "0 shards",
        ),
        (
            "sennit data directory\nformat = 1\nshards = 9999\nsegment_bytes = 16384\nincarnation = 1\n",
            "9999 shards",
        ),
        ("sennit data directory\nformat = 9\n", "has format 9"),
        ("hello", "does not begin with"),
    ] {
        let archive = [file(HEAD.0, HEAD.1), file("FORMAT", text.as_bytes())].concat();
        refused(&archive, words);
    }
}

#[test]
fn a_folder_that_holds_something_is_left_alone() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("mine"), b"mine").unwrap();
    let error = restore(&archive(&[])[..], folder.path(), false).unwrap_err();
    assert!(error.to_string().contains("not empty"), "{error}");
    assert_eq!(std::fs::read(folder.path().join("mine")).unwrap(), b"mine");
}

/// Asks for a backup; returns the stream behind the head of the answer, and the head.
fn ask(broker: &Broker) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(broker.addresses.http).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    write!(stream, "GET /v1/admin/backup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    (stream, String::from_utf8(head).unwrap())
}

/// A backup of the broker.
pub fn archive_of(broker: &Broker) -> Vec<u8> {
    let (mut stream, head) = ask(broker);
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    let mut archive = Vec::new();
    stream.read_to_end(&mut archive).unwrap();
    archive
}

#[test]
fn the_port_sends_as_much_as_it_says_and_it_can_be_restored() {
    let (broker, folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let topic = peer.create_topic("orders", 1);
    peer.send(&Request::Publish(publish(topic, 0, 0, &["a", "b"])));
    peer.confirmed_up_to(2);
    let (mut stream, head) = ask(&broker);
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("application/x-tar"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut archive = Vec::new();
    stream.read_to_end(&mut archive).unwrap();
    assert_eq!(archive.len(), length.parse::<usize>().unwrap());
    let summary = check_archive(&archive[..]).unwrap();
    assert_eq!(summary.shards, 2);
    // Spare slots and what lies behind the log are left out.
    assert!(archive.len() < 1 << 20, "{} bytes", archive.len());
    let restored = restore(&archive[..], &folder.path().join("restored"), false).unwrap();
    let records: u64 = restored.verdicts.iter().map(|shard| shard.verdict.records).sum();
    assert!(records > 0);
    assert!(Path::new(&folder.path().join("restored/FORMAT")).exists());
    // A byte that the archive's own checksums cover, and the journal's too.
    let at = archive.windows(4).position(|four| four == b"SNFR").unwrap();
    archive[at + 70] ^= 1;
    let error = restore(&archive[..], &folder.path().join("again"), true).unwrap_err();
    assert!(matches!(error, RestoreError::Archive(ArchiveError::Damaged(_))), "{error}");
    assert_eq!(get(&broker, "/v1/admin").0, 404);
    broker.stop();
}

#[test]
fn a_byte_that_is_not_what_it_was_is_noticed_wherever_it_is() {
    let slot = file("lane-0/slot-00000.journal", &[7; 4096]);
    let pack = file("lane-0/pack-0000000001.pack", &[9; 513]);
    let checksum = |bytes: &[u8]| format!("{:016x}", xxhash_rust::xxh3::xxh3_64(bytes));
    let mut text = "sennit backup is whole\nentries = 4\n".to_owned();
    for (name, bytes) in [
        HEAD,
        FORMAT,
        ("lane-0/slot-00000.journal", &[7; 4096][..]),
        ("lane-0/pack-0000000001.pack", &[9; 513]),
    ] {
        text += &format!("{} {} {name}\n", checksum(bytes), bytes.len());
    }
    text += &format!("checksum = {}\n", checksum(text.as_bytes()));
    let whole = archive(&[slot, pack, file("WHOLE", text.as_bytes())]);
    let summary = check_archive(&whole[..]).unwrap();
    assert_eq!((summary.shards, summary.files, summary.bytes), (1, 2, 4096 + 513));
    let end = whole.len() - 1024;
    let mut passed = 0;
    for at in 0..end {
        let mut changed = whole.clone();
        changed[at] ^= 0x10;
        match check_archive(&changed[..]) {
            Err(_) => {}
            // Zeros between entries say nothing, and neither do those before a number.
            Ok(found) => {
                assert!([0, b'0'].contains(&whole[at]), "at {at}");
                assert_eq!(found, summary, "at {at}");
                passed += 1;
            }
        }
        if at > 0 {
            check_archive(&whole[..at]).unwrap_err();
        }
    }
    assert!(passed < 2048, "{passed} flips passed");
}

#[test]
fn keys_that_are_none_are_refused_and_so_are_two_of_them() {
    let whole = [&b"sennit keys v1\n\0"[..], &[7; 64]].concat();
    let keys = |bytes: &[u8]| file("subscription-keys", bytes);
    refused(&archive(&[keys(&whole[1..])]), "79 bytes of subscription-keys");
    refused(&archive(&[keys(&[0; 80])]), "subscription-keys holds no keys");
    refused(&archive(&[keys(&whole), keys(&whole)]), "subscription-keys twice");
    // Without its last entry it is no backup, whatever came before.
    refused(&archive(&[keys(&whole)]), "after subscription-keys");
}
