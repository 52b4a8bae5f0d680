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
    pack::{Pack, pack_name, pack_number, pack_path, packs},
    position::Position,
    reader::segment_in,
    slot::{slot_name, slot_number},
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
    /// [`Fault::Io`]; [`Fault::NewerFormat`] or [`Fault::Foreign`] of a pack.
    pub fn files<D: Disk>(
        &self,
        disk: &D,
        packs_in_use: &BTreeSet<u32>,
    ) -> Result<Vec<CutFile>, Fault> {
        let mut files = Vec::new();
        for (&segment, path) in &self.segments {
            let length = match disk.open_to_read(path) {
                // Nobody keeps it for us, and it was removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened.and_then(|file| file.length()).map_err(Fault::io("open", path))?,
            };
            let end = self.end_of(disk, segment)?;
            // Of a slot that was cut off there is no more than there is.
            let bytes = end.unwrap_or(self.config.segment_bytes).min(length);
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.and_then(FileName::parse)
                && bytes > 0
            {
                let (path, home) = (path.clone(), Home::Segment(segment));
                files.push(CutFile { name, path, home, bytes, is_end_known: end.is_some() });
            }
        }
        files.extend(self.packs(disk, packs_in_use)?);
        Ok(files)
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
    ) -> Result<Vec<CutFile>, Fault> {
        let mut files = self.files(disk, packs_in_use)?;
        let current = self.current.map(|(segment, _)| Home::Segment(segment));
        files.retain(|file| Some(file.home) != current);
        Ok(files)
    }

    pub(crate) fn config(&self) -> &LaneConfig {
        &self.config
    }

    fn packs<D: Disk>(
        &self,
        disk: &D,
        in_use: &BTreeSet<u32>,
    ) -> Result<impl Iterator<Item = CutFile>, Fault> {
        // Any other is being made, or being removed: nothing refers to it.
        let is_needed = |pack: &Pack| pack.is_whole || in_use.contains(&pack.number);
        let needed = packs(disk, &self.config)?.into_iter().filter(is_needed);
        Ok(needed.map(|pack| CutFile {
            name: FileName::Pack(pack.number),
            path: pack_path(&self.config, pack.number),
            home: Home::Pack(pack.number),
            bytes: pack.bytes,
            is_end_known: true,
        }))
    }

    /// How many bytes of a segment belong to the log, if that can be known: the next one says it.
    fn end_of<D: Disk>(&self, disk: &D, segment: u64) -> Result<Option<u64>, Fault> {
        let start = segment * self.config.segment_bytes;
        if let Some((current, end)) = self.current
            && current == segment
        {
            // Nothing of it is durable before its first frame is.
            return Ok(Some(end.0.saturating_sub(start)));
        }
        let Some(next) = self.segments.get(&(segment + 1)) else { return Ok(None) };
        let file = match disk.open_to_read(next) {
            // Nobody keeps it for us, and it was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(Fault::io("open", next))?,
        };
        let header = segment_in(&file, next)?.filter(|header| {
            header.segment == segment + 1 && header.incarnation == self.config.incarnation
        });
        let end = header.map(|next| next.previous_end.0.saturating_sub(start));
        Ok(end.map(|end| end.clamp(BLOCK_BYTES as u64, self.config.segment_bytes)))
    }
}
