//! Reading a lane back after a stop, whatever stopped it. A torn tail is discarded, because nobody
//! was told that it was there; damage to what was durable is a fault, because somebody was.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, FORMAT_VERSION, SegmentHeader},
    frame::FrameBuilder,
    lane::Lane,
    lane_config::LaneConfig,
    position::Position,
    reader::{Reader, segment_in},
    scan::{Ends, Found, Scan, each_frame},
    slot::{Slot, SlotMaker, slot_number},
};

/// What is needed to go on after recovery, and what was found.
#[derive(Debug)]
pub struct RecoveredEnd<D: Disk> {
    /// Where the log ends.
    pub end: Position,
    /// Where the replay began.
    pub replay_from: Position,
    /// Bytes behind the end that were written but never committed.
    pub torn_bytes: u64,
    /// Gathers what comes next, in a new segment and a new generation.
    pub builder: FrameBuilder,
    /// Writes it.
    pub lane: Lane<D>,
    /// Reads what lies in segments.
    pub reader: Reader<D>,
    /// Makes more slots.
    pub slots: SlotMaker<D>,
}

/// One segment found on disk.
struct FoundSegment<F> {
    header: SegmentHeader,
    path: PathBuf,
    file: F,
}

/// Opens a lane and gives every record from where the last replay mark says on to `each`, in
/// order: its kind, the position of its body, and the body. A directory without segments is a new
/// lane. Nothing is written, but what was written is synced.
///
/// # Errors
/// [`Fault::Rot`] or [`Fault::MissingSegment`] if something that was durable is not there;
/// [`Fault::NewerFormat`] or [`Fault::Foreign`] if the slots are not of this lane; what `each`
/// returns.
pub fn recover<D: Disk, E: From<Fault>>(
    disk: &D,
    config: LaneConfig,
    mut each: impl FnMut(u8, Position, Bytes) -> Result<(), E>,
) -> Result<RecoveredEnd<D>, E> {
    let directory = &config.directory;
    disk.create_directory(directory).map_err(Fault::io("create", directory))?;
    // A slot whose maker was killed before it synced the directory is used like the others.
    let above = directory.parent().filter(|above| !above.as_os_str().is_empty());
    for directory in above.into_iter().chain([directory.as_path()]) {
        disk.sync_directory(directory).map_err(Fault::io("sync", directory))?;
    }
    let mut segments: BTreeMap<u64, FoundSegment<D::File>> = BTreeMap::new();
    let mut headless = Vec::new();
    let mut next_slot = 0;
    for name in disk.list(directory).map_err(Fault::io("list", directory))? {
        let Some(number) = slot_number(&name) else { continue };
        let path = directory.join(name);
        let file = disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
        if file.length().map_err(Fault::io("measure", &path))? < config.segment_bytes {
            // A crash came while it was made; the next slot that is made gets its name.
            continue;
        }
        next_slot = next_slot.max(number + 1);
        file.forget_cached().map_err(Fault::io("reread", &path))?;
        match segment_in(&file, &path)? {
            Some(header) => {
                check_header(&header, &config, &path)?;
                if segments.contains_key(&header.segment) {
                    let position = Position(header.segment * config.segment_bytes);
                    let what = "another slot holds the same segment";
                    return Err(Fault::Rot { path, position, what }.into());
                }
                segments.insert(header.segment, FoundSegment { header, path, file });
            }
            None => headless.push((path, file)),
        }
    }
    if let Some(newest) = segments.values().next_back() {
        // What a killed process wrote and never synced can be read, and is taken for the log's
        // end: from here on others build on it, so it has to be durable. Older segments were
        // synced before this one was begun.
        newest.file.sync().map_err(Fault::io("sync", &newest.path))?;
    }
    let newest = segments.last_key_value().map(|(_, found)| found.header);
    let mut generation = newest.map_or(0, |header| header.generation);
    for (path, file) in &headless {
        generation = generation.max(check_headless(file, path, &config, newest.as_ref())?);
    }
    let replay_from = newest.map_or(Position(0), |header| header.replay_from);
    let mut end = newest.map_or(Position(0), |_| replay_from);
    let mut torn_bytes = 0;
    if let Some(newest) = newest {
        let first = replay_from.segment(config.segment_bytes);
        for number in first..=newest.segment {
            let Some(found) = segments.get(&number) else {
                let path = directory.clone();
                return Err(Fault::MissingSegment { path, segment: number }.into());
            };
            let next = segments.get(&(number + 1));
            let ends = next.map_or(Ends::Unknown, |next| Ends::At(next.header.previous_end));
            let begin = replay_from.max(Position(number * config.segment_bytes));
            let FoundSegment { header, path, file } = found;
            let mut scan = Scan::of_segment(file, path, &config, header, begin, ends);
            loop {
                match scan.step()? {
                    Found::Frame(frame) => {
                        for (kind, position, body) in frame.records() {
                            each(kind, position, body)?;
                        }
                    }
                    Found::Hole { position, what, .. } => {
                        return Err(Fault::Rot { path: path.clone(), position, what }.into());
                    }
                    Found::End { torn_bytes: torn } => {
                        torn_bytes = torn;
                        break;
                    }
                }
            }
            end = scan.position();
        }
    }
    let next_segment = newest.map_or(0, |header| header.segment + 1);
    let Some(generation) = generation.checked_add(1) else {
        let what = "a header says that the lane was started as often as can be counted";
        return Err(Fault::Rot { path: directory.clone(), position: end, what }.into());
    };
    let in_use =
        segments.into_iter().map(|(number, found)| (number, Slot { path: found.path })).collect();
    let spare: VecDeque<Slot> = headless.into_iter().map(|(path, _)| Slot { path }).collect();
    let slots = SlotMaker::new(disk.clone(), directory.clone(), config.segment_bytes, next_slot);
    Ok(RecoveredEnd {
        end,
        replay_from,
        torn_bytes,
        builder: FrameBuilder::new(config.clone(), generation, next_segment, end, replay_from),
        lane: Lane::new(disk.clone(), config.clone(), in_use, spare),
        reader: Reader::new(disk.clone(), config),
        slots,
    })
}

