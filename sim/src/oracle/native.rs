//! The oracle's model of a native publish to the topic of a stream: it is appended at the end, was appended before,
//! or is refused once the reason is durable. Written from docs/reference/protocol.md and http-streams.md.

use sennit_engine::{Command, Publish, Refusal};
use sennit_model::{Offset, PartitionId, Timestamp, limits::PRODUCER_BATCHES_REMEMBERED};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Oracle, Sent, Violation,
    partition::{ExpectedOutcome, admit},
    stream::{AskedAt, StreamModel},
};

/// A publish that has to be refused because of other requests: to its stream, or of its producer.
#[derive(Debug)]
pub(super) struct ExpectedRefusal {
    id: PartitionId,
    refusal: Refusal,
    /// The turn on which that stands.
    turn: u64,
}

/// Whether a refusal is told only once what it is for is durable, whatever the topic.
pub(super) fn waits_for_its_reason(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::ProducerFenced { .. })
}

impl StreamModel {
    fn admit(&self, publish: &Publish) -> Result<ExpectedOutcome, Refusal> {
        let stamps = self.entries.iter().map(|entry| entry.stamp);
        admit(stamps, publish.producer, publish.batch.count())
    }

    /// What a publish comes to that is not refused at once. What was heard before is told so whatever has
    /// become of the stream.
    fn publish(
        &mut self,
        publish: &Publish,
        expected: Option<Offset>,
        when: &mut AskedAt<'_>,
    ) -> Result<ExpectedOutcome, Refusal> {
        let admitted = self.admit(publish)?;
        let ExpectedOutcome::New(end) = admitted else { return Ok(admitted) };
        if self.gone().is_some() {
            return Err(Refusal::UnknownTopic);
        }
        if self.state().is_closed {
            return Err(Refusal::StreamClosed);
        }
        if let Some(expected) = expected.filter(|expected| expected.0 != end) {
            return Err(Refusal::OffsetMismatch { expected, next: Offset(end) });
        }
        // To be appended to is a use.
        self.touch(when.now);
        let turn = when.turn;
        self.push(publish.batch.messages(), publish.producer, turn);
        let end = self.entries.len() as u64;
        self.change(when, turn, |state| state.end = end);
        Ok(admitted)
    }

    /// Whether it has to be remembered that this batch lies there: it was sent as it was the first time, and
    /// its producer has not published many since.
    fn remembers(&self, publish: &Publish, first: u64) -> bool {
        let from = &self.entries[first as usize..];
        let own = from.iter().filter(|entry| entry.stamp.id == publish.producer.id);
        let messages = publish.batch.messages().map(|message| xxh3_64(message.encoded()));
        let count = publish.batch.count() as usize;
        let lies_there = from.iter().take(count).map(|entry| entry.hash).eq(messages);
        lies_there && own.count() <= PRODUCER_BATCHES_REMEMBERED
    }
}

impl Oracle {
    /// What a publish to a stream is refused for without a look at what the stream is.
    pub(super) fn refused_at_once(&self, publish: &Publish) -> Option<Refusal> {
        match self.streams.by_id.get(&publish.partition) {
            Some(model) if model.state().is_there => {
                model.admit(publish).err().filter(|refusal| !waits_for_its_reason(refusal))
            }
            _ => Some(Refusal::UnknownTopic),
        }
    }

    /// Whether a command that is not refused at once may be refused later.
    pub(super) fn may_be_refused_in_time(&self, command: &Command) -> bool {
        matches!(command, Command::Publish(_) | Command::PublishAt(..))
    }

    /// Something is published under an epoch that a higher one has fenced.
    pub(super) fn publish_of_fenced(&mut self, publish: &Publish, refusal: Refusal) {
        let (id, request) = (publish.partition, publish.origin.request);
        let Some(partition) = self.partitions.get(&id) else { return };
        let own = partition.entries.iter().filter(|held| held.stamp.id == publish.producer.id);
        let turn = own.map(|entry| entry.turn).max().unwrap_or_default();
        self.streams.refusals.insert(request, ExpectedRefusal { id, refusal, turn });
    }

