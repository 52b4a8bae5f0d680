//! The commands that open, close, fork and delete a stream: each is refused, or becomes one record. This file reads
//! and appends nothing itself.

use std::{collections::BTreeSet, sync::Arc};

use sennit_model::{
    Durability, Offset, PartitionId, ProducerStamp, Timestamp, TopicId,
    limits::{STREAM_FORKS_MAX, STREAM_READS_WAITING_MAX},
};

use crate::{
    admission::{Refused, check_keys},
    command::Origin,
    content::Content,
    engine::{Engine, Journal, Outbox},
    partition::Partition,
    record::{Record, StreamOpened},
    stream::{
        ForkOf, OpenStream, StreamAnswer, StreamAppend, StreamCommand, StreamNote, StreamRead,
        StreamRefusal, StreamSettings, StreamStatus,
    },
    stream_append::append_of,
    streams::Stream,
    timer::Timer,
};

impl Engine {
    pub(crate) fn stream(
        &mut self,
        origin: Origin,
        id: PartitionId,
        command: StreamCommand,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        if !matches!(command, StreamCommand::StopReading) {
            self.end_if_over(id, now, journal);
        }
        // An answer is sent once all records that it depends on are committed, unless it is early.
        let mut is_early = false;
        let done = match command {
            StreamCommand::Open(open) => self.open_stream(id, *open, now, journal),
            StreamCommand::Append(append) => {
                self.append_to_stream(id, *append, now, journal).map(|(appended, early)| {
                    is_early = early;
                    StreamAnswer::Appended(appended)
                })
            }
            StreamCommand::Read(read) => match self.begin_read(origin, id, read, now) {
                Ok(()) => return,
                Err(refused) => Err(refused),
            },
            StreamCommand::StopReading => return self.streams.stop_waiting(id, origin),
            StreamCommand::Status { touches } => self.answer_status(id, touches, now),
            StreamCommand::AddFork(fork) => self.add_fork(id, fork, now, journal),
            StreamCommand::RemoveFork(fork) => Ok(self.remove_fork(id, fork, now, journal)),
            StreamCommand::Delete => self.delete_stream(id, now, journal),
        };
        match done {
            Ok(answer) => out.answer(origin, answer, is_early),
            Err(refused) => refused.tell(origin, out),
        }
    }

    /// Has a read be answered as soon as it can be.
    fn begin_read(
        &mut self,
        origin: Origin,
        id: PartitionId,
        read: StreamRead,
        now: Timestamp,
    ) -> Result<(), Refused> {
        self.living(id, now, read.for_fork)?;
        if self.streams.waiting() >= STREAM_READS_WAITING_MAX {
            let (name, limit) = ("STREAM_READS_WAITING_MAX", STREAM_READS_WAITING_MAX as u64);
            return Err(StreamRefusal::Limit { name, limit }.into());
        }
        // A read for a fork is no use of its source.
        if !read.for_fork {
            self.touch_stream(id, now);
        }
        self.streams.await_something(id, origin, read);
        self.mark_ready(id);
        Ok(())
    }

    fn answer_status(
        &mut self,
        id: PartitionId,
        touches: bool,
        now: Timestamp,
    ) -> Result<StreamAnswer, Refused> {
        self.living(id, now, false)?;
        if touches {
            self.touch_stream(id, now);
        }
        Ok(StreamAnswer::Status(self.stream_status(id).ok_or(StreamRefusal::Unknown)?))
    }

    pub(crate) fn touch_stream(&mut self, id: PartitionId, now: Timestamp) {
        if let Some(stream) = self.streams.get_mut(id) {
            stream.touched_at = stream.touched_at.max(now);
        }
    }

    /// The settings of a stream; of a topic that was not created as one, those of such.
    pub(crate) fn stream_settings(&self, id: PartitionId) -> Arc<StreamSettings> {
        match self.streams.get(id) {
            Some(stream) => stream.settings.clone(),
            None => self.shared.of_topic.clone(),
        }
    }

