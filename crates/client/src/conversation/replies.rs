//! What the broker says, and what comes of it: answers to what was asked, deliveries, refusals.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sennit_model::ProducerId;
use sennit_protocol::{Confirm, DecodeError, ErrorCode, FrameHeader, Reply, Request, control};
use tokio::time::Instant;

use super::Conversation;
use crate::{
    asked::{Asked, Publishing},
    error::Error,
    link::{Answer, tell},
    partition_buffer::BatchRefusal,
    publisher_core::publisher_of_sequence,
};

/// How long to wait before a topic is opened again that the broker had no room for, unless it says.
const AGAIN_DELAY: Duration = Duration::from_millis(250);

impl Conversation {
    /// Takes a frame.
    ///
    /// # Errors
    /// The connection cannot go on.
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
            Reply::Deliver(deliver) if self.readings.knows(deliver.head.subscription) => {
                let pause = self.readings.delivered(deliver)?;
                self.say_credit(pause);
            }
            Reply::Deliver(deliver) => {
                let pause = self.subscriptions.delivered(deliver)?;
                self.say_credit(pause);
            }
            Reply::Gap(gap) if self.readings.knows(gap.subscription) => self.readings.gap(&gap)?,
            Reply::Gap(gap) => self.subscriptions.gap(&gap),
            Reply::Settled(frame) => self.settles.answered(number, &frame),
            Reply::Error(error) => self.refused(number, error, now)?,
            Reply::Ping => self.outgoing.request(&Request::Pong, number),
            Reply::Pong => {
                self.arrived = self.arrived.max(number);
                self.settles.arrived(number);
            }
            Reply::GoAway(body) => {
                tracing::info!(reason = body.reason, "the broker is leaving");
                // Until then it answers what it has; it closes the connection itself, or is left.
                let at = now + Duration::from_millis(body.grace_ms);
                self.leave_at = Some(at);
                self.wake_by(at);
            }
            Reply::SubscriptionEnded(ended) => {
                self.subscriptions.ended(&ended);
                let at = self.readings.ended(&ended, now);
                at.into_iter().for_each(|at| self.wake_by(at));
            }
            Reply::Watching(page) => {
                self.asked.remove(&number);
                self.readings.watches.listed(page);
            }
            Reply::TopicAppeared(body) => self.readings.watches.appeared(body),
            Reply::TopicGone(body) => self.readings.watches.gone(body),
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
            | Reply::PublishedAt(_) => self.answered(number, reply, now)?,
        }
        Ok(())
    }

    fn answered(&mut self, number: u64, reply: Reply, now: Instant) -> Result<(), Error> {
        match (self.asked.remove(&number), reply) {
            (Some(Asked::Question { answer, .. }), reply) => tell(Some(answer), Ok(reply)),
            (Some(Asked::Open(publisher)), Reply::TopicOpened(opened)) => {
                let Some(publishing) = self.publishers.get_mut(&publisher) else { return Ok(()) };
                let core = Arc::clone(&publishing.core);
                match core.opened(&opened, self.frame_bytes_max) {
                    Ok(listed) => {
                        self.listed.extend(listed.then_some(core));
                        // Whoever opened it may have stopped waiting, and will never drop it.
                        let answer = publishing.answer.take();
                        let gone = |answer: Answer<()>| answer.send(Ok(())).is_err();
                        publishing.dropped |= answer.is_some_and(gone);
                        self.forget_if_drained(publisher);
                    }
                    Err(error) => self.not_opened(publisher, error, now),
                }
            }
            (Some(Asked::Subscribe(_)), Reply::Subscribed(subscribed)) => {
                let frame = self.subscriptions.subscribed(&subscribed)?;
                self.say_credit(frame);
            }
            (Some(Asked::Read(reader)), Reply::Subscribed(subscribed)) => {
                let frame = self.readings.begun(subscribed, now);
                self.say_credit(frame);
                self.say_commits(reader);
            }
            (Some(Asked::Unsubscribe(answer)), Reply::Done(_)) => tell(answer, Ok(())),
            // Whoever asked has been told that the connection was lost.
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
            let number = publisher_of_sequence(run.first_sequence);
            if last.replace(number) != Some(number) {
                self.confirmed_to(number, confirm, now);
            }
        }
    }

    fn confirmed_to(&mut self, number: u64, confirm: &Confirm, now: Instant) {
        let Some(publishing) = self.publishers.get(&number) else { return };
        if publishing.core.topic().0 != confirm.head.partition.topic {
            return;
        }
        let core = Arc::clone(&publishing.core);
        let is_dropped = publishing.dropped;
        let is_listed = core.confirmed(confirm, now);
        // A refusal may have come before it: what was refused rests from now on.
        if let Some(until) = core.rests_in(confirm.head.partition.index) {
            self.wake_by(until);
        }
        self.listed.extend(is_listed.then_some(core));
        if is_dropped {
            self.forget_if_drained(number);
        }
    }

    pub(super) fn forget_if_drained(&mut self, number: u64) {
        let done = |publishing: &Publishing| publishing.dropped && publishing.core.is_drained();
        if self.publishers.get(&number).is_some_and(done)
            && let Some(publishing) = self.publishers.remove(&number)
        {
            self.by_producer.remove(&publishing.core.producer);
        }
    }

    fn refused(&mut self, number: u64, body: control::Error, now: Instant) -> Result<(), Error> {
        let error = Error::from(body.clone());
        if let Some(asked) = self.asked.remove(&number) {
            match asked {
                Asked::Question { answer, .. } => tell(Some(answer), Err(error.clone())),
                Asked::Open(publisher) => self.not_opened(publisher, error.clone(), now),
                Asked::Subscribe(subscription) => {
                    let at = self.subscriptions.refused(subscription, &error, now);
                    at.into_iter().for_each(|at| self.wake_by(at));
                }
                Asked::Read(reader) => match self.readings.refused(reader, &error, now) {
                    Some(at) => self.wake_by(at),
                    None => self.say_commits(reader),
                },
                // It had ended already.
                Asked::Unsubscribe(answer) => tell(answer, Ok(())),
            }
        } else if self.settles.refused(number, &error) {
            // Whoever waited was told.
        } else if number != 0 || body.first_sequence.is_some() {
            self.publish_refused(number, &body, &error, now);
        } else if !body.closes_connection {
            tracing::warn!(%error, "the broker reports an error that is no answer");
        }
        // Whatever is not answered is asked again of the broker that comes after this one.
        let leaving = body.error_code() == Some(ErrorCode::ShuttingDown);
        if leaving || body.closes_connection { Err(error) } else { Ok(()) }
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
        let found = self.publishers.iter().find_map(|(&number, publishing)| {
            if producer.is_some_and(|producer| producer != publishing.core.producer) {
                return None;
            }
            let listed = publishing.core.refused(&refusal, now)?;
            Some((number, listed, Arc::clone(&publishing.core)))
        });
        let Some((number, listed, core)) = found else {
            tracing::warn!(%error, "the broker reports an error that is no answer");
            return;
        };
        if let Some(until) = core.rests_until() {
            self.wake_by(until);
        }
        self.listed.extend(listed.then_some(core));
        self.forget_if_drained(number);
    }

    fn not_opened(&mut self, publisher: u64, error: Error, now: Instant) {
        let Some(publishing) = self.publishers.get_mut(&publisher) else { return };
        if publishing.answer.is_none() && error.is_retryable() {
            let at = now + AGAIN_DELAY.max(error.retry_after().unwrap_or_default());
            publishing.open_at = Some(at);
            return self.wake_by(at);
        }
        let publishing = self.publishers.remove(&publisher).expect("it was there above");
        self.by_producer.remove(&publishing.core.producer);
        publishing.core.fail(&error, &error);
        tell(publishing.answer, Err(error));
    }
}
