//! A topic that somebody on this core is subscribed to: one reader of the engine, and a ring of frames for each format
//! that its subscribers have. Or a pattern of topics, with rings that the broadcasts of its topics fill. It knows no sockets.

use std::{cmp::Ordering, rc::Rc};

use sennit_engine::Delivery;
use sennit_model::{LiveSettings, Messages, TopicName, WhenBehind};

use super::{
    channel::channel_of,
    connection_id::ConnectionId,
    dialect::{Dialect, Scratch, Source},
    format::Format,
    limits::{
        CONFLATED_BYTES_MAX, CONFLATED_KEYS_MAX, CONFLATED_RING_BYTES, RING_BYTES_MAX,
        RING_SHARE_BYTES,
    },
    newest_frames::NewestFrames,
    published::messages,
    ring::Ring,
    source::{MessageSource, PatternSource, TopicSource},
};
use crate::broker::stream_request::Located;

/// A topic, or a pattern, with its subscribers.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) channel: Rc<str>,
    pub(crate) source: MessageSource,
    live: LiveSettings,
    /// The offset behind the newest message that is in the rings; those of a pattern are counted.
    pub(crate) next: u64,
    /// By format.
    rings: [Ring; Format::COUNT],
    /// The newest frames of each key, if the topic conflates.
    newest: Option<Box<[NewestFrames; Format::COUNT]>>,
    /// Subscribers by format: what nobody speaks is not encoded.
    users: [usize; Format::COUNT],
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
}

