//! The sessions of other nodes at a group that this node leads: their commands that have come before it decides, and
//! which of them take part, so that they can be ended when the link to their node has.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use sennit_engine::{Command, Origin, SessionId, StreamCommand};
use sennit_model::PartitionId;

use super::{held_commands::HELD_BYTES_MAX, published_bytes};

/// Commands of one frame, with the term of the leader for whom they are.
#[derive(Debug)]
struct Early {
    node: u16,
    term: u64,
    commands: Vec<Command>,
}

/// The sessions of a node that end with its link.
#[derive(Debug, Default)]
struct Guests {
    /// Sessions that take part in groups, or read.
    sessions: BTreeSet<SessionId>,
    /// Reads of streams that are not answered: they may wait for long.
    reads: BTreeMap<Origin, PartitionId>,
    /// The start of the node whose sessions they are.
    start_epoch: u64,
}

/// The visits of other nodes.
#[derive(Debug, Default)]
pub(super) struct Visits {
    early: Vec<Early>,
    early_bytes: u64,
    guests: BTreeMap<u16, Guests>,
}

impl Visits {
    /// Keeps commands until this node decides; false if too many wait.
    pub(super) fn hold(&mut self, node: u16, term: u64, commands: Vec<Command>) -> bool {
        let bytes = published_bytes(&commands);
        if !self.early.is_empty() && self.early_bytes + bytes > HELD_BYTES_MAX {
            return false;
        }
        self.early_bytes += bytes;
        self.early.push(Early { node, term, commands });
        true
    }

    /// Whether commands wait.
    pub(super) fn has_early(&self) -> bool {
        !self.early.is_empty()
    }

    /// Removes the commands that were held for the leader of this term.
    pub(super) fn release(&mut self, term: u64) -> Vec<Command> {
        let mut released = Vec::new();
        for Early { node, commands, .. } in self.take_early(|of| of == term) {
            self.note(node, &commands);
            released.extend(commands);
        }
        released
    }

    /// Removes the commands that were held for leaders of all terms but this one: the node, the term, and its commands.
    pub(super) fn take_early_but(&mut self, term: Option<u64>) -> Vec<(u16, u64, Vec<Command>)> {
        let early = self.take_early(|of| Some(of) != term).into_iter();
        early.map(|Early { node, term, commands }| (node, term, commands)).collect()
    }

    fn take_early(&mut self, is_taken: impl Fn(u64) -> bool) -> Vec<Early> {
        let (taken, left) =
            std::mem::take(&mut self.early).into_iter().partition(|early| is_taken(early.term));
        self.early = left;
        self.count_early();
        taken
    }

    fn count_early(&mut self) {
        self.early_bytes = self.early.iter().map(|early| published_bytes(&early.commands)).sum();
    }

    /// Notes which sessions take part by these commands, and which do no more.
    pub(super) fn note(&mut self, node: u16, commands: &[Command]) {
        for command in commands {
            match command {
                Command::Subscribe(subscribe) => {
                    self.guests.entry(node).or_default().sessions.insert(subscribe.origin.session);
                }
                Command::Read(read) => {
                    self.guests.entry(node).or_default().sessions.insert(read.origin.session);
                }
                Command::Stream(origin, partition, StreamCommand::Read(_)) => {
                    self.guests.entry(node).or_default().reads.insert(*origin, *partition);
                }
                Command::Stream(origin, _, StreamCommand::StopReading) => {
                    self.answered(node, *origin);
                }
                Command::EndSession { session, .. } => {
                    if let Some(guests) = self.guests.get_mut(&node) {
                        guests.sessions.remove(session);
                    }
                }
                _ => {}
            }
        }
    }

    /// The request of a node's session under this origin is answered.
    pub(super) fn answered(&mut self, node: u16, origin: Origin) {
        if let Some(guests) = self.guests.get_mut(&node) {
            guests.reads.remove(&origin);
        }
    }

    /// The link to a node has ended: its sessions are cut off, and what they hold returns after `grace`. Commands that
    /// wait from it are never done, and reads wait no more.
    pub(super) fn cut_off(&mut self, node: u16, grace: Duration) -> Vec<Command> {
        self.early.retain(|early| early.node != node);
        self.count_early();
        let mut ended = self.end_sessions(node, grace);
        let reads = self.guests.get_mut(&node).map(|guests| std::mem::take(&mut guests.reads));
        let stop =
            |(origin, partition)| Command::Stream(origin, partition, StreamCommand::StopReading);
        ended.extend(reads.unwrap_or_default().into_iter().map(stop));
        ended
    }

