//! The oracle's checks of streams: every answer follows from the promises and from durable data; every read returns
//! appended messages; after a crash all streams have their states of one time, and no client has seen a later state.

use std::collections::{BTreeMap, BTreeSet};

use sennit_engine::{
    Origin, PartitionCommand, StreamAnswer, StreamChunk, StreamCommand, StreamRead, StreamRefusal,
    StreamStatus,
};
use sennit_model::{Messages, PartitionId, ReadFrom, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Oracle, Violation,
    native::ExpectedRefusal,
    stream::{ReportedEnd, RequestTime, StreamModel, UNSURE, Version},
};

/// The promise about a stream's state after a restart.
const RESTARTED: &str = "I1 a stream has a valid state after a restart";
/// The promise about a stream's answers.
const ANSWERED: &str = "I1 a stream's answer matches its state";
/// The promise about a stream's messages.
const READ: &str = "I1 a stream read returns the appended messages, once and in order";
/// The promise that an atomic append is one change.
const ATOMIC: &str = "I1 an atomic append is in all streams or in none";

/// A request and its expected answer.
#[derive(Debug)]
pub(super) struct ExpectedAnswer {
    /// The streams of the request: several for an atomic append.
    pub(super) ids: Vec<PartitionId>,
    pub(super) answer: StreamAnswer,
    /// The turn that must be durable before the answer.
    pub(super) turn: u64,
}

/// A read under way.
#[derive(Debug)]
struct PendingRead {
    id: PartitionId,
    read: StreamRead,
    /// What clients had seen of the stream's end before the request.
    reported: ReportedEnd,
    /// The lowest end that the stream may have for this read.
    end_least: u64,
    /// Whether the client has stopped the read: an answer may still come.
    is_stopped: bool,
}

/// A stream after a start: its status, whether it is deleted, and its forks.
pub type FoundStream = (PartitionId, StreamStatus, bool, BTreeSet<sennit_model::TopicId>);

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) by_id: BTreeMap<PartitionId, StreamModel>,
    pub(super) answers: BTreeMap<u64, ExpectedAnswer>,
    reads: BTreeMap<u64, PendingRead>,
    /// Native publishes, to streams and other topics, that must be refused once the reason is durable.
    pub(super) refusals: BTreeMap<u64, ExpectedRefusal>,
    pub(super) changes: u64,
    /// Whether this generation has found unreadable data.
    has_damage: bool,
}

impl Streams {
    pub(super) fn awaits(&self, request: u64) -> bool {
        self.answers.contains_key(&request) || self.reads.contains_key(&request)
    }

    /// The certain end of each stream that certainly exists.
    pub(super) fn durable_ends(
        &self,
        durable_turn: u64,
    ) -> impl Iterator<Item = (PartitionId, u64)> {
        self.by_id.iter().filter_map(move |(&id, model)| {
            let mut newest_first = model.history.iter().rev();
            let durable = newest_first.find(|version| version.turn <= durable_turn)?;
            durable.state.exists.then_some((id, durable.state.end))
        })
    }
}

impl Oracle {
    /// Whether any request has named a partition as a stream.
    #[must_use]
    pub fn is_stream(&self, id: PartitionId) -> bool {
        self.streams.by_id.contains_key(&id)
    }

    /// Whether a stream exists that is not deleted, as far as commands say.
    #[must_use]
    pub fn has_stream(&self, id: PartitionId) -> bool {
        self.streams.by_id.get(&id).is_some_and(|model| model.absence().is_none())
    }

    /// Notes whether this generation has found unreadable data.
    pub fn set_has_damage(&mut self, has_damage: bool) {
        self.streams.has_damage = has_damage;
    }

    /// Whether this generation has reported damage.
    pub(super) fn is_damaged(&self) -> bool {
        self.streams.has_damage
    }

    /// The number of requests to streams without an answer, except for reads that wait for messages.
    #[must_use]
    pub fn pending_stream_requests(&self) -> usize {
        let reads = self
            .streams
            .reads
            .values()
            .filter(|pending| !pending.read.waits && !pending.is_stopped);
        self.streams.answers.len() + self.streams.refusals.len() + reads.count()
    }

