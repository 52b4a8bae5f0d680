//! Commands that wait until it is known who leads, in order, for a while.

use std::{collections::VecDeque, slice, time::Duration};

use sennit_engine::Command;
use sennit_model::Timestamp;

use super::published_bytes;

/// How long a command waits for a leader before it is refused.
pub(super) const HELD_SPAN: Duration = Duration::from_secs(2);

/// Published bytes of a shard that wait for a leader, at most.
pub(super) const HELD_BYTES_MAX: u64 = 16 << 20;

/// Commands of a shard that wait for a leader, at most.
pub(super) const HELD_COMMANDS_MAX: usize = 64 << 10;

/// The commands, the one that waits longest first.
#[derive(Debug, Default)]
pub(super) struct HeldCommands {
    commands: VecDeque<(Timestamp, Command)>,
    bytes: u64,
}

impl HeldCommands {
    /// Adds a command behind the others. Returns it if too much waits.
    pub(super) fn push(&mut self, command: Command, now: Timestamp) -> Option<Command> {
        let bytes = bytes_of(&command);
        let is_full =
            self.commands.len() >= HELD_COMMANDS_MAX || self.bytes + bytes > HELD_BYTES_MAX;
        if is_full && !self.commands.is_empty() {
            return Some(command);
        }
        self.bytes += bytes;
        self.commands.push_back((now, command));
        None
    }

    /// Removes the first command if it has waited too long.
    pub(super) fn pop_overdue(&mut self, now: Timestamp) -> Option<Command> {
        let overdue = self.commands.pop_front_if(|(since, _)| since.plus(HELD_SPAN) <= now);
        let (_, command) = overdue?;
        self.bytes -= bytes_of(&command);
        Some(command)
    }

    /// Removes all.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.bytes = 0;
        std::mem::take(&mut self.commands).into_iter().map(|(_, command)| command)
    }

    /// Number of published bytes that wait.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of commands that wait.
    pub(super) fn len(&self) -> usize {
        self.commands.len()
    }
}

fn bytes_of(command: &Command) -> u64 {
    published_bytes(slice::from_ref(command))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use sennit_engine::{Origin, Publish, SessionId};
    use sennit_model::{BatchBuilder, Message, PartitionId, ProducerStamp};

    use super::*;

    fn publish(request: u64, length: usize) -> Command {
        let mut batch = BatchBuilder::for_append(length + 100);
        batch.push(&Message::new(Bytes::from(vec![1; length]))).unwrap();
        Command::Publish(Publish {
            origin: Origin { session: SessionId(1), request },
            partition: PartitionId::default(),
            producer: ProducerStamp::default(),
            batch: batch.take().unwrap(),
        })
    }

    #[test]
    fn commands_come_out_in_their_order_and_those_that_wait_too_long_first() {
        let mut held = HeldCommands::default();
        let late = Timestamp(0).plus(HELD_SPAN);
        for (request, since) in [(1, Timestamp(0)), (2, Timestamp(0)), (3, Timestamp(1))] {
            assert_eq!(held.push(publish(request, 10), since), None);
        }
        assert_eq!(held.pop_overdue(Timestamp(1)), None);
        assert_eq!(held.pop_overdue(late), Some(publish(1, 10)));
        assert_eq!(held.pop_overdue(late), Some(publish(2, 10)));
        assert_eq!(held.pop_overdue(late), None);
        assert_eq!(held.bytes(), bytes_of(&publish(3, 10)));
        assert_eq!(held.take().collect::<Vec<_>>(), [publish(3, 10)]);
        assert_eq!((held.len(), held.bytes()), (0, 0));
    }

    #[test]
    fn more_bytes_than_may_wait_are_given_back() {
        const LONG: usize = 512 << 10;
        let mut held = HeldCommands::default();
        let mut request = 0;
        while held.push(publish(request, LONG), Timestamp(0)).is_none() {
            request += 1;
        }
        assert!(held.bytes() <= HELD_BYTES_MAX && held.bytes() + 2 * LONG as u64 > HELD_BYTES_MAX);
        let given_back = held.push(publish(request, LONG), Timestamp(0));
        assert_eq!(given_back, Some(publish(request, LONG)));
        assert_eq!(held.push(publish(request, 10), Timestamp(0)), None);
        assert_eq!(held.len() as u64, request + 1);
    }
}
