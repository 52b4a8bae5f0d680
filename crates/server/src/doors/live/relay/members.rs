//! Clients that are subscribed to a topic, in messages between brokers: each is a message that says who it is as its
//! publications do, with what it says of its subscription as the payload. It does no input and output.

use bytes::Bytes;
use sennit_centrifuge::{ClientInfo, Data};
use sennit_model::{BatchBuilder, Message, Messages, TopicName};

use super::message::{NodeId, RelayKind, RelayMessage};
use crate::doors::live::published::{headers, publisher};

/// Bytes of clients in one message.
const CHUNK_BYTES: usize = 64 << 10;

/// What a broker says of clients, in messages of some length. The first of a list that replaces another is the one that does.
pub(super) fn messages_of(
    kind: RelayKind,
    node: NodeId,
    topic: &TopicName,
    members: &[ClientInfo],
) -> Vec<RelayMessage> {
    let chunk = |kind, messages: Vec<(u64, Bytes)>| {
        let (topic, end) = (topic.clone(), messages.len() as u64);
        RelayMessage { kind, node, topic, tag: 0, from: 0, end, messages }
    };
    let (mut chunks, mut messages, mut bytes) = (Vec::new(), Vec::new(), 0);
    let mut next = kind;
    for encoded in members.iter().filter_map(encoded) {
        bytes += encoded.len();
        messages.push((messages.len() as u64, encoded));
        if bytes >= CHUNK_BYTES {
            chunks.push(chunk(next, std::mem::take(&mut messages)));
            bytes = 0;
            next = if kind == RelayKind::Here { RelayKind::Joined } else { kind };
        }
    }
    if !messages.is_empty() || chunks.is_empty() {
        chunks.push(chunk(next, messages));
    }
    chunks
}

/// One that is too long for a message is left out.
fn encoded(member: &ClientInfo) -> Option<Bytes> {
    let payload = member.channel_data.clone().into_payload();
    let message = Message { headers: headers(member), ..Message::new(payload) };
    let mut builder = BatchBuilder::for_broker();
    builder.push(&message).ok()?;
    Some(Bytes::copy_from_slice(builder.take()?.bytes()))
}

/// The clients of a message.
pub(super) fn members_of(message: &RelayMessage) -> Vec<ClientInfo> {
    let mut members = Vec::with_capacity(message.messages.len());
    for (_, encoded) in &message.messages {
        for view in Messages::of_checked(encoded) {
            if let Some(info) = publisher(view, encoded) {
                let payload = encoded.slice_ref(view.payload());
                let channel_data =
                    if payload.is_empty() { Data::default() } else { Data::of_payload(payload) };
                members.push(ClientInfo { channel_data, ..*info });
            }
        }
    }
    members
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_told_as_they_are_in_messages_of_some_length() {
        let node = NodeId([3; 16]);
        let topic = "room".parse().unwrap();
        let data = |text: String| Data::of_payload(text.into_bytes().into());
        let all: Vec<ClientInfo> = (0..500)
            .map(|number| ClientInfo {
                user: if number % 2 == 0 { String::new() } else { format!("user {number}") },
                client: format!("{number}"),
                connection_data: if number % 3 == 0 { Data::default() } else { data("{}".into()) },
                channel_data: if number % 5 == 0 { Data::default() } else { data("x".repeat(900)) },
            })
            .collect();
        let messages = messages_of(RelayKind::Here, node, &topic, &all);
        assert!(messages.len() > 2);
        let kinds: Vec<RelayKind> = messages.iter().map(|message| message.kind).collect();
        assert_eq!(kinds[0], RelayKind::Here);
        assert!(kinds[1..].iter().all(|kind| *kind == RelayKind::Joined));
        let read = messages.iter().map(|it| RelayMessage::decode(it.encode()).unwrap());
        let read: Vec<ClientInfo> = read.flat_map(|message| members_of(&message)).collect();
        assert_eq!(read, all);
        let none = messages_of(RelayKind::Here, node, &topic, &[]);
        assert_eq!(
            (none.len(), members_of(&none[0]).len()),
            (1, 0),
            "that nobody is there is told"
        );
    }
}
