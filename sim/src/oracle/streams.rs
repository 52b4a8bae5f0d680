//! The oracle's checks of streams: every answer follows from the promises and from durable data; every read returns
//! appended messages; after a crash each stream has a state that it had at one time, the same time for all, and not
//! before a reported one.

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
    stream::{AskedAt, StreamModel, UNSURE, Version},
};

/// The promise that a stream is as it should be after a restart.
const KEPT: &str = "I1 a stream has a valid state after a restart";
/// The promise that an answer is the right one.
const ANSWERED: &str = "I1 a stream's answer matches its state";
/// The promise that what is read is what was appended.
const READ: &str = "I1 a stream read returns the appended messages, once and in order";

/// The promise that what is appended together is one change.
const TOGETHER: &str = "I1 an atomic append is in all streams or in none";

/// A request and its expected answer.
#[derive(Debug)]
pub(super) struct ExpectedAnswer {
    /// Of which: several if something is appended to them together.
    pub(super) ids: Vec<PartitionId>,
    pub(super) answer: StreamAnswer,
    /// The turn on which that stands.
    pub(super) turn: u64,
}

/// A read under way.
#[derive(Debug)]
struct PendingRead {
    id: PartitionId,
    read: StreamRead,
    /// What had been told when it was asked.
    told: (u64, bool),
    /// The lowest end that the stream may have for this read.
    end_least: u64,
    /// Whether nobody waits for it any more: an answer may be on its way all the same.
    is_stopped: bool,
}

/// A stream as it was found: how it says it is, whether it is deleted, and with which forks.
pub type FoundStream = (PartitionId, StreamStatus, bool, BTreeSet<sennit_model::TopicId>);

/// All streams.
#[derive(Debug, Default)]
pub(super) struct Streams {
    pub(super) by_id: BTreeMap<PartitionId, StreamModel>,
    pub(super) asked: BTreeMap<u64, ExpectedAnswer>,
    reads: BTreeMap<u64, PendingRead>,
    /// What somebody publishes natively, to streams and others, that is to be refused once that is durable.
    pub(super) refusals: BTreeMap<u64, ExpectedRefusal>,
    pub(super) changes: u64,
    /// Whether this life has found something that it cannot read.
    has_damage: bool,
}

impl Streams {
    pub(super) fn awaits(&self, request: u64) -> bool {
        self.asked.contains_key(&request) || self.reads.contains_key(&request)
    }

    /// How far each stream goes that is there, for sure.
    pub(super) fn durable_ends(
        &self,
        durable_turn: u64,
    ) -> impl Iterator<Item = (PartitionId, u64)> {
        self.by_id.iter().filter_map(move |(&id, model)| {
            let sure = model.history.iter().rev().find(|version| version.turn <= durable_turn)?;
            sure.state.is_there.then_some((id, sure.state.end))
        })
    }
}

impl Oracle {
    /// Whether a partition is, or was to be, a stream.
    #[must_use]
    pub fn is_stream(&self, id: PartitionId) -> bool {
        self.streams.by_id.contains_key(&id)
    }

    /// Whether a stream is there that nobody has deleted, as far as commands say.
    #[must_use]
    pub fn has_stream(&self, id: PartitionId) -> bool {
        self.streams.by_id.get(&id).is_some_and(|model| model.gone().is_none())
    }

    /// The shard has found something in this life that it cannot read.
    pub fn damage_is_known(&mut self, is_known: bool) {
        self.streams.has_damage = is_known;
    }

    /// What is asked of streams and was not answered: reads that wait apart.
    #[must_use]
    pub fn streams_awaited(&self) -> usize {
        let reads =
            self.streams.reads.values().filter(|asked| !asked.read.waits && !asked.is_stopped);
        self.streams.asked.len() + self.streams.refusals.len() + reads.count()
    }

    /// Time passes for all streams.
    pub(super) fn streams_pass(&mut self, now: Timestamp) {
        let turn = self.turn;
        let Streams { by_id, changes, .. } = &mut self.streams;
        for model in by_id.values_mut() {
            model.passes(&mut AskedAt { turn, changes, now });
        }
    }

