//! The archive of a backup: a tar of FORMAT, the broker's keys and each lane's slots and packs. Its last entry
//! proves that it is whole: a length and a checksum of each file. docs/reference/backup.md describes it. It knows
//! no broker and no folder.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{self, Read},
    path::Path,
};

use sennit_journal::{DirectorySettings, Fault, FileName, PACK_BYTES_MAX};
use tar::{EntryType, Header};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::key_file::{self, Secrets};

/// The version of the archive's own format.
const ARCHIVE_FORMAT: u32 = 1;

const HEAD: &str = "BACKUP";
const FORMAT: &str = "FORMAT";
const LAST: &str = "WHOLE";

const HEAD_LINE: &str = "sennit backup";
const LAST_LINE: &str = "sennit backup is whole";

/// A tar is made of blocks of so many bytes, and two empty ones end it.
const TAR_BLOCK_BYTES: usize = 512;
/// What ends it.
pub(crate) const TAR_END: [u8; 2 * TAR_BLOCK_BYTES] = [0; 2 * TAR_BLOCK_BYTES];

/// Longest entry that is text.
const TEXT_BYTES_MAX: u64 = 4096;
/// Most entries, each of which is remembered while an archive is read.
const ENTRIES_MAX: usize = 1 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Why an archive is no backup that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// It cannot be read.
    #[error("the archive cannot be read: {0}")]
    Read(#[source] io::Error),
    /// It is something else.
    #[error("this is no sennit backup: {0}")]
    NotABackup(String),
    /// It was made by a newer program.
    #[error(
        "the archive has format {found}, this program reads format {ARCHIVE_FORMAT}; use a newer version"
    )]
    Newer {
        /// Its format.
        found: u32,
    },
    /// It ends too early.
    #[error(
        "the archive is not whole: it ends {0}; the backup was interrupted, or the file was cut"
    )]
    Truncated(String),
    /// Bytes of it are not what they were.
    #[error("the archive is damaged: {0}")]
    Damaged(String),
    /// It holds what no backup holds.
    #[error("the archive holds {0}, which no backup does")]
    Unexpected(String),
    /// Its FORMAT is not one that this program serves.
    #[error(transparent)]
    Format(Fault),
}

/// What an archive was found to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveSummary {
    /// Shards of the broker.
    pub shards: u32,
    /// Slots and packs.
    pub files: u64,
    /// Bytes of them.
    pub bytes: u64,
}

/// A part of an archive, in the order in which they come.
pub(crate) enum Piece<'a> {
    /// What the data directory was made with.
    Settings(DirectorySettings),
    /// The broker's own keys.
    Keys(Secrets),
    /// A slot or a pack of this lane begins.
    Begin { lane: u32, name: FileName },
    /// More of it.
    Bytes(&'a [u8]),
    /// It is over; its checksum is known only with the archive's last entry.
    End,
}

/// What the last entry says: a line for each entry before it.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    lines: String,
    count: usize,
}

impl Contents {
    /// An entry of so many bytes, with this checksum.
    pub(crate) fn push(&mut self, name: &str, bytes: u64, checksum: u64) {
        self.count += 1;
        // Writing to a string cannot fail.
        let _ = writeln!(self.lines, "{checksum:016x} {bytes} {name}");
    }

    /// The text of the last entry. Its length does not depend on the checksums.
    pub(crate) fn text(&self) -> String {
        let text = format!("{LAST_LINE}\nentries = {}\n{}", self.count, self.lines);
        let checksum = xxh3_64(text.as_bytes());
        format!("{text}checksum = {checksum:016x}\n")
    }
}

/// The entries that come first: name and text.
pub(crate) fn first_entries(settings: &DirectorySettings) -> [(&'static str, String); 2] {
    let head = format!("{HEAD_LINE}\nformat = {ARCHIVE_FORMAT}\n");
    [(HEAD, head), (FORMAT, settings.to_string())]
}

/// The entry that comes last.
pub(crate) fn last_entry(contents: &Contents) -> (&'static str, String) {
    (LAST, contents.text())
}

/// The name of the entry of a lane's file.
pub(crate) fn entry_name(lane: u32, name: FileName) -> String {
    format!("lane-{lane}/{name}")
}

/// What comes before an entry's `bytes` bytes; `time` is in seconds since 1970.
pub(crate) fn entry_header(name: &str, bytes: u64, time: u64) -> io::Result<Header> {
    let mut header = Header::new_ustar();
    header.set_path(name)?;
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(time);
    header.set_entry_type(EntryType::Regular);
    header.set_cksum();
    Ok(header)
}

/// The zeros that come after an entry's bytes.
pub(crate) fn padding(bytes: u64) -> &'static [u8] {
    let past = (bytes % TAR_BLOCK_BYTES as u64) as usize;
    &TAR_END[..(TAR_BLOCK_BYTES - past) % TAR_BLOCK_BYTES]
}

