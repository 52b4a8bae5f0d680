//! The oracle's model of a stream: its messages, its state after each change, and its expected answers. Written
//! from docs/reference/http-streams.md, without the engine's code.

use std::collections::{BTreeMap, BTreeSet};

use sennit_engine::{
    Content, ForkOf, OpenStream, StreamAnswer, StreamAppend, StreamAppended, StreamCommand,
    StreamProducer, StreamRefusal, StreamSettings, StreamStatus,
};
use sennit_model::{Durability, MessageView, Offset, ProducerStamp, Timestamp, TopicId};
use xxhash_rust::xxh3::xxh3_64;

/// The turn of a change that no client has seen, and that may or may not have happened.
pub(super) const UNSURE: u64 = u64::MAX;

/// A message in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) hash: u64,
    /// Its native producer; the default if it was appended over HTTP.
    pub(super) stamp: ProducerStamp,
    /// The turn in which it was appended; 0 when it is certainly durable.
    pub(super) turn: u64,
}

/// The state of a stream at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamState {
    pub(super) exists: bool,
    pub(super) end: u64,
    pub(super) is_closed: bool,
    pub(super) is_deleted: bool,
    pub(super) forks: BTreeSet<TopicId>,
    sequence: Option<Box<str>>,
    /// The epoch of each producer, and its last sequence in it.
    producers: BTreeMap<Box<str>, (u64, u64)>,
}

impl StreamState {
    /// The part that a restart reveals: existence, end, closed, deleted and forks.
    pub(super) fn visible(&self) -> (bool, u64, bool, bool, &BTreeSet<TopicId>) {
        (self.exists, self.end, self.is_closed, self.is_deleted, &self.forks)
    }
}

/// The state of a stream from a turn on, and the number of the change that caused it.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub(super) turn: u64,
    pub(super) change: u64,
    pub(super) state: StreamState,
}

/// One stream.
#[derive(Clone, Debug)]
pub(super) struct StreamModel {
    pub(super) settings: StreamSettings,
    pub(super) entries: Vec<Appended>,
    /// From the last that is certainly durable to the latest.
    pub(super) history: Vec<Version>,
    touched_at: Timestamp,
    pub(super) reported: ReportedEnd,
}

/// What clients know of a stream's end: it cannot be undone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReportedEnd {
    /// The highest end that a client has seen.
    pub(super) end: u64,
    /// Whether a client has seen that the stream is closed.
    pub(super) is_closed: bool,
}

impl ReportedEnd {
    pub(super) fn note_end(&mut self, end: Offset) {
        self.end = self.end.max(end.0);
    }

    pub(super) fn note(&mut self, end: Offset, is_closed: bool) {
        self.note_end(end);
        self.is_closed |= is_closed;
    }
}

/// The time of a request.
#[derive(Debug)]
pub(super) struct RequestTime<'a> {
    pub(super) turn: u64,
    /// The number of changes before it.
    pub(super) changes: &'a mut u64,
    pub(super) now: Timestamp,
}

impl StreamModel {
    pub(super) fn new() -> Self {
        let nothing = Version { turn: 0, change: 0, state: StreamState::default() };
        Self {
            settings: StreamSettings::of_topic(),
            entries: Vec::new(),
            history: vec![nothing],
            touched_at: Timestamp(0),
            reported: ReportedEnd::default(),
        }
    }

    pub(super) fn latest(&self) -> &Version {
        self.history.last().expect("there is always one")
    }

    pub(super) fn state(&self) -> &StreamState {
        &self.latest().state
    }

    /// The turn since which this has held without interruption.
    pub(super) fn holds_since(&self, holds: impl Fn(&StreamState) -> bool) -> u64 {
        let last_without = self.history.iter().rposition(|version| !holds(&version.state));
        self.history.get(last_without.map_or(0, |at| at + 1)).map_or(UNSURE, |version| version.turn)
    }

    /// The turn that must be durable before the stream's current state is reported. The turn of a deletion by time is
    /// unknown.
    pub(super) fn latest_turn(&self) -> u64 {
        let turns = self.history.iter().map(|version| version.turn);
        turns.filter(|turn| *turn != UNSURE).max().unwrap_or(0)
    }

