//! Iterates over the frames of one segment or pack: the next frame, the next hole, or the end. The caller handles
//! holes.

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use crate::{
    block::Blocks,
    disk::DiskFile,
    fault::Fault,
    format::{
        BLOCK_BYTES, FRAME_HEADER_BYTES, FrameBody, FrameHeader, PackHeader, SegmentHeader, crc32c,
        records,
    },
    lane_config::LaneConfig,
    pack::is_last,
    position::Position,
    slot_file::read_padded,
};

/// Size of one read of the disk.
const READ_BYTES: usize = 4 << 20;

/// The end of the frames of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ScanEnd {
    /// At this position, as the next segment's header says.
    At(Position),
    /// At the first frame that does not follow, unless it was durable: according to a later frame,
    /// or because it lies before `proven`.
    Unknown {
        /// All positions before this were durable, according to other files.
        proven: Position,
    },
    /// With the last frame of a pack, at the end of the file.
    WithLastFrame,
}

/// The next item of a scan.
#[derive(Debug)]
pub(crate) enum ScanItem {
    Frame(WholeFrame),
    /// Durable bytes from `position` to `end` are not whole.
    Hole {
        position: Position,
        end: Position,
        problem: &'static str,
    },
    End {
        /// Bytes behind the end that were written and never committed.
        torn_bytes: u64,
    },
}

/// A frame that has passed all checks.
#[derive(Debug)]
pub(crate) struct WholeFrame {
    header: FrameHeader,
    body: Bytes,
}

impl WholeFrame {
    pub(crate) fn record_count(&self) -> u32 {
        self.header.record_count
    }

    /// Its size on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.header.frame_bytes() as u64
    }

    pub(crate) fn body(&self) -> FrameBody {
        self.header.body()
    }

    /// The records: kind, position of the body, body.
    pub(crate) fn records(&self) -> impl Iterator<Item = (u8, Position, Bytes)> {
        let body_at = self.header.position.plus(FRAME_HEADER_BYTES as u64);
        // Those that do not end where they should were looked for before.
        records(&self.body).flatten().map(move |(kind, start, end)| {
            (kind, body_at.plus(start as u64), self.body.slice(start..end))
        })
    }
}

/// The reason why the frame at a position is not the next one.
struct FrameMismatch {
    problem: &'static str,
    /// Its end, if it is a whole frame.
    end: Option<u64>,
}

impl FrameMismatch {
    fn problem(problem: &'static str) -> Self {
        Self { problem, end: None }
    }
}

/// A scan over the frames of one file.
pub(crate) struct Scan<'a, F> {
    file: &'a F,
    path: &'a Path,
    config: &'a LaneConfig,
    /// The position of the file's first byte.
    first: Position,
    length: u64,
    generation: u32,
    ends: ScanEnd,
    /// The byte of the file at which the next frame begins.
    at: u64,
    /// The chain value for the next frame; unknown behind a hole, and if a replay begins in the
    /// middle of a segment.
    chain: Option<u64>,
    /// Information from the frame headers behind the first hole, once there is one.
    tail: Option<Tail>,
    /// Whether the last frame of a pack was passed.
    is_finished: bool,
    /// Bytes that were read ahead, from byte `window_at` of the file.
    window: Bytes,
    window_at: u64,
    /// The memory of the window; the next window reuses it if no part of it is held.
    blocks: Arc<Blocks>,
}

impl<'a, F: DiskFile> Scan<'a, F> {
    /// A scan from `begin`, where a frame or the segment begins.
    pub(crate) fn of_segment(
        file: &'a F,
        path: &'a Path,
        config: &'a LaneConfig,
        header: &SegmentHeader,
        begin: Position,
        ends: ScanEnd,
    ) -> Self {
        let at = begin.in_segment(config.segment_bytes).max(BLOCK_BYTES as u64);
        Self {
            file,
            path,
            config,
            first: Position(header.segment * config.segment_bytes),
            length: config.segment_bytes,
            generation: header.generation,
            ends,
            at,
            chain: (at == BLOCK_BYTES as u64).then(|| header.chain()),
            tail: None,
            is_finished: false,
            window: Bytes::new(),
            window_at: 0,
            blocks: Arc::default(),
        }
    }

    /// The same scan if the segment's header is not whole. It begins with a hole if it `begins`
    /// with the segment rather than the first frame.
    pub(crate) fn without_header(mut self, begins: bool) -> Self {
        self.chain = None;
        if begins {
            self.at = 0;
        }
        self
    }