/// Bytes that an entry takes in the archive.
pub(crate) fn entry_bytes(bytes: u64) -> u64 {
    TAR_BLOCK_BYTES as u64 + bytes + padding(bytes).len() as u64
}

/// Reads an archive to its last entry and says what it holds. Nothing is unpacked.
///
/// # Errors
/// An [`ArchiveError`]: it is no backup, or not a whole one.
pub fn check_archive(archive: impl Read) -> Result<ArchiveSummary, ArchiveError> {
    read_archive(archive, |_| Ok(()))
}

/// Gives an archive to `each`, piece by piece. Only when it returns is it known that all that was
/// given is what was written.
pub(crate) fn read_archive<E: From<ArchiveError>>(
    archive: impl Read,
    mut each: impl FnMut(Piece<'_>) -> Result<(), E>,
) -> Result<ArchiveSummary, E> {
    let mut archive = tar::Archive::new(archive);
    // Raw: what tar has for long names and holes in files is never read into memory.
    let mut entries = archive.entries().map_err(ArchiveError::Read)?.raw(true);
    let mut reading = Reading::default();
    loop {
        let entry = match entries.next() {
            None => return Err(reading.truncated().into()),
            Some(entry) => entry.map_err(|error| reading.broken(&error))?,
        };
        let mut entry = reading.entry(entry)?;
        match entry.kind {
            Kind::Head => reading.head(&entry.text()?)?,
            Kind::Format => each(Piece::Settings(reading.format(&entry.text()?)?))?,
            Kind::Keys => each(Piece::Keys(entry.keys()?))?,
            Kind::File { lane, name } => {
                each(Piece::Begin { lane, name })?;
                entry.copy(|bytes| each(Piece::Bytes(bytes)))?;
                each(Piece::End)?;
                reading.summary.files += 1;
                reading.summary.bytes += entry.bytes;
            }
            Kind::Last => {
                reading.last(entry)?;
                return match entries.next() {
                    None => Ok(reading.summary),
                    Some(_) => Err(unexpected("something behind its last entry").into()),
                };
            }
        }
        let (name, bytes, checksum) = (entry.name, entry.bytes, entry.checksum.digest());
        reading.contents.push(&name, bytes, checksum);
    }
}

fn unexpected(what: impl Into<String>) -> ArchiveError {
    ArchiveError::Unexpected(what.into())
}

#[derive(Clone, Copy)]
enum Kind {
    Head,
    Format,
    Keys,
    File { lane: u32, name: FileName },
    Last,
}

/// Where the reading of an archive stands.
#[derive(Default)]
struct Reading {
    contents: Contents,
    settings: Option<DirectorySettings>,
    has_head: bool,
    has_keys: bool,
    seen: BTreeSet<(u32, FileName)>,
    summary: ArchiveSummary,
}

/// An entry that may be where it is.
struct Entry<R> {
    kind: Kind,
    name: String,
    bytes: u64,
    checksum: Xxh3,
    inner: R,
}

impl Reading {
    fn after(&self) -> String {
        let last = self.contents.lines.lines().next_back();
        let last = last.and_then(|line| line.rsplit(' ').next());
        last.map_or_else(|| "before its first entry".to_owned(), |name| format!("after {name}"))
    }

    fn truncated(&self) -> ArchiveError {
        ArchiveError::Truncated(self.after())
    }

    /// The header of an entry cannot be read.
    fn broken(&self, error: &io::Error) -> ArchiveError {
        // The tar crate has no error of its own for an archive that ends within a header.
        let said = error.to_string();
        if error.kind() == io::ErrorKind::UnexpectedEof
            || said.contains("entire block")
            || said.contains("EOF")
        {
            return self.truncated();
        }
        if error.kind() != io::ErrorKind::Other && error.kind() != io::ErrorKind::InvalidData {
            return ArchiveError::Read(io::Error::new(error.kind(), said));
        }
        if !self.has_head {
            return ArchiveError::NotABackup(said);
        }
        ArchiveError::Damaged(format!("what comes {} is no entry: {said}", self.after()))
    }

    /// Looks whether this entry may come now.
    fn entry<'a, R: Read>(
        &mut self,
        inner: tar::Entry<'a, R>,
    ) -> Result<Entry<tar::Entry<'a, R>>, ArchiveError> {
        let name = String::from_utf8_lossy(&inner.path_bytes()).into_owned();
        let bytes = inner.size();
        let is_file = inner.header().entry_type() == EntryType::Regular;
        let wrong = || {
            if self.has_head {
                return unexpected(format!("the entry {name:?}"));
            }
            ArchiveError::NotABackup(format!("its first entry is {name:?}"))
        };
        let kind = match (name.as_str(), &self.settings) {
            _ if !is_file => return Err(wrong()),
            (HEAD, None) if !self.has_head => Kind::Head,
            (FORMAT, None) if self.has_head => Kind::Format,
            (LAST, Some(_)) => Kind::Last,
            (key_file::NAME, Some(_)) => {
                if std::mem::replace(&mut self.has_keys, true) {
                    return Err(unexpected(format!("{name} twice")));
                }
                Kind::Keys
            }
            (_, Some(settings)) => {
                let (lane, file) = lane_file(&name).ok_or_else(wrong)?;
                let longest = match file {
                    FileName::Slot(_) => settings.segment_bytes,
                    FileName::Pack(_) => PACK_BYTES_MAX,
                };
                if lane >= settings.shards || self.seen.len() == ENTRIES_MAX {
                    return Err(wrong());
                }
                if bytes > longest {
                    return Err(unexpected(format!("{bytes} bytes of {name}")));
                }
                if !self.seen.insert((lane, file)) {
                    return Err(unexpected(format!("{name} twice")));
                }
                Kind::File { lane, name: file }
            }
            _ => return Err(wrong()),
        };
        if matches!(kind, Kind::Head | Kind::Format) && bytes > TEXT_BYTES_MAX {
            return Err(unexpected(format!("{bytes} bytes of {name}")));
        }
        if matches!(kind, Kind::Keys) && bytes != key_file::BYTES as u64 {
            return Err(unexpected(format!("{bytes} bytes of {name}")));
        }
        Ok(Entry { kind, name, bytes, checksum: Xxh3::new(), inner })
    }

    fn head(&mut self, text: &str) -> Result<(), ArchiveError> {
        let mut lines = text.lines();
        let format = match (lines.next(), lines.next().and_then(|line| line.split_once(" = "))) {
            (Some(HEAD_LINE), Some(("format", number))) => number.parse().ok(),
            _ => None,
        };
        let said = || ArchiveError::NotABackup(format!("its first entry says {text:?}"));
        let found: u32 = format.ok_or_else(said)?;
        if found > ARCHIVE_FORMAT {
            return Err(ArchiveError::Newer { found });
        }
        self.has_head = true;
        Ok(())
    }

    fn format(&mut self, text: &str) -> Result<DirectorySettings, ArchiveError> {
        let settings = DirectorySettings::parse(text, Path::new("the archive's FORMAT"));
        let settings = settings.map_err(ArchiveError::Format)?;
        self.summary.shards = settings.shards;
        self.settings = Some(settings);
        Ok(settings)
    }

    /// Holds what was read against what the last entry says of it.
    fn last<R: Read>(&self, mut entry: Entry<R>) -> Result<(), ArchiveError> {
        let expected = self.contents.text();
        let wrong = |what: String| Err(ArchiveError::Damaged(what));
        if entry.bytes != expected.len() as u64 {
            let missing = "entries are missing, or have another length than they had";
            return wrong(missing.to_owned());
        }
        let said = entry.text()?;
        match said.lines().zip(expected.lines()).find(|(said, found)| said != found) {
            None => Ok(()),
            Some((_, found)) => match found.split(' ').nth(2) {
                Some(name)
                    if lane_file(name).is_some() || [FORMAT, key_file::NAME].contains(&name) =>
                {
                    wrong(format!("{name} is not what was backed up"))
                }
                _ => wrong("its last entry is not what was written".to_owned()),
            },
        }
    }
}

