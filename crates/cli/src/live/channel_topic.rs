//! The topic of a channel, to which sealed messages are bound: bytes that a topic's name may not hold are `%XX` in it, as the
//! broker has it (docs/reference/live.md).

/// The name of the topic.
pub fn topic_of(channel: &str) -> String {
    let bytes = channel.as_bytes();
    let mut topic = String::with_capacity(bytes.len());
    for (at, &byte) in bytes.iter().enumerate() {
        let is_bound = |at: Option<usize>| {
            let other = at.and_then(|at| bytes.get(at));
            other.is_none_or(|byte| *byte == b'.')
        };
        let stands = match byte {
            b'.' => !is_bound(at.checked_sub(1)) && !is_bound(at.checked_add(1)),
            byte => byte.is_ascii_alphanumeric() || b"_-~/".contains(&byte),
        };
        if stands {
            topic.push(char::from(byte));
        } else {
            topic += &format!("%{byte:02X}");
        }
    }
    topic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_has_the_topic_that_the_broker_gives_it() {
        for (channel, topic) in [
            ("news", "news"),
            ("chat:index", "chat%3Aindex"),
            ("$private", "%24private"),
            ("a/b.c", "a/b.c"),
            ("a..b", "a%2E%2Eb"),
            ("100%", "100%25"),
            ("größe", "gr%C3%B6%C3%9Fe"),
        ] {
            assert_eq!(topic_of(channel), topic, "{channel}");
        }
    }
}
