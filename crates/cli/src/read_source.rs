//! The source of `sennit read`: one topic, or all topics that match a pattern.

use std::time::Duration;

use sennit_client::{
    Client, Error, Filter, Offset, PartitionIndex, PatternReader, ReadFrom, ReadRun, Reader,
    Received, WhenSlow,
};
use sennit_model::{CursorName, TopicName, TopicPattern};

/// Messages on their way from one topic.
const CREDIT_MESSAGES: u32 = 65_536;

/// Bytes of messages on their way from one topic.
const CREDIT_BYTES: u64 = 32 << 20;

/// How long printed messages of a topic may wait for their commit.
const COMMIT_AFTER: Duration = Duration::from_secs(1);

/// A topic, a partition and an offset.
pub type NextOffset = (TopicName, PartitionIndex, Offset);

/// The topics to read.
#[derive(Clone, Debug, PartialEq)]
pub enum ReadTarget {
    /// One topic.
    Topic(TopicName),
    /// All topics that match.
    Pattern(TopicPattern),
}

impl ReadTarget {
    /// Parses a name or a pattern.
    ///
    /// # Errors
    /// The reason why it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if TopicPattern::is_pattern(text) {
            return text.parse().map(Self::Pattern).map_err(|error| format!("{error}"));
        }
        text.parse().map(Self::Topic).map_err(|error| format!("{error}"))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Topic(topic) => topic.as_str(),
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }
}

/// The options of a read.
pub struct ReadOptions<'a> {
    /// Where to begin.
    pub from: ReadFrom,
    /// The filter.
    pub filter: Option<&'a Filter>,
    /// The cursor, and whether to take it over.
    pub cursor: Option<(&'a CursorName, bool)>,
    /// The behaviour of a reader that falls behind.
    pub when_slow: WhenSlow,
    /// Whether to stop at the present end.
    pub until_end: bool,
}

/// The source of messages.
pub enum Source {
    /// One topic.
    One(Box<Reader>),
    /// The topics of a pattern.
    Many(Box<PatternReader>),
}

macro_rules! configured {
    ($builder:expr, $options:expr) => {{
        let mut builder = $builder.from($options.from).until_end($options.until_end);
        builder = builder.when_slow($options.when_slow);
        if let Some(filter) = $options.filter {
            builder = builder.filter(filter);
        }
        if let Some((cursor, take_over)) = $options.cursor {
            builder = builder.cursor(cursor).take_over(take_over).auto_commit(COMMIT_AFTER);
        }
        builder
    }};
}

impl Source {
    /// Starts to read.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn begin(
        client: &Client,
        target: &ReadTarget,
        options: ReadOptions<'_>,
    ) -> Result<Self, Error> {
        Ok(match target {
            ReadTarget::Topic(topic) => {
                let builder = configured!(client.reader(topic), options);
                let builder = builder.credit_messages(CREDIT_MESSAGES).credit_bytes(CREDIT_BYTES);
                Self::One(Box::new(builder.start().await?))
            }
            ReadTarget::Pattern(pattern) => {
                let builder = configured!(client.pattern_reader(pattern), options);
                Self::Many(Box::new(builder.start().await?))
            }
        })
    }

    /// The next item, with its topic; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<(TopicName, Received<ReadRun>), Error>> {
        match self {
            Self::One(reader) => {
                let received = reader.receive_run().await?;
                Some(received.map(|received| (reader.topic().clone(), received)))
            }
            Self::Many(reader) => reader.receive_run().await,
        }
    }

    /// Ends, with the cursor behind everything that was received, except for messages from
    /// `left_at`.
    ///
    /// # Errors
    /// The broker's refusal.
    pub async fn end(self, left_at: Option<NextOffset>) -> Result<(), Error> {
        match self {
            Self::One(mut reader) => {
                if let Some((_, partition, offset)) = left_at {
                    reader.commit_no_further(partition, offset);
                }
                reader.close().await
            }
            Self::Many(mut reader) => {
                if let Some((topic, partition, offset)) = left_at {
                    reader.commit_no_further(&topic, partition, offset);
                }
                reader.close().await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_makes_a_pattern_of_a_name() {
        assert!(matches!(ReadTarget::parse("orders.eu"), Ok(ReadTarget::Topic(_))));
        assert!(matches!(ReadTarget::parse("orders.>"), Ok(ReadTarget::Pattern(_))));
        for text in ["or*", ">.a", "a b", ""] {
            assert!(ReadTarget::parse(text).is_err(), "{text}");
        }
    }
}
