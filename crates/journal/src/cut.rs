//! A cut: the files that a lane holds at one moment, and how much of each, so that a copy of them equals the disk
//! after a crash at that moment. The caller keeps the files from being changed meanwhile.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::PathBuf,
};

use crate::{
    container::Container,
    disk::{Disk, DiskFile},
    fault::Fault,
    format::BLOCK_BYTES,
    lane_config::LaneConfig,
    paced_file::{PIECE_BYTES, PacedFile},
    pack::{inspect_pack, pack_name, pack_number, pack_path},
    position::Position,
    slot::{slot_name, slot_number},
    slot_file::segment_in,
    walk::{Damage, as_damage},
};

/// The name of a slot or a pack in its lane's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// The slot of this number.
    Slot(u32),
    /// The pack of this number.
    Pack(u32),
}

impl FileName {
    /// Parses the exact name of a slot or a pack.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let slot = slot_number(name).map(Self::Slot);
        let parsed = slot.or_else(|| pack_number(name).map(Self::Pack))?;
        (parsed.to_string() == name).then_some(parsed)
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Slot(number) => f.write_str(&slot_name(number)),
            Self::Pack(number) => f.write_str(&pack_name(number)),
        }
    }
}

/// The contents of a lane at one moment.
#[derive(Clone, Debug)]
pub struct Cut {
    config: LaneConfig,
    segments: BTreeMap<u64, PathBuf>,
    /// The segment that is being written, and the end of its durable part.
    current: Option<(u64, Position)>,
}

/// A file of a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// Its name in its lane's directory.
    pub name: FileName,
    /// Its path.
    pub path: PathBuf,
    /// The segment or pack in it.
    pub container: Container,
    /// The number of bytes from its start that belong to the cut. A copy has zeros behind them, as
    /// a slot is always as long as a segment.
    pub bytes: u64,
    /// Whether the log is known to end there.
    pub(crate) is_end_known: bool,
}

/// The files of a cut.
#[derive(Debug, Default)]
pub struct CutFiles {
    /// The existing files.
    pub files: Vec<CutFile>,
    /// The files that do not exist or cannot be opened. If nobody kept them for the caller, they
    /// may no longer be needed.
    pub missing: Vec<MissingFile>,
}

/// A file of a cut that does not exist or cannot be opened.
#[derive(Debug)]
pub struct MissingFile {
    /// The segment or pack in it.
    pub container: Container,
    /// Its path.
    pub path: PathBuf,
    /// The fault.
    pub fault: Fault,
}

impl MissingFile {
    /// Returns whether the file does not exist. A file that exists may be readable the next time.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.fault, Fault::MissingSegment { .. } | Fault::MissingPack { .. })
    }

    /// Converts it to damage.
    #[must_use]
    pub fn as_damage(&self, cut: &Cut) -> Damage {
        as_damage(&self.fault, &self.path, file_start(self.container, &cut.config))
    }
}

/// The position of a file's first byte.
pub(crate) fn file_start(container: Container, config: &LaneConfig) -> Position {
    match container {
        Container::Segment(segment) => Position(segment * config.segment_bytes),
        Container::Pack(pack) => Position::of_pack(pack, 0),
    }
}

impl CutFile {
    /// Passes the bytes of the file in the cut to `take`, a quarter of a MiB at a time, and
    /// bypasses the system's cache if possible.
    ///
    /// # Errors
    /// The disk's error, with the file's path, or the error of `take`.
    pub fn read<D: Disk>(
        &self,
        disk: &D,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        };
        let file = disk.open_to_read(&self.path).map_err(named)?;
        let uncached = disk.open_uncached(&self.path).unwrap_or_default();
        let (stopped, mut pace) = (Cell::new(false), |_| true);
        let paced = PacedFile::new(&file, uncached.as_ref(), &stopped, &mut pace);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < self.bytes {
            let length = (self.bytes - at).min(PIECE_BYTES as u64);
            let piece = &mut buffer[..length as usize];
            paced.read_at(piece, at).map_err(named)?;
            take(piece)?;
            at += length;
        }
        // A copy reads it once. The system's cache is for the files that are read again.
        file.forget_cached().map_err(named)
    }
}

impl Cut {
    pub(crate) fn new(
        config: LaneConfig,
        segments: BTreeMap<u64, PathBuf>,
        current: Option<(u64, Position)>,
    ) -> Self {
        Self { config, segments, current }
    }

