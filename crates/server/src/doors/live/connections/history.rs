//! Earlier publications of a channel, for a client that asks for some: a reader of its own brings them, and they are
//! answered together.

use sennit_centrifuge::{
    Answer, ErrorCode, HistoryRequest, HistoryResult, Publication, ReplyError,
};
use sennit_engine::{Credit, Delivery, ReaderChange};
use sennit_identity::Verb;
use sennit_model::TopicName;

use super::{LiveConnections, subscriptions::epoch};
use crate::{
    broker::{control::LiveStart, stream_request::Located},
    doors::live::{
        channel::topic_of,
        connection_id::ConnectionId,
        core_requests::HistoryQuestion,
        limits::{CATCH_UP_BYTES, CATCH_UP_MESSAGES, HISTORY_BYTES_MAX, HISTORY_MAX},
        published::{Published, messages},
    },
};

/// A history that comes.
#[derive(Debug)]
pub(super) struct History {
    connection: ConnectionId,
    /// The number of the command.
    command: u32,
    located: Located,
    /// The offset of the next message, and that behind the last.
    next: u64,
    until: u64,
    reverse: bool,
    /// The offset behind the newest message of the topic.
    end: u64,
    publications: Vec<Publication>,
    bytes: usize,
}

impl History {
    fn is_whole(&self) -> bool {
        self.next >= self.until || self.bytes >= HISTORY_BYTES_MAX
    }
}

/// The offsets of the publications that are asked for, of those that are kept: from the first to before the second.
fn range(question: &HistoryQuestion, kept: &LiveStart) -> (u64, u64) {
    let (start, end) = (kept.kept_from.0, kept.end.0);
    let count = question.limit.unwrap_or(HISTORY_MAX).min(HISTORY_MAX) as u64;
    let since = question.since.as_ref().map(|(_, offset)| *offset);
    if question.reverse {
        // Publications count from 1: the one before `since` has the offset `since - 2`.
        let until = since.map_or(end, |since| since.saturating_sub(1)).min(end);
        (until.saturating_sub(count).max(start), until)
    } else {
        let from = since.unwrap_or(start).max(start);
        (from, from.saturating_add(count).min(end))
    }
}

impl LiveConnections {
    pub(super) fn history(&mut self, id: ConnectionId, number: u32, request: HistoryRequest) {
        let Some(connection) = self.get(id) else { return };
        let topic = match topic_of(&request.channel) {
            Ok(topic) => topic,
            Err(error) => {
                return connection.refuse(number, ErrorCode::BadRequest, error.to_string());
            }
        };
        let principal = connection.follower(&request.channel).clone();
        if let Err(missing) = principal.may(Verb::Subscribe, topic.as_str()) {
            return connection.refuse(number, ErrorCode::PermissionDenied, missing.to_string());
        }
        connection.is_busy = true;
        let question = HistoryQuestion {
            command: number,
            topic,
            limit: usize::try_from(request.limit).ok(),
            since: request.since.map(|since| (since.epoch, since.offset)),
            reverse: request.reverse,
        };
        self.requests.history(id, &principal, question);
    }

    /// It is known what the topic keeps.
    pub(super) fn begin_history(
        &mut self,
        id: ConnectionId,
        question: HistoryQuestion,
        kept: LiveStart,
    ) {
        let located = self.located_here(&question.topic, kept.located);
        let Some(connection) = self.get(id) else { return };
        let is_another = |of: &str| !of.is_empty() && of != epoch(located);
        let is_of_another = question.since.as_ref().is_some_and(|(of, _)| is_another(of));
        let refusal = if located.partitions > 1 {
            let detail = format!("topic {:?} has several partitions", question.topic.as_str());
            Some(ReplyError::new(ErrorCode::BadRequest, detail))
        } else if is_of_another {
            Some(ErrorCode::UnrecoverablePosition.into())
        } else {
            None
        };
        if let Some(refusal) = refusal {
            connection.is_busy = false;
            return connection.reply(question.command, Err(refusal));
        }
        let (next, until) = range(&question, &kept);
        let history = History {
            connection: id,
            command: question.command,
            located,
            next,
            until,
            reverse: question.reverse,
            end: kept.end.0,
            publications: Vec::new(),
            bytes: 0,
        };
        if history.is_whole() {
            return self.answer_history(history);
        }
        let credit = Credit { messages: CATCH_UP_MESSAGES, bytes: CATCH_UP_BYTES };
        let reader = self.read(located, next, credit);
        self.histories.insert(reader, history);
    }

    /// Where a topic is, with the epoch that those have who are subscribed to it here.
    fn located_here(&self, topic: &TopicName, located: Located) -> Located {
        let number = self.broadcasts_by_name.get(topic);
        let held = number.and_then(|number| self.broadcasts.get(number)?.located());
        held.filter(|held| held.topic == located.topic).unwrap_or(located)
    }

    pub(super) fn add_to_history(&mut self, reader: u32, delivery: &Delivery) {
        let Some(history) = self.histories.get_mut(&reader) else { return };
        for message in messages(delivery) {
            let offset = message.offset;
            if (history.next..history.until).contains(&offset) && !history.is_whole() {
                history.bytes += message.data.as_bytes().len();
                history.publications.push(publication(message));
                history.next = offset + 1;
            }
        }
        let end = delivery.first.0 + u64::from(delivery.count);
        if end >= history.until {
            history.next = history.until;
        }
        if history.is_whole() {
            return self.end_history(reader);
        }
        let (located, bytes) = (history.located, delivery.messages.len() as u64);
        let change = ReaderChange::Taken { messages: delivery.count, bytes };
        self.reader(reader, located, change);
    }

    /// Messages before `end` are not there.
    pub(super) fn pass_over_in_history(&mut self, reader: u32, end: u64) {
        let Some(history) = self.histories.get_mut(&reader) else { return };
        history.next = history.next.max(end);
        if history.is_whole() {
            self.end_history(reader);
        }
    }

    /// Nothing more comes for a history: what has come is answered.
    pub(super) fn end_history(&mut self, reader: u32) {
        let Some(history) = self.histories.remove(&reader) else { return };
        self.reader(reader, history.located, ReaderChange::End);
        self.answer_history(history);
    }

    fn answer_history(&mut self, history: History) {
        let Some(connection) = self.get(history.connection) else { return };
        connection.is_busy = false;
        let mut publications = history.publications;
        if history.reverse {
            publications.reverse();
        }
        let epoch = epoch(history.located);
        let result = HistoryResult { publications, epoch, offset: history.end };
        connection.reply(history.command, Ok(Answer::History(result)));
        self.to_flush.add(history.connection);
        self.to_read.push(history.connection.slot);
    }
}

fn publication(message: Published) -> Publication {
    let Published { offset, data, publisher, tags } = message;
    let (info, tags) = (publisher.map(|publisher| *publisher), tags.into_iter().collect());
    Publication { data, info, offset: offset + 1, tags, ..Publication::default() }
}
