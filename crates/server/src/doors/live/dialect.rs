//! A dialect: the protocol of a live connection, and how a message of a topic is written in it. Connections of one dialect
//! share the frames of a topic. It knows no connections.

use sennit_centrifuge::{Command, Encoding, PublicationView, put_publication};
use sennit_websocket::{Opcode, frame};
use sennit_wse::{Category, Event, MessageView, Position};

use super::published::Published;

/// What clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// The Centrifuge client protocol.
    Centrifuge(Encoding),
    /// The WSE protocol.
    Wse,
}

/// Something that a client asks, in its dialect.
#[derive(Debug)]
pub(crate) enum ClientRequest {
    Centrifuge(Box<Command>),
    Wse(sennit_wse::Request),
}

impl Dialect {
    /// All of them, as they are numbered.
    pub(crate) const ALL: [Self; 3] =
        [Self::Centrifuge(Encoding::Json), Self::Centrifuge(Encoding::Protobuf), Self::Wse];

    /// How many there are.
    pub(crate) const COUNT: usize = Self::ALL.len();

    /// Its number.
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Centrifuge(Encoding::Json) => 0,
            Self::Centrifuge(Encoding::Protobuf) => 1,
            Self::Wse => 2,
        }
    }

    /// The names of the protocol and of how it is encoded, as applications are told.
    pub(crate) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Centrifuge(Encoding::Json) => ("json", "json"),
            Self::Centrifuge(Encoding::Protobuf) => ("protobuf", "binary"),
            Self::Wse => ("wse", "json"),
        }
    }

    /// Its name, for programs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Centrifuge(Encoding::Json) => "centrifuge-json",
            Self::Centrifuge(Encoding::Protobuf) => "centrifuge-protobuf",
            Self::Wse => "wse",
        }
    }

    /// The kind of its WebSocket messages.
    pub(crate) fn opcode(self) -> Opcode {
        match self {
            Self::Centrifuge(Encoding::Json) | Self::Wse => Opcode::Text,
            Self::Centrifuge(Encoding::Protobuf) => Opcode::Binary,
        }
    }
}

/// Has `put` write what a message of the WebSocket has in an encoding of the Centrifuge protocol.
pub(crate) fn put_centrifuge(
    encoding: Encoding,
    out: &mut Vec<u8>,
    put: impl FnOnce(Encoding, &mut Vec<u8>),
) {
    put(encoding, out);
    // Each line of JSON is a message of its own.
    if encoding == Encoding::Json && out.last() == Some(&b'\n') {
        out.pop();
    }
}

/// Writes the frame of an event of the WSE protocol.
pub(crate) fn put_event(event: &Event<'_>, out: &mut Vec<u8>) {
    let mut body = Vec::new();
    sennit_wse::put_event(event, &mut body);
    frame::put_frame(Opcode::Text, &body, out);
}

/// Where a message is from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source<'s> {
    /// The channel, as clients have it.
    pub(crate) channel: &'s str,
    /// The epoch of the topic.
    pub(crate) epoch: u64,
}

