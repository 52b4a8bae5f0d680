//! Holds one file that is at rest against its checksums, in short reads, while its lane is served.
//! How fast is the caller's business, and so is whether the file was still needed.

use std::{cell::Cell, io};

use crate::{
    cut::{Cut, CutFile, begin_of},
    disk::{Disk, DiskFile},
    fault::Fault,
    headless::{HeadlessSegment, last_held},
    home::Home,
    paced::Paced,
    position::Position,
    scan::{Ends, Found, Scan},
    slot_file::segment_in,
    walk::{Damage, as_damage, pack_scan},
};

/// What came of a look at a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scrubbed {
    /// All of it was read; what is damaged.
    Read(Vec<Damage>),
    /// It was removed or used again meanwhile.
    Gone,
    /// The caller said to stop.
    Stopped,
}

/// Reads a `file` of `cut` from the disk, not from the system's cache, and holds it against its
/// checksums. `pace` is told of each read and how many bytes it had, and says whether to go on. A
/// segment that was released meanwhile may look damaged: the caller knows whether it was.
pub fn scrub<D: Disk>(
    disk: &D,
    cut: &Cut,
    file: &CutFile,
    pace: &mut dyn FnMut(usize) -> bool,
) -> Scrubbed {
    let stopped = Cell::new(false);
    let damage = match scan(disk, cut, file, &stopped, pace) {
        _ if stopped.get() => return Scrubbed::Stopped,
        Ok(damage) => damage,
        Err(fault) => vec![as_damage(&fault, &file.path, begin_of(file.home, cut.config()))],
    };
    // A pack is removed from its end, or whole.
    let length = disk.open_to_read(&file.path).and_then(|file| file.length());
    let is_gone = match length {
        Ok(length) => length < file.bytes,
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if is_gone && !damage.is_empty() { Scrubbed::Gone } else { Scrubbed::Read(damage) }
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
    let past = disk.open_to_read_past(path).unwrap_or_default();
    let paced = Paced::new(&opened, past.as_ref(), stopped, pace);
    let mut damage = Vec::new();
    let mut scan = match file.home {
        Home::Pack(number) => pack_scan(&paced, path, config, number)?,
        Home::Segment(segment) => {
            let start = Position(segment * config.segment_bytes);
            let known = Ends::At(start.plus(file.bytes));
            let unknown = Ends::Unknown { proven: start };
            let ends = if file.is_end_known { known } else { unknown };
            let found = segment_in(&paced, path)?;
            if let Some(header) = found.filter(|header| header.segment == segment) {
                Scan::of_segment(&paced, path, config, &header, start, ends)
            } else {
                let (bytes, what) = (0, "the header is not whole");
                damage.push(Damage { path: path.clone(), position: start, bytes, what });
                let held = match found {
                    // The slot was given to another segment.
                    Some(_) => Ok(None),
                    None => last_held(&paced, path, config, |held| held == segment),
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
            Found::Frame(_) => {}
            Found::Hole { position, end, what } => {
                let bytes = end.0 - position.0;
                damage.push(Damage { path: path.clone(), position, bytes, what });
            }
            Found::End { .. } => return Ok(damage),
        }
    }
}
