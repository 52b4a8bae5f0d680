//! What shards answer to a core that asks in nobody's name: each question waits here for its answer.

use std::{cell::RefCell, collections::HashMap, rc::Rc};

use foldhash::fast::FixedState;
use sennit_engine::{Effect, Origin, PartitionDescription, Refusal, SessionId, StreamAnswer};
use sennit_model::{CursorName, GroupId, Offset, TopicId};
use tokio::sync::{Notify, oneshot};

/// Questions for parked connections have this bit in their numbers, and their own numbers behind it.
const OF_LOT: u64 = 1 << 63;

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
    asked: u64,
    /// The answers for parked connections, with the numbers of its questions.
    pub(crate) for_parked: RefCell<Vec<(u64, Result<Answer, Refusal>)>>,
    /// Rung when there is something of that.
    pub(crate) parked_notify: Rc<Notify>,
}

impl Answers {
    /// Those of the core whose sessions are numbered from `base`, which is no session's own number.
    pub(crate) fn new(base: SessionId) -> Self {
        Self {
            session: base,
            pending: HashMap::default(),
            asked: 0,
            for_parked: RefCell::default(),
            parked_notify: Rc::default(),
        }
    }

    /// How many questions were asked so far.
    pub(crate) fn asked(&self) -> u64 {
        self.asked
    }

    /// The answer to this question is awaited no more.
    pub(crate) fn forget(&mut self, origin: Origin) {
        self.pending.remove(&origin.request);
    }

    /// A place for the answer to a question, and what to wait for.
    pub(crate) fn ask(&mut self) -> (Origin, oneshot::Receiver<Result<Answer, Refusal>>) {
        let (sender, receiver) = oneshot::channel();
        self.asked += 1;
        self.pending.insert(self.asked, sender);
        (Origin { session: self.session, request: self.asked }, receiver)
    }

    /// The origin of the question for parked connections of this number.
    pub(crate) fn of_parked(&self, number: u64) -> Origin {
        Origin { session: self.session, request: OF_LOT | number }
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
            Effect::Unparked { origin, count } => (origin.request, Ok(Answer::Unparked(count))),
            Effect::Cursors { origin, cursors } => (origin.request, Ok(Answer::Cursors(cursors))),
            Effect::Stream(origin, answer) => (origin.request, Ok(Answer::Stream(*answer))),
            Effect::Refused { origin, refusal } => (origin.request, Err(refusal)),
            _ => return,
        };
        if request & OF_LOT != 0 {
            self.for_parked.get_mut().push((request & !OF_LOT, answer));
            self.parked_notify.notify_one();
            return;
        }
        if let Some(waiting) = self.pending.remove(&request) {
            let _ = waiting.send(answer);
        }
    }
}
