//! Messages on their way out. Those of one receiver stay in order: if one has a body that has to be read from the lane,
//! the ones behind it wait.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sennit_journal::ReceivedBody;
use sennit_replication::{Content, Label, Message, MessageKind};
use sennit_shard::{EntryBody, Fetch};

/// A message, with the body of the entry that it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingMessage {
    /// The message.
    pub message: Message,
    /// The body, if the message carries an entry with records.
    pub body: Option<Bytes>,
}

/// A message that waits for its body or for those before it.
#[derive(Debug)]
struct Waiting {
    message: Message,
    body: Option<EntryBody>,
}

/// The outcome of the read of a body.
#[derive(Debug, Default)]
pub(crate) struct BodyRead {
    /// The receivers whose messages are lost with it.
    pub(crate) lost: Vec<u64>,
    /// The index of the entry, if the lane has another body than its label says.
    pub(crate) damaged: Option<u64>,
}

/// The messages of all receivers.
#[derive(Debug, Default)]
pub(crate) struct MessageQueue {
    ready: Vec<OutgoingMessage>,
    waiting: BTreeMap<u64, VecDeque<Waiting>>,
    /// Reads that were not passed on.
    wanted: Vec<Fetch>,
    under_way: Vec<Fetch>,
}

impl MessageQueue {
    /// Adds a message, and the body that belongs to it.
    pub(crate) fn push(&mut self, message: Message, body: Option<EntryBody>) {
        if let Some(EntryBody::InLane(fetch)) = &body
            && !self.under_way.contains(fetch)
        {
            self.under_way.push(*fetch);
            self.wanted.push(*fetch);
        }
        let receiver = message.to;
        self.waiting.entry(receiver).or_default().push_back(Waiting { message, body });
        self.release(receiver);
    }

    /// Takes the messages that leave now.
    pub(crate) fn take_ready(&mut self, out: &mut Vec<OutgoingMessage>) {
        out.append(&mut self.ready);
    }

    /// Takes the reads of bodies.
    pub(crate) fn take_wanted(&mut self, out: &mut Vec<Fetch>) {
        out.append(&mut self.wanted);
    }

    /// Handles a read, if it is of a body: `None` if it failed.
    pub(crate) fn handle_body(&mut self, fetch: Fetch, bytes: Option<&Bytes>) -> Option<BodyRead> {
        let at = self.under_way.iter().position(|under_way| *under_way == fetch)?;
        self.under_way.swap_remove(at);
        let awaited = Some(EntryBody::InLane(fetch));
        let awaiting = self.waiting.values().flatten().find(|waiting| waiting.body == awaited);
        let label = awaiting.and_then(|waiting| match &waiting.message.kind {
            MessageKind::Append { label, .. } => label.as_ref(),
            _ => None,
        });
        let is_whole = |bytes: &&Bytes| label.is_none_or(|label| is_body_of(label, bytes));
        let (damaged, lost) = (label.map(|label| label.id.index), Vec::new());
        let whole = bytes.filter(is_whole);
        let mut read =
            BodyRead { lost, damaged: damaged.filter(|_| bytes.is_some() && whole.is_none()) };
        let receivers: Vec<u64> = self.waiting.keys().copied().collect();
        for receiver in receivers {
            let Some(queue) = self.waiting.get_mut(&receiver) else { continue };
            let Some(first) = queue.iter().position(|waiting| waiting.body == awaited) else {
                continue;
            };
            match whole {
                Some(bytes) => {
                    let of_fetch = queue.iter_mut().filter(|waiting| waiting.body == awaited);
                    of_fetch.for_each(|waiting| {
                        waiting.body = Some(EntryBody::Here(bytes.clone()));
                    });
                }
                None => {
                    queue.truncate(first);
                    read.lost.push(receiver);
                }
            }
            self.release(receiver);
        }
        Some(read)
    }

    /// Drops the messages to a receiver: its link was lost.
    pub(crate) fn forget(&mut self, receiver: u64) {
        self.waiting.remove(&receiver);
        self.ready.retain(|outgoing| outgoing.message.to != receiver);
    }

    fn release(&mut self, receiver: u64) {
        let Some(queue) = self.waiting.get_mut(&receiver) else { return };
        let is_there = |waiting: &mut Waiting| !matches!(waiting.body, Some(EntryBody::InLane(_)));
        while let Some(Waiting { message, body }) = queue.pop_front_if(is_there) {
            let body = match body {
                Some(EntryBody::Here(bytes)) => Some(bytes),
                _ => None,
            };
            self.ready.push(OutgoingMessage { message, body });
        }
        if queue.is_empty() {
            self.waiting.remove(&receiver);
        }
    }
}

/// Whether these bytes are the body of the labelled entry.
fn is_body_of(label: &Label, bytes: &Bytes) -> bool {
    let Content::Records(body) = label.content else { return false };
    bytes.len() == body.length as usize && ReceivedBody::check(bytes.clone(), body.checksum).is_ok()
}