    /// Expires all streams whose time is over.
    pub(super) fn expire_streams(&mut self, now: Timestamp) {
        let turn = self.turn;
        let Streams { by_id, changes, .. } = &mut self.streams;
        for model in by_id.values_mut() {
            model.expire(&mut RequestTime { turn, changes, now });
        }
    }

    /// Applies a request to a stream, and predicts its answer.
    pub(super) fn expect_stream_answer(
        &mut self,
        origin: Origin,
        id: PartitionId,
        command: &StreamCommand,
        now: Timestamp,
    ) {
        let turn = self.turn;
        let Streams { by_id, answers, reads, changes, .. } = &mut self.streams;
        let inherited = match command {
            StreamCommand::Open(open) => {
                let fork = open.settings.fork.as_ref();
                let source = fork.and_then(|fork| Some((by_id.get(&fork.source)?, fork.at.0)));
                source.map_or(Vec::new(), |(source, at)| source.entries[..at as usize].to_vec())
            }
            _ => Vec::new(),
        };
        let model = by_id.entry(id).or_insert_with(StreamModel::new);
        let mut time = RequestTime { turn, changes, now };
        model.expire(&mut time);
        match command {
            StreamCommand::Read(read) => {
                let is_for_fork = read.for_fork && !model.state().forks.is_empty();
                match model.absence().filter(|_| !is_for_fork) {
                    Some(refusal) => {
                        let answer = StreamAnswer::Refused(refusal);
                        let ids = vec![id];
                        answers.insert(origin.request, ExpectedAnswer { ids, answer, turn: 0 });
                    }
                    None => {
                        if !read.for_fork {
                            model.touch(now);
                        }
                        let (reported, end_least) = (model.reported, model.end_least());
                        let pending =
                            PendingRead { id, read: *read, reported, end_least, is_stopped: false };
                        reads.insert(origin.request, pending);
                    }
                }
            }
            StreamCommand::StopReading => {
                if let Some(read) = reads.get_mut(&origin.request) {
                    read.is_stopped = true;
                }
            }
            command => {
                if let Some(answer) = model.apply(command, inherited, &mut time) {
                    let (ids, turn) = (vec![id], model.latest_turn());
                    answers.insert(origin.request, ExpectedAnswer { ids, answer, turn });
                }
            }
        }
    }

    /// Applies a command to the partition of a stream: only a drop changes it.
    pub(super) fn change_stream_partition(
        &mut self,
        request: u64,
        id: PartitionId,
        change: &PartitionCommand,
        now: Timestamp,
    ) {
        let turn = self.turn;
        let Streams { by_id, changes, .. } = &mut self.streams;
        let Some(model) = by_id.get_mut(&id) else { return };
        if matches!(change, PartitionCommand::Drop)
            && model.drop_partition(&mut RequestTime { turn, changes, now })
        {
            self.changes.insert(request, (id, turn));
        }
    }

    /// Whether the partition of a stream exists.
    pub(super) fn stream_exists(&self, id: PartitionId) -> bool {
        self.streams.by_id.get(&id).is_some_and(|model| model.state().exists)
    }

    /// Checks an answer of a stream.
    pub(super) fn check_stream_answer(
        &mut self,
        request: u64,
        answer: &StreamAnswer,
    ) -> Result<(), Violation> {
        let wrong = |detail: String| Err(Violation::new(ANSWERED, detail));
        let Streams { answers, reads, .. } = &mut self.streams;
        if let Some(ExpectedAnswer { ids, answer: expected, turn }) = answers.remove(&request) {
            if *answer != expected {
                return wrong(format!("{ids:?}: expected {expected:?}, received {answer:?}"));
            }
            self.must_be_durable(turn, &(answer, &ids))?;
            for (id, answer) in ids.into_iter().zip(answers_by_stream(answer)) {
                if let (Some(model), Some(answer)) = (self.streams.by_id.get_mut(&id), answer) {
                    note_reported_answer(model, &answer);
                }
            }
            return Ok(());
        }
        match reads.remove(&request) {
            Some(pending) => self.check_read_answer(&pending, answer),
            None => wrong(format!("an answer to request {request}, which is not pending")),
        }
    }

