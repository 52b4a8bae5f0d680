//! A topic that somebody on this core is subscribed to: one reader of the engine, and a ring of frames for each dialect
//! that its subscribers speak. It knows no sockets.

use std::{cmp::Ordering, rc::Rc};

use sennit_engine::Delivery;
use sennit_model::{LiveSettings, TopicName};

use super::{
    channel::channel_of,
    connection_id::ConnectionId,
    dialect::{Dialect, Scratch, Source},
    published::messages,
    ring::Ring,
};
use crate::broker::stream_request::Located;

/// A topic with its subscribers.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) name: TopicName,
    pub(crate) channel: Rc<str>,
    pub(crate) located: Located,
    /// The topic's settings for live connections, as they are now.
    pub(crate) live: LiveSettings,
    /// The offset behind the newest message that is in the rings.
    pub(crate) next: u64,
    rings: [Ring; Dialect::COUNT],
    /// Subscribers by dialect: what nobody speaks is not encoded.
    users: [usize; Dialect::COUNT],
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

/// Encodes the messages of a delivery that are not before `from`, behind what is in `out`; says how many there were.
pub(crate) fn encode_from(
    from: u64,
    delivery: &Delivery,
    (dialect, source): (Dialect, Source<'_>),
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> u64 {
    let (mut count, mut expected) = (0, from);
    for message in messages(delivery).filter(|message| message.offset >= from) {
        scratch.make(dialect, source, expected, &message);
        out.extend_from_slice(&scratch.head);
        out.extend_from_slice(&scratch.body);
        expected = message.offset + 1;
        count += 1;
    }
    count
}

impl Broadcast {
    /// A broadcast that begins at `next`.
    pub(crate) fn new(
        name: TopicName,
        (located, live): (Located, LiveSettings),
        next: u64,
    ) -> Self {
        Self {
            channel: channel_of(&name),
            name,
            located,
            live,
            next,
            rings: Default::default(),
            users: [0; Dialect::COUNT],
            subscribers: Vec::new(),
            has_news: false,
            flushed: 0,
            is_behind: false,
            is_disturbed: false,
            taken: (0, 0),
        }
    }

    pub(crate) fn ring(&self, dialect: Dialect) -> &Ring {
        &self.rings[dialect.index()]
    }

    /// Bytes that its rings hold.
    pub(crate) fn held(&self) -> usize {
        self.rings.iter().map(Ring::len).sum()
    }

    /// Adds a subscriber.
    pub(crate) fn add(&mut self, connection: ConnectionId, dialect: Dialect) {
        let users = &mut self.users[dialect.index()];
        *users += 1;
        if *users == 1 {
            // What it missed was not encoded: it has none before now.
            self.rings[dialect.index()].clear();
        }
        self.subscribers.push(connection);
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, connection: ConnectionId, dialect: Dialect) {
        if let Some(at) = self.subscribers.iter().position(|held| *held == connection) {
            self.subscribers.swap_remove(at);
            self.is_disturbed = self.has_news;
            self.users[dialect.index()] -= 1;
        }
    }

    /// Takes what its reader was given into the rings.
    pub(crate) fn take(&mut self, delivery: &Delivery, scratch: &mut Scratch) {
        let source = Source { channel: &self.channel, epoch: self.located.tag.number() };
        for message in messages(delivery) {
            if message.offset < self.next {
                continue;
            }
            for (dialect, (ring, users)) in
                Dialect::ALL.into_iter().zip(self.rings.iter_mut().zip(self.users))
            {
                if users > 0 {
                    scratch.make(dialect, source, self.next, &message);
                    ring.push(message.offset, &scratch.head, &scratch.body);
                }
            }
            self.next = message.offset + 1;
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

    /// Where the message at `offset` begins in the ring of a dialect, or will as the next that comes; `None` if it has
    /// gone, or others come before it.
    pub(crate) fn position_of(&self, dialect: Dialect, offset: u64) -> Option<u64> {
        let ring = self.ring(dialect);
        match offset.cmp(&self.next) {
            Ordering::Less => ring.position_of(offset),
            Ordering::Equal => Some(ring.tail()),
            Ordering::Greater => None,
        }
    }
}
