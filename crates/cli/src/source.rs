//! What `sennit read` reads: one topic, or all that a pattern means. Knows no output.

use std::time::Duration;

use sennit_client::{
    Client, Error, Filter, Offset, PartitionIndex, PatternReader, ReadFrom, ReadRun, Reader,
    Received, WhenSlow,
};
use sennit_model::{CursorName, TopicName, TopicPattern};

/// How many messages may be on their way from one topic.
const CREDIT_MESSAGES: u32 = 65_536;

/// How many bytes of messages may be on their way from one topic.
const CREDIT_BYTES: u64 = 32 << 20;

/// How long what was printed of one topic may wait for its commit.
const COMMIT_AFTER: Duration = Duration::from_secs(1);

/// Where something lies.
pub type Place = (TopicName, PartitionIndex, Offset);

/// What is to be read.
#[derive(Clone, Debug, PartialEq)]
pub enum Wanted {
    /// One topic.
    Topic(TopicName),
    /// All that are meant.
    Pattern(TopicPattern),
}

impl Wanted {
    /// `text` as a name or a pattern.
    ///
    /// # Errors
    /// Why it is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        if TopicPattern::is_pattern(text) {
            return text.parse().map(Self::Pattern).map_err(|error| format!("{error}"));
        }
        text.parse().map(Self::Topic).map_err(|error| format!("{error}"))
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Topic(topic) => topic.as_str(),
            Self::Pattern(pattern) => pattern.as_str(),
        }
    }
}

/// How it is to be read.
pub struct Manner<'a> {
    /// Where to begin.
    pub from: ReadFrom,
    /// Which messages.
    pub filter: Option<&'a Filter>,
    /// Under whose name, and whether whoever has it ends.
    pub cursor: Option<(&'a CursorName, bool)>,
    /// What becomes of a reader that falls behind.
    pub when_slow: WhenSlow,
    /// Whether to end where the topics end now.
    pub until_end: bool,
}

/// Where messages come from.
pub enum Source {
    /// One topic.
    One(Box<Reader>),
    /// Those of a pattern.
    Many(Box<PatternReader>),
}

macro_rules! told {
    ($builder:expr, $manner:expr) => {{
        let mut builder = $builder.from($manner.from).until_end($manner.until_end);
        builder = builder.when_slow($manner.when_slow);
        if let Some(filter) = $manner.filter {
            builder = builder.filter(filter);
        }
        if let Some((cursor, take_over)) = $manner.cursor {
            builder = builder.cursor(cursor).take_over(take_over).auto_commit(COMMIT_AFTER);
        }
        builder
    }};
}

impl Source {
    /// Begins to read.
    ///
    /// # Errors
    /// What the broker refuses.
    pub async fn begin(
        client: &Client,
        wanted: &Wanted,
        manner: Manner<'_>,
    ) -> Result<Self, Error> {
        Ok(match wanted {
            Wanted::Topic(topic) => {
                let builder = told!(client.reader(topic), manner);
                let builder = builder.credit_messages(CREDIT_MESSAGES).credit_bytes(CREDIT_BYTES);
                Self::One(Box::new(builder.start().await?))
            }
            Wanted::Pattern(pattern) => {
                let builder = told!(client.pattern_reader(pattern), manner);
                Self::Many(Box::new(builder.start().await?))
            }
        })
    }

    /// What comes next, with its topic; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<(TopicName, Received<ReadRun>), Error>> {
        match self {
            Self::One(reader) => {
                let received = reader.receive_run().await?;
                Some(received.map(|received| (reader.topic().clone(), received)))
            }
            Self::Many(reader) => reader.receive_run().await,
        }
    }

    /// Ends, with the cursor behind everything that has come, but for what lies from `left_at`.
    ///
    /// # Errors
    /// What the broker refuses.
    pub async fn end(self, left_at: Option<Place>) -> Result<(), Error> {
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
        assert!(matches!(Wanted::parse("orders.eu"), Ok(Wanted::Topic(_))));
        assert!(matches!(Wanted::parse("orders.>"), Ok(Wanted::Pattern(_))));
        for text in ["or*", ">.a", "a b", ""] {
            assert!(Wanted::parse(text).is_err(), "{text}");
        }
    }
}