    fn check_read_answer(
        &mut self,
        pending: &PendingRead,
        answer: &StreamAnswer,
    ) -> Result<(), Violation> {
        let PendingRead { id, ref read, reported, end_least, .. } = *pending;
        let wrong = |detail: String| Err(Violation::new(ANSWERED, detail));
        let durable_turn = self.durable_turn;
        let Streams { by_id, has_damage, .. } = &mut self.streams;
        let Some(model) = by_id.get_mut(&id) else { return Ok(()) };
        match answer {
            StreamAnswer::Chunk(chunk) => {
                model.check_chunk(id, read, reported, chunk, durable_turn)?;
                model.reported.note(chunk.next, chunk.is_closed);
                Ok(())
            }
            StreamAnswer::Inherited { source, before, status, .. } => {
                let fork = model.settings.fork.as_ref();
                let is_correct = fork.is_some_and(|fork| {
                    fork.source == *source
                        && before.0 <= fork.at.0
                        && *status.settings == model.settings
                });
                match is_correct {
                    true => Ok(()),
                    false => wrong(format!("{id}: {answer:?}")),
                }
            }
            StreamAnswer::Refused(StreamRefusal::Damaged { .. }) if *has_damage => Ok(()),
            StreamAnswer::Refused(StreamRefusal::BeyondEnd { next }) => {
                if !model.may_end_at(next.0, read, end_least, durable_turn) {
                    return wrong(format!(
                        "{id}: {answer:?} to {read:?}, its end is at least {end_least}, its state {:?}",
                        model.state()
                    ));
                }
                model.reported.note_end(*next);
                Ok(())
            }
            StreamAnswer::Refused(refusal) if model.may_be_refused(refusal) => {
                let since = model.holds_since(|state| !state.exists || state.is_deleted);
                let is_durable = since <= durable_turn || since == UNSURE;
                model.note_reported_absence();
                match is_durable {
                    true => Ok(()),
                    false => wrong(format!("{id} refused with {refusal} before that was durable")),
                }
            }
            other => {
                wrong(format!("{id}: {other:?} to {read:?}, its state is {:?}", model.state()))
            }
        }
    }

    /// Notes a crash: no request waits for an answer any more.
    pub(super) fn streams_crashed(&mut self) {
        self.streams.answers.clear();
        self.streams.reads.clear();
        self.streams.refusals.clear();
        self.streams.has_damage = false;
    }

    /// Checks the streams of a shard that has started. The caller calls it before [`Oracle::check_recovered`].
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn check_streams_recovered(
        &mut self,
        found: &[FoundStream],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let durable_turn = self.durable_turn;
        let (mut kept, mut lost) =
            ((0, PartitionId::default()), (u64::MAX, PartitionId::default()));
        for (&id, model) in &mut self.streams.by_id {
            let found = found.iter().find(|held| held.0 == id);
            let durable = model.history.iter().rposition(|version| version.turn <= durable_turn);
            let matches = |version: &Version| match found {
                None => !version.state.exists,
                Some((_, status, is_deleted, forks)) => {
                    let visible = (true, status.next.0, status.is_closed, *is_deleted, forks);
                    version.state.visible() == visible
                }
            };
            let candidates = &model.history[durable.unwrap_or(0)..];
            let first = candidates.iter().position(matches);
            let last = candidates.iter().rposition(matches);
            let (Some(first), Some(last)) = (first, last) else {
                let states: Vec<_> = candidates.iter().map(|held| held.state.visible()).collect();
                let found = found.map(|held| (held.1.next.0, held.1.is_closed, held.2, &held.3));
                let detail = format!("{id} is {found:?}, expected one of {states:?}");
                return Err(Violation::new(RESTARTED, detail));
            };
            if let Some((_, status, ..)) = found
                && *status.settings != model.settings
            {
                let detail =
                    format!("{id} is {:?}, expected {:?}", status.settings, model.settings);
                return Err(Violation::new(RESTARTED, detail));
            }
            let is_reported = |version: &&Version| version.turn != UNSURE;
            if let Some(version) = candidates[..=first].iter().rev().find(is_reported) {
                kept = kept.max((version.change, id));
            }
            if let Some(version) = candidates[last + 1..].iter().find(is_reported) {
                lost = lost.min((version.change, id));
            }
            let version = candidates[last].clone();
            model.restart_from(version, now);
        }
        if kept.0 >= lost.0 {
            let rule = match kept.0 == lost.0 {
                true => ATOMIC,
                false => "I1 a crash loses only the newest changes",
            };
            let detail = format!("change {kept:?} is present, change {lost:?} is not");
            return Err(Violation::new(rule, detail));
        }
        Ok(())
    }

