//! The settings of a subscription, in the one spelling that is compared and stored. It knows neither requests nor
//! streams.

use sennit_model::TopicName;
use serde::{Deserialize, Serialize};

use super::glob::Glob;
use crate::broker::reserved_names::is_reserved;

/// What a subscription is told when it is created; it stays so. Equal ones are the same subscription
/// asked for again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Who is told that there is something.
    pub(crate) way: Way,
    /// The streams it is linked to, those of now and those to come.
    pub(crate) pattern: Option<Glob>,
    /// Streams it is linked to besides, whether they are there or not: in order, each once.
    pub(crate) streams: Vec<TopicName>,
    /// How long one who works is given, in milliseconds.
    pub(crate) lease_ms: u64,
    /// What its creator says of it.
    pub(crate) description: Option<Box<str>>,
}

/// Who is told that there is something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// A server at this address.
    Webhook(Box<str>),
    /// Those who read this stream; one of them claims the work.
    PullWake(TopicName),
}

impl Config {
    /// The stream that wakes are written to.
    pub(crate) fn wake_stream(&self) -> Option<&TopicName> {
        match &self.way {
            Way::PullWake(stream) => Some(stream),
            Way::Webhook(_) => None,
        }
    }

    /// Whether this stream is named.
    pub(crate) fn names(&self, stream: &TopicName) -> bool {
        self.streams.binary_search(stream).is_ok()
    }

    /// Whether the pattern means this stream. What is reserved it never means, nor the stream that its
    /// own wakes are written to: that would wake it for ever.
    pub(crate) fn means(&self, stream: &TopicName) -> bool {
        let is_kept_out = is_reserved(stream) || self.wake_stream() == Some(stream);
        !is_kept_out && self.pattern.as_ref().is_some_and(|glob| glob.matches(stream.as_str()))
    }

    /// What the name of every stream begins with that the pattern means, if there is one.
    pub(crate) fn beginning(&self) -> Option<&str> {
        self.pattern.as_ref().map(Glob::beginning)
    }
}

/// How a configuration is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wake_stream: Option<Box<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    streams: Vec<Box<str>>,
    lease_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<Box<str>>,
}

impl From<&Config> for KeptConfig {
    fn from(config: &Config) -> Self {
        let (webhook, wake_stream) = match &config.way {
            Way::Webhook(url) => (Some(url.clone()), None),
            Way::PullWake(stream) => (None, Some(stream.as_str().into())),
        };
        Self {
            webhook,
            wake_stream,
            pattern: config.pattern.as_ref().map(|glob| glob.as_str().into()),
            streams: config.streams.iter().map(|stream| stream.as_str().into()).collect(),
            lease_ms: config.lease_ms,
            description: config.description.clone(),
        }
    }
}

impl KeptConfig {
    /// What was kept; `None` if it cannot have been kept like this.
    pub(crate) fn read(self) -> Option<Config> {
        let way = match (self.webhook, self.wake_stream) {
            (Some(url), None) => Way::Webhook(url),
            (None, Some(stream)) => Way::PullWake(stream.parse().ok()?),
            _ => return None,
        };
        let pattern = match self.pattern {
            Some(text) => Some(Glob::parse(&text).ok()?),
            None => None,
        };
        let streams = self.streams.iter().map(|stream| stream.parse().ok());
        Some(Config {
            way,
            pattern,
            streams: streams.collect::<Option<_>>()?,
            lease_ms: self.lease_ms,
            description: self.description,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_it_was_kept() {
        for way in [
            Way::Webhook("https://example.com/hook".into()),
            Way::PullWake("wake/pool".parse().unwrap()),
        ] {
            let config = Config {
                way,
                pattern: Some(Glob::parse("events/**").unwrap()),
                streams: vec!["a".parse().unwrap(), "b/c".parse().unwrap()],
                lease_ms: 1000,
                description: Some("what it is for".into()),
            };
            let kept = serde_json::to_string(&KeptConfig::from(&config)).unwrap();
            let read: KeptConfig = serde_json::from_str(&kept).unwrap();
            assert_eq!(read.read(), Some(config));
        }
    }

    #[test]
    fn what_is_reserved_is_never_meant() {
        let config = Config {
            way: Way::PullWake("wake".parse().unwrap()),
            pattern: Some(Glob::parse("**").unwrap()),
            streams: Vec::new(),
            lease_ms: 1000,
            description: None,
        };
        assert!(config.means(&"a/b".parse().unwrap()));
        assert!(config.means(&"__dst".parse().unwrap()));
        for kept_out in ["wake", "__ds/subscriptions", "__ds"] {
            assert!(!config.means(&kept_out.parse().unwrap()), "{kept_out}");
        }
    }
}
