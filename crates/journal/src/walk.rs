//! Iterates over all records of a segment or a pack, in order, in long reads, and verifies every checksum.

use std::{
    cell::Cell,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    container::Container,
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, FrameBody, PackHeader},
    lane_config::LaneConfig,
    paced_file::PacedFile,
    pack::check_header,
    position::Position,
    reader::Reader,
    scan::{Scan, ScanEnd, ScanItem},
};

/// Durable bytes that are no longer whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The slot or the pack.
    pub path: PathBuf,
    /// The start of the damage.
    pub position: Position,
    /// The number of bytes that cannot be read; 0 for the missing rest of a file.
    pub bytes: u64,
    /// The problem.
    pub problem: &'static str,
}

impl Damage {
    /// The first position behind the damage.
    #[must_use]
    pub fn end(&self) -> Position {
        self.position.plus(self.bytes)
    }

    /// Converts it to a fault.
    #[must_use]
    pub fn into_fault(self) -> Fault {
        Fault::Rot { path: self.path, position: self.position, problem: self.problem }
    }
}

/// The damage for a fault that prevents reading a file.
pub(crate) fn as_damage(fault: &Fault, path: &Path, begin: Position) -> Damage {
    let (position, problem) = match fault {
        Fault::Rot { position, problem, .. } => (*position, *problem),
        Fault::NewerFormat { .. } => (begin, "the file has a newer format"),
        Fault::Foreign { .. } => (begin, "the file does not belong here"),
        Fault::MissingSegment { .. } | Fault::MissingPack { .. } => (begin, "the file is gone"),
        _ => (begin, "the file cannot be read"),
    };
    Damage { path: path.to_owned(), position, bytes: 0, problem }
}

/// An item of a walk over records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkItem {
    /// A record.
    Record {
        /// The kind that the writer has set.
        kind: u8,
        /// Where its body lies.
        position: Position,
        /// The body. It shares the memory of the whole read, some MiB: copy the part that you keep.
        body: Bytes,
        /// The body of the frame that holds it.
        frame: FrameBody,
    },
    /// Durable frames that are not whole.
    Damage(Damage),
}

impl<D: Disk> Reader<D> {
    /// Passes every record of a sealed segment in use, or of a finished pack, to `each`, in order,
    /// and reports damage. A body shares the memory of the whole read, some MiB: copy the part that
    /// you keep. The next segment says where a segment ends; if that is no longer in use, damage to
    /// the last frames may look like the end.
    ///
    /// It reads a quarter of a MiB at a time, uncached if possible, and passes the size of each
    /// read to `pace`, which may pause.
    ///
    /// # Errors
    /// [`Fault::MissingSegment`] or [`Fault::MissingPack`]; [`Fault::Foreign`] or
    /// [`Fault::NewerFormat`] of a pack; [`Fault::Io`], also if `pace` returns false; the error of
    /// `each`.
    pub fn walk<E: From<Fault>>(
        &mut self,
        container: Container,
        pace: &mut dyn FnMut(usize) -> bool,
        mut each: impl FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        let stopped = Cell::new(false);
        let (config, disk) = (self.config().clone(), self.disk().clone());
        match container {
            Container::Pack(number) => {
                let open = self.pack(number)?;
                let (path, file) = (&open.path, &open.file);
                let paced = PacedFile::new(file, open.uncached(&disk), &stopped, pace);
                let mut scan = pack_scan(&paced, path, &config, number)?;
                while emit(scan.step()?, path, &mut each)? {}
            }
            Container::Segment(segment) => {
                let next = self.segment(segment + 1)?.filter(|next| next.is_whole);
                let begin = Position(segment * config.segment_bytes);
                let unknown = ScanEnd::Unknown { proven: begin };
                let ends = next.map_or(unknown, |next| ScanEnd::At(next.header.previous_end));
                let missing = self.missing(segment);
                let Some(held) = self.segment(segment)? else { return Err(missing.into()) };
                let (path, file) = (&held.open.path, &held.open.file);
                let paced = PacedFile::new(file, held.open.uncached(&disk), &stopped, pace);
                let mut scan = Scan::of_segment(&paced, path, &config, &held.header, begin, ends);
                if !held.is_whole {
                    scan = scan.without_header(false);
                }
                loop {
                    let found = scan.step()?;
                    let is_hole = matches!(found, ScanItem::Hole { .. });
                    if is_hole && !held.is_current()? {
                        // The slot was given to another segment meanwhile.
                        return Err(missing.into());
                    }
                    if !emit(found, path, &mut each)? {
                        break;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Passes the items of a scan to `each`; returns false at the end.
pub(crate) fn emit<E>(
    found: ScanItem,
    path: &Path,
    each: &mut impl FnMut(WalkItem) -> Result<(), E>,
) -> Result<bool, E> {
    match found {
        ScanItem::Frame(frame) => {
            let whole = frame.body();
            for (kind, position, body) in frame.records() {
                each(WalkItem::Record { kind, position, body, frame: whole })?;
            }
        }
        ScanItem::Hole { position, end, problem } => {
            let bytes = end.0 - position.0;
            each(WalkItem::Damage(Damage { path: path.to_owned(), position, bytes, problem }))?;
        }
        ScanItem::End { .. } => return Ok(false),
    }
    Ok(true)
}

/// A scan of the pack with this number in `file`.
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
