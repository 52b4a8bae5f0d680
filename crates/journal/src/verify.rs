//! Verifies every checksum of a lane, and changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::SegmentHeader,
    headless::{inspect_headless, segments_of},
    lane_config::LaneConfig,
    pack::pack_number,
    position::Position,
    recovery::check_header,
    scan::{Scan, ScanEnd, ScanItem},
    slot::slot_number,
    slot_file::segment_in,
    walk::{Damage, as_damage, pack_scan},
};

/// The contents of a lane, and the damage in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyReport {
    /// Number of segments whose header is whole, including those that are no longer needed.
    pub segments: u64,
    /// Number of packs, including those without references.
    pub packs: u64,
    /// Number of whole frames.
    pub frames: u64,
    /// Number of records in them.
    pub records: u64,
    /// Size of these frames on disk.
    pub bytes: u64,
    /// The damage, segments first. Damage to data that is no longer needed does no harm.
    pub damage: Vec<Damage>,
    /// The numbers of these segments.
    pub held_segments: BTreeSet<u64>,
    /// The numbers of these packs.
    pub held_packs: BTreeSet<u32>,
    /// Slots that have frames and no whole header. Such a slot is spare, unless something refers to
    /// a segment that is only there.
    pub headless: Vec<HeadlessSlot>,
}

/// A slot without a whole header that has frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeadlessSlot {
    /// The slot.
    pub path: PathBuf,
    /// The segments of these frames.
    pub segments: BTreeSet<u64>,
}

/// Reads all slots and packs of a lane that nobody serves, and writes nothing. A segment that a
/// replay needs and that is in no slot is damage, and so is an unfinished pack. A torn tail and an
/// empty slot are not. Damage to the last frames of a segment is found only if the next segment is
/// in a slot too.
///
/// # Errors
/// [`Fault::Io`] if the directory cannot be listed. A file that cannot be read, or that belongs to
/// another lane or a newer format, is damage.
pub fn verify<D: Disk>(disk: &D, config: &LaneConfig) -> Result<VerifyReport, Fault> {
    let directory = &config.directory;
    let names = disk.list(directory).map_err(Fault::io("list", directory))?;
    let mut report = VerifyReport::default();
    let mut headers = BTreeMap::new();
    let mut headless = Vec::new();
    for name in names.iter().filter(|name| slot_number(name).is_some()) {
        let path = directory.join(name);
        match slot_header(disk, config, &path) {
            Ok(SlotHeader::Segment { header, is_truncated }) => {
                if is_truncated {
                    let position = Position(header.segment * config.segment_bytes);
                    let (path, problem) = (path.clone(), "the slot is cut off");
                    report.damage.push(Damage { path, position, bytes: 0, problem });
                }
                if headers.insert(header.segment, (header, path.clone())).is_some() {
                    let position = Position(header.segment * config.segment_bytes);
                    let problem = "another slot holds the same segment";
                    report.damage.push(Damage { path, position, bytes: 0, problem });
                }
            }
            Ok(SlotHeader::HeadlessFrames) => headless.push(path),
            Ok(SlotHeader::Unfinished) => {}
            Err(fault) => report.damage.push(as_damage(&fault, &path, Position(0))),
        }
    }
    let newest = headers.last_key_value().map(|(_, (header, _))| *header);
    for path in headless {
        let looked = disk.open_to_read(&path).map_err(Fault::io("open", &path)).and_then(|file| {
            let headless = inspect_headless(&file, &path, config, newest.as_ref(), |_| true)?;
            Ok((headless.lost_segment(config), segments_of(&file, &path, config)?))
        });
        match looked {
            Ok((None, segments)) if segments.is_empty() => {}
            Ok((None, segments)) => report.headless.push(HeadlessSlot { path, segments }),
            Ok((Some(segment), _)) => {
                let position = Position(segment * config.segment_bytes);
                let problem = "the segment's header is gone, but frames behind it were durable";
                let bytes = config.segment_bytes;
                report.damage.push(Damage { path, position, bytes, problem });
            }
            Err(fault) => report.damage.push(as_damage(&fault, &path, Position(0))),
        }
    }
    // Of the segments from where a replay begins none may be missing.
    let mut expected = newest.map_or(0, |newest| newest.replay_from.segment(config.segment_bytes));
    for (number, (header, path)) in &headers {
        let passes_over = header.previous_end <= Position(expected * config.segment_bytes);
        if *number > expected && !passes_over {
            let position = Position(expected * config.segment_bytes);
            let bytes = (number - expected) * config.segment_bytes;
            let (path, problem) = (directory.clone(), "a segment is missing");
            report.damage.push(Damage { path, position, bytes, problem });
        }
        expected = expected.max(number + 1);
        report.segments += 1;
        report.held_segments.insert(*number);
        let next = headers.get(&(number + 1));
        let begin = Position(number * config.segment_bytes);
        let unknown = ScanEnd::Unknown { proven: begin };
        let ends = next.map_or(unknown, |(next, _)| ScanEnd::At(next.previous_end));
        let walked = disk.open_to_read(path).map_err(Fault::io("open", path)).and_then(|file| {
            let mut scan = Scan::of_segment(&file, path, config, header, begin, ends);
            report.count(&mut scan, path)
        });
        if let Err(fault) = walked {
            report.damage.push(as_damage(&fault, path, begin));
        }
    }
    for name in &names {
        let Some(number) = pack_number(name) else { continue };
        let path = directory.join(name);
        report.packs += 1;
        report.held_packs.insert(number);
        let walked = disk.open_to_read(&path).map_err(Fault::io("open", &path)).and_then(|file| {
            let mut scan = pack_scan(&file, &path, config, number)?;
            report.count(&mut scan, &path)
        });
        if let Err(fault) = walked {
            report.damage.push(as_damage(&fault, &path, Position::of_pack(number, 0)));
        }
    }
    Ok(report)
}

impl VerifyReport {
    fn count(&mut self, scan: &mut Scan<'_, impl DiskFile>, path: &Path) -> Result<(), Fault> {
        loop {
            match scan.step()? {
                ScanItem::Frame(frame) => {
                    self.frames += 1;
                    self.records += u64::from(frame.record_count());
                    self.bytes += frame.bytes();
                }
                ScanItem::Hole { position, end, problem } => {
                    let bytes = end.0 - position.0;
                    self.damage.push(Damage { path: path.to_owned(), position, bytes, problem });
                }
                ScanItem::End { .. } => return Ok(()),
            }
        }
    }
}

enum SlotHeader {
    Segment {
        header: SegmentHeader,
        /// The file is shorter than a slot.
        is_truncated: bool,
    },
    /// Spare, or its header is damaged.
    HeadlessFrames,
    /// Its creation was interrupted.
    Unfinished,
}

fn slot_header<D: Disk>(disk: &D, config: &LaneConfig, path: &Path) -> Result<SlotHeader, Fault> {
    let file = disk.open_to_read(path).map_err(Fault::io("open", path))?;
    let is_truncated = file.length().map_err(Fault::io("measure", path))? < config.segment_bytes;
    let Some(header) = segment_in(&file, path)? else {
        return Ok(if is_truncated { SlotHeader::Unfinished } else { SlotHeader::HeadlessFrames });
    };
    check_header(&header, config, path)?;
    Ok(SlotHeader::Segment { header, is_truncated })
}
