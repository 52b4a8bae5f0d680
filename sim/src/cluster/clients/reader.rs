//! A reader of a partition by offset. It goes on where it was when it has to ask again. Another kind reads all back in
//! the end.

use sennit_engine::{
    Command, Credit, Delivery, GapReason, PartitionCommand, Read, ReaderChange, SessionId,
};
use sennit_history::{Gap, ReadStart, What};
use sennit_model::{Messages, Offset, OffsetRange, ReadFrom, WhenSlow};

use super::calls::{Call, Caller, Calls, KnownPartition, Reach, content};
use crate::{cluster::judge::Instant, oracle::Violation, random::Random};

/// The promise that nothing is lost.
const NO_LOSS: &str = "I1 no message is lost or unreadable";

/// The state of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// It has asked where to begin.
    Asks {
        since_us: u64,
    },
    Reads,
}

/// A reader.
#[derive(Debug)]
pub struct Reader {
    index: usize,
    partition: KnownPartition,
    reads_back: bool,
    patience_us: u64,
    state: State,
    /// Where it began to ask, and what for.
    from: ReadFrom,
    session: SessionId,
    /// Its number in the history: a new one each time it begins.
    number: u32,
    node: Option<usize>,
    /// The request that it is answered by, if it is refused.
    request: u64,
    next: u64,
    end: u64,
    /// Messages that it has received and not reported.
    untaken: (u32, u64),
}

impl Reader {
    /// A reader that has not begun.
    pub fn new(
        index: usize,
        partition: KnownPartition,
        reads_back: bool,
        patience_us: u64,
    ) -> Self {
        Self {
            index,
            partition,
            reads_back,
            patience_us,
            state: State::Idle,
            from: ReadFrom::Earliest,
            session: SessionId(0),
            number: 0,
            node: None,
            request: 0,
            next: 0,
            end: 0,
            untaken: (0, 0),
        }
    }

    /// The process of the reader in the history.
    fn process(&self) -> u32 {
        1000 + self.index as u32
    }

    /// Adds to the history what it was told, unless that may be taken back.
    fn tell(&self, begun_ns: u64, calls: &mut Calls, at: &Instant, what: What) {
        if !self.partition.is_early {
            calls.ended(self.process(), begun_ns, at, what);
        }
    }

    /// The partition, and whether this reader reads all back.
    pub fn reads(&self) -> (KnownPartition, bool) {
        (self.partition, self.reads_back)
    }

    /// Whether it has read up to the end that it was told.
    pub fn is_through(&self) -> bool {
        self.state == State::Reads && self.next >= self.end
    }

    /// Whether the reader has this session.
    pub fn is(&self, session: SessionId) -> bool {
        self.state == State::Reads && self.session == session
    }

