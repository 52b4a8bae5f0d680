//! A walk over the frames of one segment or pack: the next frame, the next hole, or the end. What
//! to do about a hole is for others.

use std::{path::Path, sync::Arc};

use bytes::Bytes;

use crate::{
    block::Blocks,
    disk::DiskFile,
    fault::Fault,
    format::{
        BLOCK_BYTES, FRAME_HEADER_BYTES, FrameHeader, PackHeader, SegmentHeader, crc32c, records,
    },
    lane_config::LaneConfig,
    pack::is_last,
    position::Position,
    slot_file::read_padded,
};

/// Bytes of one read of the disk.
const READ_BYTES: usize = 4 << 20;

/// Where the frames of a file end.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ends {
    /// Here, as the next segment's header says.
    At(Position),
    /// Where the first is that is not next, unless that was durable: as a frame behind it says, or because it
    /// lies before `proven`.
    Unknown {
        /// Everything before this was durable, as other files say.
        proven: Position,
    },
    /// With the last frame of a pack, at the end of the file.
    WithLastFrame,
}

/// What lies next.
#[derive(Debug)]
pub(crate) enum Found {
    Frame(WholeFrame),
    /// What was durable from `position` on is not whole; behind `end` it may be.
    Hole {
        position: Position,
        end: Position,
        what: &'static str,
    },
    End {
        /// Bytes behind the end that were written but never committed.
        torn_bytes: u64,
    },
}

/// A frame of which every check has been made.
#[derive(Debug)]
pub(crate) struct WholeFrame {
    header: FrameHeader,
    body: Bytes,
}

impl WholeFrame {
    pub(crate) fn record_count(&self) -> u32 {
        self.header.record_count
    }

    /// Bytes it takes on disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.header.frame_bytes() as u64
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

/// Why the frame at a place is not the one that is next there.
struct NotNext {
    what: &'static str,
    /// Where it ends, if it is a frame that was written as it is.
    end: Option<u64>,
}

impl NotNext {
    fn what(what: &'static str) -> Self {
        Self { what, end: None }
    }
}

/// A walk over the frames of one file.
pub(crate) struct Scan<'a, F> {
    file: &'a F,
    path: &'a Path,
    config: &'a LaneConfig,
    /// The position of the file's first byte.
    first: Position,
    length: u64,
    generation: u32,
    ends: Ends,
    /// The byte of the file where the next frame begins.
    at: u64,
    /// What the next frame chains to; unknown where a replay begins in the middle of a segment,
    /// and behind a hole.
    chain: Option<u64>,
    /// What the frame headers say that lie behind the first hole, once there is one.
    tail: Option<Tail>,
    /// Whether the last frame of a pack is behind.
    is_over: bool,
    /// What was read ahead, from byte `window_at` of the file.
    window: Bytes,
    window_at: u64,
    /// Its memory, for the next one if nobody holds on to a part of this one.
    blocks: Arc<Blocks>,
}