    pub(super) fn change(
        &mut self,
        time: &mut RequestTime<'_>,
        turn: u64,
        change: impl FnOnce(&mut StreamState),
    ) {
        let mut state = self.state().clone();
        change(&mut state);
        *time.changes += 1;
        self.history.push(Version { turn, change: *time.changes, state });
    }

    fn ends_at(&self) -> Option<Timestamp> {
        let millis = self.settings.time_to_live.map(|seconds| seconds * 1000);
        let sliding = millis.map(|millis| Timestamp(self.touched_at.0 + millis));
        sliding.into_iter().chain(self.settings.expires_at.as_ref().map(|held| held.0)).min()
    }

    /// Marks the stream as deleted once its time is over: the broker deletes it then, or at the next request.
    pub(super) fn expire(&mut self, time: &mut RequestTime<'_>) {
        let StreamState { exists, is_deleted, .. } = *self.state();
        if exists && !is_deleted && self.ends_at().is_some_and(|end| end <= time.now) {
            self.change(time, UNSURE, |state| state.is_deleted = true);
        }
    }

    /// Notes that a client has seen the stream's absence: it cannot be undone.
    pub(super) fn note_reported_absence(&mut self) {
        for version in &mut self.history {
            if version.turn == UNSURE {
                version.turn = 0;
            }
        }
    }

    /// Sets the state after a start to this version, which is certainly durable. A start counts as a use.
    pub(super) fn restart_from(&mut self, version: Version, now: Timestamp) {
        self.entries.truncate(version.state.end as usize);
        self.entries.iter_mut().for_each(|entry| entry.turn = 0);
        self.history = vec![Version { turn: 0, ..version }];
        self.touched_at = now;
    }

    /// The refusal of requests to a stream that does not exist any more.
    pub(super) fn absence(&self) -> Option<StreamRefusal> {
        let StreamState { exists, is_deleted, forks, .. } = self.state();
        match (*exists, *is_deleted, forks.is_empty()) {
            (true, false, _) => None,
            (true, true, false) => Some(StreamRefusal::Deleted),
            _ => Some(StreamRefusal::Unknown),
        }
    }

    pub(super) fn fork_at(&self) -> u64 {
        self.settings.fork.as_ref().map_or(0, |fork| fork.at.0)
    }

    fn status(&self) -> StreamStatus {
        StreamStatus {
            settings: self.settings.clone().into(),
            start: Offset(self.fork_at()),
            next: Offset(self.state().end),
            is_closed: self.state().is_closed,
            is_opened: true,
            durability: Durability::Durable,
        }
    }

    /// Applies a command, and returns the expected answer; `None` for reads. `inherited` are the messages before a
    /// fork.
    pub(super) fn apply(
        &mut self,
        command: &StreamCommand,
        inherited: Vec<Appended>,
        time: &mut RequestTime<'_>,
    ) -> Option<StreamAnswer> {
        let answer = match command {
            StreamCommand::Open(open) => self.open(open, inherited, time),
            StreamCommand::Append(append) => self.append(append, time),
            StreamCommand::Status { touches } => match self.absence() {
                Some(refusal) => Err(refusal),
                None => {
                    if *touches {
                        self.touch(time.now);
                    }
                    Ok(StreamAnswer::Status(self.status()))
                }
            },
            StreamCommand::AddFork(fork) => match self.absence() {
                Some(refusal) => Err(refusal),
                None => {
                    if !self.state().forks.contains(fork) {
                        let turn = time.turn;
                        self.change(time, turn, |state| {
                            state.forks.insert(*fork);
                        });
                    }
                    Ok(StreamAnswer::Status(self.status()))
                }
            },
            StreamCommand::RemoveFork(fork) => {
                if self.state().exists && self.state().forks.contains(fork) {
                    let turn = time.turn;
                    self.change(time, turn, |state| {
                        state.forks.remove(fork);
                    });
                }
                let is_unused =
                    self.state().exists && self.state().is_deleted && self.state().forks.is_empty();
                Ok(StreamAnswer::Deleted { is_unused, fork_of: self.fork_of() })
            }
            StreamCommand::Delete => self.delete(time),
            StreamCommand::Read(_) | StreamCommand::StopReading => return None,
        };
        Some(answer.unwrap_or_else(StreamAnswer::Refused))
    }

