//! Commands that wait until it is known who leads, in order, for a while. Those of a session stay in order: behind one
//! that is refused none is done that waited with it.

use std::{
    collections::{BTreeSet, VecDeque},
    slice,
    time::Duration,
};

use sennit_engine::{Command, SessionId};
use sennit_model::Timestamp;

use super::{open_requests::origin_of, published_bytes};

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
    /// Sessions of which a command had no room, since there were none.
    without_room: BTreeSet<SessionId>,
}

impl HeldCommands {
    /// Adds a command behind the others. Returns it if too much waits, or one before it was returned.
    pub(super) fn push(&mut self, command: Command, now: Timestamp) -> Option<Command> {
        let bytes = bytes_of(&command);
        let session = origin_of(&command).map(|origin| origin.session);
        let is_full =
            self.commands.len() >= HELD_COMMANDS_MAX || self.bytes + bytes > HELD_BYTES_MAX;
        let is_full = is_full && !self.commands.is_empty();
        if is_full || session.is_some_and(|session| self.without_room.contains(&session)) {
            self.without_room.extend(session);
            return Some(command);
        }
        self.bytes += bytes;
        self.commands.push_back((now, command));
        None
    }

    /// Puts commands before the others. They have waited since then, and there is room for them.
    pub(super) fn put_first(
        &mut self,
        commands: impl DoubleEndedIterator<Item = Command>,
        since: Timestamp,
    ) {
        for command in commands.rev() {
            self.bytes += bytes_of(&command);
            self.commands.push_front((since, command));
        }
    }

    /// Removes the commands that have waited too long, and all behind them of the same sessions that have an answer.
    pub(super) fn take_overdue(&mut self, now: Timestamp) -> Vec<Command> {
        let mut overdue = Vec::new();
        while let Some((_, command)) =
            self.commands.pop_front_if(|(since, _)| since.plus(HELD_SPAN) <= now)
        {
            overdue.push(command);
        }
        if overdue.is_empty() {
            return overdue;
        }
        let session_of = |command: &Command| origin_of(command).map(|origin| origin.session);
        let sessions: BTreeSet<_> = overdue.iter().filter_map(session_of).collect();
        for (since, command) in std::mem::take(&mut self.commands) {
            match session_of(&command).is_some_and(|session| sessions.contains(&session)) {
                true => overdue.push(command),
                false => self.commands.push_back((since, command)),
            }
        }
        self.bytes = self.commands.iter().map(|(_, command)| bytes_of(command)).sum();
        self.forget_if_empty();
        overdue
    }

    fn forget_if_empty(&mut self) {
        if self.commands.is_empty() {
            self.without_room.clear();
        }
    }

    /// Removes all.
    pub(super) fn take(&mut self) -> impl Iterator<Item = Command> + use<> {
        self.bytes = 0;
        let commands = std::mem::take(&mut self.commands);
        self.forget_if_empty();
        commands.into_iter().map(|(_, command)| command)
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
        publish_of(1, request, length)
    }

    fn publish_of(session: u64, request: u64, length: usize) -> Command {
        let mut batch = BatchBuilder::for_append(length + 100);
        batch.push(&Message::new(Bytes::from(vec![1; length]))).unwrap();
        Command::Publish(Publish {
            origin: Origin { session: SessionId(session), request },
            partition: PartitionId::default(),
            producer: ProducerStamp::default(),
            batch: batch.take().unwrap(),
        })
    }

    #[test]
    fn with_a_command_that_waits_too_long_go_all_of_its_session() {
        let mut held = HeldCommands::default();
        let late = Timestamp(0).plus(HELD_SPAN);
        for (session, request, since) in [(1, 1, 0), (2, 2, 1), (1, 3, 1), (2, 4, 1)] {
            assert_eq!(held.push(publish_of(session, request, 10), Timestamp(since)), None);
        }
        let end = Command::EndSession { session: SessionId(1), grace: HELD_SPAN };
        assert_eq!(held.push(end.clone(), Timestamp(1)), None);
        assert_eq!(held.take_overdue(Timestamp(1)), []);
        assert_eq!(held.take_overdue(late), [publish_of(1, 1, 10), publish_of(1, 3, 10)]);
        assert_eq!(held.bytes(), 2 * bytes_of(&publish(3, 10)));
        let left = [publish_of(2, 2, 10), publish_of(2, 4, 10), end];
        assert_eq!(held.take().collect::<Vec<_>>(), left);
        assert_eq!((held.len(), held.bytes()), (0, 0));
    }

    #[test]
    fn what_is_put_first_comes_out_first_in_its_order_and_is_overdue_by_its_own_time() {
        let mut held = HeldCommands::default();
        assert_eq!(held.push(publish_of(2, 3, 10), Timestamp(5)), None);
        held.put_first([publish(1, 10), publish(2, 10)].into_iter(), Timestamp(0));
        assert_eq!(held.bytes(), 3 * bytes_of(&publish(1, 10)));
        let late = Timestamp(0).plus(HELD_SPAN);
        assert_eq!(held.take_overdue(late), [publish(1, 10), publish(2, 10)]);
        assert_eq!(held.take().collect::<Vec<_>>(), [publish_of(2, 3, 10)]);
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
        // The next ones of its session find no room either, however short: they must not overtake it.
        assert_eq!(held.push(publish(request, 10), Timestamp(0)), Some(publish(request, 10)));
        assert_eq!(held.push(publish_of(2, request, 10), Timestamp(0)), None);
        assert_eq!(held.take().count() as u64, request + 1);
        assert_eq!(held.push(publish(request, 10), Timestamp(0)), None);
    }
}
