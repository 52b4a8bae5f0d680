//! Presence between brokers: which clients are subscribed elsewhere, and which brokers are there at all. What a broker has said of
//! its clients counts until it says otherwise, or has been silent for too long.

use std::time::{Duration, Instant};

use sennit_centrifuge::ClientInfo;
use sennit_model::TopicName;
use tokio::sync::oneshot;

use super::RelayLoop;
use crate::doors::live::{
    limits::RELAY_UNTOLD_MAX,
    relay::{
        RelayNews,
        interests::Subject,
        members::{members_of, messages_of},
        message::{NodeId, RelayKind, RelayMessage},
        redis_link::LinkOrder,
    },
};

/// How often a broker says that it is there.
const ALIVE_EVERY: Duration = Duration::from_secs(3);

/// The silence after which another broker counts as gone, and its clients with it.
const SILENCE_MAX: Duration = Duration::from_secs(15);

impl RelayLoop {
    /// The channel in which brokers say that they are there.
    pub(super) fn alive_channel(&self) -> String {
        format!("{}:alive", self.prefix)
    }

    /// Tells other brokers of clients here: all of them, or the one that has asked.
    pub(in crate::doors::live::relay) fn announce(
        &mut self,
        kind: RelayKind,
        topic: &TopicName,
        members: &[ClientInfo],
        asker: Option<NodeId>,
    ) {
        if !self.is_for_others(topic) {
            return;
        }
        let channel = asker.map_or_else(|| self.topic_channel(topic), |it| self.node_channel(it));
        for message in messages_of(kind, self.node, topic, members) {
            self.say(&channel, &message);
        }
    }

    /// A message waits until Redis takes it. Beyond what may wait, all is told anew.
    fn say(&mut self, channel: &str, message: &RelayMessage) {
        if self.untold.len() >= RELAY_UNTOLD_MAX {
            self.was_too_much = true;
            return;
        }
        let (channel, bytes) = (channel.to_owned(), message.encode());
        self.untold.push_back(LinkOrder::Publish(channel, bytes, oneshot::channel().0));
    }

    /// Asks other brokers for the clients that are subscribed to a topic there.
    pub(super) fn ask_who_is_here(&mut self, topic: &TopicName) {
        let channel = self.topic_channel(topic);
        for question in messages_of(RelayKind::WhoIsHere, self.node, topic, &[]) {
            self.say(&channel, &question);
        }
    }

    /// There is a new connection with Redis: both sides may have missed something.
    pub(super) fn meet_neighbors(&mut self) {
        for topic in self.interests.topics() {
            self.ask_who_is_here(&topic);
        }
        (self.tell)(RelayNews::Announce);
    }

    /// Takes what another broker says of clients there.
    pub(super) fn take_of_presence(&mut self, message: &RelayMessage) {
        let (node, topic) = (message.node, message.topic.clone());
        if self.neighbors.insert(node, Instant::now()).is_none() {
            // It has begun, or was silent for so long that it counted as gone.
            self.meet_neighbors();
        }
        let is_followed = self.interests.want(&topic, None);
        match message.kind {
            RelayKind::WhoIsHere if is_followed => {
                (self.tell)(RelayNews::Asked { topic, asker: node });
            }
            kind @ (RelayKind::Joined | RelayKind::Left | RelayKind::Here) if is_followed => {
                let members = members_of(message);
                (self.tell)(RelayNews::Members { kind, topic, node, members });
            }
            _ => {}
        }
    }

    /// Time has passed.
    pub(super) fn look_at_neighbors(&mut self, now: Instant) {
        if now.duration_since(self.alive_at) >= ALIVE_EVERY
            && let Ok(nobody) = "alive".parse()
        {
            self.alive_at = now;
            let channel = self.alive_channel();
            for alive in messages_of(RelayKind::Alive, self.node, &nobody, &[]) {
                self.say(&channel, &alive);
            }
        }
        if self.was_too_much && self.untold.is_empty() {
            self.was_too_much = false;
            self.meet_neighbors();
        }
        let is_gone = |heard: &Instant| now.duration_since(*heard) >= SILENCE_MAX;
        let gone: Vec<NodeId> =
            self.neighbors.extract_if(|_, heard| is_gone(heard)).map(|(node, _)| node).collect();
        for node in gone {
            (self.tell)(RelayNews::Gone(node));
        }
    }

    /// Redis sends what was asked for, or is away.
    pub(super) fn confirm(&mut self, subject: &Subject, is_confirmed: bool) {
        self.interests.note_answer(subject, is_confirmed);
        if let Subject::Topic(topic) = subject
            && is_confirmed
        {
            self.ask_who_is_here(topic);
        }
    }
}