    /// Something is asked of a stream.
    pub(super) fn stream_asked(
        &mut self,
        origin: Origin,
        id: PartitionId,
        command: &StreamCommand,
        now: Timestamp,
    ) {
        let turn = self.turn;
        let Streams { by_id, asked, reads, changes, .. } = &mut self.streams;
        let inherited = match command {
            StreamCommand::Open(open) => {
                let fork = open.settings.fork.as_ref();
                let source = fork.and_then(|fork| Some((by_id.get(&fork.source)?, fork.at.0)));
                source.map_or(Vec::new(), |(source, at)| source.entries[..at as usize].to_vec())
            }
            _ => Vec::new(),
        };
        let model = by_id.entry(id).or_insert_with(StreamModel::new);
        let mut when = AskedAt { turn, changes, now };
        model.passes(&mut when);
        match command {
            StreamCommand::Read(read) => {
                let is_for_fork = read.for_fork && !model.state().forks.is_empty();
                match model.gone().filter(|_| !is_for_fork) {
                    Some(gone) => {
                        let answer = StreamAnswer::Refused(gone);
                        let ids = vec![id];
                        asked.insert(origin.request, ExpectedAnswer { ids, answer, turn: 0 });
                    }
                    None => {
                        if !read.for_fork {
                            model.touch(now);
                        }
                        let told = (model.reported_end, model.reported_closed);
                        let end_least = model.end_least();
                        let asked =
                            PendingRead { id, read: *read, told, end_least, is_stopped: false };
                        reads.insert(origin.request, asked);
                    }
                }
            }
            StreamCommand::StopReading => {
                if let Some(read) = reads.get_mut(&origin.request) {
                    read.is_stopped = true;
                }
            }
            command => {
                if let Some(answer) = model.ask(command, inherited, &mut when) {
                    let (ids, turn) = (vec![id], model.stands_on());
                    asked.insert(origin.request, ExpectedAnswer { ids, answer, turn });
                }
            }
        }
    }

    /// A stream's partition is told to go; says whether it was there.
    pub(super) fn stream_dropped(
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
            && model.drop_partition(&mut AskedAt { turn, changes, now })
        {
            self.changes.insert(request, (id, turn));
        }
    }

    /// Whether the partition of a stream is there.
    pub(super) fn stream_is_there(&self, id: PartitionId) -> bool {
        self.streams.by_id.get(&id).is_some_and(|model| model.state().is_there)
    }

    /// A stream has answered.
    pub(super) fn stream_answered(
        &mut self,
        request: u64,
        answer: &StreamAnswer,
    ) -> Result<(), Violation> {
        let wrong = |detail: String| Err(Violation::new(ANSWERED, detail));
        let durable_turn = self.durable_turn;
        let Streams { by_id, asked, reads, has_damage, .. } = &mut self.streams;
        if let Some(ExpectedAnswer { ids, answer: expected, turn }) = asked.remove(&request) {
            if *answer != expected {
                return wrong(format!(
                    "{ids:?} should have said {expected:?}, and said {answer:?}"
                ));
            }
            if turn > durable_turn {
                let detail = format!(
                    "{answer:?} of {ids:?} stands on turn {turn}, durable is {durable_turn}"
                );
                return Err(Violation::new("I6 no effect is released before its commit", detail));
            }
            for (id, answer) in ids.into_iter().zip(answers_by_stream(answer)) {
                if let (Some(model), Some(answer)) = (by_id.get_mut(&id), answer) {
                    tell(model, &answer);
                }
            }
            return Ok(());
        }
        let Some(PendingRead { id, read, told, end_least, .. }) = reads.remove(&request) else {
            return wrong(format!("an answer to {request}, which was not asked"));
        };
        let Some(model) = by_id.get_mut(&id) else { return Ok(()) };
        match answer {
            StreamAnswer::Chunk(chunk) => {
                model.gives(id, &read, told, chunk, durable_turn)?;
                model.reported_end = model.reported_end.max(chunk.next.0);
                model.reported_closed |= chunk.is_closed;
                Ok(())
            }
            StreamAnswer::Inherited { source, before, status, .. } => {
                let fork = model.settings.fork.as_ref();
                let is_so = fork.is_some_and(|fork| {
                    fork.source == *source
                        && before.0 <= fork.at.0
                        && *status.settings == model.settings
                });
                match is_so {
                    true => Ok(()),
                    false => wrong(format!("{id}: {answer:?}")),
                }
            }
            StreamAnswer::Refused(StreamRefusal::Damaged { .. }) if *has_damage => Ok(()),
            StreamAnswer::Refused(StreamRefusal::BeyondEnd { next }) => {
                if !model.may_end_at(next.0, &read, end_least, durable_turn) {
                    return wrong(format!(
                        "{id}: {answer:?} to {read:?}, its end was at least {end_least}, it is {:?}",
                        model.state()
                    ));
                }
                model.reported_end = model.reported_end.max(next.0);
                Ok(())
            }
            StreamAnswer::Refused(refusal) if model.may_say(refusal) => {
                let since = model.since(|state| !state.is_there || state.is_deleted);
                let is_durable = since <= durable_turn || since == UNSURE;
                model.note_reported_gone();
                match is_durable {
                    true => Ok(()),
                    false => wrong(format!("{id} said {refusal} before that was durable")),
                }
            }
            other => wrong(format!("{id}: {other:?} to {read:?}, it is {:?}", model.state())),
        }
    }

