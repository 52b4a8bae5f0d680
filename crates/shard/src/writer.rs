//! The engine's view of the journal: takes records and returns positions. It keeps sealed frames for the lane.
//!
//! In the lane of a replica each frame is an entry of the group's log or the replica's own. A record of the other sort
//! seals the frame that gathers, so positions are known at once, and both frames go down in one write.

use std::{collections::VecDeque, iter};

use sennit_engine::{Journal, Record};
use sennit_journal::{Frame, FrameBuilder, Position, PushError};
use sennit_model::Batch;

use crate::{
    group_record::{Entry, EntryContent, EntryId, GroupRecord},
    memory_batches::MemoryBatches,
    replica_log::{FrameSort, ReplicaLog},
    segments::Segments,
};

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
    pub(crate) builder: FrameBuilder,
    pub(crate) segments: Segments,
    /// Frames that the lane has not taken.
    pub(crate) sealed: Vec<Frame>,
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
    /// Bytes of the frames since then, without the unused ends of segments.
    pub(crate) since_checkpoint_bytes: u64,
    /// Number of records appended since the start.
    pub(crate) record_count: u64,
    /// Batches that cannot be read from the journal.
    pub(crate) memory_batches: MemoryBatches,
    /// The log of a replica; `None` if the shard is no replica of a group.
    pub(crate) log: Option<ReplicaLog>,
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
            since_checkpoint_bytes: 0,
            record_count: 0,
            memory_batches: MemoryBatches::default(),
            log: None,
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

    /// The start of a replay that the next segment's header announces: a checkpoint that may be used begins there.
    pub(crate) fn replay_from(&self) -> Position {
        self.replay_from
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

    /// In the lane of a replica: makes room for a record of this length. Returns the record that comes behind it.
    fn make_room_for(&mut self, record: &Record, length: usize) -> Option<GroupRecord> {
        self.log.as_mut()?.note_time(record);
        if !matches!(record, Record::CheckpointBegan { .. }) {
            self.make_room(FrameSort::of(record), &[length]);
            return None;
        }
        // It stands behind all that gathers.
        self.seal();
        let stands = GroupRecord::Stands(self.log.as_ref()?.stands());
        self.make_room(FrameSort::Local, &[length, stands.encode().len()]);
        Some(stands)
    }

    /// Makes room for records of these lengths in one frame of this sort, which begins with its head.
    fn make_room(&mut self, sort: FrameSort, lengths: &[usize]) {
        loop {
            let log = self.log.as_ref().expect("only a replica has two sorts of frames");
            if self.builder.is_empty() {
                return self.begin_frame(&log.head(sort), lengths);
            }
            if log.gathers(sort) && self.builder.hold_together(lengths.iter().copied()).is_ok() {
                return;
            }
            self.seal();
        }
    }

    /// Begins a frame with this record, and with room for others of these lengths.
    pub(crate) fn begin_frame(&mut self, head: &GroupRecord, lengths: &[usize]) {
        self.note_frame_start();
        let body = head.encode();
        let room =
            self.builder.hold_together(iter::once(body.len()).chain(lengths.iter().copied()));
        room.expect("what is appended together within its limits fits a frame");
        self.builder.push(head.kind(), &[&body]).expect("there is room for it");
        self.log.as_mut().expect("only a replica has such frames").begin(head);
    }

    /// Appends the entry with which the term of a replica begins that is alone.
    pub(crate) fn begin_term(&mut self) {
        self.seal();
        let log = self.log.as_ref().expect("only a replica has terms");
        let id = EntryId { term: log.here.term, index: log.labels.last().index + 1 };
        let entry = Entry { id, commit: 0, content: EntryContent::TermBegan };
        self.begin_frame(&entry.into(), &[]);
        self.seal();
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
        self.since_checkpoint_bytes = 0;
    }

    /// Seals the gathering frame, if it has records.
    pub(crate) fn seal(&mut self) {
        if let Some(frame) = self.builder.seal() {
            if let Some(log) = &mut self.log {
                log.seal(frame.body);
            }
            self.keep(frame);
        }
    }

    /// Adds a frame with only the durable mark, and what a replica knows of its group.
    pub(crate) fn seal_mark(&mut self) {
        self.seal();
        if let Some(log) = &self.log {
            self.begin_frame(&log.head(FrameSort::Local), &[]);
            return self.seal();
        }
        self.note_frame_start();
        let frame = self.builder.seal_mark();
        self.keep(frame);
    }

    /// Notes the replay start that the next frame announces, unless a frame gathers.
    pub(crate) fn note_frame_start(&mut self) {
        if self.builder.is_empty() {
            self.frame_replay_from = self.replay_from;
        }
    }

    pub(crate) fn keep(&mut self, frame: Frame) {
        self.since_checkpoint_bytes += frame.end.0 - frame.position.0;
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
        if let Some(log) = &mut self.log {
            log.handle_synced(end);
        }
        for segment in self.empty_segments.drain(..) {
            self.segments.give_up(segment);
        }
        let is_written = |announced: &mut AnnouncedReplay| announced.written_at <= end;
        while let Some(announced) = self.announced_replays.pop_front_if(is_written) {
            self.segments.set_replay_from(announced.from);
        }
        if self.log.as_ref().is_some_and(|log| log.replica.is_alone) {
            self.release_labels(u64::MAX);
        }
    }

    /// The end of what is committed once the entries up to `index` are: frames of the replica's own behind them count.
    /// `None` if the shard is no replica.
    pub(crate) fn end_of(&self, index: u64) -> Option<Position> {
        let log = self.log.as_ref()?;
        let next = log.labels.get(index + 1).map(|next| next.body.frame);
        let gathers = !self.builder.is_empty() && log.gathers(FrameSort::Entry);
        Some(next.unwrap_or(if gathers { self.frame_start() } else { self.end() }))
    }

    /// Lets a replica's log begin with the oldest segment that is kept whole, or with an earlier entry: no later than with
    /// `first`.
    pub(crate) fn release_labels(&mut self, first: u64) {
        if let Some(log) = &mut self.log {
            log.labels.release_before(self.segments.kept_whole_from(), first);
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
        let behind = self.make_room_for(record, head.len() + batch.len());
        let body = self.push(record.kind(), &[&head, batch]);
        if let Some(behind) = behind {
            let pushed = self.builder.push(behind.kind(), &[&behind.encode()]);
            pushed.expect("room was made for it");
        }
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
        if self.log.is_some() {
            return self.make_room(FrameSort::Entry, &lengths);
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
    use sennit_model::{
        Generation, PartitionId, Timestamp, TopicId,
        limits::{APPEND_BYTES_MAX, ATOMIC_APPENDS_MAX},
    };

    use super::*;
    use crate::{group_record::Here, replica_log::Replica};

    const ENTRY: Record = Record::TopicDeleted { topic: TopicId(1) };

    fn local() -> Record {
        let partition = PartitionId { topic: TopicId(1), ..PartitionId::default() };
        Record::Moved { partition, moves: Vec::new() }
    }

    fn of_replica(segment_bytes: u64) -> Writer {
        let directory = PathBuf::from("data/lane-0");
        let config = LaneConfig { directory, lane: 0, segment_bytes, incarnation: 7 };
        let none = |_| Ok::<_, Fault>(());
        let disk = MemoryDisk::default();
        let lane = sennit_journal::recover(&disk, config, ReplayFrom::Newest, none).unwrap();
        let segments = Segments::new(segment_bytes, lane.replay_from);
        let mut writer = Writer::new(lane.builder, segments, lane.replay_from);
        let mut log = ReplicaLog::new(Replica { group: 1, id: 2, is_alone: true });
        log.begin_life(Position(0), Generation(3), Timestamp(0));
        writer.log = Some(log);
        writer
    }

    /// The first record of each frame, and the kinds of the others.
    fn frames(writer: &mut Writer) -> Vec<(GroupRecord, Vec<u8>)> {
        let read = |frame: Frame| {
            let mut records = frame.records();
            let (kind, _, body) = records.next().unwrap();
            let others = records.map(|(kind, ..)| kind).collect();
            (GroupRecord::decode(kind, &body).unwrap(), others)
        };
        writer.take_sealed().map(read).collect()
    }

    fn entry(index: u64, commit: u64, content: EntryContent) -> GroupRecord {
        Entry { id: EntryId { term: 3, index }, commit, content }.into()
    }

    #[test]
    fn a_record_of_the_other_sort_seals_the_frame_that_gathers() {
        let mut writer = of_replica(16 << 10);
        writer.begin_term();
        for record in [&ENTRY, &ENTRY, &local(), &local(), &ENTRY] {
            writer.append(record);
        }
        let here = GroupRecord::Here(Here { term: 3, vote: 2, commit: 1 });
        let (records, moved) = (EntryContent::Records, local().kind());
        let expected = [
            (entry(2, 0, EntryContent::TermBegan), vec![]),
            (entry(3, 1, records), vec![ENTRY.kind(); 2]),
            (here, vec![moved; 2]),
            (entry(4, 1, records), vec![ENTRY.kind()]),
        ];
        assert_eq!(frames(&mut writer), expected);
        // Entry 4, and before it entry 3 with the replica's own frame behind it.
        assert_eq!(writer.end_of(4), Some(writer.end()));
        let fourth = writer.log.as_ref().unwrap().labels.get(4).unwrap().body.frame;
        assert_eq!(writer.end_of(3), Some(fourth));
        writer.handle_written(writer.end());
        let end = writer.end();
        writer.append(&ENTRY);
        assert_eq!(writer.end_of(4), Some(end), "what gathers is an entry of its own");
        assert_eq!(frames(&mut writer), [(entry(5, 4, records), vec![ENTRY.kind()])]);
    }

    #[test]
    fn frames_that_are_full_are_entries_of_their_own() {
        let mut writer = of_replica(16 << 10);
        for _ in 0..2_000 {
            writer.append(&ENTRY);
        }
        let frames = frames(&mut writer);
        assert!(frames.len() > 2);
        for (index, (head, _)) in (2..).zip(&frames) {
            assert_eq!(*head, entry(index, 1, EntryContent::Records));
        }
        let records: usize = frames.iter().map(|(_, records)| records.len()).sum();
        assert_eq!(records, 2_000);
        let log = writer.log.as_ref().unwrap();
        assert_eq!(log.labels.last().index, 1 + frames.len() as u64);
    }

    #[test]
    fn what_is_appended_together_at_its_limit_fits_the_shortest_segment_of_a_broker() {
        /// Of `server/config`.
        const SHORTEST: u64 = 20 << 20;
        const HEAD_MAX: usize = 4096;
        let mut writer = of_replica(SHORTEST);
        let lengths = [APPEND_BYTES_MAX / ATOMIC_APPENDS_MAX + HEAD_MAX; ATOMIC_APPENDS_MAX];
        for _ in 0..2 {
            writer.make_room(FrameSort::Entry, &lengths);
            let bytes = vec![0; lengths[0]];
            lengths.iter().for_each(|_| _ = writer.push(1, &[&bytes]));
        }
        let longest = SHORTEST as usize - sennit_journal::BLOCK_BYTES - 64 - 40 - 8;
        writer.make_room(FrameSort::Entry, &[longest]);
        writer.push(1, &[&vec![0; longest]]);
        let counts: Vec<_> = frames(&mut writer).iter().map(|(_, records)| records.len()).collect();
        assert_eq!(counts, [ATOMIC_APPENDS_MAX, ATOMIC_APPENDS_MAX, 1]);
    }

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
