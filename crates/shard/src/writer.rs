//! The engine's view of the journal: takes records and returns positions. It keeps sealed frames for the lane.

use std::collections::VecDeque;

use sennit_engine::{Journal, Record};
use sennit_journal::{Frame, FrameBuilder, Position, PushError};
use sennit_model::Batch;

use crate::{memory_batches::MemoryBatches, segments::Segments};

/// The start of a replay that the header of a segment announces.
#[derive(Debug)]
struct AnnouncedReplay {
    /// The end of the segment's first frame: it holds once everything before that is written.
    written_at: Position,
    from: Position,
}

/// Gathers records into frames.
#[derive(Debug)]
pub(crate) struct Writer {
    builder: FrameBuilder,
    pub(crate) segments: Segments,
    /// Frames that the lane has not taken.
    sealed: Vec<Frame>,
    /// The start of a replay that the next segment's header announces.
    replay_from: Position,
    /// The start of a replay that the gathering frame's segment header announces, if it is the
    /// first of a segment.
    frame_replay_from: Position,
    /// The starts of a replay that the headers of unwritten segments announce.
    announced_replays: VecDeque<AnnouncedReplay>,
    /// Segments that hold nothing of the log. They are released once the first frame of this
    /// generation, which says so, is written.
    empty_segments: Vec<u64>,
    /// The end of the last checkpoint, or the start of the replay.
    checkpoint_end: Position,
    /// Number of records appended since the start.
    pub(crate) record_count: u64,
    /// Batches that cannot be read from the journal.
    pub(crate) memory_batches: MemoryBatches,
    head: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(builder: FrameBuilder, segments: Segments, replay_from: Position) -> Self {
        Self {
            builder,
            segments,
            sealed: Vec::new(),
            replay_from,
            frame_replay_from: replay_from,
            announced_replays: VecDeque::new(),
            empty_segments: Vec::new(),
            checkpoint_end: replay_from,
            record_count: 0,
            memory_batches: MemoryBatches::default(),
            head: Vec::new(),
        }
    }

    /// Notes segments that hold nothing of the log; the header of the next segment says so.
    pub(crate) fn skip_segments(&mut self, empty_segments: Vec<u64>) {
        self.empty_segments = empty_segments;
    }

    /// The end of everything appended.
    pub(crate) fn end(&self) -> Position {
        self.builder.end()
    }

    /// The position of the gathering frame.
    pub(crate) fn frame_start(&self) -> Position {
        self.builder.frame_start()
    }

    /// Appends a record of this kind, made of `parts`, and returns the position of its body.
    pub(crate) fn push(&mut self, kind: u8, parts: &[&[u8]]) -> Position {
        self.record_count += 1;
        loop {
            self.note_frame_start();
            match self.builder.push(kind, parts) {
                Ok(position) => return position,
                Err(PushError::Full) => self.seal(),
                Err(error @ PushError::TooLarge { .. }) => {
                    unreachable!("a batch within its limits fits a frame: {error}")
                }
            }
        }
    }

    /// Bytes of the journal since the last checkpoint, which a replay would read, with the unused
    /// ends of blocks and segments.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        self.end().0 - self.checkpoint_end.0
    }

    /// Returns whether the current segment is another one than that of the checkpoint.
    pub(crate) fn is_past_checkpoint(&self) -> bool {
        self.segments.of(self.end()) > self.segments.of(self.checkpoint_end)
    }

    /// The number of segments without live bytes, except those that the last checkpoint needs.
    pub(crate) fn dead_count(&self) -> usize {
        let last = Position(self.checkpoint_end.0.saturating_sub(1));
        let segments = self.segments.of(self.replay_from)..=self.segments.of(last);
        self.segments.dead_count(Some(segments))
    }

    /// Notes the end of a checkpoint.
    pub(crate) fn set_checkpoint_end(&mut self) {
        self.checkpoint_end = self.end();
    }

    /// Seals the gathering frame, if it has records.
    pub(crate) fn seal(&mut self) {
        if let Some(frame) = self.builder.seal() {
            self.keep(frame);
        }
    }

    /// Adds a frame with only the durable mark.
    pub(crate) fn seal_mark(&mut self) {
        self.seal();
        self.note_frame_start();
        let frame = self.builder.seal_mark();
        self.keep(frame);
    }

    /// Notes the replay start that the next frame announces, unless a frame gathers.
    fn note_frame_start(&mut self) {
        if self.builder.is_empty() {
            self.frame_replay_from = self.replay_from;
        }
    }

    fn keep(&mut self, frame: Frame) {
        if frame.first_of_segment {
            self.segments.add(self.segments.of(frame.position));
            let (written_at, from) = (frame.end, self.frame_replay_from);
            self.announced_replays.push_back(AnnouncedReplay { written_at, from });
        }
        self.sealed.push(frame);
    }

    /// Returns whether there are records that the lane has not taken.
    pub(crate) fn has_gathered(&self) -> bool {
        !self.sealed.is_empty() || !self.builder.is_empty()
    }

    /// Takes the frames that the lane has to write.
    pub(crate) fn take_sealed(&mut self) -> std::vec::Drain<'_, Frame> {
        self.seal();
        self.sealed.drain(..)
    }

    /// The lane has written everything before `end`.
    pub(crate) fn handle_written(&mut self, end: Position) {
        self.builder.set_durable(end);
        self.memory_batches.drop_written(end);
        for segment in self.empty_segments.drain(..) {
            self.segments.give_up(segment);
        }
        let is_written = |announced: &mut AnnouncedReplay| announced.written_at <= end;
        while let Some(announced) = self.announced_replays.pop_front_if(is_written) {
            self.segments.set_replay_from(announced.from);
        }
    }

    /// Returns whether an unwritten segment announces a later start of a replay.
    pub(crate) fn has_announced_replay(&self) -> bool {
        self.announced_replays
            .back()
            .is_some_and(|announced| announced.from > self.segments.replay_from())
    }

    /// Sets the start of a replay; the next segment's header announces it.
    pub(crate) fn set_replay_from(&mut self, position: Position) {
        assert!(self.replay_from <= position && position <= self.end(), "no replay begins there");
        self.replay_from = position;
        self.checkpoint_end = self.checkpoint_end.max(position);
        self.builder.set_replay_from(position);
    }

    /// Leaves the rest of the segment empty: the next frame begins a new segment.
    pub(crate) fn start_segment(&mut self) {
        self.seal();
        self.builder.start_segment();
    }
}

