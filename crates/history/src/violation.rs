//! Violations: the promises that a history breaks, and the operations that show it.

use std::fmt;

/// An operation that shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Witness {
    pub(crate) kind: WitnessKind,
    /// Its index in the history.
    pub(crate) operation: u32,
}

/// How an operation shows something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WitnessKind {
    /// A publish: by its begin or by its confirm.
    Published,
    /// A reader received it.
    Read,
    /// A consumer received it.
    Delivered,
    /// The broker said where the partition ends.
    Ended,
}

impl Witness {
    pub(crate) fn new(kind: WitnessKind, operation: usize) -> Self {
        Self { kind, operation: u32::try_from(operation).unwrap_or(u32::MAX) }
    }
}

impl fmt::Display for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            WitnessKind::Published => "publish",
            WitnessKind::Read => "read",
            WitnessKind::Delivered => "delivery",
            WitnessKind::Ended => "end",
        };
        write!(f, "{kind} #{}", self.operation)
    }
}

/// A promise that no history may break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// What somebody was told of is there when all is read back.
    Missing,
    /// Each partition is read back to its end, or the other rules say less than they should.
    NotReadBack,
    /// Each message of a log was published and not refused, byte for byte.
    Invented,
    /// A message lies in the partition, and at the offset, that its publisher asked for.
    Misplaced,
    /// No two messages are confirmed at one offset.
    OffsetGivenTwice,
    /// No two messages are received from one offset.
    ReadDiffers,
    /// What is received from an offset is what was confirmed there.
    ConfirmDiffers,
    /// A message that may be appended once lies at one place.
    Duplicated,
    /// The messages of a batch lie one behind the other.
    Torn,
    /// The messages of a publisher lie in the order in which it published them.
    PublisherReordered,
    /// A message that was published after the append of another had ended lies higher.
    OrderBroken,
    /// The end of a partition is never read lower than before.
    EndWentBack,
    /// The end of a partition is read above each offset that anybody was told of before.
    EndTooLow,
    /// Nothing is seen before it was published, nor before what lies lower was.
    SeenTooSoon,
    /// A reader is told of each offset that it does not receive.
    UntoldGap,
    /// A reader receives each offset once.
    ReadAgain,
    /// Offsets that hold messages are not told as a gap.
    GapOverMessages,
    /// A message is not handed out once its group has confirmed that it is settled.
    SettledDeliveredAgain,
    /// One delivery, by its generation and attempt, comes once.
    DeliveredTwice,
    /// A consumer receives the first attempts of a partition in the order of offsets.
    DeliveredOutOfOrder,
    /// A consumer receives no delivery of an older generation behind one of a newer.
    GenerationWentBack,
    /// When a group says that nothing is left in it, each message was received by one of its consumers.
    NeverDelivered,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The promise.
    pub rule: Rule,
    /// The partition and the offset where it shows; `None` if it has none.
    pub place: Option<(u32, u64)>,
    /// The operations that show it, by their index in the history.
    pub says: String,
}

impl Violation {
    pub(crate) fn at(rule: Rule, partition: u32, offset: u64, says: String) -> Self {
        Self { rule, place: Some((partition, offset)), says }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.rule)?;
        if let Some((partition, offset)) = self.place {
            write!(f, " at partition {partition} offset {offset}")?;
        }
        write!(f, ": {}", self.says)
    }
}
