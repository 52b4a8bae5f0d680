//! What a lane holds at one moment: the files, and how much of each, that a copy needs to be what
//! a crash at that moment would have left. Who keeps them from changing meanwhile is not known here.

use std::{
    cell::Cell,
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    path::PathBuf,
};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::BLOCK_BYTES,
    home::Home,
    lane_config::LaneConfig,
    paced::{PIECE_BYTES, Paced},
    pack::{look_at, pack_name, pack_number, pack_path},
    position::Position,
    slot::{slot_name, slot_number},
    slot_file::segment_in,
    walk::{Damage, as_damage},
};

/// The name of a slot or of a pack, within its lane's directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileName {
    /// The slot of this number.
    Slot(u32),
    /// The pack of this number.
    Pack(u32),
}

impl FileName {
    /// The name that `name` is, letter by letter.
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

/// What a lane holds at one moment.
#[derive(Clone, Debug)]
pub struct Cut {
    config: LaneConfig,
    segments: BTreeMap<u64, PathBuf>,
    /// The segment that is being written, and where what is durable ends.
    current: Option<(u64, Position)>,
}

/// A file of a cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CutFile {
    /// What it is called in its lane's directory.
    pub name: FileName,
    /// Where it lies.
    pub path: PathBuf,
    /// What it holds.
    pub home: Home,
    /// So many bytes from its start belong to the cut. What lies behind them is zero in a copy: a
    /// slot is as long as a segment all the same.
    pub bytes: u64,
    /// Whether the log is known to go exactly that far in it.
    pub(crate) is_end_known: bool,
}

/// The files of a cut.
#[derive(Debug, Default)]
pub struct CutFiles {
    /// Those that are there.
    pub files: Vec<CutFile>,
    /// Those that are not, or cannot be opened. Where nobody keeps them for whoever asks, they may be
    /// needed no more.
    pub missing: Vec<Missing>,
}

/// A file of a cut that is not there, or cannot be opened.
#[derive(Debug)]
pub struct Missing {
    /// What it holds.
    pub home: Home,
    /// Where it lay.
    pub path: PathBuf,
    /// Why it cannot be had.
    pub fault: Fault,
}

impl Missing {
    /// Whether there is no such file. What is there may come the next time.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(self.fault, Fault::MissingSegment { .. } | Fault::MissingPack { .. })
    }

    /// The same as damage.
    #[must_use]
    pub fn as_damage(&self, cut: &Cut) -> Damage {
        as_damage(&self.fault, &self.path, begin_of(self.home, &cut.config))
    }
}

/// Where a file's first byte lies.
pub(crate) fn begin_of(home: Home, config: &LaneConfig) -> Position {
    match home {
        Home::Segment(segment) => Position(segment * config.segment_bytes),
        Home::Pack(pack) => Position::of_pack(pack, 0),
    }
}

impl CutFile {
    /// Has `take` have what the cut holds of the file, a quarter of a MiB at a time, past the system's
    /// cache where that can be.
    ///
    /// # Errors
    /// What the disk says, with the file's path, or `take`.
    pub fn read<D: Disk>(
        &self,
        disk: &D,
        take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
        };
        let file = disk.open_to_read(&self.path).map_err(named)?;
        let past = disk.open_to_read_past(&self.path).unwrap_or_default();
        let (stopped, mut pace) = (Cell::new(false), |_| true);
        let paced = Paced::new(&file, past.as_ref(), &stopped, &mut pace);
        let mut buffer = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < self.bytes {
            let length = (self.bytes - at).min(PIECE_BYTES as u64);
            let piece = &mut buffer[..length as usize];
            paced.read_at(piece, at).map_err(named)?;
            take(piece)?;
            at += length;
        }
        // It is read once; what others read stays in the system's cache the better.
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

    /// Everything that a copy needs: the segments in use, the packs that are whole, and of
    /// `packs_in_use` those that are damaged. To be asked after the cut was made: a pack that it
    /// refers to is there then. Which packs are in use is to be found out before: those that came to
    /// be since are whole.
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
            let home = Home::Segment(segment);
            let length = match disk.open_to_read(path).and_then(|file| file.length()) {
                Ok(length) => length,
                Err(error) => {
                    let fault = match error.kind() {
                        io::ErrorKind::NotFound => {
                            Fault::MissingSegment { path: self.config.directory.clone(), segment }
                        }
                        _ => Fault::io("open", path)(error),
                    };
                    found.missing.push(Missing { home, path: path.clone(), fault });
                    continue;
                }
            };
            let end = self.end_of(disk, segment);
            // Of a slot that was cut off there is no more than there is.
            let bytes = end.unwrap_or(self.config.segment_bytes).min(length);
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.and_then(FileName::parse)
                && bytes > 0
            {
                let (path, is_end_known) = (path.clone(), end.is_some());
                found.files.push(CutFile { name, path, home, bytes, is_end_known });
            }
        }
        self.packs(disk, packs_in_use, &mut found)?;
        Ok(found)
    }

    /// What does not change any more: segments that another one follows, and packs, as
    /// [`Cut::files`] has them.
    ///
    /// # Errors
    /// As [`Cut::files`].
    pub fn at_rest<D: Disk>(
        &self,
        disk: &D,
        packs_in_use: &BTreeSet<u32>,
    ) -> Result<CutFiles, Fault> {
        let mut found = self.files(disk, packs_in_use)?;
        let current = self.current.map(|(segment, _)| Home::Segment(segment));
        found.files.retain(|file| Some(file.home) != current);
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
            let (home, path) = (Home::Pack(number), pack_path(&self.config, number));
            let is_in_use = in_use.contains(&number);
            let fault = match look_at(disk, &self.config, number) {
                Ok(Some(pack)) if pack.is_whole || is_in_use => {
                    let (name, bytes) = (FileName::Pack(number), pack.bytes);
                    found.files.push(CutFile { name, path, home, bytes, is_end_known: true });
                    continue;
                }
                // It is being made, or being removed: nothing refers to it.
                Ok(Some(_)) => continue,
                Ok(None) if !is_in_use => continue,
                Ok(None) => Fault::MissingPack { path: path.clone(), pack: number },
                Err(fault) => fault,
            };
            found.missing.push(Missing { home, path, fault });
        }
        Ok(())
    }

    /// How many bytes of a segment belong to the log, if that can be known: the next one says it.
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
