//! A hook in the configuration: one entry says which version is in use, and one entry for each version has its script.
//! docs/reference/hooks.md has the bytes.

use bytes::Bytes;
use sennit_model::{ConfigurationKey, HOOK_KEY_PREFIX, Timestamp, TopicId};
use serde::{Deserialize, Serialize};

/// What becomes of messages that the script has not decided about, because it failed or rests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnError {
    /// They are accepted as they are.
    #[default]
    Accept,
    /// They are refused.
    Refuse,
}

/// A version of a hook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HookVersion {
    pub(crate) head: VersionHead,
    pub(crate) script: String,
}

/// The first line of a version's entry; the script follows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionHead {
    /// When it was set, in milliseconds since 1970.
    pub(crate) set_at_ms: u64,
    pub(crate) on_error: OnError,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
}

/// What an entry of the configuration is to hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookKey {
    /// It says which version the topic's hook runs.
    InUse(TopicId),
    /// It has the script of a version.
    Version(TopicId, u64),
}

impl HookVersion {
    pub(crate) fn new(script: String, on_error: OnError, note: String, now: Timestamp) -> Self {
        Self { head: VersionHead { set_at_ms: now.0, on_error, note }, script }
    }

    /// The value of its entry.
    pub(crate) fn value(&self) -> Bytes {
        // A line of JSON has no newline in it.
        let head = serde_json::to_string(&self.head).unwrap_or_default();
        format!("{head}\n{}", self.script).into()
    }

    /// `None` for bytes that are no version's.
    pub(crate) fn of_value(value: &[u8]) -> Option<Self> {
        let (head, script) = std::str::from_utf8(value).ok()?.split_once('\n')?;
        Some(Self { head: serde_json::from_str(head).ok()?, script: script.to_owned() })
    }
}

impl HookKey {
    /// The key of its entry.
    pub(crate) fn key(self) -> ConfigurationKey {
        let text = match self {
            Self::InUse(topic) => format!("{HOOK_KEY_PREFIX}{}", topic.0),
            Self::Version(topic, version) => format!("{HOOK_KEY_PREFIX}{}.{version}", topic.0),
        };
        // Digits and a dot are characters of a key.
        text.parse().unwrap_or_else(|error| unreachable!("{text}: {error}"))
    }

    /// `None` for a key of something else.
    pub(crate) fn of_key(key: &ConfigurationKey) -> Option<Self> {
        let rest = key.as_str().strip_prefix(HOOK_KEY_PREFIX)?;
        match rest.split_once('.') {
            None => Some(Self::InUse(TopicId(rest.parse().ok()?))),
            Some((topic, version)) => {
                Some(Self::Version(TopicId(topic.parse().ok()?), version.parse().ok()?))
            }
        }
    }
}

/// What the keys of all entries of a topic's hook begin with, but that of the version in use.
pub(crate) fn versions_prefix(topic: TopicId) -> String {
    format!("{HOOK_KEY_PREFIX}{}.", topic.0)
}

/// The version that an entry names; `None` for a value that names none.
pub(crate) fn version_in_use(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_find_their_way_back() {
        for key in [HookKey::InUse(TopicId(7)), HookKey::Version(TopicId(7), 12)] {
            assert_eq!(HookKey::of_key(&key.key()), Some(key));
        }
        assert_eq!(HookKey::Version(TopicId(7), 12).key().as_str(), "hook.7.12");
        for other in ["hook.", "hook.x", "hook.1.", "hook.1.x", "hooks.1", "throttle.a"] {
            assert_eq!(HookKey::of_key(&other.parse().unwrap()), None, "{other}");
        }
        let script = "-- two\nlines".to_owned();
        let note = "by \"plan\"\n".to_owned();
        let version = HookVersion::new(script, OnError::Refuse, note, Timestamp(5));
        assert_eq!(HookVersion::of_value(&version.value()), Some(version));
        assert_eq!(HookVersion::of_value(b"{}"), None);
        let plain = HookVersion::new("x".into(), OnError::Accept, String::new(), Timestamp(5));
        assert_eq!(&plain.value()[..], b"{\"set_at_ms\":5,\"on_error\":\"accept\"}\nx");
    }
}
