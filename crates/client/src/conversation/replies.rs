//! Handles the broker's frames: answers to requests, deliveries, gaps and refusals.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_model::ProducerId;
use sennit_protocol::{
    Confirm, DecodeError, ErrorCode, FrameHeader, PublishNote, Reply, Request, control,
};
use tokio::time::Instant;

use super::Conversation;
use crate::{
    connection_handle::{ReplySender, respond},
    error::Error,
    leaderless::Asker,
    partition_buffer::BatchRefusal,
    pending_request::{PendingCall, PendingRequest, PublisherEntry},
    sequence_ranges::SequenceRange,
};

/// Delay before the client opens a topic or asks a question again that the broker had no room or no
/// leader for, unless the broker names one.
const RETRY_DELAY: Duration = Duration::from_millis(250);

impl Conversation {
    /// Handles a frame.
    ///
    /// # Errors
    /// The connection cannot continue.
    pub(crate) fn frame(
        &mut self,
        header: &FrameHeader,
        body: Bytes,
        now: Instant,
    ) -> Result<(), Error> {
        let reply = match Reply::decode(header, body) {
            Ok(reply) => reply,
            // A newer broker's frame.
            Err(DecodeError::UnknownKind { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let number = header.request;
        match reply {
            Reply::Confirm(confirm) => self.confirmed(&confirm, now),
            Reply::PublishNote(note) => self.noted(&note),
            Reply::Deliver(deliver) if self.readers.knows(deliver.head.subscription) => {
                let pauses = self.readers.delivered(deliver)?;
                pauses.into_iter().for_each(|pause| self.encode_credit(Some(pause)));
            }
            Reply::Deliver(deliver) => {
                let pause = self.subscriptions.delivered(deliver)?;
                self.encode_credit(pause);
            }
            Reply::Gap(gap) if self.readers.knows(gap.subscription) => self.readers.gap(&gap)?,
            Reply::Gap(gap) => self.subscriptions.gap(&gap),
            Reply::Settled(frame) => self.settles.answered(number, &frame),
            Reply::Error(error) => self.refused(number, error, now)?,
            Reply::Ping => self.write_buffer.request(&Request::Pong, number),
            Reply::Pong => {
                self.arrived = self.arrived.max(number);
                self.settles.arrived(number);
            }
            Reply::GoAway(body) => {
                tracing::info!(reason = body.reason, "the broker is leaving");
                // Until then the broker answers open requests. It closes the connection, or the client does.
                let at = now + Duration::from_millis(body.grace_ms);
                self.leave_at = Some(at);
                self.wake_by(at);
            }
            Reply::SubscriptionEnded(ended) => {
                let at = self.subscriptions.ended(&ended, now);
                let at = at.or_else(|| self.readers.ended(&ended, now));
                at.into_iter().for_each(|at| self.wake_by(at));
            }
            Reply::Watching(page) => {
                self.pending_requests.remove(&number);
                self.readers.watches.listed(page);
            }
            Reply::TopicAppeared(body) => self.readers.watches.appeared(body),
            Reply::TopicGone(body) => self.readers.watches.gone(body),
            Reply::WatchingConfiguration(body) => {
                self.pending_requests.remove(&number);
                self.readers.configuration_watches.started(body.subscription);
            }
            Reply::ConfigurationChanges(body) => {
                if let Some(watch) = self.readers.configuration_watches.told(body)? {
                    self.end_watch(watch);
                }
            }
            Reply::HelloOk(_) => {
                return Err(Error::Unexpected("a second answer to the greeting".into()));
            }
            Reply::TopicOpened(_)
            | Reply::Subscribed(_)
            | Reply::Done(_)
            | Reply::TopicDescription(_)
            | Reply::TopicList(_)
            | Reply::GroupDescription(_)
            | Reply::GroupList(_)
            | Reply::CursorList(_)
            | Reply::ConfigurationValue(_)
            | Reply::ConfigurationChanged(_)
            | Reply::ConfigurationList(_)
            | Reply::PublishedAt(_)
            | Reply::DelayedList(_)
            | Reply::ScheduleList(_)
            | Reply::ScheduleChanged(_)
            | Reply::PublishedAtomic(_)
            | Reply::Explanations(_)
            | Reply::Inspected(_)
            | Reply::Reworked(_)
            | Reply::HookChanged(_)
            | Reply::HookDescription(_)
            | Reply::HookList(_)
            | Reply::FairKeyList(_)
            | Reply::AccessChanged(_)
            | Reply::AccessList(_)
            | Reply::RightDecision(_) => self.answered(number, reply, now)?,
        }
        Ok(())
    }

    fn answered(&mut self, number: u64, reply: Reply, now: Instant) -> Result<(), Error> {
        match (self.pending_requests.remove(&number), reply) {
            (Some(PendingRequest::Call(call)), reply) => {
                self.leaderless.answered(asker_of(number, &call.request));
                respond(Some(call.answer), Ok(reply));
            }
            (Some(PendingRequest::OpenPublisher(publisher)), Reply::TopicOpened(opened)) => {
                let Some(entry) = self.publishers.get_mut(&publisher) else { return Ok(()) };
                let core = Arc::clone(&entry.core);
                self.leaderless.answered(Asker::Opening(publisher));
                match core.opened(&opened, self.frame_bytes_max) {
                    Ok(listed) => {
                        self.listed.extend(listed.then_some(core));
                        // The caller may have stopped waiting, and then never drops the publisher.
                        let answer = entry.answer.take();
                        let gone = |answer: ReplySender<()>| answer.send(Ok(())).is_err();
                        entry.dropped |= answer.is_some_and(gone);
                        self.forget_if_drained(publisher);
                    }
                    Err(error) => self.not_opened(publisher, error, now),
                }
            }
            (Some(PendingRequest::Subscribe(_)), Reply::Subscribed(subscribed)) => {
                self.leaderless.answered(Asker::Subscription(subscribed.subscription));
                let frame = self.subscriptions.subscribed(&subscribed)?;
                self.encode_credit(frame);
            }
            (Some(PendingRequest::Read(reader)), Reply::Subscribed(subscribed)) => {
                self.leaderless.answered(Asker::Subscription(reader));
                let frame = self.readers.start(subscribed, now);
                self.encode_credit(frame);
                self.encode_commits(reader);
            }
            (Some(PendingRequest::Unsubscribe(answer)), Reply::Done(_)) => respond(answer, Ok(())),
            // The caller has been told that the connection was lost.
            (None, _) => {}
            (Some(_), reply) => {
                return Err(Error::Unexpected(format!(
                    "{} answers another question",
                    reply.kind()
                )));
            }
        }
        Ok(())
    }

    fn confirmed(&mut self, confirm: &Confirm, now: Instant) {
        if let Some(&number) = self.by_producer.get(&confirm.head.producer) {
            return self.confirmed_to(number, confirm, now);
        }
        let mut last = None;
        for run in confirm.runs.iter() {
            let sequence_range = SequenceRange::of_sequence(run.first_sequence);
            if last.replace(sequence_range) != Some(sequence_range)
                && let Some(number) = self.sequence_ranges.publisher(sequence_range)
            {
                self.confirmed_to(number, confirm, now);
            }
        }
    }

    fn noted(&mut self, note: &PublishNote) {
        let of_range = SequenceRange::of_sequence(note.first_sequence);
        let number = match self.by_producer.get(&note.producer) {
            Some(&number) => Some(number),
            None => self.sequence_ranges.publisher(of_range),
        };
        if let Some(entry) = number.and_then(|number| self.publishers.get(&number))
            && entry.core.topic().0 == note.partition.topic
        {
            entry.core.noted(note);
        }
    }

    fn confirmed_to(&mut self, number: u64, confirm: &Confirm, now: Instant) {
        let Some(entry) = self.publishers.get(&number) else { return };
        if entry.core.topic().0 != confirm.head.partition.topic {
            return;
        }
        let core = Arc::clone(&entry.core);
        let is_dropped = entry.dropped;
        if !self.leaderless.is_empty() {
            let partition = confirm.head.partition.index.0;
            self.leaderless.answered(Asker::Partition(number, partition));
        }
        let is_listed = core.confirmed(confirm, now);
        // A refusal may have come before, and the pause begins now.
        if let Some(until) = core.paused_until_in(confirm.head.partition.index) {
            self.wake_by(until);
        }
        self.listed.extend(is_listed.then_some(core));
        if is_dropped {
            self.forget_if_drained(number);
        }
    }

    pub(super) fn forget_if_drained(&mut self, number: u64) {
        let done = |entry: &PublisherEntry| entry.dropped && entry.core.is_drained();
        if self.publishers.get(&number).is_some_and(done) {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) -> Option<PublisherEntry> {
        let entry = self.publishers.remove(&number)?;
        self.leaderless.forget_publisher(number);
        match entry.core.sequence_range() {
            Some(sequence_range) => self.sequence_ranges.release(sequence_range),
            None => drop(self.by_producer.remove(&entry.core.producer)),
        }
        Some(entry)
    }

    fn refused(&mut self, number: u64, body: control::Error, now: Instant) -> Result<(), Error> {
        let error = Error::from(body.clone());
        if let Some(pending_requests) = self.pending_requests.remove(&number) {
            match pending_requests {
                PendingRequest::Call(call) => self.call_refused(number, call, error.clone(), now),
                PendingRequest::OpenPublisher(publisher) => {
                    self.not_opened(publisher, error.clone(), now)
                }
                PendingRequest::Subscribe(subscription) => {
                    let comes_again =
                        self.comes_again(Asker::Subscription(subscription), &error, now);
                    let at = self.subscriptions.refused(subscription, &error, comes_again, now);
                    at.into_iter().for_each(|at| self.wake_by(at));
                }
                PendingRequest::Read(reader) => {
                    let comes_again = self.comes_again(Asker::Subscription(reader), &error, now);
                    match self.readers.refused(reader, &error, comes_again, now) {
                        Some(at) => self.wake_by(at),
                        None => self.encode_commits(reader),
                    }
                }
                // It had ended already.
                PendingRequest::Unsubscribe(answer) => respond(answer, Ok(())),
            }
        } else if self.settles.refused(number, &error, now) {
            // The waiters have the error, or it is sent again.
            self.settles.again_at().into_iter().for_each(|at| self.wake_by(at));
        } else if number != 0 || body.first_sequence.is_some() {
            self.publish_refused(number, &body, &error, now);
        } else if !body.closes_connection {
            tracing::warn!(%error, "the broker reports an error that is no answer");
        }
        // The client sends unanswered requests again on the next connection.
        let leaving = body.error_code() == Some(ErrorCode::ShuttingDown)
            || self.may_leave && error.asks_for_leader() && self.leaderless.takes_leave(now);
        if leaving || body.closes_connection { Err(error) } else { Ok(()) }
    }

    /// Whether a request that may be repeated is asked again: the broker leaves, or there is no leader, and there may
    /// be one soon.
    fn comes_again(&mut self, asker: Asker, error: &Error, now: Instant) -> bool {
        let may_wait = error.asks_for_leader() && self.leaderless.refused(asker, now);
        if !may_wait {
            self.leaderless.answered(asker);
        }
        may_wait || error.code() == Some(ErrorCode::ShuttingDown)
    }

    /// Handles the refusal of a program's request. One that changed nothing is repeated, for a while. Steps repeat
    /// themselves: they need their topics open on the connection.
    fn call_refused(&mut self, number: u64, call: PendingCall, error: Error, now: Instant) {
        let asker = asker_of(number, &call.request);
        let may_be_done = matches!(error, Error::OutcomeUnknown) && !call.resend;
        let comes_again = self.comes_again(asker, &error, now);
        if may_be_done || asker == Asker::Step || !comes_again {
            return respond(Some(call.answer), Err(error));
        }
        let at = now + RETRY_DELAY.max(error.retry_after().unwrap_or_default());
        let call = PendingCall { again_at: Some(at), ..call };
        self.pending_requests.insert(number, PendingRequest::Call(call));
        self.wake_by(at);
    }

    fn publish_refused(
        &mut self,
        request: u64,
        body: &control::Error,
        error: &Error,
        now: Instant,
    ) {
        let refusal = BatchRefusal {
            request,
            first_sequence: body.first_sequence,
            code: body.error_code(),
            expected_sequence: body.expected_sequence,
            error: error.clone(),
        };
        let producer = body.producer_id.map(ProducerId);
        let found = self.publishers.iter().find_map(|(&number, entry)| {
            if producer.is_some_and(|producer| producer != entry.core.producer) {
                return None;
            }
            let listed = entry.core.refused(&refusal, now)?;
            Some((number, listed, Arc::clone(&entry.core)))
        });
        let Some((number, listed, core)) = found else {
            tracing::warn!(%error, "the broker reports an error that is no answer");
            return;
        };
        if error.asks_for_leader() {
            let asker = Asker::Partition(number, body.partition.unwrap_or_default());
            self.leaderless.refused(asker, now);
        }
        if let Some(until) = core.paused_until() {
            self.wake_by(until);
        }
        self.listed.extend(listed.then_some(core));
        self.forget_if_drained(number);
    }

    fn not_opened(&mut self, publisher: u64, error: Error, now: Instant) {
        let comes_again = self.comes_again(Asker::Opening(publisher), &error, now);
        let Some(entry) = self.publishers.get_mut(&publisher) else { return };
        if comes_again || entry.answer.is_none() && error.is_retryable() {
            let at = now + RETRY_DELAY.max(error.retry_after().unwrap_or_default());
            entry.open_at = Some(at);
            return self.wake_by(at);
        }
        let entry = self.forget(publisher).expect("it was there above");
        entry.core.fail(&error, &error);
        respond(entry.answer, Err(error));
    }
}

/// The asker of a request.
fn asker_of(number: u64, request: &Request) -> Asker {
    match request {
        Request::PublishAtomic(_) => Asker::Step,
        _ => Asker::Call(number),
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use sennit_model::{BatchBuilder, Message, Offset};
    use sennit_protocol::{ConfirmHead, ConfirmRun, FrameReader, Publish};
    use tokio::sync::oneshot;

    use super::*;
    use crate::{
        connection_handle::Command,
        publisher_core::{PublisherCore, PublisherSettings, SharedPublisher},
    };

    const FRAME_BYTES_MAX: usize = 16_384;

    fn connected() -> Conversation {
        let mut conversation = Conversation::new(Arc::default());
        conversation.connected(FRAME_BYTES_MAX, <_>::default(), <_>::default(), Instant::now());
        conversation
    }

    /// The requests that were encoded since the last call.
    fn encoded_requests(conversation: &mut Conversation) -> Vec<(u64, Request)> {
        let mut bytes = BytesMut::new();
        conversation.write_buffer.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        conversation.write_buffer.clear();
        let mut frames = FrameReader::before_greeting();
        let next = || frames.next_frame(&mut bytes).unwrap();
        std::iter::from_fn(next)
            .map(|(header, body)| (header.request, Request::decode(&header, body).unwrap()))
            .collect()
    }

    fn answer(conversation: &mut Conversation, number: u64, reply: &Reply) {
        let (mut bytes, mut frames) = (BytesMut::new(), FrameReader::before_greeting());
        reply.encode(number, &mut bytes);
        let (header, body) = frames.next_frame(&mut bytes).unwrap().unwrap();
        conversation.frame(&header, body, Instant::now()).unwrap();
    }

    /// A publisher without a producer id, of a topic of one partition.
    fn anonymous(conversation: &mut Conversation, number: u64) -> SharedPublisher {
        let settings = PublisherSettings {
            topic: "orders".parse().unwrap(),
            create_if_missing: false,
            idempotent: false,
            window_messages: 10,
            window_bytes: 1000,
            give_up_after: None,
            partition: None,
        };
        let publisher = Arc::new(PublisherCore::new(number, ProducerId(0), settings, None));
        let (sender, mut is_open) = oneshot::channel();
        let command = Command::OpenPublisher { publisher: Arc::clone(&publisher), answer: sender };
        conversation.command(command, Instant::now());
        let opened = encoded_requests(conversation).remove(0).0;
        let body =
            control::TopicOpened { topic_id: 1, incarnation: 9, partitions: 1, limits: None };
        answer(conversation, opened, &Reply::TopicOpened(body));
        assert!(matches!(is_open.try_recv(), Ok(Ok(()))));
        publisher
    }

    fn published(conversation: &mut Conversation, publisher: &SharedPublisher) -> Publish {
        let message = Message::new("x");
        let taken = publisher.take(&message, BatchBuilder::encoded_len(&message));
        assert!(taken.is_ok_and(|taken| taken.notify));
        conversation.outbox.publisher_has_batches(Arc::clone(publisher));
        conversation.fill(Instant::now());
        match encoded_requests(conversation).remove(0).1 {
            Request::Publish(publish) => publish,
            other => panic!("{other:?}"),
        }
    }

    fn confirm(conversation: &mut Conversation, publish: &Publish) {
        let (stamp, count) = (publish.head.producer, publish.head.count);
        let head = ConfirmHead {
            partition: publish.head.partition,
            producer: stamp.id,
            up_to_sequence: stamp.first_sequence + u64::from(count),
            ..<_>::default()
        };
        let first_sequence = stamp.first_sequence;
        let first_offset = Some(Offset(0));
        let run = ConfirmRun { first_sequence, first_offset, count, duplicate: false };
        answer(
            conversation,
            0,
            &Reply::Confirm(Confirm { head, runs: [run].into_iter().collect() }),
        );
    }

    #[test]
    fn a_node_that_has_no_leader_for_too_long_is_left_where_there_is_another() {
        for may_leave in [false, true] {
            let (mut conversation, begin) = (connected(), Instant::now());
            conversation.set_may_leave(may_leave);
            let (sender, mut answered) = oneshot::channel();
            let request = Request::ListTopics(control::ListTopics::default());
            let command = Command::Ask { request, resend: true, answer: sender };
            conversation.command(command, begin);
            let mut refusals = Vec::new();
            let mut now = begin;
            while let [(number, _)] = encoded_requests(&mut conversation)[..] {
                let error = Reply::Error(control::Error::new(ErrorCode::NoLeader, "none"));
                let (mut bytes, mut frames) = (BytesMut::new(), FrameReader::before_greeting());
                error.encode(number, &mut bytes);
                let (header, body) = frames.next_frame(&mut bytes).unwrap().unwrap();
                refusals.push(conversation.frame(&header, body, now).is_err());
                now += Duration::from_secs(1);
                conversation.wake(now).unwrap();
            }
            // The program is told in the end, and the node was left before.
            assert!(matches!(answered.try_recv(), Ok(Err(Error::Refused { .. }))));
            assert_eq!(refusals.iter().any(|&leaves| leaves), may_leave, "{refusals:?}");
            assert!(!refusals[0] && refusals.len() > 10);
        }
    }

    #[test]
    fn a_client_that_has_opened_millions_tells_its_publishers_without_an_id_apart() {
        let mut conversation = connected();
        // Readers and consumers are numbered among them.
        let publishers = [1, (1 << 24) - 1, 1 << 24, (1 << 24) + 1, (2 << 24) + 1]
            .map(|number| anonymous(&mut conversation, number));
        let publishes = publishers.each_ref().map(|one| published(&mut conversation, one));
        for at in [4, 2, 0, 3, 1] {
            let drained = publishers.each_ref().map(|one| one.is_drained());
            confirm(&mut conversation, &publishes[at]);
            let expected = std::array::from_fn(|n| n == at || drained[n]);
            assert_eq!(publishers.each_ref().map(|one| one.is_drained()), expected);
        }
    }
}
