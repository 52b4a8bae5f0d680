//! The topics of this broker whose messages go to others: how far they are sent, and what of them is sent again to one who
//! asks. It makes messages of what readers bring; it reads and sends nothing itself.

use std::collections::HashMap;

use bytes::Bytes;
use foldhash::fast::RandomState;
use sennit_engine::Delivery;
use sennit_model::{MessageView, Messages, TopicId, TopicName};

use super::message::{NodeId, RelayKind, RelayMessage};
use crate::broker::stream_request::Located;

/// The header of a message that was published at another broker.
pub(super) const ORIGIN: &str = "sennit-origin";

/// A reader of a topic of this broker.
#[derive(Debug)]
pub(super) struct Sending {
    pub(super) name: TopicName,
    pub(super) located: Located,
    /// The broker that has asked; all, if nobody has.
    pub(super) asker: Option<NodeId>,
    /// The offset behind the last message that was looked at.
    next: u64,
    /// The offset behind the last that the others know of.
    sent: u64,
    /// Where it ends, for one who has asked.
    until: u64,
}

/// All readers, by their numbers.
#[derive(Debug, Default)]
pub(super) struct OwnTopics {
    sendings: HashMap<u32, Sending, RandomState>,
    by_topic: HashMap<TopicId, u32, RandomState>,
}

impl OwnTopics {
    /// A reader follows a topic, for all others.
    pub(super) fn follow(&mut self, reader: u32, name: TopicName, located: Located, from: u64) {
        let sending =
            Sending { name, located, asker: None, next: from, sent: from, until: u64::MAX };
        self.sendings.insert(reader, sending);
        self.by_topic.insert(located.topic, reader);
    }

    pub(super) fn follows(&self, topic: TopicId) -> bool {
        self.by_topic.contains_key(&topic)
    }

    /// How far the others know of a topic.
    pub(super) fn sent_of(&self, topic: TopicId) -> Option<u64> {
        self.by_topic.get(&topic).and_then(|reader| self.sendings.get(reader)).map(|own| own.sent)
    }

    /// A reader reads again, for one who has asked.
    pub(super) fn repeat(
        &mut self,
        reader: u32,
        (name, located): (TopicName, Located),
        asker: NodeId,
        (from, until): (u64, u64),
    ) {
        let sending = Sending { name, located, asker: Some(asker), next: from, sent: from, until };
        self.sendings.insert(reader, sending);
    }

    /// How many readers send again.
    pub(super) fn repeats(&self) -> usize {
        self.sendings.len() - self.by_topic.len()
    }

    pub(super) fn get(&self, reader: u32) -> Option<&Sending> {
        self.sendings.get(&reader)
    }

    /// A topic is gone, or is not read any more; says by which readers it was.
    pub(super) fn forget_topic(&mut self, topic: TopicId) -> Vec<(u32, Located)> {
        self.by_topic.remove(&topic);
        let of_topic = self.sendings.extract_if(|_, sending| sending.located.topic == topic);
        of_topic.map(|(reader, sending)| (reader, sending.located)).collect()
    }

    pub(super) fn forget(&mut self, reader: u32) -> Option<Sending> {
        let sending = self.sendings.remove(&reader)?;
        if self.by_topic.get(&sending.located.topic) == Some(&reader) {
            self.by_topic.remove(&sending.located.topic);
        }
        Some(sending)
    }

    /// How far each topic is sent, for others that have missed the last of it.
    pub(super) fn hellos(&self, node: NodeId) -> Vec<RelayMessage> {
        let own = self.sendings.values().filter(|sending| sending.asker.is_none());
        own.map(|sending| sending.message(RelayKind::News, node, sending.sent, Vec::new()))
            .collect()
    }
}

impl OwnTopics {
    /// The message for what a reader has brought, if there is something for others.
    pub(super) fn take(&mut self, delivery: &Delivery, node: NodeId) -> Option<RelayMessage> {
        let sending = self.sendings.get_mut(&delivery.subscription)?;
        let end = (delivery.first.0 + u64::from(delivery.count)).min(sending.until);
        let views = Messages::of_checked(&delivery.messages).enumerate();
        let all = views.map(|(index, view)| (delivery.first.0 + index as u64, view));
        let new = all.filter(|(offset, view)| {
            (sending.next..end).contains(offset) && !is_from_elsewhere(*view)
        });
        let copy = |(offset, view): (u64, MessageView<'_>)| {
            (offset, delivery.messages.slice_ref(view.encoded()))
        };
        let messages: Vec<(u64, Bytes)> = new.map(copy).collect();
        sending.next = sending.next.max(end);
        let is_last = sending.asker.is_some() && sending.next >= sending.until;
        if messages.is_empty() && !is_last {
            return None;
        }
        let kind = if sending.asker.is_some() { RelayKind::Again } else { RelayKind::News };
        let message = sending.message(kind, node, sending.next, messages);
        sending.sent = sending.next;
        Some(message)
    }

    /// Messages before `end` are not there: the message that tells so, if anything is lost with them.
    pub(super) fn pass_over(
        &mut self,
        reader: u32,
        end: u64,
        is_lost: bool,
        node: NodeId,
    ) -> Option<RelayMessage> {
        let sending = self.sendings.get_mut(&reader)?;
        sending.next = sending.next.max(end.min(sending.until));
        let is_last = sending.asker.is_some() && sending.next >= sending.until;
        if !is_lost && !is_last {
            return None;
        }
        let kind = match (is_lost, sending.asker) {
            (true, _) => RelayKind::Gone,
            (false, Some(_)) => RelayKind::Again,
            (false, None) => RelayKind::News,
        };
        let message = sending.message(kind, node, sending.next, Vec::new());
        sending.sent = sending.next;
        Some(message)
    }
}

impl Sending {
    /// Whether all that was asked for is read.
    pub(super) fn is_done(&self) -> bool {
        self.next >= self.until
    }

    fn message(
        &self,
        kind: RelayKind,
        node: NodeId,
        end: u64,
        messages: Vec<(u64, Bytes)>,
    ) -> RelayMessage {
        let (topic, tag) = (self.name.clone(), self.located.tag.number());
        RelayMessage { kind, node, topic, tag, from: self.sent, end, messages }
    }
}

/// Whether a message was published at another broker: it does not go back.
fn is_from_elsewhere(message: MessageView<'_>) -> bool {
    !message.encoded_headers().is_empty()
        && message.headers().map_while(Result::ok).any(|(name, ..)| name == ORIGIN)
}
