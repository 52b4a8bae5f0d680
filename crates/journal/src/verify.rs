//! Looks at every byte of a lane that has a checksum, and changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::SegmentHeader,
    headless::{look_at_headless, segments_of},
    lane_config::LaneConfig,
    pack::pack_number,
    position::Position,
    recovery::check_header,
    scan::{Ends, Found, Scan},
    slot::slot_number,
    slot_file::segment_in,
    walk::{Damage, as_damage, pack_scan},
};

/// What a lane holds, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Segments whose header is whole; those that nobody needs any more are among them.
    pub segments: u64,
    /// Packs; those to which nobody refers are among them.
    pub packs: u64,
    /// Frames that are whole.
    pub frames: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of these frames, as they lie on disk.
    pub bytes: u64,
    /// What is not whole, segments first. Of what nobody needs it does no harm.
    pub damage: Vec<Damage>,
    /// The segments counted, by number.
    pub held_segments: BTreeSet<u64>,
    /// The packs counted, by number.
    pub held_packs: BTreeSet<u32>,
    /// Slots without a whole header that hold frames all the same. Such a slot is spare, unless
    /// somebody still refers to a segment that only lies in it.
    pub headless: Vec<HeadlessSlot>,
}

/// A slot that looks spare and once held segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadlessSlot {
    /// The slot.
    pub path: PathBuf,
    /// The segments of which frames lie in it.
    pub segments: BTreeSet<u64>,
}

/// Looks at all slots and packs of a lane that nobody has open, and writes nothing. A segment that
/// a replay would read and that is in no slot is damage. A torn tail is none, and neither is a slot that holds nothing; a pack that was not finished is. Damage to
/// the last frames of a segment is found if the next segment is in a slot too.
///
/// # Errors
/// [`Fault::Io`] if the directory cannot be listed. A file that cannot be read, or that belongs to
/// another lane or a newer format, is damage.
pub fn verify<D: Disk>(disk: &D, config: &LaneConfig) -> Result<Verdict, Fault> {
    let directory = &config.directory;
    let names = disk.list(directory).map_err(Fault::io("list", directory))?;
    let mut verdict = Verdict::default();
    let mut headers = BTreeMap::new();
    let mut headless = Vec::new();
    for name in names.iter().filter(|name| slot_number(name).is_some()) {
        let path = directory.join(name);
        match slot_header(disk, config, &path) {
            Ok(Slotted::Segment { header, is_cut }) => {
                if is_cut {
                    let position = Position(header.segment * config.segment_bytes);
                    let (path, what) = (path.clone(), "the slot is cut off");
                    verdict.damage.push(Damage { path, position, bytes: 0, what });
                }
                if headers.insert(header.segment, (header, path.clone())).is_some() {
                    let position = Position(header.segment * config.segment_bytes);
                    let what = "another slot holds the same segment";
                    verdict.damage.push(Damage { path, position, bytes: 0, what });
                }
            }
            Ok(Slotted::Headless) => headless.push(path),
            Ok(Slotted::Unfinished) => {}
            Err(fault) => verdict.damage.push(as_damage(&fault, &path, Position(0))),
        }
    }
    let newest = headers.last_key_value().map(|(_, (header, _))| *header);
    for path in headless {
        let looked = disk.open_to_read(&path).map_err(Fault::io("open", &path)).and_then(|file| {
            let headless = look_at_headless(&file, &path, config, newest.as_ref(), |_| true)?;
            Ok((headless.lost_segment(config), segments_of(&file, &path, config)?))
        });
        match looked {
            Ok((None, segments)) if segments.is_empty() => {}
            Ok((None, segments)) => verdict.headless.push(HeadlessSlot { path, segments }),
            Ok((Some(segment), _)) => {
                let position = Position(segment * config.segment_bytes);
                let what = "the segment's header is gone, but frames behind it were durable";
                let bytes = config.segment_bytes;
                verdict.damage.push(Damage { path, position, bytes, what });
            }
            Err(fault) => verdict.damage.push(as_damage(&fault, &path, Position(0))),
        }
    }
    // Of the segments from where a replay begins none may be missing.
    let mut expected = newest.map_or(0, |newest| newest.replay_from.segment(config.segment_bytes));
    for (number, (header, path)) in &headers {
        let passes_over = header.previous_end <= Position(expected * config.segment_bytes);
        if *number > expected && !passes_over {
            let position = Position(expected * config.segment_bytes);
            let bytes = (number - expected) * config.segment_bytes;
            let (path, what) = (directory.clone(), "a segment is missing");
            verdict.damage.push(Damage { path, position, bytes, what });
        }
        expected = expected.max(number + 1);
        verdict.segments += 1;
        verdict.held_segments.insert(*number);
        let next = headers.get(&(number + 1));
        let begin = Position(number * config.segment_bytes);
        let unknown = Ends::Unknown { proven: begin };
        let ends = next.map_or(unknown, |(next, _)| Ends::At(next.previous_end));
        let walked = disk.open_to_read(path).map_err(Fault::io("open", path)).and_then(|file| {
            let mut scan = Scan::of_segment(&file, path, config, header, begin, ends);
            verdict.count(&mut scan, path)
        });
        if let Err(fault) = walked {
            verdict.damage.push(as_damage(&fault, path, begin));
        }
    }
    for name in &names {
        let Some(number) = pack_number(name) else { continue };
        let path = directory.join(name);
        verdict.packs += 1;
        verdict.held_packs.insert(number);
        let walked = disk.open_to_read(&path).map_err(Fault::io("open", &path)).and_then(|file| {
            let mut scan = pack_scan(&file, &path, config, number)?;
            verdict.count(&mut scan, &path)
        });
        if let Err(fault) = walked {
            verdict.damage.push(as_damage(&fault, &path, Position::of_pack(number, 0)));
        }
    }
    Ok(verdict)
}

impl Verdict {
    fn count(&mut self, scan: &mut Scan<'_, impl DiskFile>, path: &Path) -> Result<(), Fault> {
        loop {
            match scan.step()? {
                Found::Frame(frame) => {
                    self.frames += 1;
                    self.records += u64::from(frame.record_count());
                    self.bytes += frame.bytes();
                }
                Found::Hole { position, end, what } => {
                    let bytes = end.0 - position.0;
                    self.damage.push(Damage { path: path.to_owned(), position, bytes, what });
                }
                Found::End { .. } => return Ok(()),
            }
        }
    }
}

enum Slotted {
    Segment {
        header: SegmentHeader,
        /// The file is shorter than a slot.
        is_cut: bool,
    },
    /// Spare, or its header is damaged.
    Headless,
    /// Its making was interrupted.
    Unfinished,
}

fn slot_header<D: Disk>(disk: &D, config: &LaneConfig, path: &Path) -> Result<Slotted, Fault> {
    let file = disk.open_to_read(path).map_err(Fault::io("open", path))?;
    let is_cut = file.length().map_err(Fault::io("measure", path))? < config.segment_bytes;
    let Some(header) = segment_in(&file, path)? else {
        return Ok(if is_cut { Slotted::Unfinished } else { Slotted::Headless });
    };
    check_header(&header, config, path)?;
    Ok(Slotted::Segment { header, is_cut })
}