    /// The shard is gone: nobody awaits an answer any more.
    pub(super) fn streams_crashed(&mut self) {
        self.streams.asked.clear();
        self.streams.reads.clear();
        self.streams.refusals.clear();
        self.streams.has_damage = false;
    }

    /// The shard is back, with these streams: to be called before [`Oracle::recovered`].
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn streams_recovered(
        &mut self,
        found: &[FoundStream],
        now: Timestamp,
    ) -> Result<(), Violation> {
        let durable_turn = self.durable_turn;
        let (mut kept, mut lost) =
            ((0, PartitionId::default()), (u64::MAX, PartitionId::default()));
        for (&id, model) in &mut self.streams.by_id {
            let found = found.iter().find(|held| held.0 == id);
            let sure = model.history.iter().rposition(|version| version.turn <= durable_turn);
            let sure = sure.unwrap_or(0);
            let is_so = |version: &&Version| match found {
                None => !version.state.is_there,
                Some((_, status, is_deleted, forks)) => {
                    let seen = (true, status.next.0, status.is_closed, *is_deleted, forks);
                    version.state.seen() == seen
                }
            };
            let candidates = &model.history[sure..];
            let first = candidates.iter().find(is_so);
            let last = candidates.iter().rposition(|version| is_so(&version));
            let (Some(first), Some(last)) = (first, last) else {
                let standings: Vec<_> = candidates.iter().map(|held| held.state.seen()).collect();
                let found = found.map(|held| (held.1.next.0, held.1.is_closed, held.2, &held.3));
                let detail =
                    format!("{id} is {found:?}, and was one after the other {standings:?}");
                return Err(Violation::new(KEPT, detail));
            };
            if let Some((_, status, ..)) = found
                && *status.settings != model.settings
            {
                let detail = format!("{id} is {:?}, and was {:?}", status.settings, model.settings);
                return Err(Violation::new(KEPT, detail));
            }
            let passed = candidates.iter().position(|held| std::ptr::eq(held, first)).unwrap_or(0);
            let sure_of = |held: &&Version| held.turn != UNSURE;
            if let Some(version) = candidates[..=passed].iter().rev().find(sure_of) {
                kept = kept.max((version.change, id));
            }
            if let Some(version) = candidates[last + 1..].iter().find(sure_of) {
                lost = lost.min((version.change, id));
            }
            let version = candidates[last].clone();
            model.begins_again(version, now);
        }
        if kept.0 >= lost.0 {
            let rule = match kept.0 == lost.0 {
                true => TOGETHER,
                false => "I1 a crash loses only the newest changes",
            };
            let detail = format!("change {kept:?} is there, and {lost:?} is not");
            return Err(Violation::new(rule, detail));
        }
        Ok(())
    }

    /// Nothing is asked of streams that was not answered, and who waits has nothing to wait for.
    pub(super) fn streams_settled(&self) -> Result<(), Violation> {
        let rule = "every command is answered";
        if let Some((request, asked)) = self.streams.asked.first_key_value() {
            return Err(Violation::new(rule, format!("{request}: {asked:?}")));
        }
        if let Some((request, refused)) = self.streams.refusals.first_key_value() {
            return Err(Violation::new(rule, format!("{request}: {refused:?}")));
        }
        let awaited = self.streams.reads.iter().filter(|(_, asked)| !asked.is_stopped);
        for (request, PendingRead { id, read, .. }) in awaited {
            let Some(model) = self.streams.by_id.get(id) else { continue };
            let at = if let ReadFrom::Offset(offset) = read.at { offset.0 } else { 0 };
            let state = model.state();
            // Behind the end there is nothing to wait for: such a read is refused.
            let has_reason = at != state.end || state.is_closed || model.gone().is_some();
            if !read.waits || has_reason {
                let detail = format!("{request}: {read:?} of {id}, which is {state:?}");
                return Err(Violation::new(rule, detail));
            }
        }
        Ok(())
    }
}

/// Somebody hears an answer: what it says stays so.
fn tell(model: &mut StreamModel, answer: &StreamAnswer) {
    match answer {
        StreamAnswer::Opened { status, .. } | StreamAnswer::Status(status) => {
            model.reported_end = model.reported_end.max(status.next.0);
            model.reported_closed |= status.is_closed;
        }
        StreamAnswer::Appended(appended) => {
            model.reported_end = model.reported_end.max(appended.next.0);
            model.reported_closed |= appended.is_closed;
        }
        StreamAnswer::Refused(StreamRefusal::Unknown | StreamRefusal::Deleted)
        | StreamAnswer::Deleted { .. } => model.note_reported_gone(),
        _ => {}
    }
}

