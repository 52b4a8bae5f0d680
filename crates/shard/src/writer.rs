//! The engine's view of the journal: records in, positions out. Frames are set aside for the lane.

use std::collections::VecDeque;

use sennit_engine::{Journal, Record};
use sennit_journal::{Frame, FrameBuilder, Position, PushError};
use sennit_model::Batch;

use crate::{at_hand::AtHand, segments::Segments};

/// Gathers records into frames.
#[derive(Debug)]
pub(crate) struct Writer {
    builder: FrameBuilder,
    pub(crate) segments: Segments,
    /// Sealed, and not yet taken by the lane.
    sealed: Vec<Frame>,
    /// Where a replay may begin, as the next segment will say.
    replay_from: Position,
    /// What the frame that gathers says, if a segment begins with it: it said so when it began.
    begun_replay_from: Position,
    /// Segments that say so once they are committed: `(end of their first frame, where)`.
    stated: VecDeque<(Position, Position)>,
    /// Segments that hold nothing of the log: they go once this life's first frame, which says so, is
    /// committed.
    void: Vec<u64>,
    /// Where the last checkpoint ended, or a replay began.
    checkpoint_end: Position,
    /// Records appended since the start.
    pub(crate) record_count: u64,
    /// What cannot be read from the journal.
    pub(crate) at_hand: AtHand,
    head: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(builder: FrameBuilder, segments: Segments, replay_from: Position) -> Self {
        Self {
            builder,
            segments,
            sealed: Vec::new(),
            replay_from,
            begun_replay_from: replay_from,
            stated: VecDeque::new(),
            void: Vec::new(),
            checkpoint_end: replay_from,
            record_count: 0,
            at_hand: AtHand::default(),
            head: Vec::new(),
        }
    }

    /// These segments hold nothing of the log, as the first one of this life will say.
    pub(crate) fn passes_over(&mut self, void: Vec<u64>) {
        self.void = void;
    }

    /// Everything appended so far ends here.
    pub(crate) fn end(&self) -> Position {
        self.builder.end()
    }

    /// Where the frame begins that gathers.
    pub(crate) fn frame_start(&self) -> Position {
        self.builder.frame_start()
    }

    /// Appends a record of this kind, made of `parts`, and returns the position of its body.
    pub(crate) fn push(&mut self, kind: u8, parts: &[&[u8]]) -> Position {
        self.record_count += 1;
        loop {
            self.frame_begins();
            match self.builder.push(kind, parts) {
                Ok(position) => return position,
                Err(PushError::Full) => self.seal(),
                Err(error @ PushError::TooLarge { .. }) => {
                    unreachable!("a batch within its limits fits a frame: {error}")
                }
            }
        }
    }

    /// How much of the journal was used since the last checkpoint, in bytes: what a replay would walk
    /// over, the unused ends of blocks and segments with it.
    pub(crate) fn since_checkpoint(&self) -> u64 {
        self.end().0 - self.checkpoint_end.0
    }

    /// Whether the segment is another one by now.
    pub(crate) fn is_past_checkpoint(&self) -> bool {
        self.segments.of(self.end()) > self.segments.of(self.checkpoint_end)
    }

    /// How many segments hold nothing live, those of the last checkpoint apart: it needs them.
    pub(crate) fn dead_count(&self) -> usize {
        let last = Position(self.checkpoint_end.0.saturating_sub(1));
        let segments = self.segments.of(self.replay_from)..=self.segments.of(last);
        self.segments.dead_count(Some(segments))
    }

    /// A checkpoint ends here.
    pub(crate) fn checkpoint_ended(&mut self) {
        self.checkpoint_end = self.end();
    }

    /// Ends the frame that gathers, if it holds anything.
    pub(crate) fn seal(&mut self) {
        if let Some(frame) = self.builder.seal() {
            self.keep(frame);
        }
    }

    /// Adds a frame without records, that only says what is durable.
    pub(crate) fn seal_mark(&mut self) {
        self.seal();
        self.frame_begins();
        let frame = self.builder.seal_mark();
        self.keep(frame);
    }

    /// What is said next begins a frame, unless one gathers.
    fn frame_begins(&mut self) {
        if self.builder.is_empty() {
            self.begun_replay_from = self.replay_from;
        }
    }

    fn keep(&mut self, frame: Frame) {
        if frame.first_of_segment {
            self.segments.opened(self.segments.of(frame.position));
            self.stated.push_back((frame.end, self.begun_replay_from));
        }
        self.sealed.push(frame);
    }

    /// Whether there is something that the lane has not taken.
    pub(crate) fn has_gathered(&self) -> bool {
        !self.sealed.is_empty() || !self.builder.is_empty()
    }

    /// Takes the frames that the lane is to write.
    pub(crate) fn take_sealed(&mut self) -> std::vec::Drain<'_, Frame> {
        self.seal();
        self.sealed.drain(..)
    }

    /// Everything before `end` is committed.
    pub(crate) fn committed(&mut self, end: Position) {
        self.builder.durable(end);
        self.at_hand.committed(end);
        for segment in self.void.drain(..) {
            self.segments.give_up(segment);
        }
        while let Some(&(stated_by, replay_from)) = self.stated.front()
            && stated_by <= end
        {
            self.stated.pop_front();
            self.segments.replay_begins(replay_from);
        }
    }

    /// Whether a segment is on its way that says that a replay begins later than it does now.
    pub(crate) fn says_replay_begins(&self) -> bool {
        self.stated.back().is_some_and(|&(_, from)| from > self.segments.replay_from())
    }

    /// A replay may begin here: the next segment will say so.
    pub(crate) fn replay_from(&mut self, position: Position) {
        self.replay_from = position;
        self.checkpoint_end = self.checkpoint_end.max(position);
        self.builder.replay_from(position);
    }

    /// Leaves the rest of the segment empty: the next frame begins a new one.
    pub(crate) fn turn_segment(&mut self) {
        self.seal();
        self.builder.turn_segment();
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
            self.segments.written(position, bytes);
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
            self.frame_begins();
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

    fn is_wanted_soon(&mut self, position: u64, batch: &Batch) {
        self.at_hand.appended(position, batch);
    }

    fn keep(&mut self, batch: &Batch) -> u64 {
        self.at_hand.keep(batch)
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
        writer.turn_segment();
        // The second segment's header is made here, and says that a replay begins with the first.
        let mark = writer.push(1, &[b"second"]);
        writer.replay_from(mark);
        writer.seal();
        writer.committed(writer.end());
        let mut released = Vec::new();
        writer.segments.forget_fallback();
        writer.segments.take_released(&mut released);
        assert_eq!(released, [0u64; 0]);
        // The third says otherwise.
        writer.turn_segment();
        writer.push(1, &[b"third"]);
        writer.seal();
        writer.committed(writer.end());
        writer.segments.forget_fallback();
        writer.segments.take_released(&mut released);
        assert_eq!(released, [0]);
    }
}