    /// A scan of a pack with `length` bytes; without a `header` it begins with a hole.
    pub(crate) fn of_pack(
        file: &'a F,
        path: &'a Path,
        config: &'a LaneConfig,
        number: u32,
        length: u64,
        header: Option<&PackHeader>,
    ) -> Self {
        Self {
            file,
            path,
            config,
            first: Position::of_pack(number, 0),
            length,
            generation: 0,
            ends: ScanEnd::WithLastFrame,
            at: header.map_or(0, |_| BLOCK_BYTES as u64),
            chain: header.map(PackHeader::chain),
            tail: None,
            is_finished: false,
            window: Bytes::new(),
            window_at: 0,
            blocks: Arc::default(),
        }
    }

    /// The position of the next frame.
    pub(crate) fn position(&self) -> Position {
        self.first.plus(self.at)
    }

    /// The next frame or hole.
    pub(crate) fn step(&mut self) -> Result<ScanItem, Fault> {
        let position = self.position();
        match self.ends {
            ScanEnd::At(end) if position >= end => return Ok(ScanItem::End { torn_bytes: 0 }),
            ScanEnd::WithLastFrame if self.at >= self.length => {
                if std::mem::replace(&mut self.is_finished, true) {
                    return Ok(ScanItem::End { torn_bytes: 0 });
                }
                let problem = "the pack ends before its last frame";
                return Ok(ScanItem::Hole { position, end: position, problem });
            }
            ScanEnd::WithLastFrame if self.is_finished => {
                self.at = self.length;
                let problem = "something lies behind the pack's last frame";
                return Ok(ScanItem::Hole { position, end: self.position(), problem });
            }
            _ => {}
        }
        let mismatch = match self.next_frame()? {
            Ok(frame) => return Ok(ScanItem::Frame(frame)),
            Err(mismatch) => mismatch,
        };
        let until = match self.ends {
            ScanEnd::At(end) => end.0 - self.first.0,
            ScanEnd::WithLastFrame => self.length,
            ScanEnd::Unknown { proven } => {
                let tail = self.tail()?;
                let durable = tail.durable.max(proven).0.saturating_sub(self.first.0);
                // A segment that is read without its header was begun: the lost header is damage.
                let header_end = if self.at == 0 { BLOCK_BYTES as u64 } else { 0 };
                let end = durable.max(mismatch.end.unwrap_or(0)).max(header_end);
                let end = end.min(self.length).next_multiple_of(BLOCK_BYTES as u64);
                if end <= self.at {
                    let torn_bytes = tail.end.0.saturating_sub(position.0);
                    return Ok(ScanItem::End { torn_bytes });
                }
                end
            }
        };
        self.at = self.find_whole(self.at + BLOCK_BYTES as u64, until)?.unwrap_or(until);
        self.chain = None;
        self.is_finished = self.at >= self.length;
        Ok(ScanItem::Hole { position, end: self.position(), problem: mismatch.problem })
    }

    /// The `length` bytes of the file from byte `at`, if it is that long.
    fn bytes(&mut self, at: u64, length: usize) -> Result<Option<Bytes>, Fault> {
        if at + length as u64 > self.length {
            return Ok(None);
        }
        let is_inside =
            self.window_at <= at && at + length as u64 <= self.window_at + self.window.len() as u64;
        if !is_inside {
            let rest = self.length - at;
            self.read_window(at, (length.max(READ_BYTES) as u64).min(rest) as usize)?;
        }
        let from = (at - self.window_at) as usize;
        Ok(Some(self.window.slice(from..from + length)))
    }

    fn read_window(&mut self, at: u64, length: usize) -> Result<(), Fault> {
        self.window = Bytes::new();
        if Arc::get_mut(&mut self.blocks).is_none() {
            self.blocks = Arc::default();
        }
        let blocks = Arc::get_mut(&mut self.blocks).expect("nobody else has them");
        blocks.grow(length);
        read_padded(self.file, self.path, &mut blocks.as_mut()[..length], at)?;
        self.window = Bytes::from_owner(SharedBlocks(self.blocks.clone())).slice(..length);
        self.window_at = at;
        Ok(())
    }

    /// The next frame, if it is whole.
    fn next_frame(&mut self) -> Result<Result<WholeFrame, FrameMismatch>, Fault> {
        let (frame, next_chain) = match self.frame_at(self.at)? {
            Ok(found) => found,
            Err(mismatch) => return Ok(Err(mismatch)),
        };
        if self.chain.is_some_and(|chain| chain != frame.header.chain) {
            return Ok(Err(FrameMismatch::problem("a frame does not follow the one before it")));
        }
        self.chain = Some(next_chain);
        self.at += frame.header.frame_bytes() as u64;
        self.is_finished |= matches!(self.ends, ScanEnd::WithLastFrame) && is_last(&frame.header);
        Ok(Ok(frame))
    }

