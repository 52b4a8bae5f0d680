//! Requests about subscriptions and their results: a `config` with its `glob`, within `limits`, or a `refusal`. It
//! does not know the callers.

mod config;
mod glob;
pub(crate) mod limits;
mod refusal;

use sennit_model::TopicName;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::broker::stream_offset::StreamOffset;

pub(crate) use self::{
    config::{Config, KeptConfig, Way},
    glob::Glob,
    refusal::{SubscriptionRefusal, UrlRejected},
};

/// A request about subscriptions, for those of an id where it names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SubscriptionRequest {
    /// Create it with these settings, or find it with the same.
    Create(NewSubscription),
    /// How is it?
    Get(Box<str>),
    /// Which are there? Of none in particular.
    List,
    /// Be gone. Nobody is told that it was not there.
    Delete(Box<str>),
    /// Be linked to these streams too: in order, each once.
    Link(Box<str>, Vec<TopicName>),
    /// Be linked to this stream only if the pattern means it.
    Unlink(Box<str>, TopicName),
    /// The worker of this name wants the work.
    Claim(Box<str>, Box<str>),
    /// So much is done.
    Ack(Ack),
    /// The work is let go of.
    Release(Ack),
    /// The public keys.
    Keys,
}

/// A subscription to be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NewSubscription {
    pub(crate) id: Box<str>,
    pub(crate) config: Config,
    /// What its own addresses begin with.
    pub(crate) base: Box<str>,
}

/// What a worker says of its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub(crate) id: Box<str>,
    /// Whether a webhook says it, at its own address.
    pub(crate) is_callback: bool,
    pub(crate) token: Box<str>,
    pub(crate) generation: u64,
    pub(crate) wake: Box<str>,
    /// Streams, and up to where they are done.
    pub(crate) acks: Vec<(TopicName, StreamOffset)>,
    /// Whether the work is.
    pub(crate) is_done: bool,
}

/// The answer to a [`SubscriptionRequest`] that is not refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum SubscriptionAnswer {
    /// The subscription was created; its description.
    Created(Value),
    /// The description of what was asked for.
    Body(Value),
    /// Done: the answer has no body.
    Done,
    /// The public keys.
    Keys(Value),
}
