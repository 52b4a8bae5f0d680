//! What shards answer to the control of names and settings: each question waits here for its
//! answer.

use std::collections::HashMap;

use sennit_engine::{Effect, Origin, PartitionDescription, Refusal, SessionId};
use sennit_model::{CursorName, GroupId, Offset, TopicId};
use tokio::sync::oneshot;

/// An answer of a shard.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The change is committed.
    Done { topic: TopicId, group: Option<GroupId>, created: bool },
    /// How a partition is.
    Described(PartitionDescription),
    /// Where a reader begins in a partition, and where that ends.
    Located { first: Offset, end: Offset },
    /// The cursors of a partition.
    Cursors(Vec<(CursorName, Offset)>),
}

/// Questions that wait for their answers.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pending: HashMap<u64, oneshot::Sender<Result<Answer, Refusal>>>,
    asked: u64,
    /// Topics whose dead letters have nowhere to go yet.
    pub(crate) dead_letter_topics_needed: Vec<TopicId>,
}

impl Answers {
    /// Under this session the first core asks the shards.
    pub(crate) const SESSION: SessionId = SessionId(0);

    /// A place for the answer to a question, and what to wait for.
    pub(crate) fn ask(&mut self) -> (Origin, oneshot::Receiver<Result<Answer, Refusal>>) {
        let (sender, receiver) = oneshot::channel();
        self.asked += 1;
        self.pending.insert(self.asked, sender);
        (Origin { session: Self::SESSION, request: self.asked }, receiver)
    }

    /// Takes an effect that is meant for this session.
    pub(crate) fn take(&mut self, effect: Effect) {
        let (request, answer) = match effect {
            Effect::Done { origin, topic, group, created } => {
                (origin.request, Ok(Answer::Done { topic, group, created }))
            }
            Effect::Described { origin, description } => {
                (origin.request, Ok(Answer::Described(description)))
            }
            Effect::Located { origin, first, end } => {
                (origin.request, Ok(Answer::Located { first, end }))
            }
            Effect::Cursors { origin, cursors } => (origin.request, Ok(Answer::Cursors(cursors))),
            Effect::Refused { origin, refusal } => (origin.request, Err(refusal)),
            Effect::DeadLetterTopicNeeded { source } => {
                self.dead_letter_topics_needed.push(source);
                return;
            }
            _ => return,
        };
        if let Some(waiting) = self.pending.remove(&request) {
            let _ = waiting.send(answer);
        }
    }
}