    /// Checks that streams have answered every request, except for reads that rightly wait for messages.
    pub(super) fn check_streams_answered(&self) -> Result<(), Violation> {
        let rule = "every command is answered";
        if let Some((request, expected)) = self.streams.answers.first_key_value() {
            return Err(Violation::new(rule, format!("{request}: {expected:?}")));
        }
        if let Some((request, expected)) = self.streams.refusals.first_key_value() {
            return Err(Violation::new(rule, format!("{request}: {expected:?}")));
        }
        let pending = self.streams.reads.iter().filter(|(_, pending)| !pending.is_stopped);
        for (request, PendingRead { id, read, .. }) in pending {
            let Some(model) = self.streams.by_id.get(id) else { continue };
            let at = if let ReadFrom::Offset(offset) = read.at { offset.0 } else { 0 };
            let state = model.state();
            // A read beyond the end does not wait: it is refused.
            let must_answer = at != state.end || state.is_closed || model.absence().is_some();
            if !read.waits || must_answer {
                let detail = format!("{request}: {read:?} of {id}, whose state is {state:?}");
                return Err(Violation::new(rule, detail));
            }
        }
        Ok(())
    }
}

/// Notes an answer that a client has received: the state that it reveals cannot be undone.
fn note_reported_answer(model: &mut StreamModel, answer: &StreamAnswer) {
    match answer {
        StreamAnswer::Opened { status, .. } | StreamAnswer::Status(status) => {
            model.reported.note(status.next, status.is_closed);
        }
        StreamAnswer::Appended(appended) => {
            model.reported.note(appended.next, appended.is_closed);
        }
        StreamAnswer::Refused(StreamRefusal::Unknown | StreamRefusal::Deleted)
        | StreamAnswer::Deleted { .. } => model.note_reported_absence(),
        _ => {}
    }
}

impl StreamModel {
    /// Whether a request may be refused with this reason: the stream's last fork may have been removed since the
    /// decision.
    fn may_be_refused(&self, refusal: &StreamRefusal) -> bool {
        let absence = self.absence();
        absence.is_some_and(|absence| absence == *refusal || *refusal == StreamRefusal::Deleted)
    }

    /// The lowest end that a read may find now: an end that no client has seen a later one of, and that is not before
    /// the messages of earlier generations or before the stream's fork.
    fn end_least(&self) -> u64 {
        let of_earlier = self.entries.iter().take_while(|entry| entry.turn == 0).count();
        self.reported.end.max(of_earlier as u64).max(self.fork_at())
    }

    /// Whether a read may be refused because the stream ends at `next`. Messages that are not durable do not count:
    /// the end is one that some durable change has left, and the stream's existence is durable too. A deletion since
    /// then does not matter, because its answer comes later.
    fn may_end_at(&self, next: u64, read: &StreamRead, end_least: u64, durable_turn: u64) -> bool {
        let ReadFrom::Offset(at) = read.at else { return false };
        let durable: Vec<&Version> =
            self.history.iter().filter(|version| version.turn <= durable_turn).collect();
        let exists = durable.iter().any(|version| version.state.exists);
        let is_an_end =
            next == self.fork_at() || durable.iter().any(|version| version.state.end == next);
        !read.for_fork && next < at.0 && end_least <= next && exists && is_an_end
    }

