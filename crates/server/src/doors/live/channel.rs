//! The name that clients of the Centrifuge protocol have for a topic: its channel. Any text is one; in the topic's name
//! `%XX` stands for what a name may not hold. It knows text only.

use std::rc::Rc;

use sennit_model::{NameError, TopicName};

use crate::broker::path_encoding::{decoded, spelled};

/// The topic of a channel.
///
/// # Errors
/// The channel is empty or too long.
pub(crate) fn topic_of(channel: &str) -> Result<TopicName, NameError> {
    let letters: Vec<_> = channel.bytes().map(|byte| (byte, false)).collect();
    spelled(&letters).parse()
}

/// The channel of a topic.
pub(crate) fn channel_of(topic: &TopicName) -> Rc<str> {
    let bytes = decoded(topic.as_str())
        .map(|letters| letters.into_iter().map(|(byte, _)| byte).collect::<Vec<_>>());
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
    text.map_or_else(|| topic.as_str().into(), Rc::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_and_its_topic_name_each_other() {
        for (channel, topic) in [
            ("news", "news"),
            ("chat:index", "chat%3Aindex"),
            ("chat#42", "chat%2342"),
            ("$private", "%24private"),
            ("a/b.c", "a/b.c"),
            ("a..b", "a%2E%2Eb"),
            ("100%", "100%25"),
            ("%3A", "%253A"),
            ("größe", "gr%C3%B6%C3%9Fe"),
        ] {
            let name = topic_of(channel).unwrap();
            assert_eq!(name.as_str(), topic, "{channel}");
            assert_eq!(&*channel_of(&name), channel, "{topic}");
        }
    }

    #[test]
    fn a_channel_that_no_topic_can_have_is_refused() {
        for channel in ["", &"x".repeat(10_000)] {
            assert!(topic_of(channel).is_err(), "{channel}");
        }
    }
}