/// Encodes the messages of a delivery that are not before `from`, behind what is in `out`; says how many there were.
pub(crate) fn encode_from(
    from: u64,
    delivery: &Delivery,
    (format, source): (Format, Source<'_>),
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
) -> u64 {
    let (mut count, mut expected) = (0, from);
    for message in messages(delivery).filter(|message| message.offset >= from) {
        scratch.make(format.dialect, source, expected, &message);
        format.parts(scratch).iter().for_each(|part| out.extend_from_slice(part));
        expected = message.offset + 1;
        count += 1;
    }
    count
}

/// The formats of a dialect that somebody has.
fn used_formats(dialect: Dialect, users: [usize; Format::COUNT]) -> impl Iterator<Item = Format> {
    let is_used = move |format: &Format| format.dialect == dialect && users[format.index()] > 0;
    Format::ALL.into_iter().filter(is_used)
}

impl Broadcast {
    /// A broadcast that begins at `next`.
    pub(crate) fn new(
        name: TopicName,
        (located, live): (Located, LiveSettings),
        next: u64,
    ) -> Self {
        let channel = channel_of(&name);
        let (taken, patterns) = Default::default();
        let (incarnation, interest) = (located.tag, None);
        let topic = TopicSource { name, located, incarnation, interest, taken, patterns };
        let mut this = Self::begin(channel, MessageSource::Topic(topic), next);
        this.set_live(live);
        this
    }

    /// A broadcast of a pattern.
    pub(crate) fn of_pattern(channel: Rc<str>, source: PatternSource) -> Self {
        Self::begin(channel, MessageSource::Pattern(Box::new(source)), 0)
    }

    fn begin(channel: Rc<str>, source: MessageSource, next: u64) -> Self {
        Self {
            channel,
            source,
            live: LiveSettings::default(),
            next,
            rings: Default::default(),
            newest: None,
            users: [0; Format::COUNT],
            subscribers: Vec::new(),
            has_news: false,
            flushed: 0,
            is_behind: false,
            is_disturbed: false,
        }
    }

    /// The topic's settings for live connections, as they are now.
    pub(crate) fn live(&self) -> LiveSettings {
        self.live
    }

    /// The topic has these settings.
    pub(crate) fn set_live(&mut self, live: LiveSettings) {
        self.live = live;
        if live.when_behind != WhenBehind::Conflate {
            self.newest = None;
        } else if self.newest.is_none() {
            self.newest = Some(Box::new([self.next; Format::COUNT].map(NewestFrames::from)));
        }
    }

    /// The topic, if it is one.
    pub(crate) fn topic(&self) -> Option<&TopicSource> {
        match &self.source {
            MessageSource::Topic(topic) => Some(topic),
            MessageSource::Pattern(_) => None,
        }
    }

    pub(crate) fn topic_mut(&mut self) -> Option<&mut TopicSource> {
        match &mut self.source {
            MessageSource::Topic(topic) => Some(topic),
            MessageSource::Pattern(_) => None,
        }
    }

    /// Where the topic is, if it is one.
    pub(crate) fn located(&self) -> Option<Located> {
        self.topic().map(|topic| topic.located)
    }

    /// The pattern, if it is one.
    pub(crate) fn pattern(&self) -> Option<&PatternSource> {
        match &self.source {
            MessageSource::Topic(_) => None,
            MessageSource::Pattern(pattern) => Some(pattern),
        }
    }

    pub(crate) fn pattern_mut(&mut self) -> Option<&mut PatternSource> {
        match &mut self.source {
            MessageSource::Topic(_) => None,
            MessageSource::Pattern(pattern) => Some(pattern),
        }
    }

    /// The newest frames of each key, if the topic conflates and they have all that one needs who is at this offset.
    pub(crate) fn newest(&self, format: Format, offset: u64) -> Option<&NewestFrames> {
        let newest = &self.newest.as_ref()?[format.index()];
        newest.reach(offset).then_some(newest)
    }

    pub(crate) fn ring(&self, format: Format) -> &Ring {
        &self.rings[format.index()]
    }

    /// Whether somebody has messages in this format.
    pub(crate) fn is_used(&self, format: Format) -> bool {
        self.users[format.index()] > 0
    }

    /// Bytes that its rings hold.
    pub(crate) fn held(&self) -> usize {
        let newest = self.newest.iter().flat_map(|newest| newest.iter());
        self.rings.iter().map(Ring::len).chain(newest.map(NewestFrames::len)).sum()
    }

    /// Adds a subscriber.
    pub(crate) fn add(&mut self, connection: ConnectionId, format: Format) {
        let users = &mut self.users[format.index()];
        *users += 1;
        if *users == 1 {
            // What it missed was not encoded: it has none before now.
            self.rings[format.index()].clear();
            if let Some(newest) = &mut self.newest {
                newest[format.index()].clear(self.next);
            }
        }
        self.subscribers.push(connection);
    }

    /// Removes one.
    pub(crate) fn remove(&mut self, connection: ConnectionId, format: Format) {
        if let Some(at) = self.subscribers.iter().position(|held| *held == connection) {
            self.subscribers.swap_remove(at);
            self.is_disturbed = self.has_news;
            self.users[format.index()] -= 1;
        }
    }

    /// Takes what its reader was given into the rings.
    pub(crate) fn take(&mut self, delivery: &Delivery, scratch: &mut Scratch) {
        let epoch = self.located().map_or(0, |located| located.tag.number());
        let source = Source { channel: &self.channel, epoch };
        let mut keys = Messages::of_checked(&delivery.messages).map(|message| message.key());
        for message in messages(delivery) {
            let key = self.newest.as_ref().and_then(|_| keys.next()).unwrap_or_default();
            if message.offset < self.next {
                continue;
            }
            for dialect in Dialect::ALL {
                let users = self.users;
                let used = || used_formats(dialect, users);
                if used().next().is_none() {
                    continue;
                }
                scratch.make(dialect, source, self.next, &message);
                for format in used() {
                    self.rings[format.index()].push(message.offset, format.parts(scratch));
                }
                let Some(newest) = &mut self.newest else { continue };
                if dialect == Dialect::Wse {
                    // Those before it may be left out: its clients are told where it is.
                    scratch.make(dialect, source, 0, &message);
                }
                for format in used() {
                    newest[format.index()].push(message.offset, key, format.parts(scratch));
                }
            }
            self.next = message.offset + 1;
        }
        if let MessageSource::Topic(topic) = &mut self.source {
            topic.taken.0 += delivery.count;
            topic.taken.1 += delivery.messages.len() as u64;
        }
    }

    /// Takes what a topic of the pattern was given into the rings, from this offset on.
    pub(crate) fn take_of_topic(
        &mut self,
        topic: &str,
        from: u64,
        delivery: &Delivery,
        scratch: &mut Scratch,
    ) {
        for message in messages(delivery).filter(|message| message.offset >= from) {
            for dialect in Dialect::ALL {
                let users = self.users;
                let mut used = used_formats(dialect, users).peekable();
                if used.peek().is_some() {
                    let (channel, tags) = (&*self.channel, &[("topic", topic)]);
                    scratch.make_without_position(dialect, channel, topic, tags, &message);
                }
                for format in used {
                    self.rings[format.index()].push(self.next, format.parts(scratch));
                }
            }
            self.next += 1;
        }
    }

    /// Has it hold no more than it may while somebody is behind: its share, if there is no room for more.
    pub(crate) fn shrink(&mut self, is_room: bool) {
        let (ring_bytes, newest_bytes) = match (is_room, &self.newest) {
            (false, _) => (RING_SHARE_BYTES, RING_SHARE_BYTES),
            (true, None) => (RING_BYTES_MAX, 0),
            (true, Some(_)) => (CONFLATED_RING_BYTES, CONFLATED_BYTES_MAX),
        };
        self.rings.iter_mut().for_each(|ring| ring.shrink(ring_bytes));
        for newest in self.newest.iter_mut().flat_map(|newest| newest.iter_mut()) {
            newest.shrink(CONFLATED_KEYS_MAX, newest_bytes);
        }
    }

    /// All subscribers have what is in the rings.
    pub(crate) fn clear(&mut self) {
        self.rings.iter_mut().for_each(Ring::clear);
        for newest in self.newest.iter_mut().flat_map(|newest| newest.iter_mut()) {
            newest.clear(self.next);
        }
    }

    /// Where the message at `offset` begins in the ring of a format, or will as the next that comes; `None` if it has
    /// gone, or others come before it.
    pub(crate) fn position_of(&self, format: Format, offset: u64) -> Option<u64> {
        let ring = self.ring(format);
        match offset.cmp(&self.next) {
            Ordering::Less => ring.position_of(offset),
            Ordering::Equal => Some(ring.tail()),
            Ordering::Greater => None,
        }
    }
}