    /// Checks the range and the messages of a read's answer.
    fn check_chunk(
        &self,
        id: PartitionId,
        read: &StreamRead,
        reported: ReportedEnd,
        chunk: &StreamChunk,
        durable_turn: u64,
    ) -> Result<(), Violation> {
        let wrong = |what: &str| {
            let StreamChunk { first, next, is_up_to_date, is_closed, .. } = chunk;
            Err(Violation::new(
                READ,
                format!(
                    "{what}: {read:?} of {id} returns {first}..{next}, up to date {is_up_to_date}, \
                     closed {is_closed}; reported {reported:?}; its state is {:?}",
                    self.state()
                ),
            ))
        };
        let (first, next, end) = (chunk.first.0, chunk.next.0, self.state().end);
        let before = read.before.map_or(u64::MAX, |before| before.0);
        let (requested_least, requested_most) = match read.at {
            ReadFrom::Offset(offset) => (offset.0, offset.0),
            ReadFrom::Earliest => (self.fork_at(), self.fork_at()),
            _ => (reported.end, end),
        };
        // A read for a fork that begins beyond the end begins at the end; any other is refused.
        let least = match read.at {
            ReadFrom::Offset(_) if !read.for_fork => requested_least.min(before),
            _ => requested_least.min(before).min(reported.end),
        };
        let most = requested_most.min(before).min(end);
        if !(least..=most).contains(&first) || next < first || next > end.min(before) {
            return wrong("wrong range");
        }
        if chunk.topic != id.topic || *chunk.settings != self.settings {
            return wrong("another stream's answer");
        }
        let parts = chunk.messages.iter().flat_map(|part| Messages::of_checked(part));
        let returned: Vec<u64> = parts.map(|message| xxh3_64(message.encoded())).collect();
        let entries = &self.entries[first as usize..next as usize];
        if !entries.iter().map(|entry| entry.hash).eq(returned.iter().copied()) {
            return wrong("wrong messages");
        }
        if entries.iter().any(|entry| entry.turn > durable_turn) {
            return wrong("messages that are not durable");
        }
        // An answer without messages still reveals that the stream exists.
        let created = self.history.iter().find(|version| version.state.exists);
        if created.is_some_and(|version| version.turn > durable_turn && version.turn != UNSURE) {
            return wrong("a stream whose creation is not durable");
        }
        if chunk.is_up_to_date && read.before.is_none() && next < reported.end {
            return wrong("up to date before the reported end");
        }
        if returned.is_empty() && read.before.is_none() && !chunk.is_up_to_date {
            return wrong("no messages before the end");
        }
        if returned.is_empty() && read.waits && !chunk.is_closed {
            return wrong("no messages for a read that waits");
        }
        let closed_since = self.holds_since(|state| state.is_closed);
        if chunk.is_closed && (next != end || closed_since > durable_turn) {
            return wrong("closed, although that is wrong or not durable");
        }
        if reported.is_closed && next == end && !chunk.is_closed {
            return wrong("not closed, although the close was reported");
        }
        Ok(())
    }
}

/// The part of an answer for each of its streams, in their order.
fn answers_by_stream(answer: &StreamAnswer) -> Vec<Option<StreamAnswer>> {
    match answer {
        StreamAnswer::AppendedTogether(all) => {
            all.iter().map(|appended| Some(StreamAnswer::Appended(*appended))).collect()
        }
        StreamAnswer::RefusedTogether { which, refusal } => {
            let mut each = vec![None; *which];
            each.push(Some(StreamAnswer::Refused(refusal.clone())));
            each
        }
        answer => vec![Some(answer.clone())],
    }
}
