//! Compares a file at rest with its checksums, in short reads, while its lane is served. The caller sets the pace,
//! and checks whether the file was still needed.

use std::{cell::Cell, io};

use crate::{
    container::Container,
    cut::{Cut, CutFile, file_start},
    disk::{Disk, DiskFile},
    fault::Fault,
    headless::{HeadlessSegment, last_use_of},
    paced_file::PacedFile,
    position::Position,
    scan::{Scan, ScanEnd, ScanItem},
    slot_file::segment_in,
    walk::{Damage, as_damage, pack_scan},
};

/// The result of a scrub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScrubResult {
    /// The whole file was read; the damage in it.
    Read(Vec<Damage>),
    /// The file was removed or used again meanwhile.
    Gone,
    /// The caller stopped the scrub.
    Stopped,
}

/// Reads a `file` of `cut` from the disk, not from the system's cache, and verifies its checksums.
/// `pace` gets the size of each read and returns whether to continue. A segment that was released
/// meanwhile may appear damaged; the caller knows whether it was.
pub fn scrub<D: Disk>(
    disk: &D,
    cut: &Cut,
    file: &CutFile,
    pace: &mut dyn FnMut(usize) -> bool,
) -> ScrubResult {
    let stopped = Cell::new(false);
    let damage = match scan(disk, cut, file, &stopped, pace) {
        _ if stopped.get() => return ScrubResult::Stopped,
        Ok(damage) => damage,
        Err(fault) => vec![as_damage(&fault, &file.path, file_start(file.container, cut.config()))],
    };
    // A pack is removed from its end, or whole.
    let length = disk.open_to_read(&file.path).and_then(|file| file.length());
    let is_gone = match length {
        Ok(length) => length < file.bytes,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if is_gone && !damage.is_empty() { ScrubResult::Gone } else { ScrubResult::Read(damage) }
}

fn scan<D: Disk>(
    disk: &D,
    cut: &Cut,
    file: &CutFile,
    stopped: &Cell<bool>,
    pace: &mut dyn FnMut(usize) -> bool,
) -> Result<Vec<Damage>, Fault> {
    let (path, config) = (&file.path, cut.config());
    let opened = disk.open_to_read(path).map_err(Fault::io("open", path))?;
    opened.forget_cached().map_err(Fault::io("reread", path))?;
    let uncached = disk.open_uncached(path).unwrap_or_default();
    let paced = PacedFile::new(&opened, uncached.as_ref(), stopped, pace);
    let mut damage = Vec::new();
    let mut scan = match file.container {
        Container::Pack(number) => pack_scan(&paced, path, config, number)?,
        Container::Segment(segment) => {
            let start = Position(segment * config.segment_bytes);
            let known = ScanEnd::At(start.plus(file.bytes));
            let unknown = ScanEnd::Unknown { proven: start };
            let ends = if file.is_end_known { known } else { unknown };
            let found = segment_in(&paced, path)?;
            if let Some(header) = found.filter(|header| header.segment == segment) {
                Scan::of_segment(&paced, path, config, &header, start, ends)
            } else {
                let (bytes, problem) = (0, "the header is not whole");
                damage.push(Damage { path: path.clone(), position: start, bytes, problem });
                let held = match found {
                    // The slot was given to another segment.
                    Some(_) => Ok(None),
                    None => last_use_of(&paced, path, config, |held| held == segment),
                };
                let held = held.unwrap_or_else(|fault| {
                    damage.push(as_damage(&fault, path, start));
                    None
                });
                let Some(held) = held else { return Ok(damage) };
                let header = HeadlessSegment::header(config, held);
                let scan = Scan::of_segment(&paced, path, config, &header, start, ends);
                scan.without_header(false)
            }
        }
    };
    loop {
        match scan.step()? {
            ScanItem::Frame(_) => {}
            ScanItem::Hole { position, end, problem } => {
                let bytes = end.0 - position.0;
                damage.push(Damage { path: path.clone(), position, bytes, problem });
            }
            ScanItem::End { .. } => return Ok(damage),
        }
    }
}