    pub(crate) fn stream_status(&self, id: PartitionId) -> Option<StreamStatus> {
        let partition = self.partitions.get(&id)?;
        // Appended records are committed by the time that this answer is sent.
        let next = match partition.config.durability {
            Durability::Durable | Durability::Speculative => partition.log.end(),
            Durability::Ephemeral | Durability::Memory => partition.visible,
        };
        Some(StreamStatus {
            settings: self.stream_settings(id),
            start: Offset(partition.log.start()),
            next: Offset(next),
            is_closed: self.is_closed(id),
            durability: partition.config.durability,
            is_opened: self.is_opened(id),
        })
    }

    /// Whether a partition was opened as a stream.
    pub(crate) fn is_opened(&self, id: PartitionId) -> bool {
        self.streams.get(id).is_some_and(|stream| stream.is_opened)
    }

    fn open_stream(
        &mut self,
        id: PartitionId,
        open: OpenStream,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<StreamAnswer, Refused> {
        if open.settings.group.is_some() && open.config.durability != Durability::Durable {
            return Err(StreamRefusal::SettingsDiffer { field: "durability" }.into());
        }
        let is_new = match self.partitions.get(&id) {
            None => true,
            // A crash has left the catalogue's part of a creation.
            Some(held) => held.log.end() == 0 && self.streams.get(id).is_none(),
        };
        if !is_new {
            return self.open_existing(id, &open, now);
        }
        if let Some(content) = &open.content {
            // Content that would be refused is refused before the stream exists.
            check_keys(&open.config, content.is_keyed())?;
            if open.config.durability == Durability::Memory {
                self.make_room(id, content.bytes() as u64, journal)?;
            }
        }
        self.create_stream(id, open, now, journal)?;
        let mut status = self.stream_status(id).ok_or(StreamRefusal::Unknown)?;
        // All its first messages can be read by the time that this answer is sent.
        status.next = self.end_of(id).unwrap_or(status.next);
        Ok(StreamAnswer::Opened { created: true, status })
    }

    fn open_existing(
        &mut self,
        id: PartitionId,
        open: &OpenStream,
        now: Timestamp,
    ) -> Result<StreamAnswer, Refused> {
        self.living(id, now, false)?;
        if !self.is_opened(id) {
            return Err(StreamRefusal::NativeTopic.into());
        }
        self.check_settings(id, &open.settings, open.closes)?;
        self.touch_stream(id, now);
        let status = self.stream_status(id).ok_or(StreamRefusal::Unknown)?;
        Ok(StreamAnswer::Opened { created: false, status })
    }

    /// Appends the record that creates a stream, with the first batch of its content if it is durable, and the
    /// rest of the content behind it.
    fn create_stream(
        &mut self,
        id: PartitionId,
        open: OpenStream,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<(), Refused> {
        let OpenStream { config, settings, content, closes } = open;
        let is_durable = config.durability == Durability::Durable;
        let (batch, rest) = match content {
            Some(content) if is_durable => {
                let (batch, further) = content.into_parts();
                (Some(batch), Content::of(further))
            }
            content => (None, content),
        };
        let first = settings.fork.as_ref().map_or(Offset(0), |fork| fork.at);
        let behind = first.plus(batch.as_ref().map_or(0, |batch| u64::from(batch.count())));
        let opened = Record::StreamOpened(Box::new(StreamOpened {
            partition: id,
            opened_at: now,
            config,
            first,
            closes: closes && rest.is_none(),
            settings,
            batch,
        }));
        let note = StreamNote { closes, ..StreamNote::default() };
        let rest = rest.map(|rest| StreamAppend { content: Some(rest), content_type: None, note });
        if is_durable {
            let rest = rest.into_iter().flat_map(|rest| append_of(id, rest).records(behind, now));
            self.commit_together(std::iter::once(opened).chain(rest), journal);
        } else {
            self.commit(&opened, journal);
            if let Some(rest) = rest {
                self.append_to_stream(id, rest, now, journal)?;
            }
        }
        Ok(())
    }

    /// Checks that a stream which exists has the settings of a request to open it.
    fn check_settings(
        &self,
        id: PartitionId,
        requested: &StreamSettings,
        closes: bool,
    ) -> Result<(), StreamRefusal> {
        let held = self.stream_settings(id);
        let differs = |field| Err(StreamRefusal::SettingsDiffer { field });
        if !held.content_type.eq_ignore_ascii_case(&requested.content_type) {
            return differs("content type");
        }
        if held.time_to_live != requested.time_to_live {
            return differs("time to live");
        }
        if held.expires_at.as_ref().map(|(at, _)| at)
            != requested.expires_at.as_ref().map(|(at, _)| at)
        {
            return differs("expiry");
        }
        if self.is_closed(id) != closes {
            return differs("closed state");
        }
        if held.group != requested.group {
            return differs("stream group");
        }
        let origin =
            |fork: &Option<ForkOf>| fork.as_ref().map(|f| (f.name.clone(), f.requested.clone()));
        if origin(&held.fork) != origin(&requested.fork) {
            return differs("source, offset or sub-offset of the fork");
        }
        Ok(())
    }

    /// The streams that are held: one item for each fork of a stream, and one with `None` for each deleted
    /// stream that has no forks left.
    pub fn held_streams(&self) -> impl Iterator<Item = (PartitionId, Option<TopicId>)> {
        self.streams.iter().flat_map(|(id, stream)| {
            let details = stream.details();
            let is_left = (details.is_deleted && details.forks.is_empty()).then_some((id, None));
            details.forks.iter().map(move |fork| (id, Some(*fork))).chain(is_left)
        })
    }

    /// Streams that are forks, each with what it was made of.
    pub fn forks_of_streams(&self) -> impl Iterator<Item = (TopicId, PartitionId)> {
        self.streams.iter().filter_map(|(id, stream)| {
            stream.settings.fork.as_ref().map(|fork| (id.topic, fork.source))
        })
    }

    /// How a stream is, committed or not, and whether it is deleted.
    #[must_use]
    pub fn look_at_stream(&self, id: PartitionId) -> Option<(StreamStatus, bool)> {
        let is_deleted = self.streams.get(id).is_some_and(|stream| stream.details().is_deleted);
        Some((self.stream_status(id)?, is_deleted))
    }

    fn forks(&self, id: PartitionId) -> Option<&BTreeSet<TopicId>> {
        Some(&self.streams.get(id)?.details().forks)
    }

    fn add_fork(
        &mut self,
        id: PartitionId,
        fork: TopicId,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<StreamAnswer, Refused> {
        self.living(id, now, false)?;
        let (is_there, count) =
            self.forks(id).map_or((false, 0), |forks| (forks.contains(&fork), forks.len()));
        if !is_there && count >= STREAM_FORKS_MAX {
            let (name, limit) = ("STREAM_FORKS_MAX", STREAM_FORKS_MAX as u64);
            return Err(StreamRefusal::Limit { name, limit }.into());
        }
        if !is_there {
            self.commit(&Record::StreamForked { partition: id, fork, is_there: true }, journal);
        }
        Ok(StreamAnswer::Status(self.stream_status(id).ok_or(StreamRefusal::Unknown)?))
    }

    fn remove_fork(
        &mut self,
        id: PartitionId,
        fork: TopicId,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> StreamAnswer {
        if self.forks(id).is_some_and(|forks| forks.contains(&fork)) {
            self.commit(&Record::StreamForked { partition: id, fork, is_there: false }, journal);
        }
        let is_gone = self.living(id, now, false).is_err();
        let is_unused = is_gone && self.forks(id).is_some_and(BTreeSet::is_empty);
        let fork_of = self.stream_settings(id).fork.clone();
        StreamAnswer::Deleted { is_unused, fork_of }
    }

    fn delete_stream(
        &mut self,
        id: PartitionId,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<StreamAnswer, Refused> {
        if self.partitions.get(&id).is_none() {
            return Err(StreamRefusal::Unknown.into());
        }
        let is_unused = self.forks(id).is_none_or(BTreeSet::is_empty);
        let is_deleted = self.streams.get(id).is_some_and(|stream| stream.details().is_deleted);
        if !is_unused {
            self.living(id, now, false)?;
        }
        if !is_deleted {
            // Also where the topic goes at once: nobody makes a fork of it until then, nobody finds it,
            // and after a crash nobody does either.
            self.commit(&Record::StreamDeleted { partition: id }, journal);
        }
        let fork_of = self.stream_settings(id).fork.clone();
        Ok(StreamAnswer::Deleted { is_unused, fork_of })
    }

    /// A partition is opened as a stream.
    pub(crate) fn apply_stream_opened(&mut self, opened: &StreamOpened, position: u64) {
        let StreamOpened { partition: id, opened_at, config, first, closes, settings, batch } =
            opened;
        let shared = &mut self.shared;
        let (config, settings) = (shared.config(config), shared.settings(settings));
        let made = || Partition::beginning_at(*id, config.clone(), first.0);
        let partition = self.partitions.get_or_insert(*id, made);
        if partition.log.end() != first.0 {
            // It was opened by its settings only, and is empty: it has its groups, and who takes part
            // in them.
            partition.config = config.clone();
            partition.begin_at(first.0, &mut self.wheel);
        }
        if config.durability == Durability::Memory {
            self.memory.holds(*id, 0);
        }
        let mut stream = Stream::new(settings, *opened_at);
        stream.is_closed = *closes;
        stream.was_opened_closed = *closes;
        let stream = self.streams.insert(*id, stream);
        if let Some(end) = stream.ends_at() {
            self.wheel.set(end, Timer::StreamEnd { partition: *id });
        }
        if let Some(batch) = batch {
            let place = crate::apply::place_of(batch.bytes(), position);
            let nobody = ProducerStamp::default();
            partition.append(batch, *opened_at, nobody, place, &mut self.wheel);
            self.uncommitted.push_back((position, *id, partition.log.end()));
        }
        self.note_keeping(*id);
    }

    /// Something was said beside an append, or instead of one.
    pub(crate) fn apply_stream_note(
        &mut self,
        id: PartitionId,
        at: Timestamp,
        note: Option<&StreamNote>,
    ) {
        let stream = match note {
            Some(_) => self.stream_or_topic(id),
            None => self.streams.get_mut(id),
        };
        let Some(stream) = stream else { return };
        stream.touched_at = stream.touched_at.max(at);
        if let Some(note) = note {
            stream.note(note);
            if note.closes {
                self.wake_reads(id);
            }
        }
    }

    pub(crate) fn apply_stream_forked(&mut self, id: PartitionId, fork: TopicId, is_there: bool) {
        let Some(stream) = self.stream_or_topic(id) else { return };
        let forks = &mut stream.details.get_or_insert_default().forks;
        if is_there {
            forks.insert(fork);
        } else {
            forks.remove(&fork);
        }
    }

    pub(crate) fn apply_stream_deleted(&mut self, id: PartitionId) {
        if let Some(stream) = self.stream_or_topic(id) {
            stream.details.get_or_insert_default().is_deleted = true;
            self.wake_reads(id);
        }
    }

    /// The stream; of a topic that was not created as one, what is to be remembered from now on. Such
    /// a one never ends by itself, whenever it was used.
    fn stream_or_topic(&mut self, id: PartitionId) -> Option<&mut Stream> {
        if self.streams.get(id).is_none() && self.partitions.get(&id).is_some() {
            let settings = self.shared.of_topic.clone();
            return Some(self.streams.insert(id, Stream::of_topic(settings)));
        }
        self.streams.get_mut(id)
    }

    /// A start counts as a use: what it slept through is nobody's fault, and reads are not journaled.
    pub(crate) fn use_streams(&mut self, now: Timestamp) {
        for (partition, stream) in self.streams.values_mut() {
            stream.touched_at = now;
            if let Some(end) = stream.ends_at() {
                self.wheel.set(end, Timer::StreamEnd { partition });
            }
        }
    }

    pub(crate) fn wake_reads(&mut self, id: PartitionId) {
        self.streams.wake(id);
        self.mark_ready(id);
    }
}
