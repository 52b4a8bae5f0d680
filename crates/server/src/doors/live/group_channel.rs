//! A channel that stands for a group of a topic, `jobs?group=mailers`: each message goes to one of those who are subscribed
//! to it. It knows text only.

use std::{fmt, str::FromStr};

use sennit_engine::DeliveryRun;
use sennit_identity::Verb;
use sennit_model::{Generation, GroupName, NameError, Offset, PartitionIndex, TopicName};

use super::{
    channel::{GROUP, group_part, topic_of},
    limits::{GROUP_WINDOW, GROUP_WINDOW_MAX},
};

/// When a message that a group has given to a client is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acks {
    /// Once the client's socket has taken it.
    AtHandOver,
    /// When the client says so.
    ByClient,
}

/// How a client takes part in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupChannel {
    pub(crate) group: GroupName,
    pub(crate) acks: Acks,
    /// Messages that it may have which are not settled.
    pub(crate) window: u32,
}

/// Why a text is no channel.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error(transparent)]
    Topic(#[from] NameError),
    #[error("the group of a channel: {0}")]
    Group(NameError),
    #[error(
        "{0:?} is no option of a channel: behind `TOPIC?group=NAME` may stand `&ack=client` and `&window=N`, of 1 to {GROUP_WINDOW_MAX}"
    )]
    Option(String),
}

/// The rights that a subscription needs: to a topic, or to a group of it.
pub(crate) fn verbs(group: Option<&GroupChannel>) -> &'static [Verb] {
    match group.map(|group| group.acks) {
        None => &[Verb::Subscribe],
        Some(Acks::ByClient) => &[Verb::Consume],
        // The broker settles on the client's behalf.
        Some(Acks::AtHandOver) => &[Verb::Consume, Verb::Settle],
    }
}

/// The topic of a channel to which a client subscribes, and the group if the channel is one.
///
/// # Errors
/// It is no channel, or a pattern.
pub(crate) fn subscription_of(
    channel: &str,
) -> Result<(TopicName, Option<GroupChannel>), ChannelError> {
    let Some((topic, options)) = group_part(channel) else {
        return Ok((topic_of(channel)?, None));
    };
    let mut options = options.split('&');
    let name = options.next().and_then(|first| first.strip_prefix(GROUP)).unwrap_or_default();
    let mut group = GroupChannel {
        group: name.parse().map_err(ChannelError::Group)?,
        acks: Acks::AtHandOver,
        window: GROUP_WINDOW,
    };
    for option in options {
        let refused = || ChannelError::Option(option.to_owned());
        match option.split_once('=') {
            Some(("ack", "client")) => group.acks = Acks::ByClient,
            Some(("window", text)) => {
                let window =
                    text.parse().ok().filter(|count| (1..=GROUP_WINDOW_MAX).contains(count));
                group.window = window.ok_or_else(refused)?;
            }
            _ => return Err(refused()),
        }
    }
    Ok((topic_of(topic)?, Some(group)))
}

/// A delivery of a group, as clients name it when they settle it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryTag {
    pub(crate) partition: PartitionIndex,
    /// Of one message.
    pub(crate) run: DeliveryRun,
}

impl fmt::Display for DeliveryTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeliveryRun { first, attempt, generation, .. } = self.run;
        write!(f, "{}.{}.{attempt}.{}", self.partition.0, first.0, generation.0)
    }
}

impl FromStr for DeliveryTag {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut numbers = text.split('.').map(str::parse::<u64>);
        let mut next = || numbers.next().and_then(Result::ok).ok_or(());
        let (partition, first, attempt, generation) = (next()?, next()?, next()?, next()?);
        if numbers.next().is_some() {
            return Err(());
        }
        let short = |number| u32::try_from(number).map_err(drop);
        let run = DeliveryRun {
            first: Offset(first),
            count: 1,
            attempt: short(attempt)?,
            generation: Generation(short(generation)?),
        };
        Ok(Self { partition: PartitionIndex(short(partition)?), run })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_a_channel_or_refused(
            topic in ".{0,12}",
            options in "([?&=.]|group|ack|client|window|[0-9]{1,11}|.){0,12}",
        ) {
            if let Ok((_, Some(group))) = subscription_of(&format!("{topic}?group={options}")) {
                prop_assert!((1..=GROUP_WINDOW_MAX).contains(&group.window));
            }
        }

        #[test]
        fn any_text_that_names_a_delivery_is_one(text in "([0-9]{1,20}|[.+-]|.){0,9}") {
            if let Ok(tag) = text.parse::<DeliveryTag>() {
                prop_assert_eq!(tag.to_string().parse(), Ok(tag));
            }
        }
    }

    #[test]
    fn a_channel_may_be_a_group_of_a_topic() {
        let of = |channel: &str| {
            let (topic, group) = subscription_of(channel).unwrap();
            let group = group.map(|of| (of.group.to_string(), of.acks, of.window));
            (topic.to_string(), group)
        };
        let mailers = |acks, window| Some(("mailers".to_owned(), acks, window));
        for (channel, topic, group) in [
            ("jobs", "jobs", None),
            ("jobs?group=mailers", "jobs", mailers(Acks::AtHandOver, GROUP_WINDOW)),
            ("jobs?group=mailers&ack=client", "jobs", mailers(Acks::ByClient, GROUP_WINDOW)),
            ("jobs?group=mailers&window=1&ack=client", "jobs", mailers(Acks::ByClient, 1)),
            ("a?b?group=mailers", "a%3Fb", mailers(Acks::AtHandOver, GROUP_WINDOW)),
            ("jobs?groups=mailers", "jobs%3Fgroups%3Dmailers", None),
        ] {
            assert_eq!(of(channel), (topic.to_owned(), group), "{channel}");
        }
    }

    #[test]
    fn a_channel_with_a_wrong_option_is_refused_with_those_that_there_are() {
        for channel in [
            "jobs?group=",
            "jobs?group=a b",
            "jobs?group=a&ack=broker",
            "jobs?group=a&window=0",
            "jobs?group=a&window=many",
            "jobs?group=a&window=100000",
            "jobs?group=a&",
            "jobs.*?group=a",
            "?group=a",
            "jobs?group=a?group=b",
        ] {
            assert!(subscription_of(channel).is_err(), "{channel}");
        }
        let error = subscription_of("jobs?group=a&ack=broker").unwrap_err().to_string();
        assert!(error.contains("\"ack=broker\"") && error.contains("`&ack=client`"), "{error}");
    }

    #[test]
    fn a_delivery_is_named_by_a_text_that_is_read_again() {
        let run =
            DeliveryRun { first: Offset(17), count: 1, attempt: 2, generation: Generation(5) };
        let tag = DeliveryTag { partition: PartitionIndex(3), run };
        assert_eq!(tag.to_string(), "3.17.2.5");
        assert_eq!("3.17.2.5".parse(), Ok(tag));
        for text in ["", "3", "3.17.2", "3.17.2.5.1", "3.17.x.5", "-3.17.2.5", "3.17.4294967296.5"]
        {
            assert!(text.parse::<DeliveryTag>().is_err(), "{text:?}");
        }
    }
}
