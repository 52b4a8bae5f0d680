//! Any bytes as the archive of a backup: parsing never panics, does not depend on the size of the pieces, and does
//! not accept an archive whose last bytes are missing or whose files were changed. The first byte says whether
//! checksums are corrected first, so that the fuzzer gets behind them. Knows the fields of a tar and the last
//! entry, and otherwise the archive's interface only.
#![no_main]

use std::io::{self, Read};

use libfuzzer_sys::fuzz_target;
use sennit_server::{ArchiveSummary, check_archive};
use xxhash_rust::xxh3::xxh3_64;

const TAR_BLOCK_BYTES: usize = 512;

/// Gives a few bytes at a time.
struct Dribble<'a>(&'a [u8]);

impl Read for Dribble<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = out.len().min(7);
        self.0.read(&mut out[..count])
    }
}

/// An entry: its name, and where its bytes lie.
struct Entry {
    name: String,
    from: usize,
    bytes: usize,
}

impl Entry {
    /// Where the next one begins.
    fn next(&self) -> usize {
        self.from + self.bytes.next_multiple_of(TAR_BLOCK_BYTES)
    }
}

/// The entry whose header lies at `at`, if that may be one and all of it is there.
fn entry(tar: &[u8], at: usize) -> Option<Entry> {
    let header = tar.get(at..at + TAR_BLOCK_BYTES)?;
    let text = |field: &[u8]| {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        String::from_utf8(field[..end].to_vec()).ok()
    };
    let bytes = match header[124] & 0x80 {
        0 => usize::from_str_radix(text(&header[124..136])?.trim(), 8).ok()?,
        // So tars say what eleven octal digits do not hold.
        _ => usize::from_be_bytes(header[128..136].try_into().ok()?),
    };
    let mut name = text(&header[..100])?;
    if &header[257..265] == b"ustar\x0000" && header[345] != 0 {
        name = format!("{}/{name}", text(&header[345..500])?);
    }
    let from = at + TAR_BLOCK_BYTES;
    (bytes <= tar.len() - from).then_some(Entry { name, from, bytes })
}

/// Makes the checksums of headers, and those in the last entry, right.
fn mend(tar: &mut [u8]) {
    let (mut at, mut lines, mut count) = (0, String::new(), 0);
    while let Some(entry) = entry(tar, at) {
        let header = &mut tar[at..at + TAR_BLOCK_BYTES];
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let content = &mut tar[entry.from..entry.from + entry.bytes];
        if entry.name == "WHOLE" {
            let text = format!("sennit backup is whole\nentries = {count}\n{lines}");
            let text = format!("{text}checksum = {:016x}\n", xxh3_64(text.as_bytes()));
            if text.len() == content.len() {
                content.copy_from_slice(text.as_bytes());
            }
            return;
        }
        lines += &format!("{:016x} {} {}\n", xxh3_64(content), entry.bytes, entry.name);
        count += 1;
        at = entry.next();
    }
}

fn read(bytes: &[u8]) -> Result<ArchiveSummary, String> {
    check_archive(bytes).map_err(|error| error.to_string())
}

fuzz_target!(|data: &[u8]| {
    let Some((&mends, bytes)) = data.split_first() else { return };
    let mut tar = bytes.to_vec();
    if mends % 2 == 1 {
        mend(&mut tar);
    }
    let found = read(&tar);
    let in_pieces = check_archive(Dribble(&tar)).map_err(|error| error.to_string());
    assert_eq!(in_pieces, found);
    let Ok(summary) = found else { return };
    assert!(summary.bytes <= tar.len() as u64);
    assert!(summary.files <= (tar.len() / TAR_BLOCK_BYTES) as u64);

    let (mut at, mut files) = (0, 0);
    let last = loop {
        let entry = entry(&tar, at).expect("a whole archive is made of entries");
        if entry.name == "WHOLE" {
            break entry;
        }
        if entry.name.starts_with("lane-") {
            files += 1;
            if entry.bytes > 0 {
                let mut changed = tar.clone();
                changed[entry.from + usize::from(mends) % entry.bytes] ^= 1;
                assert!(read(&changed).is_err(), "a changed byte of {} was not seen", entry.name);
            }
        }
        at = entry.next();
    };
    assert_eq!(summary.files, files);
    assert!(read(&tar[..last.from + last.bytes - 1]).is_err(), "its last byte is missing");
});