    fn fork_of(&self) -> Option<ForkOf> {
        self.settings.fork.clone().filter(|_| self.state().exists)
    }

    pub(super) fn touch(&mut self, now: Timestamp) {
        self.touched_at = self.touched_at.max(now);
    }

    fn delete(&mut self, time: &mut RequestTime<'_>) -> Result<StreamAnswer, StreamRefusal> {
        let StreamState { exists, is_deleted, ref forks, .. } = *self.state();
        if !exists {
            return Err(StreamRefusal::Unknown);
        }
        let is_unused = forks.is_empty();
        if is_deleted && !is_unused {
            return Err(StreamRefusal::Deleted);
        }
        if !is_deleted {
            let turn = time.turn;
            self.change(time, turn, |state| state.is_deleted = true);
        }
        Ok(StreamAnswer::Deleted { is_unused, fork_of: self.fork_of() })
    }

    /// Drops its partition. Returns whether it existed.
    pub(super) fn drop_partition(&mut self, time: &mut RequestTime<'_>) -> bool {
        if !self.state().exists {
            return false;
        }
        let turn = time.turn;
        self.change(time, turn, |state| {
            let (end, is_closed) = (state.end, state.is_closed);
            *state = StreamState { end, is_closed, is_deleted: true, ..StreamState::default() };
        });
        true
    }

    fn open(
        &mut self,
        open: &OpenStream,
        inherited: Vec<Appended>,
        time: &mut RequestTime<'_>,
    ) -> Result<StreamAnswer, StreamRefusal> {
        if self.state().exists {
            if let Some(refusal) = self.absence() {
                return Err(refusal);
            }
            if let Some(field) = self.differs(open) {
                return Err(StreamRefusal::SettingsDiffer { field });
            }
            self.touch(time.now);
            return Ok(StreamAnswer::Opened { created: false, status: self.status() });
        }
        self.settings = open.settings.clone();
        self.touched_at = time.now;
        // A fork does not inherit the sequences of native producers.
        let stamp = ProducerStamp::default();
        self.entries = inherited.into_iter().map(|entry| Appended { stamp, ..entry }).collect();
        let messages = open.content.iter().flat_map(Content::messages);
        self.push(messages, stamp, time.turn);
        let (end, turn) = (self.entries.len() as u64, time.turn);
        self.change(time, turn, |state| {
            *state =
                StreamState { exists: true, end, is_closed: open.closes, ..StreamState::default() };
        });
        Ok(StreamAnswer::Opened { created: true, status: self.status() })
    }

