//! The oracle's model of a stream: its messages, its state after each change, and its expected answers. Written
//! from docs/reference/http-streams.md, without the engine's code.

use std::collections::{BTreeMap, BTreeSet};

use sennit_engine::{
    Content, ForkOf, OpenStream, StreamAnswer, StreamAppend, StreamAppended, StreamCommand,
    StreamProducer, StreamRefusal, StreamSettings, StreamStatus,
};
use sennit_model::{Durability, MessageView, Offset, ProducerStamp, Timestamp, TopicId};
use xxhash_rust::xxh3::xxh3_64;

/// The turn of a change that nobody was told of, and that may or may not have happened.
pub(super) const UNSURE: u64 = u64::MAX;

/// A message in a stream.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appended {
    pub(super) hash: u64,
    /// Who has published it natively, if it was not appended over HTTP.
    pub(super) stamp: ProducerStamp,
    /// Durable once this turn is.
    pub(super) turn: u64,
}

/// The state of a stream at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StreamState {
    pub(super) is_there: bool,
    pub(super) end: u64,
    pub(super) is_closed: bool,
    pub(super) is_deleted: bool,
    pub(super) forks: BTreeSet<TopicId>,
    sequence: Option<Box<str>>,
    /// The epoch of each producer, and its number in it.
    producers: BTreeMap<Box<str>, (u64, u64)>,
}