    /// The frame at byte `at` of the file, with the chain value for its successor, if it is whole
    /// and belongs there. Its own chain value is not checked.
    fn frame_at(&mut self, at: u64) -> Result<Result<(WholeFrame, u64), FrameMismatch>, Fault> {
        let not = |problem| Ok(Err(FrameMismatch::problem(problem)));
        let is_not_whole = if at == 0 {
            "the header is not whole"
        } else {
            "a frame that was durable is not whole"
        };
        let Some(head) = self.bytes(at, FRAME_HEADER_BYTES)? else { return not(is_not_whole) };
        let Some((header, next_chain)) = FrameHeader::decode(&head) else {
            return not(is_not_whole);
        };
        // A slice of the window would keep the next window from using its memory again.
        drop(head);
        let is_own = header.position == self.first.plus(at)
            && header.incarnation == self.config.incarnation
            && header.generation == self.generation;
        if !is_own {
            return not(is_not_whole);
        }
        let Some(frame) = self.bytes(at, header.frame_bytes())? else { return not(is_not_whole) };
        let body = frame.slice(FRAME_HEADER_BYTES..FRAME_HEADER_BYTES + header.body_len as usize);
        if crc32c(&body) != header.body_crc {
            return not(is_not_whole);
        }
        let mut count = 0;
        for record in records(&body) {
            if record.is_none() {
                let problem = "a record does not end where its frame does";
                let end = Some(at + header.frame_bytes() as u64);
                return Ok(Err(FrameMismatch { problem, end }));
            }
            count += 1;
        }
        if count != header.record_count {
            let problem = "a frame does not hold as many records as it says";
            let end = Some(at + header.frame_bytes() as u64);
            return Ok(Err(FrameMismatch { problem, end }));
        }
        Ok(Ok((WholeFrame { header, body }, next_chain)))
    }

    /// The first byte from `from` and before `until` with a whole frame that belongs there.
    fn find_whole(&mut self, from: u64, until: u64) -> Result<Option<u64>, Fault> {
        for at in (from..until).step_by(BLOCK_BYTES) {
            if self.frame_at(at)?.is_ok() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Information from the frame headers behind this position. They are read once: headers that
    /// were passed since then do not prove that bytes here were durable.
    fn tail(&mut self) -> Result<Tail, Fault> {
        if let Some(tail) = self.tail {
            return Ok(tail);
        }
        let (generation, begin) = (self.generation, self.position());
        let ahead = begin..self.first.plus(self.config.segment_bytes);
        let mut tail = Tail { durable: Position(0), end: begin };
        each_frame(self.file, self.path, self.config, self.at, |header| {
            if ahead.contains(&header.position) && header.generation == generation {
                tail.end = tail.end.max(header.position.plus(header.frame_bytes() as u64));
                tail.durable = tail.durable.max(header.durable);
            }
        })?;
        Ok(*self.tail.insert(tail))
    }
}

/// The blocks of a window.
struct SharedBlocks(Arc<Blocks>);

impl AsRef<[u8]> for SharedBlocks {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// Information from the frame headers behind the end of a segment's frames.
#[derive(Clone, Copy)]
struct Tail {
    /// All positions before this were durable.
    durable: Position,
    /// The end of the last of these frames.
    end: Position,
}

/// Passes each frame header of this lane, from byte `from` of a slot on, whose position is correct.
pub(crate) fn each_frame(
    file: &impl DiskFile,
    path: &Path,
    config: &LaneConfig,
    from: u64,
    mut see: impl FnMut(&FrameHeader),
) -> Result<(), Fault> {
    let mut blocks = Blocks::default();
    let mut at = from;
    while at < config.segment_bytes {
        let length = (config.segment_bytes - at).min(READ_BYTES as u64);
        blocks.grow(length as usize);
        let bytes = &mut blocks.as_mut()[..length as usize];
        read_padded(file, path, bytes, at)?;
        for (block, block_at) in bytes.chunks(BLOCK_BYTES).zip((at..).step_by(BLOCK_BYTES)) {
            if let Some(header) = frame_header(block, block_at, config) {
                see(&header);
            }
        }
        at += length;
    }
    Ok(())
}

/// The header of a frame of this lane that begins with `block`, byte `at` of a slot, if its
/// position is correct.
pub(crate) fn frame_header(block: &[u8], at: u64, config: &LaneConfig) -> Option<FrameHeader> {
    let (header, _) = FrameHeader::decode(block)?;
    let is_here = header.incarnation == config.incarnation
        && header.position.pack().is_none()
        && at + header.frame_bytes() as u64 <= config.segment_bytes
        && header.position.in_segment(config.segment_bytes) == at;
    is_here.then_some(header)
}
