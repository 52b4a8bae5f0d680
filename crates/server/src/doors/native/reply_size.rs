//! Answers that are longer than their connection's frames: a page of topics is shortened, a group shows fewer of
//! its parked messages, and any other answer becomes an error with its length.

use sennit_protocol::{ErrorCode, FrameHeader, Reply, control};

/// What is sent of `reply` on a connection whose frames have bodies of at most `frame_bytes_max` bytes.
pub(crate) fn fitting(mut reply: Reply, frame_bytes_max: usize) -> Reply {
    loop {
        let bytes = body_bytes(&reply);
        if bytes <= frame_bytes_max {
            return reply;
        }
        match &mut reply {
            Reply::TopicList(list) if list.topics.len() > 1 => {
                list.topics.truncate(list.topics.len() / 2);
                let last = list.topics.last().expect("one at least is left");
                list.next_page_token.clone_from(&last.name);
            }
            Reply::GroupDescription(group) if !group.parked_runs.is_empty() => {
                group.parked_runs.truncate(group.parked_runs.len() / 2);
            }
            _ => {
                let message = format!(
                    "the answer has {bytes} bytes, and frame_bytes_max of this connection is \
                     {frame_bytes_max}"
                );
                return Reply::Error(control::Error::new(ErrorCode::LimitReached, message));
            }
        }
    }
}

fn body_bytes(reply: &Reply) -> usize {
    let mut frame = Vec::new();
    reply.encode(0, &mut frame);
    frame.len() - FrameHeader::BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME_BYTES_MAX: usize = 1000;

    fn topics(names: impl Iterator<Item = String>) -> Reply {
        let topics = names.map(|name| control::TopicEntry { name, ..<_>::default() });
        let (topics, next_page_token) = (topics.collect(), String::new());
        Reply::TopicList(control::TopicList { topics, next_page_token })
    }

    #[test]
    fn a_page_of_topics_that_no_frame_holds_is_a_shorter_one_with_another_behind_it() {
        let names: Vec<_> = (0..100).map(|n| format!("{n:0>50}")).collect();
        let Reply::TopicList(page) = fitting(topics(names.clone().into_iter()), FRAME_BYTES_MAX)
        else {
            panic!("a page is one");
        };
        let given: Vec<_> = page.topics.iter().map(|entry| entry.name.clone()).collect();
        assert!(!given.is_empty() && names.starts_with(&given) && given.len() < names.len());
        assert_eq!(Some(&page.next_page_token), given.last());
        assert!(body_bytes(&Reply::TopicList(page)) <= FRAME_BYTES_MAX);
    }

    #[test]
    fn an_answer_that_fits_is_left_as_it_is() {
        let reply = topics(["a".to_owned()].into_iter());
        assert_eq!(fitting(reply.clone(), body_bytes(&reply)), reply);
    }

    #[test]
    fn of_an_answer_that_cannot_be_shorter_its_length_is_said() {
        let entry = |n| control::GroupEntry { name: format!("{n:0>50}"), ..<_>::default() };
        let groups = Reply::GroupList(control::GroupList { groups: (0..100).map(entry).collect() });
        let bytes = body_bytes(&groups);
        let Reply::Error(error) = fitting(groups, FRAME_BYTES_MAX) else {
            panic!("it is too long")
        };
        assert_eq!(error.code, ErrorCode::LimitReached.number());
        assert!(error.message.contains(&bytes.to_string()), "{}", error.message);
        assert!(error.message.contains("frame_bytes_max"), "{}", error.message);
    }
}