impl Journal for Writer {
    fn append(&mut self, record: &Record) -> u64 {
        let mut head = std::mem::take(&mut self.head);
        head.clear();
        record.encode_head(&mut head);
        let batch = record.batch().map(|batch| &batch.bytes()[..]).unwrap_or_default();
        let body = self.push(record.kind(), &[&head, batch]);
        let position = Position(body.0 + head.len() as u64);
        if let Ok(bytes @ 1..) = u32::try_from(batch.len()) {
            self.segments.add_live(position, bytes);
        }
        self.head = head;
        position.0
    }

    fn hold_together(&mut self, records: &[Record]) {
        let mut head = std::mem::take(&mut self.head);
        let lengths: Vec<_> = records
            .iter()
            .map(|record| {
                head.clear();
                record.encode_head(&mut head);
                head.len() + record.batch().map_or(0, |batch| batch.bytes().len())
            })
            .collect();
        self.head = head;
        if lengths.is_empty() {
            return;
        }
        loop {
            self.note_frame_start();
            match self.builder.hold_together(lengths.iter().copied()) {
                Ok(()) => return,
                Err(PushError::Full) => self.seal(),
                Err(error @ PushError::TooLarge { .. }) => {
                    unreachable!(
                        "what is appended together within its limits fits a frame: {error}"
                    )
                }
            }
        }
    }

    fn keep_until_committed(&mut self, position: u64, batch: &Batch) {
        self.memory_batches.add(position, batch);
    }

    fn keep(&mut self, batch: &Batch) -> u64 {
        self.memory_batches.keep(batch)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use sennit_journal::{Fault, LaneConfig, ReplayFrom, disk::MemoryDisk};

    use super::*;

    #[test]
    fn a_segment_that_began_before_a_replay_mark_does_not_release_what_it_still_says() {
        let config = LaneConfig {
            directory: PathBuf::from("data/lane-0"),
            lane: 0,
            segment_bytes: 16 << 10,
            incarnation: 7,
        };
        let disk = MemoryDisk::default();
        let lane =
            sennit_journal::recover(&disk, config, ReplayFrom::Newest, |_| Ok::<_, Fault>(()))
                .unwrap();
        let segments = Segments::new(16 << 10, lane.replay_from);
        let mut writer = Writer::new(lane.builder, segments, lane.replay_from);
        writer.push(1, &[b"first"]);
        writer.seal();
        writer.start_segment();
        // The second segment's header is made here, and says that a replay begins with the first.
        let mark = writer.push(1, &[b"second"]);
        writer.set_replay_from(mark);
        writer.seal();
        writer.handle_written(writer.end());
        let mut released = Vec::new();
        writer.segments.forget_fallback();
        writer.segments.take_released(&mut released);
        assert_eq!(released, [0u64; 0]);
        // The third says otherwise.
        writer.start_segment();
        writer.push(1, &[b"third"]);
        writer.seal();
        writer.handle_written(writer.end());
        writer.segments.forget_fallback();
        writer.segments.take_released(&mut released);
        assert_eq!(released, [0]);
    }
}