    /// Something is published natively to a stream, and not refused at once.
    pub(super) fn publish_to_stream(
        &mut self,
        publish: &Publish,
        expected: Option<Offset>,
        now: Timestamp,
    ) {
        let (id, request, turn) = (publish.partition, publish.origin.request, self.turn);
        let Some(model) = self.streams.by_id.get_mut(&id) else { return };
        let mut when = AskedAt { turn, changes: &mut self.streams.changes, now };
        model.passes(&mut when);
        match model.publish(publish, expected, &mut when) {
            Ok(admitted) => {
                let (ExpectedOutcome::New(first) | ExpectedOutcome::Duplicate(first)) = admitted;
                let turn = model.entries[first as usize].turn;
                let sent = Sent { publish: publish.clone(), expected, admitted, turn };
                self.sent.insert(request, sent);
            }
            Err(refusal) => {
                let turn = model.stands_on();
                self.streams.refusals.insert(request, ExpectedRefusal { id, refusal, turn });
            }
        }
    }

    /// Somebody is refused who waits for that: so it stays. Says whether somebody does, unless it is because
    /// the lane has failed.
    pub(super) fn refused_in_time(
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
            let detail = format!("expected {expected:?}, came {refusal:?}, of {request} to {id}");
            return Err(Violation::new("a command is refused for the expected reason", detail));
        }
        self.must_be_durable(turn, refusal)?;
        if let Some(model) = self.streams.by_id.get_mut(&id) {
            match refusal {
                Refusal::UnknownTopic => model.note_reported_gone(),
                Refusal::StreamClosed => model.reported_closed = true,
                Refusal::OffsetMismatch { next, .. } => {
                    model.reported_end = model.reported_end.max(next.0);
                }
                _ => {}
            }
        }
        Ok(true)
    }

    /// After the lane has failed nothing becomes durable: checks that waiting publishers were told.
    pub(super) fn check_no_lost_refusals(&self) -> Result<(), Violation> {
        match self.streams.refusals.first_key_value().filter(|_| self.is_fenced) {
            None => Ok(()),
            Some((request, refused)) => {
                let detail = format!("{request}, when the lane failed: {refused:?}");
                Err(Violation::new("every command is answered", detail))
            }
        }
    }

    /// A batch was appended where it was expected, or is there since it was sent first.
    pub(super) fn published_at(
        &mut self,
        request: u64,
        first: Offset,
        count: u32,
    ) -> Result<(), Violation> {
        let said = format!("{request} is published at {first}, {count} messages");
        let Some(sent) = self.sent.remove(&request) else {
            return Err(Violation::new("I2 nothing appears that was never sent", said));
        };
        let id = sent.publish.partition;
        let model = self.streams.by_id.get(&id);
        let is_at = match sent.admitted {
            ExpectedOutcome::New(offset) => first.0 == offset,
            ExpectedOutcome::Duplicate(offset) => {
                let remembers = model.is_some_and(|model| model.remembers(&sent.publish, offset));
                first.0 == offset || !remembers && Some(first) == sent.expected
            }
        };
        if !is_at || sent.expected.is_none() || count != sent.publish.batch.count() {
            let Sent { expected, admitted, .. } = sent;
            let detail = format!("{said}; expected at {expected:?} in {id}, it is {admitted:?}");
            return Err(Violation::new(
                "I1 a confirmed batch is present once, at its offset",
                detail,
            ));
        }
        self.note_reported(&sent);
        self.must_be_durable(sent.turn, &said)
    }

    /// Notes a reported publish: the end of a stream that it reveals cannot be undone.
    pub(super) fn note_reported(&mut self, sent: &Sent) {
        let (ExpectedOutcome::New(first) | ExpectedOutcome::Duplicate(first)) = sent.admitted;
        if let Some(model) = self.streams.by_id.get_mut(&sent.publish.partition) {
            let end = first + u64::from(sent.publish.batch.count());
            model.reported_end = model.reported_end.max(end);
        }
    }
}