    /// All files that a copy needs: the segments in use, the packs that are whole, and the damaged
    /// packs of `packs_in_use`. Call it after the cut was made, when the packs that it refers to
    /// exist. Find out which packs are in use before the cut; newer packs are whole.
    ///
    /// # Errors
    /// [`Fault::Io`] of the directory.
    pub fn files<D: Disk>(
        &self,
        disk: &D,
        packs_in_use: &BTreeSet<u32>,
    ) -> Result<CutFiles, Fault> {
        let mut found = CutFiles::default();
        for (&segment, path) in &self.segments {
            let container = Container::Segment(segment);
            let length = match disk.open_to_read(path).and_then(|file| file.length()) {
                Ok(length) => length,
                Err(error) => {
                    let fault = match error.kind() {
                        io::ErrorKind::NotFound => {
                            Fault::MissingSegment { path: self.config.directory.clone(), segment }
                        }
                        _ => Fault::io("open", path)(error),
                    };
                    found.missing.push(MissingFile { container, path: path.clone(), fault });
                    continue;
                }
            };
            let end = self.end_of(disk, segment);
            // A truncated slot is shorter than its segment.
            let bytes = end.unwrap_or(self.config.segment_bytes).min(length);
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.and_then(FileName::parse)
                && bytes > 0
            {
                let (path, is_end_known) = (path.clone(), end.is_some());
                found.files.push(CutFile { name, path, container, bytes, is_end_known });
            }
        }
        self.packs(disk, packs_in_use, &mut found)?;
        Ok(found)
    }

    /// The files that no longer change: segments with a successor, and packs, as in [`Cut::files`].
    ///
    /// # Errors
    /// As [`Cut::files`].
    pub fn at_rest<D: Disk>(
        &self,
        disk: &D,
        packs_in_use: &BTreeSet<u32>,
    ) -> Result<CutFiles, Fault> {
        let mut found = self.files(disk, packs_in_use)?;
        let current = self.current.map(|(segment, _)| Container::Segment(segment));
        found.files.retain(|file| Some(file.container) != current);
        Ok(found)
    }

    pub(crate) fn config(&self) -> &LaneConfig {
        &self.config
    }

    fn packs<D: Disk>(
        &self,
        disk: &D,
        in_use: &BTreeSet<u32>,
        found: &mut CutFiles,
    ) -> Result<(), Fault> {
        let directory = &self.config.directory;
        let names = disk.list(directory).map_err(Fault::io("list", directory))?;
        let listed = names.iter().filter_map(|name| pack_number(name));
        let numbers: BTreeSet<u32> = listed.chain(in_use.iter().copied()).collect();
        for number in numbers {
            let (container, path) = (Container::Pack(number), pack_path(&self.config, number));
            let is_in_use = in_use.contains(&number);
            let fault = match inspect_pack(disk, &self.config, number) {
                Ok(Some(pack)) if pack.is_whole || is_in_use => {
                    let (name, bytes) = (FileName::Pack(number), pack.bytes);
                    found.files.push(CutFile { name, path, container, bytes, is_end_known: true });
                    continue;
                }
                // It is being made, or being removed: nothing refers to it.
                Ok(Some(_)) => continue,
                Ok(None) if !is_in_use => continue,
                Ok(None) => Fault::MissingPack { path: path.clone(), pack: number },
                Err(fault) => fault,
            };
            found.missing.push(MissingFile { container, path, fault });
        }
        Ok(())
    }

    /// The number of bytes of a segment that belong to the log, if the header of the next segment
    /// says it.
    fn end_of<D: Disk>(&self, disk: &D, segment: u64) -> Option<u64> {
        let start = segment * self.config.segment_bytes;
        if let Some((current, end)) = self.current
            && current == segment
        {
            // Nothing of it is durable before its first frame is.
            return Some(end.0.saturating_sub(start));
        }
        let next = self.segments.get(&(segment + 1))?;
        // Nobody keeps it for us, and it was removed; or it cannot be read, as who reads it will find.
        let file = disk.open_to_read(next).ok()?;
        let header = segment_in(&file, next).ok()?.filter(|header| {
            header.segment == segment + 1 && header.incarnation == self.config.incarnation
        });
        let end = header.map(|next| next.previous_end.0.saturating_sub(start));
        end.map(|end| end.clamp(BLOCK_BYTES as u64, self.config.segment_bytes))
    }
}
