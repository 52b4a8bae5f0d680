//! Every record of a segment or a pack, in order, in long reads, with every checksum looked at.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, PackHeader},
    home::Home,
    lane_config::LaneConfig,
    paced::Paced,
    pack::check_header,
    position::Position,
    reader::Reader,
    scan::{Ends, Found, Scan},
};

/// What was durable and is not whole any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The slot or the pack.
    pub path: PathBuf,
    /// Where it begins.
    pub position: Position,
    /// How many bytes are not to be read there; 0 if it is the rest of a file that is missing.
    pub bytes: u64,
    /// What is wrong there.
    pub what: &'static str,
}

impl Damage {
    /// The first position that may be read again.
    #[must_use]
    pub fn end(&self) -> Position {
        self.position.plus(self.bytes)
    }

    /// The same as a fault.
    #[must_use]
    pub fn into_fault(self) -> Fault {
        Fault::Rot { path: self.path, position: self.position, what: self.what }
    }
}

/// A fault that keeps a file from being looked at.
pub(crate) fn as_damage(fault: &Fault, path: &Path, begin: Position) -> Damage {
    let (position, what) = match fault {
        Fault::Rot { position, what, .. } => (*position, *what),
        Fault::NewerFormat { .. } => (begin, "the file has a newer format"),
        Fault::Foreign { .. } => (begin, "the file does not belong here"),
        Fault::MissingSegment { .. } | Fault::MissingPack { .. } => (begin, "the file is gone"),
        _ => (begin, "the file cannot be read"),
    };
    Damage { path: path.to_owned(), position, bytes: 0, what }
}

/// What a walk comes by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walked {
    /// A record.
    Record {
        /// What the pusher said it is.
        kind: u8,
        /// Where its body lies.
        position: Position,
        /// The body. It holds on to the whole read it is part of, some MiB: copy what is kept.
        body: Bytes,
    },
    /// Frames that are not whole, and were.
    Damage(Damage),
}

impl<D: Disk> Reader<D> {
    /// Gives every record of a sealed segment in use, or of a finished pack, to `each`, in order, and
    /// says where something is damaged. A body holds on to the whole read it is part of, some MiB:
    /// copy what is kept. Where a segment ends is known from the next one; if that is not in use any
    /// more, damage to its last frames may be taken for its end.
    ///
    /// It reads a quarter of a MiB at a time, past the system's cache where that can be, and tells `pace` how much each was, which may take its
    /// time.
    ///
    /// # Errors
    /// [`Fault::MissingSegment`] or [`Fault::MissingPack`]; [`Fault::Foreign`] or
    /// [`Fault::NewerFormat`] of a pack; [`Fault::Io`], also if `pace` says no; what `each` returns.
    pub fn walk<E: From<Fault>>(
        &mut self,
        home: Home,
        pace: &mut dyn FnMut(usize) -> bool,
        mut each: impl FnMut(Walked) -> Result<(), E>,
    ) -> Result<(), E> {
        let stopped = Cell::new(false);
        let (config, disk) = (self.config().clone(), self.disk().clone());
        match home {
            Home::Pack(number) => {
                let open = self.pack(number)?;
                let (path, file) = (&open.path, &open.file);
                let paced = Paced::new(file, open.past(&disk), &stopped, pace);
                let mut scan = pack_scan(&paced, path, &config, number)?;
                while give(scan.step()?, path, &mut each)? {}
            }
            Home::Segment(segment) => {
                let next = self.segment(segment + 1)?.filter(|next| next.is_whole);
                let begin = Position(segment * config.segment_bytes);
                let unknown = Ends::Unknown { proven: begin };
                let ends = next.map_or(unknown, |next| Ends::At(next.header.previous_end));
                let missing = self.missing(segment);
                let Some(held) = self.segment(segment)? else { return Err(missing.into()) };
                let (path, file) = (&held.open.path, &held.open.file);
                let paced = Paced::new(file, held.open.past(&disk), &stopped, pace);
                let mut scan = Scan::of_segment(&paced, path, &config, &held.header, begin, ends);
                if !held.is_whole {
                    scan = scan.without_header(false);
                }
                loop {
                    let found = scan.step()?;
                    let is_hole = matches!(found, Found::Hole { .. });
                    if is_hole && !held.is_still_held()? {
                        // The slot was given to another segment meanwhile.
                        return Err(missing.into());
                    }
                    if !give(found, path, &mut each)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Gives what a scan found to `each`; false at the end.
pub(crate) fn give<E>(
    found: Found,
    path: &Path,
    each: &mut impl FnMut(Walked) -> Result<(), E>,
) -> Result<bool, E> {
    match found {
        Found::Frame(frame) => {
            for (kind, position, body) in frame.records() {
                each(Walked::Record { kind, position, body })?;
            }
        }
        Found::Hole { position, end, what } => {
            let bytes = end.0 - position.0;
            each(Walked::Damage(Damage { path: path.to_owned(), position, bytes, what }))?;
        }
        Found::End { .. } => return Ok(false),
    }
    Ok(true)
}

/// A walk over the pack of this number in `file`.
pub(crate) fn pack_scan<'a, F: DiskFile>(
    file: &'a F,
    path: &'a Path,
    config: &'a LaneConfig,
    number: u32,
) -> Result<Scan<'a, F>, Fault> {
    let length = file.length().map_err(Fault::io("measure", path))?;
    let mut header = None;
    if length >= BLOCK_BYTES as u64 {
        let mut block = [0; BLOCK_BYTES];
        file.read_at(&mut block, 0).map_err(Fault::io("read", path))?;
        header = PackHeader::decode(&block);
    }
    if let Some(header) = &header {
        check_header(header, config, path, number)?;
    }
    Ok(Scan::of_pack(file, path, config, number, length, header.as_ref()))
}
