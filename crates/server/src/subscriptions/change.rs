//! Changes of subscriptions as they are stored: one JSON message for each. A change contains the new state, so it
//! may be read twice, and a whole subscription may be written again at any time. It knows no streams.

use sennit_model::{Offset, TopicId, TopicName};
use serde::{Deserialize, Serialize};

use super::phase::Phase;
use super::request::KeptConfig;

/// A change, of the subscription with this id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    /// The subscription.
    pub(crate) id: Box<str>,
    /// What became of it.
    #[serde(flatten)]
    pub(crate) what: What,
}

/// What became of a subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum What {
    /// It is there, like this.
    Kept(Box<Kept>),
    /// It is linked to these, as they are here.
    Linked(Vec<KeptLink>),
    /// It is not linked to these any more.
    Unlinked(Vec<Box<str>>),
    /// It was woken, claimed, acked, let go of.
    Moved(Moved),
    /// It is gone.
    Deleted,
}

/// A whole subscription.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) config: KeptConfig,
    /// What its own addresses begin with.
    pub(crate) base: Box<str>,
    pub(crate) created_at_ms: u64,
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    pub(crate) links: Vec<KeptLink>,
}

/// A stream that a subscription is linked to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptLink {
    /// The stream's name.
    pub(crate) stream: Box<str>,
    /// Whether it was named; otherwise the pattern means it.
    pub(crate) explicit: bool,
    /// The number of its topic, if there is one: a stream of the same name is another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<u32>,
    /// What lies before this offset is done.
    pub(crate) acked: u64,
}

/// A subscription's state, as an event has left it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Moved {
    pub(crate) generation: u64,
    pub(crate) phase: Phase,
    /// Streams of which more is done, and up to where.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) acks: Vec<(Box<str>, u64)>,
}

/// What a subscription knows of a stream that it is linked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Whether it was named; otherwise the pattern means it.
    pub(crate) is_explicit: bool,
    /// Its topic, if there is one.
    pub(crate) topic: Option<TopicId>,
    /// What lies before this offset is done.
    pub(crate) acked: Offset,
    /// Where the stream ends, as far as is known. Not kept.
    pub(crate) end: Offset,
}

impl Link {
    /// To a stream that is not there yet.
    pub(crate) fn to_come(is_explicit: bool) -> Self {
        Self { is_explicit, topic: None, acked: Offset(0), end: Offset(0) }
    }

    /// To the stream that is this topic, from here on.
    pub(crate) fn at(is_explicit: bool, topic: TopicId, acked: Offset) -> Self {
        Self { is_explicit, topic: Some(topic), acked, end: acked }
    }

    /// Whether there is something that is not done.
    pub(crate) fn is_pending(&self) -> bool {
        self.end > self.acked
    }

    pub(crate) fn keep(&self, stream: &TopicName) -> KeptLink {
        KeptLink {
            stream: stream.as_str().into(),
            explicit: self.is_explicit,
            topic: self.topic.map(|topic| topic.0),
            acked: self.acked.0,
        }
    }
}

impl KeptLink {
    /// What was kept, if that can be a stream's name.
    pub(crate) fn read(&self) -> Option<(TopicName, Link)> {
        let acked = Offset(self.acked);
        let topic = self.topic.map(TopicId);
        let link = Link { is_explicit: self.explicit, topic, acked, end: acked };
        Some((self.stream.parse().ok()?, link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_one_plain_object() {
        let phase = Phase::Held { wake: "w".into(), holder: "one".into(), until_ms: 7 };
        let moved = Moved { generation: 3, phase, acks: vec![("a/b".into(), 9)] };
        let change = Change { id: "s".into(), what: What::Moved(moved) };
        let text = serde_json::to_string(&change).unwrap();
        assert_eq!(
            text,
            r#"{"id":"s","moved":{"generation":3,"phase":{"is":"held","wake":"w","holder":"one","until_ms":7},"acks":[["a/b",9]]}}"#
        );
        assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change);
    }

    #[test]
    fn each_change_is_read_as_it_was_written() {
        let link = KeptLink { stream: "a".into(), explicit: true, topic: Some(4), acked: 5 };
        for what in
            [What::Linked(vec![link.clone()]), What::Unlinked(vec!["a".into()]), What::Deleted]
        {
            let change = Change { id: "s".into(), what };
            let text = serde_json::to_string(&change).unwrap();
            assert_eq!(serde_json::from_str::<Change>(&text).unwrap(), change, "{text}");
        }
        let (name, read) = link.read().unwrap();
        assert_eq!(read.keep(&name), link);
    }
}