    fn differs(&self, open: &OpenStream) -> Option<&'static str> {
        let (held, asked) = (&self.settings, &open.settings);
        let asked_for =
            |fork: &Option<ForkOf>| fork.as_ref().map(|of| (of.name.clone(), of.requested.clone()));
        let until = |settings: &StreamSettings| settings.expires_at.as_ref().map(|held| held.0);
        if !held.content_type.eq_ignore_ascii_case(&asked.content_type) {
            Some("content type")
        } else if held.time_to_live != asked.time_to_live {
            Some("time to live")
        } else if until(held) != until(asked) {
            Some("expiry")
        } else if self.state().is_closed != open.closes {
            Some("closed state")
        } else if held.group != asked.group {
            Some("stream group")
        } else if asked_for(&held.fork) != asked_for(&asked.fork) {
            Some("source, offset or sub-offset of the fork")
        } else {
            None
        }
    }

    /// Adds messages. The first one has the sequence of `stamp`.
    pub(super) fn push<'a>(
        &mut self,
        messages: impl Iterator<Item = MessageView<'a>>,
        stamp: ProducerStamp,
        turn: u64,
    ) {
        self.entries.extend((stamp.first_sequence..).zip(messages).map(
            |(first_sequence, message)| Appended {
                hash: xxh3_64(message.encoded()),
                stamp: ProducerStamp { first_sequence, ..stamp },
                turn,
            },
        ));
    }

    fn append(
        &mut self,
        append: &StreamAppend,
        time: &mut RequestTime<'_>,
    ) -> Result<StreamAnswer, StreamRefusal> {
        let known = self.known_outcome(append)?;
        Ok(StreamAnswer::Appended(self.apply_append(append, known, time)))
    }

    /// The outcome of an append that changes nothing, because it was appended before or closes a closed stream;
    /// `None` for a new one.
    pub(super) fn known_outcome(
        &self,
        append: &StreamAppend,
    ) -> Result<Option<StreamAppended>, StreamRefusal> {
        if let Some(refusal) = self.absence() {
            return Err(refusal);
        }
        let StreamAppend { content, content_type, note } = append;
        let next = Offset(self.state().end);
        let is_closed = self.state().is_closed;
        let known = |is_duplicate, sequence| {
            Ok(Some(StreamAppended { next, is_closed, is_duplicate, sequence }))
        };
        let fits = match note.producer.as_ref().map(|producer| self.last_of_producer(producer)) {
            Some(Ok(Some(sequence))) => return known(true, Some(sequence)),
            Some(Err(fenced @ StreamRefusal::ProducerFenced { .. })) => return Err(fenced),
            Some(Err(other)) => Err(other),
            Some(Ok(None)) | None => Ok(()),
        };
        if is_closed {
            return match content.is_none() && note.producer.is_none() {
                true => known(false, None),
                false => Err(StreamRefusal::Closed { next }),
            };
        }
        if content.is_some() && content_type.as_ref().is_some_and(|given| !self.is_of_type(given)) {
            let content_type = self.settings.content_type.clone();
            return Err(StreamRefusal::ContentType { content_type });
        }
        fits?;
        if let (Some(given), Some(last)) = (&note.sequence, &self.state().sequence)
            && given.as_bytes() <= last.as_bytes()
        {
            return Err(StreamRefusal::Sequence { last: last.clone() });
        }
        Ok(None)
    }

    /// Applies an append that was not refused.
    pub(super) fn apply_append(
        &mut self,
        append: &StreamAppend,
        known: Option<StreamAppended>,
        time: &mut RequestTime<'_>,
    ) -> StreamAppended {
        self.touch(time.now);
        if let Some(known) = known {
            return known;
        }
        let StreamAppend { content, note, .. } = append;
        let turn = time.turn;
        let messages = content.iter().flat_map(Content::messages);
        self.push(messages, ProducerStamp::default(), turn);
        let end = self.entries.len() as u64;
        self.change(time, turn, |state| {
            state.end = end;
            state.is_closed = note.closes;
            if note.sequence.is_some() {
                state.sequence.clone_from(&note.sequence);
            }
            if let Some(StreamProducer { id, epoch, sequence }) = &note.producer {
                state.producers.insert(id.clone(), (*epoch, *sequence));
            }
        });
        let sequence = note.producer.as_ref().map(|held| held.sequence);
        StreamAppended { next: Offset(end), is_closed: note.closes, is_duplicate: false, sequence }
    }

    fn is_of_type(&self, given: &str) -> bool {
        let media = |text: &str| text.split(';').next().unwrap_or_default().trim().to_lowercase();
        media(given) == media(&self.settings.content_type)
    }

    /// The last sequence of the producer if this append is a duplicate; `None` if the append is the next one.
    fn last_of_producer(&self, producer: &StreamProducer) -> Result<Option<u64>, StreamRefusal> {
        let received = producer.sequence;
        let Some(&(epoch, last)) = self.state().producers.get(&producer.id) else {
            return match received {
                0 => Ok(None),
                _ => Err(StreamRefusal::ProducerGap { expected: 0, received }),
            };
        };
        match producer.epoch.cmp(&epoch) {
            std::cmp::Ordering::Less => Err(StreamRefusal::ProducerFenced { current: epoch }),
            std::cmp::Ordering::Greater if received == 0 => Ok(None),
            std::cmp::Ordering::Greater => Err(StreamRefusal::ProducerBegins),
            std::cmp::Ordering::Equal if received <= last => Ok(Some(last)),
            std::cmp::Ordering::Equal if received == last + 1 => Ok(None),
            std::cmp::Ordering::Equal => {
                Err(StreamRefusal::ProducerGap { expected: last + 1, received })
            }
        }
    }
}
