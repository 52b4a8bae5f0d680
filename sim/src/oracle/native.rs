//! The oracle's model of a native publish to the topic of a stream: it is appended at the end, is a duplicate, or is
//! refused once the reason is durable. Written from docs/reference/protocol.md and http-streams.md.

use sennit_engine::{Command, Publish, Refusal};
use sennit_model::{Offset, PartitionId, Timestamp, limits::PRODUCER_BATCHES_REMEMBERED};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Oracle, PendingPublish, Violation,
    partition::{ExpectedOutcome, admit},
    stream::{RequestTime, StreamModel},
};

/// A publish that must be refused because of earlier requests: to its stream, or of its producer.
#[derive(Debug)]
pub(super) struct ExpectedRefusal {
    id: PartitionId,
    refusal: Refusal,
    /// The turn that must be durable before the refusal.
    turn: u64,
}

/// Whether a refusal waits until its reason is durable, whatever the topic.
pub(super) fn waits_for_commit(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::ProducerFenced { .. })
}

impl StreamModel {
    fn admit(&self, publish: &Publish) -> Result<ExpectedOutcome, Refusal> {
        let stamps = self.entries.iter().map(|entry| entry.stamp);
        admit(stamps, publish.producer, publish.batch.count())
    }

    /// The expected outcome of a publish that is not refused immediately. A duplicate is confirmed whatever the state
    /// of the stream.
    fn publish(
        &mut self,
        publish: &Publish,
        expected: Option<Offset>,
        time: &mut RequestTime<'_>,
    ) -> Result<ExpectedOutcome, Refusal> {
        let admitted = self.admit(publish)?;
        let ExpectedOutcome::New(end) = admitted else { return Ok(admitted) };
        if self.absence().is_some() {
            return Err(Refusal::UnknownTopic);
        }
        if self.state().is_closed {
            return Err(Refusal::StreamClosed);
        }
        if let Some(expected) = expected.filter(|expected| expected.0 != end) {
            return Err(Refusal::OffsetMismatch { expected, next: Offset(end) });
        }
        // A publish counts as a use.
        self.touch(time.now);
        let turn = time.turn;
        self.push(publish.batch.messages(), publish.producer, turn);
        let end = self.entries.len() as u64;
        self.change(time, turn, |state| state.end = end);
        Ok(admitted)
    }

    /// Whether the broker must still recognise this duplicate: it has the same bytes as the first time, and its
    /// producer has not published many batches since.
    fn remembers(&self, publish: &Publish, first: u64) -> bool {
        let from = &self.entries[first as usize..];
        let own = from.iter().filter(|entry| entry.stamp.id == publish.producer.id);
        let messages = publish.batch.messages().map(|message| xxh3_64(message.encoded()));
        let count = publish.batch.count() as usize;
        let is_same = from.iter().take(count).map(|entry| entry.hash).eq(messages);
        is_same && own.count() <= PRODUCER_BATCHES_REMEMBERED
    }
}

impl Oracle {
    /// The expected refusal of a publish to a stream that does not wait for a commit.
    pub(super) fn expected_stream_refusal(&self, publish: &Publish) -> Option<Refusal> {
        match self.streams.by_id.get(&publish.partition) {
            Some(model) if model.state().exists => {
                model.admit(publish).err().filter(|refusal| !waits_for_commit(refusal))
            }
            _ => Some(Refusal::UnknownTopic),
        }
    }

    /// Whether a command that is not refused immediately may be refused later.
    pub(super) fn may_be_refused_later(command: &Command) -> bool {
        matches!(command, Command::Publish(_) | Command::PublishAt(..))
    }

    /// Notes a publish of a fenced producer, which must be refused.
    pub(super) fn expect_fenced_refusal(&mut self, publish: &Publish, refusal: Refusal) {
        let (id, request) = (publish.partition, publish.origin.request);
        let Some(partition) = self.partitions.get(&id) else { return };
        let own = partition.entries.iter().filter(|held| held.stamp.id == publish.producer.id);
        let turn = own.map(|entry| entry.turn).max().unwrap_or_default();
        self.streams.refusals.insert(request, ExpectedRefusal { id, refusal, turn });
    }

