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
    scan::{Scan, ScanEnd, ScanItem},
    slot::slot_number,
    slot_file::segment_in,
    slot_survey::check_header,
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
    let (report, headers) = (VerifyReport::default(), BTreeMap::new());
    let mut verifier = Verifier { disk, config, report, headers };
    let mut headless = Vec::new();
    for name in names.iter().filter(|name| slot_number(name).is_some()) {
        headless.extend(verifier.read_header(directory.join(name)));
    }
    for path in headless {
        verifier.inspect_headless(path);
    }
    verifier.read_segments();
    for name in &names {
        if let Some(number) = pack_number(name) {
            verifier.read_pack(number, &directory.join(name));
        }
    }
    Ok(verifier.report)
}

/// Reads a lane and reports what it finds.
struct Verifier<'a, D> {
    disk: &'a D,
    config: &'a LaneConfig,
    report: VerifyReport,
    /// The segments whose header is whole, and their slots.
    headers: BTreeMap<u64, (SegmentHeader, PathBuf)>,
}

impl<D: Disk> Verifier<'_, D> {
    /// Reads the header of a slot. Returns the path if the slot has no whole header and may have
    /// frames.
    fn read_header(&mut self, path: PathBuf) -> Option<PathBuf> {
        match slot_header(self.disk, self.config, &path) {
            Ok(SlotHeader::Segment { header, is_truncated }) => {
                let position = self.segment_start(header.segment);
                if is_truncated {
                    self.report.add(&path, position, 0, "the slot is cut off");
                }
                if self.headers.insert(header.segment, (header, path.clone())).is_some() {
                    self.report.add(&path, position, 0, "another slot holds the same segment");
                }
            }
            Ok(SlotHeader::HeadlessFrames) => return Some(path),
            Ok(SlotHeader::Unfinished) => {}
            Err(fault) => self.report.damage.push(as_damage(&fault, &path, Position(0))),
        }
        None
    }

    fn newest(&self) -> Option<SegmentHeader> {
        self.headers.last_key_value().map(|(_, (header, _))| *header)
    }

    /// Reads the frames of a slot without a whole header.
    fn inspect_headless(&mut self, path: PathBuf) {
        let (config, newest) = (self.config, self.newest());
        let found = self.open(&path).and_then(|file| {
            let headless = inspect_headless(&file, &path, config, newest.as_ref(), |_| true)?;
            Ok((headless.lost_segment(config), segments_of(&file, &path, config)?))
        });
        match found {
            Ok((None, segments)) if segments.is_empty() => {}
            Ok((None, segments)) => self.report.headless.push(HeadlessSlot { path, segments }),
            Ok((Some(segment), _)) => {
                let problem = "the segment's header is gone, but frames behind it were durable";
                let position = self.segment_start(segment);
                self.report.add(&path, position, config.segment_bytes, problem);
            }
            Err(fault) => self.report.damage.push(as_damage(&fault, &path, Position(0))),
        }
    }

    /// Reads the frames of all segments. Of those from the start of a replay, none may be missing.
    fn read_segments(&mut self) {
        let (config, replay_from) = (self.config, self.newest().map(|newest| newest.replay_from));
        let mut expected = replay_from.map_or(0, |from| from.segment(config.segment_bytes));
        for (&number, (header, path)) in &self.headers {
            let passes_over = header.previous_end <= self.segment_start(expected);
            if number > expected && !passes_over {
                let bytes = (number - expected) * config.segment_bytes;
                let position = self.segment_start(expected);
                self.report.add(&config.directory, position, bytes, "a segment is missing");
            }
            expected = expected.max(number + 1);
            self.report.segments += 1;
            self.report.held_segments.insert(number);
            let begin = self.segment_start(number);
            let next = self.headers.get(&(number + 1));
            let unknown = ScanEnd::Unknown { proven: begin };
            let ends = next.map_or(unknown, |(next, _)| ScanEnd::At(next.previous_end));
            let read = self.open(path).and_then(|file| {
                let mut scan = Scan::of_segment(&file, path, config, header, begin, ends);
                self.report.count(&mut scan, path)
            });
            if let Err(fault) = read {
                self.report.damage.push(as_damage(&fault, path, begin));
            }
        }
    }

    fn read_pack(&mut self, number: u32, path: &Path) {
        self.report.packs += 1;
        self.report.held_packs.insert(number);
        let read = self.open(path).and_then(|file| {
            let mut scan = pack_scan(&file, path, self.config, number)?;
            self.report.count(&mut scan, path)
        });
        if let Err(fault) = read {
            self.report.damage.push(as_damage(&fault, path, Position::of_pack(number, 0)));
        }
    }

    fn open(&self, path: &Path) -> Result<D::File, Fault> {
        self.disk.open_to_read(path).map_err(Fault::io("open", path))
    }

    fn segment_start(&self, segment: u64) -> Position {
        Position(segment * self.config.segment_bytes)
    }
}

impl VerifyReport {
    fn add(&mut self, path: &Path, position: Position, bytes: u64, problem: &'static str) {
        self.damage.push(Damage { path: path.to_owned(), position, bytes, problem });
    }

    fn count(&mut self, scan: &mut Scan<'_, impl DiskFile>, path: &Path) -> Result<(), Fault> {
        loop {
            match scan.step()? {
                ScanItem::Frame(frame) => {
                    self.frames += 1;
                    self.records += u64::from(frame.record_count());
                    self.bytes += frame.bytes();
                }
                ScanItem::Hole { position, end, problem } => {
                    self.add(path, position, end.0 - position.0, problem);
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