impl StreamState {
    /// What is to be seen from outside without asking.
    pub(super) fn seen(&self) -> (bool, u64, bool, bool, &BTreeSet<TopicId>) {
        (self.is_there, self.end, self.is_closed, self.is_deleted, &self.forks)
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
    /// From the last that is durable for sure to the latest.
    pub(super) history: Vec<Version>,
    touched_at: Timestamp,
    /// The highest end that anybody was told of, and whether somebody was told that it is closed.
    pub(super) reported_end: u64,
    pub(super) reported_closed: bool,
}

/// The time of a request: the turn, the number of the next change, the time.
#[derive(Debug)]
pub(super) struct AskedAt<'a> {
    pub(super) turn: u64,
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
            reported_end: 0,
            reported_closed: false,
        }
    }

    pub(super) fn latest(&self) -> &Version {
        self.history.last().expect("there is always one")
    }

    pub(super) fn state(&self) -> &StreamState {
        &self.latest().state
    }

    /// The first turn in which it is as the latest version in this respect.
    pub(super) fn since(&self, is_so: impl Fn(&StreamState) -> bool) -> u64 {
        let not_so = self.history.iter().rposition(|version| !is_so(&version.state));
        self.history.get(not_so.map_or(0, |at| at + 1)).map_or(UNSURE, |version| version.turn)
    }

    /// The turn on which stands what it answers now. A deletion by time is one of no turn that is known.
    pub(super) fn stands_on(&self) -> u64 {
        let turns = self.history.iter().map(|version| version.turn);
        turns.filter(|turn| *turn != UNSURE).max().unwrap_or(0)
    }

    pub(super) fn change(
        &mut self,
        when: &mut AskedAt<'_>,
        turn: u64,
        make: impl FnOnce(&mut StreamState),
    ) {
        let mut state = self.state().clone();
        make(&mut state);
        *when.changes += 1;
        self.history.push(Version { turn, change: *when.changes, state });
    }

    fn ends_at(&self) -> Option<Timestamp> {
        let millis = self.settings.time_to_live.map(|seconds| seconds * 1000);
        let slides = millis.map(|millis| Timestamp(self.touched_at.0 + millis));
        slides.into_iter().chain(self.settings.expires_at.as_ref().map(|held| held.0)).min()
    }

    /// If its time is over it is deleted, or will be when somebody looks.
    pub(super) fn passes(&mut self, when: &mut AskedAt<'_>) {
        let StreamState { is_there, is_deleted, .. } = *self.state();
        if is_there && !is_deleted && self.ends_at().is_some_and(|end| end <= when.now) {
            self.change(when, UNSURE, |state| state.is_deleted = true);
        }
    }

    /// Somebody was told that it is gone: so it stays.
    pub(super) fn note_reported_gone(&mut self) {
        for version in &mut self.history {
            if version.turn == UNSURE {
                version.turn = 0;
            }
        }
    }

    /// After a start: it is as this version says, from now on for sure, and a start is a use.
    pub(super) fn begins_again(&mut self, version: Version, now: Timestamp) {
        self.entries.truncate(version.state.end as usize);
        self.entries.iter_mut().for_each(|entry| entry.turn = 0);
        self.history = vec![Version { turn: 0, ..version }];
        self.touched_at = now;
    }

    /// Why nobody gets at it any more.
    pub(super) fn gone(&self) -> Option<StreamRefusal> {
        let StreamState { is_there, is_deleted, forks, .. } = self.state();
        match (*is_there, *is_deleted, forks.is_empty()) {
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

    /// What it must answer to all but a read, changed by what is asked; nothing to who awaits nothing.
    /// `inherited` is what a fork goes on from.
    pub(super) fn ask(
        &mut self,
        command: &StreamCommand,
        inherited: Vec<Appended>,
        when: &mut AskedAt<'_>,
    ) -> Option<StreamAnswer> {
        let answer = match command {
            StreamCommand::Open(open) => self.open(open, inherited, when),
            StreamCommand::Append(append) => self.append(append, when),
            StreamCommand::Status { touches } => match self.gone() {
                Some(gone) => Err(gone),
                None => {
                    if *touches {
                        self.touch(when.now);
                    }
                    Ok(StreamAnswer::Status(self.status()))
                }
            },
            StreamCommand::AddFork(fork) => match self.gone() {
                Some(gone) => Err(gone),
                None => {
                    if !self.state().forks.contains(fork) {
                        let turn = when.turn;
                        self.change(when, turn, |state| {
                            state.forks.insert(*fork);
                        });
                    }
                    Ok(StreamAnswer::Status(self.status()))
                }
            },
            StreamCommand::RemoveFork(fork) => {
                if self.state().is_there && self.state().forks.contains(fork) {
                    let turn = when.turn;
                    self.change(when, turn, |state| {
                        state.forks.remove(fork);
                    });
                }
                let is_unused = self.state().is_there
                    && self.state().is_deleted
                    && self.state().forks.is_empty();
                Ok(StreamAnswer::Deleted { is_unused, fork_of: self.fork_of() })
            }
            StreamCommand::Delete => self.delete(when),
            StreamCommand::Read(_) | StreamCommand::StopReading => return None,
        };
        Some(answer.unwrap_or_else(StreamAnswer::Refused))
    }

    fn fork_of(&self) -> Option<ForkOf> {
        self.settings.fork.clone().filter(|_| self.state().is_there)
    }

    pub(super) fn touch(&mut self, now: Timestamp) {
        self.touched_at = self.touched_at.max(now);
    }

    fn delete(&mut self, when: &mut AskedAt<'_>) -> Result<StreamAnswer, StreamRefusal> {
        let StreamState { is_there, is_deleted, ref forks, .. } = *self.state();
        if !is_there {
            return Err(StreamRefusal::Unknown);
        }
        let is_unused = forks.is_empty();
        if is_deleted && !is_unused {
            return Err(StreamRefusal::Deleted);
        }
        if !is_deleted {
            let turn = when.turn;
            self.change(when, turn, |state| state.is_deleted = true);
        }
        Ok(StreamAnswer::Deleted { is_unused, fork_of: self.fork_of() })
    }

    /// Its partition is dropped; says whether there was one.
    pub(super) fn drop_partition(&mut self, when: &mut AskedAt<'_>) -> bool {
        if !self.state().is_there {
            return false;
        }
        let turn = when.turn;
        self.change(when, turn, |state| {
            let (end, is_closed) = (state.end, state.is_closed);
            *state = StreamState { end, is_closed, is_deleted: true, ..StreamState::default() };
        });
        true
    }

    fn open(
        &mut self,
        open: &OpenStream,
        inherited: Vec<Appended>,
        when: &mut AskedAt<'_>,
    ) -> Result<StreamAnswer, StreamRefusal> {
        if self.state().is_there {
            if let Some(gone) = self.gone() {
                return Err(gone);
            }
            if let Some(field) = self.differs(open) {
                return Err(StreamRefusal::SettingsDiffer { field });
            }
            self.touch(when.now);
            return Ok(StreamAnswer::Opened { created: false, status: self.status() });
        }
        self.settings = open.settings.clone();
        self.touched_at = when.now;
        // What producers have published is remembered of them there alone.
        let stamp = ProducerStamp::default();
        self.entries = inherited.into_iter().map(|entry| Appended { stamp, ..entry }).collect();
        let messages = open.content.iter().flat_map(Content::messages);
        self.push(messages, stamp, when.turn);
        let (end, turn) = (self.entries.len() as u64, when.turn);
        self.change(when, turn, |state| {
            *state = StreamState {
                is_there: true,
                end,
                is_closed: open.closes,
                ..StreamState::default()
            };
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

    /// Adds messages: of a producer the first has the sequence that its stamp says.
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
        when: &mut AskedAt<'_>,
    ) -> Result<StreamAnswer, StreamRefusal> {
        let known = self.outcome_of(append)?;
        Ok(StreamAnswer::Appended(self.take(append, known, when)))
    }

    /// What an append comes to: an answer if it is known already, nothing yet if it is new.
    pub(super) fn outcome_of(
        &self,
        append: &StreamAppend,
    ) -> Result<Option<StreamAppended>, StreamRefusal> {
        if let Some(gone) = self.gone() {
            return Err(gone);
        }
        let StreamAppend { content, content_type, note } = append;
        let next = Offset(self.state().end);
        let is_closed = self.state().is_closed;
        let known = |is_duplicate, sequence| {
            Ok(Some(StreamAppended { next, is_closed, is_duplicate, sequence }))
        };
        let fits = match note.producer.as_ref().map(|producer| self.of_producer(producer)) {
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

    /// An append that was not refused: what becomes of it.
    pub(super) fn take(
        &mut self,
        append: &StreamAppend,
        known: Option<StreamAppended>,
        when: &mut AskedAt<'_>,
    ) -> StreamAppended {
        self.touch(when.now);
        if let Some(known) = known {
            return known;
        }
        let StreamAppend { content, note, .. } = append;
        let turn = when.turn;
        let messages = content.iter().flat_map(Content::messages);
        self.push(messages, ProducerStamp::default(), turn);
        let end = self.entries.len() as u64;
        self.change(when, turn, |state| {
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

    /// Whether an append of a producer is the next; if it was there before, the highest number.
    fn of_producer(&self, producer: &StreamProducer) -> Result<Option<u64>, StreamRefusal> {
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