impl StreamModel {
    /// Whether this was the reason of its being gone when that was decided: its last fork may have gone
    /// before it was said.
    fn may_say(&self, refusal: &StreamRefusal) -> bool {
        self.gone().is_some_and(|gone| gone == *refusal || *refusal == StreamRefusal::Deleted)
    }

    /// The lowest end that a read which is asked now may find: a stream does not end before what anybody
    /// was told of, before what an earlier life has left, or before what a fork goes on from.
    fn end_least(&self) -> u64 {
        let of_earlier_lives = self.entries.iter().take_while(|entry| entry.turn == 0).count();
        self.reported_end.max(of_earlier_lives as u64).max(self.fork_at())
    }

    /// Whether a read may be refused because the stream ends at `next`. What is on its way to the disk is
    /// not there yet: the stream ends where some change that is durable by now has left it, and that the
    /// stream is there is durable too. A deletion since then does not matter: its answer comes later.
    fn may_end_at(&self, next: u64, read: &StreamRead, end_least: u64, durable_turn: u64) -> bool {
        let ReadFrom::Offset(at) = read.at else { return false };
        let sure: Vec<&Version> =
            self.history.iter().filter(|version| version.turn <= durable_turn).collect();
        let is_there = sure.iter().any(|version| version.state.is_there);
        let is_an_end =
            next == self.fork_at() || sure.iter().any(|version| version.state.end == next);
        !read.for_fork && next < at.0 && end_least <= next && is_there && is_an_end
    }

    /// A read is given what lies there.
    fn gives(
        &self,
        id: PartitionId,
        read: &StreamRead,
        (reported_end, reported_closed): (u64, bool),
        chunk: &StreamChunk,
        durable_turn: u64,
    ) -> Result<(), Violation> {
        let wrong = |what: &str| {
            let StreamChunk { first, next, is_up_to_date, is_closed, .. } = chunk;
            Err(Violation::new(
                READ,
                format!(
                    "{what}: {read:?} of {id} is given {first}..{next}, up to date {is_up_to_date}, \
                     closed {is_closed}; told of {reported_end}; it is {:?}",
                    self.state()
                ),
            ))
        };
        let (first, next, end) = (chunk.first.0, chunk.next.0, self.state().end);
        let before = read.before.map_or(u64::MAX, |before| before.0);
        let asked = match read.at {
            ReadFrom::Offset(offset) => (offset.0, offset.0),
            ReadFrom::Earliest => (self.fork_at(), self.fork_at()),
            _ => (reported_end, end),
        };
        // Reads for forks begin at the end if they ask for more; others would have been refused.
        let least = match read.at {
            ReadFrom::Offset(_) if !read.for_fork => asked.0.min(before),
            _ => asked.0.min(before).min(reported_end),
        };
        let most = asked.1.min(before).min(end);
        if !(least..=most).contains(&first) || next < first || next > end.min(before) {
            return wrong("the place");
        }
        if chunk.topic != id.topic || *chunk.settings != self.settings {
            return wrong("another stream");
        }
        let parts = chunk.messages.iter().flat_map(|part| Messages::of_checked(part));
        let given: Vec<u64> = parts.map(|message| xxh3_64(message.encoded())).collect();
        let held = &self.entries[first as usize..next as usize];
        if !held.iter().map(|entry| entry.hash).eq(given.iter().copied()) {
            return wrong("the messages");
        }
        if held.iter().any(|entry| entry.turn > durable_turn) {
            return wrong("it is not durable");
        }
        // Without a message in it, it still says that the stream is there.
        let made = self.history.iter().find(|version| version.state.is_there);
        if made.is_some_and(|version| version.turn > durable_turn && version.turn != UNSURE) {
            return wrong("that there is such a stream is not durable");
        }
        if chunk.is_up_to_date && read.before.is_none() && next < reported_end {
            return wrong("more is there");
        }
        if given.is_empty() && read.before.is_none() && !chunk.is_up_to_date {
            return wrong("nothing, though there is something");
        }
        if given.is_empty() && read.waits && !chunk.is_closed {
            return wrong("who waits is given nothing");
        }
        let closed_since = self.since(|state| state.is_closed);
        if chunk.is_closed && (next != end || closed_since > durable_turn) {
            return wrong("it is not closed there, or not for sure");
        }
        if reported_closed && next == end && !chunk.is_closed {
            return wrong("it was closed");
        }
        Ok(())
    }
}

/// What an answer says of each stream that it is of, in their order.
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