    /// Begins, or goes on; at times it begins somewhere else.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn act(
        &mut self,
        tip: usize,
        calls: &mut Calls,
        reach: &mut Reach<'_>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        if let State::Asks { since_us, .. } = self.state
            && reach.at.true_us - since_us > self.patience_us
        {
            (self.state, self.node) = (State::Idle, None);
        }
        match self.state {
            State::Idle => {
                let node = self.node.unwrap_or(tip);
                if !reach.at.awake[node] {
                    self.node = None;
                    return Ok(());
                }
                self.from = match random.below(6) {
                    _ if self.reads_back => ReadFrom::Earliest,
                    0 => ReadFrom::Latest,
                    1 => ReadFrom::Earliest,
                    _ => ReadFrom::Offset(Offset(self.next)),
                };
                self.session = calls.session();
                let origin = calls.begin(Caller::Reader(self.index), self.session, node, reach);
                self.state = State::Asks { since_us: reach.at.true_us };
                (self.node, self.request) = (Some(node), origin.request);
                let locate = PartitionCommand::Locate(self.from, None);
                reach.tell(node, Command::Partition(origin, self.partition.id, locate))?;
            }
            State::Reads => {
                let (messages, bytes) = std::mem::take(&mut self.untaken);
                let (session, partition) = (self.session, self.partition.id);
                let tell = |change| Command::Reader { session, subscription: 1, partition, change };
                let node = self.node.unwrap_or(tip);
                if messages > 0 {
                    reach.tell(node, tell(ReaderChange::Taken { messages, bytes }))?;
                }
                if !self.reads_back && random.chance(30) {
                    reach.tell(node, tell(ReaderChange::End))?;
                    self.state = State::Idle;
                }
            }
            State::Asks { .. } => {}
        }
        Ok(())
    }

    /// The broker has said where it begins.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn located(
        &mut self,
        (request, call): (u64, Call),
        (first, end): (Offset, Offset),
        calls: &mut Calls,
        reach: &mut Reach<'_>,
        random: &mut Random,
    ) -> Result<(), Violation> {
        if request != self.request || self.state == State::Reads {
            return Ok(());
        }
        self.number = request as u32;
        // One that reads all back says that what lies before is not kept.
        let begin = if self.reads_back { Offset(0) } else { first };
        let start = ReadStart {
            reader: self.number,
            partition: self.partition.index,
            from: Some(begin.0),
            first: begin.0,
            end: end.0,
            reads_back: self.reads_back,
        };
        self.tell(call.begun_ns, calls, reach.at, What::ReadStart(start));
        if begin < first {
            let range = OffsetRange { start: begin, end: first };
            self.passed(range, GapReason::Retention, calls, reach.at)?;
        }
        (self.state, self.next, self.end) = (State::Reads, first.0, end.0);
        self.untaken = (0, 0);
        let credit = match self.reads_back {
            true => Credit { messages: u32::MAX, bytes: u64::MAX },
            false => Credit { messages: random.between(1, 50) as u32, bytes: 1 << 20 },
        };
        let origin = calls.begin(Caller::Reader(self.index), self.session, call.node, reach);
        self.request = origin.request;
        let read = Read {
            origin,
            subscription: 1,
            partition: self.partition.id,
            at: first,
            credit,
            cursor: None,
            when_slow: WhenSlow::Wait,
            filter: None,
        };
        reach.tell(call.node, Command::Read(read)).map(drop)
    }

    /// It has to ask again.
    pub fn interrupted(&mut self) {
        (self.state, self.node) = (State::Idle, None);
    }

    /// A request is refused.
    pub fn refused(&mut self, request: u64, leader: Option<usize>) {
        if request == self.request {
            (self.state, self.node) = (State::Idle, leader);
        }
    }

    /// Messages have come.
    pub fn delivered(&mut self, delivery: &Delivery, calls: &mut Calls, at: &Instant) {
        let messages = Messages::of_checked(&delivery.messages);
        let contents = messages.map(|message| content(&message)).collect();
        let read = sennit_history::Read {
            reader: self.number,
            partition: self.partition.index,
            first: delivery.first.0,
            contents,
        };
        let begun_ns = calls.instant(at);
        self.tell(begun_ns, calls, at, What::Read(read));
        self.next = delivery.first.0 + u64::from(delivery.count);
        self.untaken.0 += delivery.count;
        self.untaken.1 += delivery.messages.len() as u64;
    }

    /// Messages are passed over.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn passed(
        &mut self,
        range: OffsetRange,
        reason: GapReason,
        calls: &mut Calls,
        at: &Instant,
    ) -> Result<(), Violation> {
        let is_retention = matches!(reason, GapReason::Retention | GapReason::Compacted);
        let is_taken_back = matches!(reason, GapReason::RolledBack | GapReason::Lost);
        let may_be = is_retention || is_taken_back && self.partition.is_early;
        if !may_be {
            return Err(Violation::new(NO_LOSS, format!("{range:?} of {self:?}: {reason:?}")));
        }
        let gap = Gap {
            reader: self.number,
            partition: self.partition.index,
            start: range.start.0,
            end: range.end.0,
            is_retention,
        };
        let begun_ns = calls.instant(at);
        self.tell(begun_ns, calls, at, What::Gap(gap));
        self.next = range.end.0;
        Ok(())
    }
}