    /// Applies a native publish to a stream that is not refused immediately, and predicts its outcome.
    pub(super) fn publish_to_stream(
        &mut self,
        publish: &Publish,
        expected_offset: Option<Offset>,
        now: Timestamp,
    ) {
        let (id, request, turn) = (publish.partition, publish.origin.request, self.turn);
        let Some(model) = self.streams.by_id.get_mut(&id) else { return };
        let mut time = RequestTime { turn, changes: &mut self.streams.changes, now };
        model.expire(&mut time);
        match model.publish(publish, expected_offset, &mut time) {
            Ok(outcome) => {
                let turn = model.entries[outcome.offset() as usize].turn;
                let publish = publish.clone();
                let pending = PendingPublish { publish, expected_offset, outcome, turn };
                self.publishes.insert(request, pending);
            }
            Err(refusal) => {
                let turn = model.latest_turn();
                self.streams.refusals.insert(request, ExpectedRefusal { id, refusal, turn });
            }
        }
    }

    /// Checks a refusal that waited for its commit. Returns whether the request had an expected refusal.
    pub(super) fn check_delayed_refusal(
        &mut self,
        request: u64,
        refusal: &Refusal,
    ) -> Result<bool, Violation> {
        let Some(ExpectedRefusal { id, refusal: expected, turn }) =
            self.streams.refusals.remove(&request)
        else {
            return Ok(false);
        };
        if self.is_fenced && *refusal == Refusal::OutcomeUnknown {
            return Ok(true);
        }
        if *refusal != expected {
            let detail = format!("{request} to {id}: expected {expected:?}, received {refusal:?}");
            return Err(Violation::new("a command is refused for the expected reason", detail));
        }
        self.must_be_durable(turn, refusal)?;
        if let Some(model) = self.streams.by_id.get_mut(&id) {
            match refusal {
                Refusal::UnknownTopic => model.note_reported_absence(),
                Refusal::StreamClosed => model.reported.is_closed = true,
                Refusal::OffsetMismatch { next, .. } => model.reported.note_end(*next),
                _ => {}
            }
        }
        Ok(true)
    }

    /// Checks that no publisher waits for a refusal after the lane has failed, because nothing becomes durable then.
    pub(super) fn check_no_lost_refusals(&self) -> Result<(), Violation> {
        match self.streams.refusals.first_key_value().filter(|_| self.is_fenced) {
            None => Ok(()),
            Some((request, refused)) => {
                let detail = format!("{request} waits after the lane has failed: {refused:?}");
                Err(Violation::new("every command is answered", detail))
            }
        }
    }

    /// Checks the confirm of a publish at an expected offset.
    pub(super) fn check_published_at(
        &mut self,
        request: u64,
        first: Offset,
        count: u32,
    ) -> Result<(), Violation> {
        let answer = format!("{request} is published at {first}, {count} messages");
        let Some(pending) = self.publishes.remove(&request) else {
            return Err(Violation::new("I2 nothing appears that was never sent", answer));
        };
        let id = pending.publish.partition;
        let model = self.streams.by_id.get(&id);
        let is_correct = match pending.outcome {
            ExpectedOutcome::New(offset) => first.0 == offset,
            ExpectedOutcome::Duplicate(offset) => {
                let remembers = |model: &StreamModel| model.remembers(&pending.publish, offset);
                first.0 == offset
                    || !model.is_some_and(remembers) && Some(first) == pending.expected_offset
            }
        };
        let is_expected = pending.expected_offset.is_some();
        if !is_correct || !is_expected || count != pending.publish.batch.count() {
            let PendingPublish { expected_offset, outcome, .. } = pending;
            let detail =
                format!("{answer}; sent for {expected_offset:?} of {id}, expected {outcome:?}");
            return Err(Violation::new(
                "I1 a confirmed batch is present once, at its offset",
                detail,
            ));
        }
        self.note_reported(&pending);
        self.must_be_durable(pending.turn, &answer)
    }

    /// Notes a reported publish: the end of a stream that it reveals cannot be undone.
    pub(super) fn note_reported(&mut self, pending: &PendingPublish) {
        let PendingPublish { publish, outcome, .. } = pending;
        if let Some(model) = self.streams.by_id.get_mut(&publish.partition) {
            let end = outcome.offset() + u64::from(publish.batch.count());
            model.reported.note_end(Offset(end));
        }
    }
}
