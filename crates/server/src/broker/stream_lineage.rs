//! The offsets that a fork shares with its source: those before the fork begins. A client that has read the source
//! may continue in the fork. It knows no HTTP.

use sennit_engine::{ForkOf, StreamAnswer, StreamCommand, StreamRead};
use sennit_model::{Offset, ReadFrom, TopicName};

use super::{
    stream_offset::StreamOffset,
    stream_request::{Located, StreamFailure},
    streams::{Streams, ask},
};

impl Streams {
    /// Whether an offset was given of a stream that this one was forked from, however often that was
    /// forked itself, and lies where both hold the same. It costs two questions for each fork.
    pub(crate) async fn is_inherited(
        &self,
        located: Located,
        offset: StreamOffset,
    ) -> Result<bool, StreamFailure> {
        let mut located = located;
        // In a loop: a chain of forks may be longer than a stack is deep.
        while let Some(fork) = self.fork_of(located).await? {
            let Ok(name) = fork.name.parse::<TopicName>() else { return Ok(false) };
            if offset.at > fork.at {
                return Ok(false);
            }
            // A source keeps its name as long as it has forks, unless it was deleted natively.
            let Ok(source) = self.located_anew(&name).await else { return Ok(false) };
            if source.topic != fork.source.topic {
                return Ok(false);
            }
            if offset.is_of(source.tag) {
                return Ok(true);
            }
            located = source;
        }
        Ok(false)
    }

    /// What a stream was forked from, also where it is deleted and kept for its forks.
    async fn fork_of(&self, located: Located) -> Result<Option<ForkOf>, StreamFailure> {
        let beginning = StreamRead {
            at: ReadFrom::Offset(Offset(0)),
            before: Some(Offset(0)),
            bytes_max: 1,
            waits: false,
            one_append: false,
            for_fork: true,
        };
        match ask(&self.core, located.place(), StreamCommand::Read(beginning)).await {
            Ok(StreamAnswer::Inherited { status, .. }) => Ok(status.settings.fork.clone()),
            Ok(StreamAnswer::Chunk(chunk)) => Ok(chunk.settings.fork.clone()),
            Ok(_) => Ok(None),
            Err(failure) if failure.refusal().is_some() => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}
