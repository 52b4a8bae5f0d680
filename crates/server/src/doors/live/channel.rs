//! The name that clients of the Centrifuge protocol have for a topic: its channel. Any text is one; in the topic's name
//! `%XX` stands for what a name may not hold. A channel with a wildcard is a pattern of topics, and one with `?group=` a group
//! of a topic. It knows text only.

use std::rc::Rc;

use sennit_model::{NameError, PatternError, TopicName, TopicPattern};

use crate::broker::path_encoding::{decoded, spelled};

/// What the options of a channel begin with that is a group of a topic.
pub(super) const GROUP: &str = "group=";

/// The topic and the options of a channel that is a group.
pub(super) fn group_part(channel: &str) -> Option<(&str, &str)> {
    channel.rsplit_once('?').filter(|(_, options)| options.starts_with(GROUP))
}

/// The topic of a channel.
///
/// # Errors
/// The channel is empty, too long, a pattern or a group.
pub(crate) fn topic_of(channel: &str) -> Result<TopicName, NameError> {
    if let Some((topic, _)) = group_part(channel) {
        let (name, position) = (channel.to_owned(), topic.len());
        return Err(NameError::Character { name, character: '?', position });
    }
    let mut position = 0;
    for part in channel.split('.') {
        if is_wildcard(part) {
            let character = part.chars().next().unwrap_or_default();
            return Err(NameError::Character { name: channel.to_owned(), character, position });
        }
        position += part.len() + 1;
    }
    let letters: Vec<_> = channel.bytes().map(|byte| (byte, false)).collect();
    spelled(&letters).parse()
}

fn is_wildcard(part: &str) -> bool {
    matches!(part, "*" | ">")
}

/// The pattern of topics that a channel is, if a part of it, between dots, is `*` or `>`: any one part, and as the last all that
/// follow.
///
/// # Errors
/// Something follows `>`, or the rest of it is no name.
pub(crate) fn pattern_of(channel: &str) -> Option<Result<TopicPattern, PatternError>> {
    if !channel.split('.').any(is_wildcard) || group_part(channel).is_some() {
        return None;
    }
    let parts = channel.split('.').map(|part| {
        if is_wildcard(part) {
            return part.to_owned();
        }
        let letters: Vec<_> = part.bytes().map(|byte| (byte, false)).collect();
        spelled(&letters)
    });
    Some(parts.collect::<Vec<_>>().join(".").parse())
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
    fn a_channel_with_a_wildcard_is_a_pattern() {
        for (channel, pattern) in [
            ("*", Some("*")),
            (">", Some(">")),
            ("chat.*", Some("chat.*")),
            ("chat:a.*.b", Some("chat%3Aa.*.b")),
            ("a/b.>", Some("a/b.>")),
            ("chat:*", None),
            ("a*.b", None),
            ("a.*.b?group=c", None),
            ("news", None),
            ("", None),
        ] {
            let found = pattern_of(channel).map(|found| found.unwrap().to_string());
            assert_eq!(found.as_deref(), pattern, "{channel}");
        }
        for channel in ["a.>.b", "a..*", &format!("{}.*", "x".repeat(10_000))] {
            assert!(pattern_of(channel).unwrap().is_err(), "{channel}");
        }
    }

    #[test]
    fn a_channel_that_no_topic_can_have_is_refused() {
        for channel in ["", "a.*", ">", "a?group=b", &"x".repeat(10_000)] {
            assert!(topic_of(channel).is_err(), "{channel}");
        }
    }
}