/// Room in which frames are made, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Scratch {
    /// Makes the frame of a message, in two parts. `expected` is the offset behind the message before it.
    pub(crate) fn make(
        &mut self,
        dialect: Dialect,
        source: Source<'_>,
        expected: u64,
        message: &Published,
    ) {
        let offset = message.offset;
        self.head.clear();
        self.body.clear();
        match dialect {
            Dialect::Centrifuge(encoding) => {
                let view = PublicationView {
                    data: message.data.view(),
                    info: message.publisher.as_deref(),
                    offset: offset + 1,
                    tags: &message.tag_views(),
                    time_ms: 0,
                };
                put_centrifuge(encoding, &mut self.body, |encoding, out| {
                    put_publication(encoding, source.channel, &view, out);
                });
            }
            Dialect::Wse => {
                if offset > expected {
                    // Its clients take an offset that is left out for a message that they have missed.
                    self.set_position(source, offset);
                }
                let position = (source.epoch, offset + 1);
                put_wse(source.channel, Some(position), message, &mut self.body);
                if self.body.len() > sennit_wse::MESSAGE_BYTES_MAX {
                    return self.pass_over(source, offset);
                }
            }
        }
        frame::put_header(dialect.opcode(), false, self.body.len(), &mut self.head);
    }

    /// Makes the frame of a message for a channel in which messages have no position: a pattern or a group. Clients of WSE know
    /// it by its topic.
    pub(crate) fn make_without_position(
        &mut self,
        dialect: Dialect,
        channel: &str,
        topic: &str,
        tags: &[(&str, &str)],
        message: &Published,
    ) {
        self.head.clear();
        self.body.clear();
        match dialect {
            Dialect::Centrifuge(encoding) => {
                let mut all = message.tag_views();
                if !all.is_empty() {
                    // What the broker says of a message nobody else says.
                    all.retain(|(name, _)| tags.iter().all(|(own, _)| own != name));
                    all.extend(tags);
                }
                let tags = if all.is_empty() { tags } else { &all };
                let view = PublicationView {
                    data: message.data.view(),
                    info: message.publisher.as_deref(),
                    offset: 0,
                    tags,
                    time_ms: 0,
                };
                put_centrifuge(encoding, &mut self.body, |encoding, out| {
                    put_publication(encoding, channel, &view, out);
                });
            }
            Dialect::Wse => put_wse(topic, None, message, &mut self.body),
        }
        frame::put_header(dialect.opcode(), false, self.body.len(), &mut self.head);
    }

    /// Tells clients of WSE that the next message is the one behind so many.
    fn set_position(&mut self, source: Source<'_>, before: u64) {
        let epoch = source.epoch.to_string();
        let position = Position { epoch: &epoch, offset: before, recovered: false };
        let event = Event::Subscribed { topic: source.channel, position: Some(position) };
        put_event(&event, &mut self.head);
    }

    /// Tells clients of WSE of a message that they could not take.
    fn pass_over(&mut self, source: Source<'_>, offset: u64) {
        let message = format!(
            "message {} of this topic has {} bytes: clients take {}",
            offset + 1,
            self.body.len(),
            sennit_wse::MESSAGE_BYTES_MAX
        );
        self.body.clear();
        let event = Event::Error {
            code: "MESSAGE_TOO_LARGE",
            message: &message,
            is_retryable: false,
            topic: Some(source.channel),
            correlation_id: None,
        };
        put_event(&event, &mut self.head);
        self.set_position(source, offset + 1);
    }
}

fn put_wse(topic: &str, position: Option<(u64, u64)>, message: &Published, out: &mut Vec<u8>) {
    let json = message.data.shown_as_json();
    let view = MessageView {
        topic,
        payload: std::str::from_utf8(json.as_bytes()).unwrap_or("null"),
        position,
        category: Category::Update,
    };
    sennit_wse::put_message(&view, out);
}

#[cfg(test)]
mod tests {
    use sennit_centrifuge::Data;

    use super::*;

    #[test]
    fn dialects_are_numbered_as_they_are_listed() {
        for (index, dialect) in Dialect::ALL.into_iter().enumerate() {
            assert_eq!(dialect.index(), index, "{dialect:?}");
        }
    }

    /// The frames of a message in WSE, without their heads.
    fn texts(expected: u64, offset: u64, payload: &[u8]) -> Vec<String> {
        let mut scratch = Scratch::default();
        let source = Source { channel: "news", epoch: 7 };
        let data = Data::of_payload(payload.to_vec().into());
        let message = Published { offset, data, publisher: None, tags: Vec::new() };
        scratch.make(Dialect::Wse, source, expected, &message);
        let bytes = [scratch.head, scratch.body].concat();
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        let ends = text.match_indices("{\"c\":").map(|(at, _)| at).collect::<Vec<_>>();
        let until = |index: usize| ends.get(index + 1).copied().unwrap_or(text.len());
        ends.iter().enumerate().map(|(index, at)| text[*at..until(index)].to_owned()).collect()
    }

    #[test]
    fn an_offset_that_is_left_out_is_told_to_clients_of_wse_before_they_ask_for_it() {
        let stamped =
            "{\"c\":\"U\",\"t\":\"news\",\"p\":{\"n\":1},\"tp\":\"news\",\"e\":\"7\",\"o\":6}";
        assert_eq!(texts(5, 5, b"{\"n\":1}"), [stamped]);
        let told = texts(3, 5, b"{\"n\":1}");
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("{\"news\":{\"epoch\":\"7\",\"offset\":5,\"recovered\":false}}"));
        assert_eq!(told[1], stamped);
    }

    #[test]
    fn a_message_that_clients_of_wse_do_not_take_is_told_and_passed_over() {
        let told = texts(5, 5, &vec![b'x'; sennit_wse::MESSAGE_BYTES_MAX]);
        assert_eq!(told.len(), 2, "no more than events");
        assert!(told[0].contains("MESSAGE_TOO_LARGE"), "{}", told[0]);
        assert!(told[1].contains("\"offset\":6,\"recovered\":false"), "{}", told[1]);
    }
}
