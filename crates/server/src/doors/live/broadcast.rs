//! A topic that somebody on this core is subscribed to: one reader of the engine, and a ring of frames for each encoding
//! that its subscribers speak. It knows no sockets.

use std::{cmp::Ordering, rc::Rc};

use sennit_centrifuge::{Data, Encoding, PublicationView, put_publication};
use sennit_engine::Delivery;
use sennit_model::{Messages, TopicName};
use sennit_websocket::{Opcode, frame};

use super::{channel::channel_of, connection_id::ConnectionId, ring::Ring};
use crate::broker::stream_request::Located;

/// The encodings, as they are numbered here.
pub(crate) const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

/// The kind of WebSocket message for an encoding.
pub(crate) fn opcode(encoding: Encoding) -> Opcode {
    match encoding {
        Encoding::Json => Opcode::Text,
        Encoding::Protobuf => Opcode::Binary,
    }
}

fn index(encoding: Encoding) -> usize {
    match encoding {
        Encoding::Json => 0,
        Encoding::Protobuf => 1,
    }
}

/// A topic with its subscribers.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) name: TopicName,
    pub(crate) channel: Rc<str>,
    pub(crate) located: Located,
    /// The offset behind the newest message that is in the rings.
    pub(crate) next: u64,
    rings: [Ring; 2],
    /// Subscribers by encoding: what nobody speaks is not encoded.
    users: [usize; 2],
    /// All of them, in no order.
    pub(crate) subscribers: Vec<ConnectionId>,
    /// Whether it is on the list of those with news.
    pub(crate) has_news: bool,
    /// How many of them have the news, while these are told.
    pub(crate) flushed: usize,
    /// Whether one of those has not all of it.
    pub(crate) is_behind: bool,
    /// Whether news have come meanwhile, or subscribers have changed their order.
    pub(crate) is_disturbed: bool,
    /// What it has taken of its reader's window and not given back.
    pub(crate) taken: (u32, u64),
}

/// Room in which frames are made, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Scratch {
    /// Makes the frame of a message.
    fn make(&mut self, encoding: Encoding, channel: &str, offset: u64, data: &Data, time_ms: i64) {
        self.head.clear();
        self.body.clear();
        let view = PublicationView {
            data: data.view(),
            info: None,
            offset: offset + 1,
            tags: &[],
            time_ms,
        };
        put_publication(encoding, channel, &view, &mut self.body);
        // Each line of JSON is a message of its own.
        if encoding == Encoding::Json && self.body.last() == Some(&b'\n') {
            self.body.pop();
        }
        frame::put_header(opcode(encoding), false, self.body.len(), &mut self.head);
    }
}

/// The messages of a delivery, each with its offset.
pub(crate) fn messages(delivery: &Delivery) -> impl Iterator<Item = (u64, Data)> {
    let messages = Messages::of_checked(&delivery.messages);
    messages.enumerate().map(|(index, message)| {
        let payload = delivery.messages.slice_ref(message.payload());
        (delivery.first.0 + index as u64, Data::of_payload(payload))
    })
}

/// Encodes the messages of a delivery that are not before `from`, behind what is in `out`; says how many there were.
pub(crate) fn encode_from(
    from: u64,
    delivery: &Delivery,
    (encoding, channel): (Encoding, &str),
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> u64 {
    let mut count = 0;
    for (offset, data) in messages(delivery).filter(|(offset, _)| *offset >= from) {
        scratch.make(encoding, channel, offset, &data, 0);
        out.extend_from_slice(&scratch.head);
        out.extend_from_slice(&scratch.body);
        count += 1;
    }
    count
}

impl Broadcast {
    /// A broadcast that begins at `next`.
    pub(crate) fn new(name: TopicName, located: Located, next: u64) -> Self {
        Self {
            channel: channel_of(&name),
            name,
            located,
            next,
            rings: Default::default(),
            users: [0; 2],
            subscribers: Vec::new(),
            has_news: false,
            flushed: 0,
            is_behind: false,
            is_disturbed: false,
            taken: (0, 0),
        }
    }

    pub(crate) fn ring(&self, encoding: Encoding) -> &Ring {
        &self.rings[index(encoding)]
    }

    /// Bytes that its rings hold.
    pub(crate) fn held(&self) -> usize {
        self.rings.iter().map(Ring::len).sum()
    }

    /// Adds a subscriber.
    pub(crate) fn add(&mut self, connection: ConnectionId, encoding: Encoding) {
        let users = &mut self.users[index(encoding)];
        *users += 1;
        if *users == 1 {
            // What it missed was not encoded: it has none before now.
            self.rings[index(encoding)].clear();
        }
        self.subscribers.push(connection);
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, connection: ConnectionId, encoding: Encoding) {
        if let Some(at) = self.subscribers.iter().position(|held| *held == connection) {
            self.subscribers.swap_remove(at);
            self.is_disturbed = self.has_news;
            self.users[index(encoding)] -= 1;
        }
    }

    /// Takes what its reader was given into the rings.
    pub(crate) fn take(&mut self, delivery: &Delivery, scratch: &mut Scratch) {
        for (offset, data) in messages(delivery) {
            if offset < self.next {
                continue;
            }
            for (encoding, (ring, users)) in
                ENCODINGS.into_iter().zip(self.rings.iter_mut().zip(self.users))
            {
                if users > 0 {
                    scratch.make(encoding, &self.channel, offset, &data, 0);
                    ring.push(offset, &scratch.head, &scratch.body);
                }
            }
            self.next = offset + 1;
        }
        self.taken.0 += delivery.count;
        self.taken.1 += delivery.messages.len() as u64;
    }

    /// Has its rings hold so many bytes at most.
    pub(crate) fn shrink(&mut self, most: usize) {
        self.rings.iter_mut().for_each(|ring| ring.shrink(most));
    }

    /// All subscribers have what is in the rings.
    pub(crate) fn clear(&mut self) {
        self.rings.iter_mut().for_each(Ring::clear);
    }

    /// Where the message at `offset` begins in the ring of an encoding, or will as the next that comes; `None` if it has
    /// gone, or others come before it.
    pub(crate) fn position_of(&self, encoding: Encoding, offset: u64) -> Option<u64> {
        let ring = self.ring(encoding);
        match offset.cmp(&self.next) {
            Ordering::Less => ring.position_of(offset),
            Ordering::Equal => Some(ring.tail()),
            Ordering::Greater => None,
        }
    }
}