impl<R: Read> Entry<R> {
    /// Gives all bytes to `each`.
    fn copy<E: From<ArchiveError>>(
        &mut self,
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut buffer = vec![0; READ_BYTES.min(self.bytes.max(1) as usize)];
        let mut left = self.bytes;
        while left > 0 {
            let read = self.inner.read(&mut buffer).map_err(ArchiveError::Read)?;
            if read == 0 {
                return Err(ArchiveError::Truncated(format!("within {}", self.name)).into());
            }
            self.checksum.update(&buffer[..read]);
            each(&buffer[..read])?;
            left -= read as u64;
        }
        Ok(())
    }

    fn text(&mut self) -> Result<String, ArchiveError> {
        let text = self.all()?;
        let wrong = |_| ArchiveError::Damaged(format!("{} is no text", self.name));
        String::from_utf8(text).map_err(wrong)
    }

    fn keys(&mut self) -> Result<Secrets, ArchiveError> {
        let bytes = self.all()?;
        let wrong = || ArchiveError::Damaged(format!("{} holds no keys", self.name));
        key_file::parse(&bytes).ok_or_else(wrong)
    }

    /// All bytes, of which there are few.
    fn all(&mut self) -> Result<Vec<u8>, ArchiveError> {
        let mut all = Vec::new();
        self.copy(|bytes| {
            all.extend_from_slice(bytes);
            Ok::<_, ArchiveError>(())
        })?;
        Ok(all)
    }
}

/// The lane and the file that an entry's name says, if it says it exactly so.
fn lane_file(name: &str) -> Option<(u32, FileName)> {
    let (lane, file) = name.strip_prefix("lane-")?.split_once('/')?;
    let (lane, file) = (lane.parse().ok()?, FileName::parse(file)?);
    (entry_name(lane, file) == name).then_some((lane, file))
}
