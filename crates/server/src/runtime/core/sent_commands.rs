//! Commands that were sent to the node that leads, until they are answered. One that the leader has not done comes back,
//! to be sent to the next. They are in the order in which they were sent; several may have one origin.

use std::collections::BTreeMap;

use sennit_engine::{Command, Effect, Origin, Refusal};

/// A command that was sent.
#[derive(Debug)]
struct Sent {
    command: Command,
    bytes: u64,
}

/// The commands.
#[derive(Debug, Default)]
pub(super) struct SentCommands {
    /// By the number in the order of sending.
    unanswered: BTreeMap<(Origin, u64), Sent>,
    /// Those that were not done, by the same number.
    undone: BTreeMap<u64, Sent>,
    next: u64,
    bytes: u64,
}

impl SentCommands {
    /// Adds a command that publishes so many bytes.
    pub(super) fn add(&mut self, origin: Origin, command: Command, bytes: u64) {
        self.unanswered.insert((origin, self.next), Sent { command, bytes });
        self.next += 1;
        self.bytes += bytes;
    }

    /// The first that was sent under this origin is answered; false if there is none.
    pub(super) fn answered(&mut self, origin: Origin) -> bool {
        let Some(key) = self.of(origin).next() else { return false };
        self.bytes -= self.unanswered.remove(&key).map_or(0, |sent| sent.bytes);
        true
    }

    /// The leader has led no more when a command came that was sent under this origin; false if there is none. Whatever
    /// came after that was not done either, so it is the last one.
    pub(super) fn not_done(&mut self, origin: Origin) -> bool {
        let Some(key) = self.of(origin).next_back() else { return false };
        self.undone.extend(self.unanswered.remove(&key).map(|sent| (key.1, sent)));
        true
    }

    fn of(&self, origin: Origin) -> impl DoubleEndedIterator<Item = (Origin, u64)> {
        let range = self.unanswered.range((origin, 0)..=(origin, u64::MAX));
        range.map(|(key, _)| *key)
    }

    /// Whether an answer is still to come.
    pub(super) fn are_awaited(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// No answer comes any more: nobody knows what became of those that have none.
    pub(super) fn give_up(&mut self, out: &mut Vec<Effect>) {
        for ((origin, _), sent) in std::mem::take(&mut self.unanswered) {
            self.bytes -= sent.bytes;
            out.push(Effect::Refused { origin, refusal: Refusal::OutcomeUnknown });
        }
    }

    /// Removes those that were not done, in their order.
    pub(super) fn take_undone(&mut self) -> impl DoubleEndedIterator<Item = Command> + use<> {
        let undone = std::mem::take(&mut self.undone);
        self.bytes -= undone.values().map(|sent| sent.bytes).sum::<u64>();
        undone.into_values().map(|sent| sent.command)
    }

    /// Published bytes of all of them.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use sennit_engine::{PartitionCommand, SessionId};
    use sennit_model::PartitionId;

    use super::*;

    fn origin(request: u64) -> Origin {
        Origin { session: SessionId(7), request }
    }

    /// A command that can be told from others of its origin.
    fn command(request: u64, index: u32) -> Command {
        let partition =
            PartitionId { index: sennit_model::PartitionIndex(index), ..Default::default() };
        Command::Partition(origin(request), partition, PartitionCommand::Describe)
    }

    fn sent(commands: &[(u64, u32)]) -> SentCommands {
        let mut all = SentCommands::default();
        for &(request, index) in commands {
            all.add(origin(request), command(request, index), 10);
        }
        all
    }

    #[test]
    fn of_what_is_not_answered_nobody_knows_the_outcome() {
        let mut all = sent(&[(1, 0), (1, 1), (2, 2)]);
        assert!(all.answered(origin(1)) && all.answered(origin(2)) && !all.answered(origin(2)));
        assert_eq!(all.bytes(), 10);
        let mut out = Vec::new();
        all.give_up(&mut out);
        let refusal = Refusal::OutcomeUnknown;
        assert_eq!(out, [Effect::Refused { origin: origin(1), refusal }]);
        assert!(!all.are_awaited());
        assert_eq!((all.bytes(), all.answered(origin(1))), (0, false));
    }

    #[test]
    fn what_was_not_done_comes_back_in_the_order_in_which_it_was_sent() {
        let mut all = sent(&[(3, 0), (1, 1), (3, 2), (1, 3), (2, 4)]);
        assert!(all.answered(origin(1)), "the first of its origin was done");
        assert!(all.answered(origin(3)), "that one too");
        for request in [3, 1, 2] {
            assert!(all.not_done(origin(request)));
        }
        assert!(!all.not_done(origin(2)));
        assert_eq!((all.are_awaited(), all.bytes()), (false, 30));
        let undone: Vec<_> = all.take_undone().collect();
        assert_eq!(undone, [command(3, 2), command(1, 3), command(2, 4)]);
        assert_eq!((all.bytes(), all.take_undone().count()), (0, 0));
    }

    #[test]
    fn of_two_with_one_origin_the_later_was_not_done() {
        let mut all = sent(&[(1, 0), (1, 1)]);
        assert!(all.not_done(origin(1)));
        assert_eq!(all.take_undone().collect::<Vec<_>>(), [command(1, 1)]);
        assert!(all.are_awaited());
    }
}