fn check_header(header: &SegmentHeader, config: &LaneConfig, path: &Path) -> Result<(), Fault> {
    if header.version > FORMAT_VERSION {
        return Err(Fault::NewerFormat {
            path: path.to_owned(),
            found: header.version.into(),
            known: FORMAT_VERSION.into(),
        });
    }
    for (field, found, expected) in [
        ("lane", u64::from(header.lane), u64::from(config.lane)),
        ("segment length", header.segment_bytes, config.segment_bytes),
        ("incarnation", header.incarnation, config.incarnation),
    ] {
        if found != expected {
            return Err(Fault::Foreign { path: path.to_owned(), field, found, expected });
        }
    }
    let start = header.segment.checked_mul(config.segment_bytes);
    // Room for this segment and the next, below the positions in packs.
    let start = start.filter(|start| {
        let next_end = start.checked_add(2 * config.segment_bytes);
        next_end.is_some_and(|end| Position(end).pack().is_none())
    });
    let is_possible = start.is_some_and(|start| {
        [header.previous_end, header.replay_from]
            .iter()
            .all(|place| place.0 <= start && place.0.is_multiple_of(BLOCK_BYTES as u64))
    });
    if !is_possible {
        let what = "the segment's header is whole, but says what cannot be";
        let position = Position(header.segment.saturating_mul(config.segment_bytes));
        return Err(Fault::Rot { path: path.to_owned(), position, what });
    }
    Ok(())
}

/// A slot without a header is spare: new, or torn when its segment was opened. Unless a frame in
/// it proves that the segment's header was durable once. Returns the generation of what was torn:
/// the next one has to be higher, or its frames could be taken for the torn ones.
fn check_headless(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    newest: Option<&SegmentHeader>,
) -> Result<u32, Fault> {
    let next = newest.map_or(0, |header| header.segment + 1);
    let start = Position(next * config.segment_bytes);
    let mut generation = 0;
    let mut was_durable = false;
    each_frame(file, path, config, BLOCK_BYTES as u64, |header| {
        if header.position >= start {
            generation = generation.max(header.generation);
            was_durable |= header.durable > start;
        }
    })?;
    if was_durable {
        let what = "the segment's header is gone, but frames behind it were durable";
        return Err(Fault::Rot { path: path.to_owned(), position: start, what });
    }
    Ok(generation)
}