    /// The link to a node is there again. What its sessions were given, if the node has run on, may not have arrived:
    /// they end, and begin again as the node asks for them.
    pub(super) fn come_back(&mut self, node: u16, start_epoch: u64) -> Vec<Command> {
        let Some(guests) = self.guests.get_mut(&node) else {
            self.guests.insert(node, Guests { start_epoch, ..Guests::default() });
            return Vec::new();
        };
        if std::mem::replace(&mut guests.start_epoch, start_epoch) == start_epoch {
            let ended = self.end_sessions(node, Duration::ZERO);
            self.guests.insert(node, Guests { start_epoch, ..Guests::default() });
            return ended;
        }
        // The grace of those before goes on.
        guests.sessions.clear();
        Vec::new()
    }

    /// This node leads no more: it has no guests.
    pub(super) fn clear(&mut self) {
        for guests in self.guests.values_mut() {
            guests.sessions.clear();
            guests.reads.clear();
        }
    }

    fn end_sessions(&self, node: u16, grace: Duration) -> Vec<Command> {
        let sessions = self.guests.get(&node).into_iter().flat_map(|guests| &guests.sessions);
        sessions.map(|&session| Command::EndSession { session, grace }).collect()
    }
}

#[cfg(test)]
mod tests {
    use sennit_engine::{Credit, StreamRead, Subscribe};
    use sennit_model::{GroupId, Offset, ReadFrom};

    use super::*;

    const GRACE: Duration = Duration::from_secs(10);

    fn subscribe(session: u64) -> Command {
        Command::Subscribe(Subscribe {
            origin: Origin { session: SessionId(session), request: 1 },
            subscription: 1,
            partition: PartitionId::default(),
            group: GroupId(1),
            credit: Credit::default(),
        })
    }

    fn end(session: u64, grace: Duration) -> Command {
        Command::EndSession { session: SessionId(session), grace }
    }

    #[test]
    fn sessions_of_a_node_that_is_cut_off_end_after_the_grace_and_at_once_when_it_comes_back() {
        let mut visits = Visits::default();
        assert_eq!(visits.come_back(2, 5), []);
        visits.note(2, &[subscribe(1), subscribe(2), subscribe(3), end(2, GRACE)]);
        visits.note(3, &[subscribe(9)]);
        assert_eq!(visits.cut_off(2, GRACE), [end(1, GRACE), end(3, GRACE)]);
        assert_eq!(visits.come_back(2, 5), [end(1, Duration::ZERO), end(3, Duration::ZERO)]);
        assert_eq!(visits.cut_off(2, GRACE), []);
    }

    #[test]
    fn reads_that_wait_stop_when_their_node_is_cut_off_unless_they_were_answered() {
        let read = StreamRead {
            at: ReadFrom::Offset(Offset(0)),
            before: None,
            bytes_max: 1,
            waits: true,
            one_append: false,
            for_fork: false,
        };
        let partition = PartitionId::default();
        let origin = |request| Origin { session: SessionId(1), request };
        let command = |request, command| Command::Stream(origin(request), partition, command);
        let mut visits = Visits::default();
        for request in 1..=3 {
            visits.note(2, &[command(request, StreamCommand::Read(read))]);
        }
        visits.answered(2, origin(1));
        visits.note(2, &[command(2, StreamCommand::StopReading)]);
        let stopped = [command(3, StreamCommand::StopReading)];
        assert_eq!(visits.cut_off(2, GRACE), stopped);
        assert_eq!(visits.cut_off(2, GRACE), []);
    }

    #[test]
    fn the_grace_of_sessions_goes_on_when_their_node_was_started_again() {
        let mut visits = Visits::default();
        visits.come_back(2, 5);
        visits.note(2, &[subscribe(1)]);
        visits.cut_off(2, GRACE);
        assert_eq!(visits.come_back(2, 6), []);
        assert_eq!(visits.cut_off(2, GRACE), []);
    }

    #[test]
    fn commands_that_come_early_are_done_in_their_term_and_never_behind_those_of_a_newer_link() {
        let mut visits = Visits::default();
        assert!(visits.hold(2, 7, vec![subscribe(1)]));
        assert!(visits.hold(3, 6, vec![subscribe(8)]));
        assert!(visits.hold(3, 7, vec![subscribe(9)]));
        assert_eq!(visits.cut_off(3, GRACE), []);
        assert_eq!(visits.release(7), [subscribe(1)]);
        assert_eq!(visits.release(7), []);
        assert_eq!(visits.cut_off(2, GRACE), [end(1, GRACE)]);
    }

    #[test]
    fn commands_that_come_early_for_another_term_go_back() {
        let mut visits = Visits::default();
        assert!(visits.hold(2, 7, vec![subscribe(1)]));
        assert!(visits.hold(3, 8, vec![subscribe(2)]));
        assert_eq!(visits.take_early_but(Some(8)), [(2, 7, vec![subscribe(1)])]);
        assert!(visits.has_early());
        assert_eq!(visits.take_early_but(None), [(3, 8, vec![subscribe(2)])]);
        assert!(!visits.has_early());
    }
}