impl<'a, F: DiskFile> Scan<'a, F> {
    /// A walk from `begin` on, where a frame or the segment begins.
    pub(crate) fn of_segment(
        file: &'a F,
        path: &'a Path,
        config: &'a LaneConfig,
        header: &SegmentHeader,
        begin: Position,
        ends: Ends,
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
            is_over: false,
            window: Bytes::new(),
            window_at: 0,
            blocks: Arc::default(),
        }
    }

    /// The same walk where the segment's header is not whole: it begins with a hole if it `begins` with
    /// the segment, and not with the first frame.
    pub(crate) fn without_header(mut self, begins: bool) -> Self {
        self.chain = None;
        if begins {
            self.at = 0;
        }
        self
    }

    /// A walk over a pack of `length` bytes; without a `header` it begins with a hole.
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
            ends: Ends::WithLastFrame,
            at: header.map_or(0, |_| BLOCK_BYTES as u64),
            chain: header.map(PackHeader::chain),
            tail: None,
            is_over: false,
            window: Bytes::new(),
            window_at: 0,
            blocks: Arc::default(),
        }
    }

    /// Where the next frame begins.
    pub(crate) fn position(&self) -> Position {
        self.first.plus(self.at)
    }

    /// Goes on by a frame or a hole.
    pub(crate) fn step(&mut self) -> Result<Found, Fault> {
        let position = self.position();
        match self.ends {
            Ends::At(end) if position >= end => return Ok(Found::End { torn_bytes: 0 }),
            Ends::WithLastFrame if self.at >= self.length => {
                if std::mem::replace(&mut self.is_over, true) {
                    return Ok(Found::End { torn_bytes: 0 });
                }
                let what = "the pack ends before its last frame";
                return Ok(Found::Hole { position, end: position, what });
            }
            Ends::WithLastFrame if self.is_over => {
                self.at = self.length;
                let what = "something lies behind the pack's last frame";
                return Ok(Found::Hole { position, end: self.position(), what });
            }
            _ => {}
        }
        let not_next = match self.next_frame()? {
            Ok(frame) => return Ok(Found::Frame(frame)),
            Err(not_next) => not_next,
        };
        let until = match self.ends {
            Ends::At(end) => end.0 - self.first.0,
            Ends::WithLastFrame => self.length,
            Ends::Unknown { proven } => {
                let tail = self.tail()?;
                let durable = tail.durable.max(proven).0.saturating_sub(self.first.0);
                // A segment that is read without its header was begun: the lost header is damage.
                let header_end = if self.at == 0 { BLOCK_BYTES as u64 } else { 0 };
                let end = durable.max(not_next.end.unwrap_or(0)).max(header_end);
                let end = end.min(self.length).next_multiple_of(BLOCK_BYTES as u64);
                if end <= self.at {
                    let torn_bytes = tail.end.0.saturating_sub(position.0);
                    return Ok(Found::End { torn_bytes });
                }
                end
            }
        };
        self.at = self.find_whole(self.at + BLOCK_BYTES as u64, until)?.unwrap_or(until);
        self.chain = None;
        self.is_over = self.at >= self.length;
        Ok(Found::Hole { position, end: self.position(), what: not_next.what })
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

    /// Goes on by the frame that is next, if there is one that is whole.
    fn next_frame(&mut self) -> Result<Result<WholeFrame, NotNext>, Fault> {
        let (frame, next_chain) = match self.frame_at(self.at)? {
            Ok(found) => found,
            Err(not_next) => return Ok(Err(not_next)),
        };
        if self.chain.is_some_and(|chain| chain != frame.header.chain) {
            return Ok(Err(NotNext::what("a frame does not follow the one before it")));
        }
        self.chain = Some(next_chain);
        self.at += frame.header.frame_bytes() as u64;
        self.is_over |= matches!(self.ends, Ends::WithLastFrame) && is_last(&frame.header);
        Ok(Ok(frame))
    }

    /// The frame at byte `at` of the file, with what the one after it chains to, if it is whole and
    /// belongs there. What it chains to itself is not looked at.
    fn frame_at(&mut self, at: u64) -> Result<Result<(WholeFrame, u64), NotNext>, Fault> {
        let not = |what| Ok(Err(NotNext::what(what)));
        let is_not_whole = if at == 0 {
            "the header is not whole"
        } else {
            "a frame that was durable is not whole"
        };
        let Some(head) = self.bytes(at, FRAME_HEADER_BYTES)? else { return not(is_not_whole) };
        let Some((header, next_chain)) = FrameHeader::decode(&head) else {
            return not(is_not_whole);
        };
        // What holds on to the window has the next one read into other memory.
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
                let what = "a record does not end where its frame does";
                let end = Some(at + header.frame_bytes() as u64);
                return Ok(Err(NotNext { what, end }));
            }
            count += 1;
        }
        if count != header.record_count {
            let what = "a frame does not hold as many records as it says";
            let end = Some(at + header.frame_bytes() as u64);
            return Ok(Err(NotNext { what, end }));
        }
        Ok(Ok((WholeFrame { header, body }, next_chain)))
    }

    /// The first byte from `from` on and before `until` where a frame lies that is whole and
    /// belongs there.
    fn find_whole(&mut self, from: u64, until: u64) -> Result<Option<u64>, Fault> {
        for at in (from..until).step_by(BLOCK_BYTES) {
            if self.frame_at(at)?.is_ok() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// What the frame headers from here on say. They are read once: those that were passed since then
    /// say of nothing that lies here that it was durable.
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

/// Blocks that a window shows.
struct SharedBlocks(Arc<Blocks>);

impl AsRef<[u8]> for SharedBlocks {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// What lies behind the end of a segment's frames.
#[derive(Clone, Copy)]
struct Tail {
    /// Everything before this was durable.
    durable: Position,
    /// Where the last of it ends.
    end: Position,
}

/// Shows each frame header of this lane, from byte `from` of a slot on, that lies where it says.
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

/// The header of a frame of this lane that begins with `block`, byte `at` of a slot, and lies where it
/// says.
pub(crate) fn frame_header(block: &[u8], at: u64, config: &LaneConfig) -> Option<FrameHeader> {
    let (header, _) = FrameHeader::decode(block)?;
    let is_here = header.incarnation == config.incarnation
        && header.position.pack().is_none()
        && at + header.frame_bytes() as u64 <= config.segment_bytes
        && header.position.in_segment(config.segment_bytes) == at;
    is_here.then_some(header)
}
