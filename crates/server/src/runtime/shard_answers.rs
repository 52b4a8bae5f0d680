//! Questions that a core sends to shards on its own behalf wait here for their answers.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use foldhash::fast::FixedState;
use sennit_engine::{
    DelayedRun, Effect, Explanation, KeyDescription, Origin, PartitionDescription, Refusal,
    SessionId, StreamAnswer, WalkPage,
};
use sennit_model::{CursorName, GroupId, Offset, TopicId};
use tokio::sync::{Notify, oneshot};

/// Requests that carry a [`ParkedQuestion`] have this bit; others are counted from 1 and never reach it.
const PARKED: u64 = 1 << 63;

/// Bits of the number of a question that count since a start.
const QUESTION_BITS: u32 = 40;

/// A question that a core's parked connections ask a stream. As the number of a request: the highest bit is
/// set, 31 bits are the question's number, the lower 32 bits its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParkedQuestion {
    number: u32,
    position: u32,
}

impl ParkedQuestion {
    /// The highest number of a question.
    pub(crate) const NUMBER_MAX: u32 = u32::MAX >> 1;

    /// A question whose answer nobody awaits.
    pub(crate) const UNAWAITED: Self = Self { number: 0, position: u32::MAX };

    /// A question about a position: the index of one at which connections wait.
    pub(crate) fn new(number: u32, position: u32) -> Self {
        assert!(number <= Self::NUMBER_MAX, "question {number} is beyond the layout");
        Self { number, position }
    }

    pub(crate) fn position(self) -> u32 {
        self.position
    }

    fn request(self) -> u64 {
        PARKED | u64::from(self.number) << 32 | u64::from(self.position)
    }

    fn of_request(request: u64) -> Option<Self> {
        let number = (request & !PARKED) >> 32;
        (request & PARKED != 0).then_some(Self { number: number as u32, position: request as u32 })
    }
}

/// An answer of a shard.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The change is committed.
    Done { topic: TopicId, group: Option<GroupId>, created: bool },
    /// How a partition is.
    Described(PartitionDescription),
    /// Where a reader begins in a partition, and where that ends.
    Located { first: Offset, end: Offset },
    /// So many parked messages are ready again.
    Unparked(u64),
    /// A message is committed, at this offset unless that is forgotten; a duplicate was before.
    Published { first: Option<Offset>, is_duplicate: bool },
    /// The messages of a partition that wait because of their publisher's delay.
    Delayed(Vec<DelayedRun>),
    /// The delays of so many messages were cancelled or changed.
    DelaysChanged(u64),
    /// Why a message or a fair key waits.
    Explained(Explanation),
    /// The fair keys of a partition's group with the most ready messages.
    Keys(Vec<KeyDescription>),
    /// A page of the messages that a group still has.
    Walked(Box<WalkPage>),
    /// The cursors of a partition.
    Cursors(Vec<(CursorName, Offset)>),
    /// What a stream says.
    Stream(StreamAnswer),
}

/// Questions that wait for their answers.
#[derive(Debug)]
pub(crate) struct Answers {
    /// Under this session the core asks.
    session: SessionId,
    pending: HashMap<u64, oneshot::Sender<Result<Answer, Refusal>>, FixedState>,
    question_count: u64,
    /// Answers for parked connections, with the questions.
    pub(crate) for_parked: RefCell<Vec<(ParkedQuestion, Result<Answer, Refusal>)>>,
    /// Notified when `for_parked` gets an answer.
    pub(crate) parked_notify: Rc<Notify>,
}

impl Answers {
    /// Those of the core whose sessions are numbered from `base`, which is no session's own number. Other nodes may
    /// still answer questions of earlier starts.
    pub(crate) fn new(base: SessionId, start_epoch: u64) -> Self {
        Self {
            session: base,
            pending: HashMap::default(),
            question_count: start_epoch << QUESTION_BITS & (PARKED - 1),
            for_parked: RefCell::default(),
            parked_notify: Rc::default(),
        }
    }

    /// The number of questions so far.
    pub(crate) fn question_count(&self) -> u64 {
        self.question_count
    }

    /// The answer to this question is awaited no more.
    pub(crate) fn forget(&mut self, origin: Origin) {
        self.pending.remove(&origin.request);
    }

    /// A place for the answer to a question, and what to wait for.
    pub(crate) fn ask(&mut self) -> (Origin, oneshot::Receiver<Result<Answer, Refusal>>) {
        let (sender, receiver) = oneshot::channel();
        self.question_count += 1;
        self.pending.insert(self.question_count, sender);
        (Origin { session: self.session, request: self.question_count }, receiver)
    }

    /// The origin of a question of parked connections.
    pub(crate) fn of_parked(&self, question: ParkedQuestion) -> Origin {
        Origin { session: self.session, request: question.request() }
    }

    /// Takes an effect that is meant for this session.
    pub(crate) fn take(&mut self, effect: Effect) {
        let (request, answer) = match effect {
            Effect::Done { origin, topic, group, created } => {
                (origin.request, Ok(Answer::Done { topic, group, created }))
            }
            Effect::Confirmed(confirmed) => {
                let (first, is_duplicate) = (confirmed.first_offset, confirmed.duplicate);
                (confirmed.origin.request, Ok(Answer::Published { first, is_duplicate }))
            }
            Effect::PublishedAt { origin, first, .. } => {
                (origin.request, Ok(Answer::Published { first: Some(first), is_duplicate: false }))
            }
            Effect::Described { origin, description } => {
                (origin.request, Ok(Answer::Described(description)))
            }
            Effect::Located { origin, first, end } => {
                (origin.request, Ok(Answer::Located { first, end }))
            }
            Effect::Unparked { origin, count } => (origin.request, Ok(Answer::Unparked(count))),
            Effect::Delayed { origin, runs } => (origin.request, Ok(Answer::Delayed(runs))),
            Effect::DelaysChanged { origin, count } => {
                (origin.request, Ok(Answer::DelaysChanged(count)))
            }
            Effect::Explained { origin, explanation } => {
                (origin.request, Ok(Answer::Explained(explanation)))
            }
            Effect::Keys { origin, keys } => (origin.request, Ok(Answer::Keys(keys))),
            Effect::Walked { origin, page } => (origin.request, Ok(Answer::Walked(page))),
            Effect::Cursors { origin, cursors } => (origin.request, Ok(Answer::Cursors(cursors))),
            Effect::Stream(origin, answer) => (origin.request, Ok(Answer::Stream(*answer))),
            Effect::Refused { origin, refusal } => (origin.request, Err(refusal)),
            _ => return,
        };
        if let Some(question) = ParkedQuestion::of_request(request) {
            self.for_parked.get_mut().push((question, answer));
            self.parked_notify.notify_one();
            return;
        }
        if let Some(waiting) = self.pending.remove(&request) {
            let _ = waiting.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_which_parked_question_it_is() {
        for (number, position) in [(0, 0), (1, 7), (ParkedQuestion::NUMBER_MAX, u32::MAX - 1)] {
            let question = ParkedQuestion::new(number, position);
            assert_eq!(ParkedQuestion::of_request(question.request()), Some(question));
        }
        assert_eq!(ParkedQuestion::of_request(u64::MAX >> 1), None);
    }
}
