//! A shard that is alone, or in a group: what both do, each in its way.

use sennit_engine::{Command, Effect};
use sennit_journal::{Frame, Position};
use sennit_model::Timestamp;
use sennit_shard::{Fetch, Shard};

use super::group_shard::GroupShard;
use crate::runtime::clock::now;

/// A shard.
#[derive(Debug)]
pub(crate) enum ShardState {
    /// It is alone: what its lane has written is committed.
    Alone(Box<Shard>),
    /// It is a replica in a group.
    InGroup(Box<GroupShard>),
}

impl ShardState {
    pub(super) fn shard(&self) -> &Shard {
        match self {
            Self::Alone(shard) => shard,
            Self::InGroup(group) => group.shard(),
        }
    }

    /// The shard, for what is its own whether it leads or not.
    pub(super) fn shard_mut(&mut self) -> &mut Shard {
        match self {
            Self::Alone(shard) => shard,
            Self::InGroup(group) => group.shard_mut(),
        }
    }

    /// Does commands of sessions of this node, here or elsewhere.
    pub(super) fn handle(&mut self, commands: &mut Vec<Command>) {
        match self {
            Self::Alone(shard) => shard.handle(commands, now()),
            Self::InGroup(group) => group.ask(commands),
        }
    }

    pub(super) fn advance(&mut self, now: Timestamp) {
        match self {
            Self::Alone(shard) => shard.advance(now),
            Self::InGroup(group) => group.advance(),
        }
    }

    /// Appends the frames that the lane writes next. What other nodes have to know before is on its way.
    pub(super) fn take_frames(&mut self, out: &mut Vec<Frame>) {
        match self {
            Self::Alone(shard) => shard.take_frames(out),
            Self::InGroup(group) => group.take_frames(out),
        }
    }

    /// The lane has written and synced everything before `end`.
    pub(super) fn written(&mut self, end: Position) {
        match self {
            Self::Alone(shard) => shard.handle_commit(end, now()),
            Self::InGroup(group) => group.written(end),
        }
    }

    pub(super) fn fetched(&mut self, fetch: Fetch, bytes: Option<bytes::Bytes>) {
        match self {
            Self::Alone(shard) => shard.handle_fetch(fetch, bytes, now()),
            Self::InGroup(group) => group.fetched(fetch, bytes),
        }
    }

    pub(super) fn take_fetches(&mut self, out: &mut Vec<Fetch>) {
        match self {
            Self::Alone(shard) => shard.take_fetches(out),
            Self::InGroup(group) => group.take_fetches(out),
        }
    }

    /// The lane has failed.
    pub(super) fn fence(&mut self) {
        match self {
            Self::Alone(shard) => shard.fence(),
            Self::InGroup(group) => group.fence(),
        }
    }

    /// The broker stops: nothing is decided any more that has to go on.
    pub(super) fn stop(&mut self) {
        self.shard_mut().stop();
        if let Self::InGroup(group) = self {
            group.leave();
        }
    }

    /// Whether nothing is left to do before the broker ends.
    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Self::Alone(shard) => !shard.has_frames(),
            Self::InGroup(group) => {
                !group.shard().has_frames() && group.has_left() && group.owes_nothing()
            }
        }
    }

    /// Appends what sessions of this node are told.
    pub(super) fn take_effects(&mut self, out: &mut Vec<Effect>) {
        match self {
            Self::Alone(shard) => out.append(shard.effects()),
            Self::InGroup(group) => group.take_effects(out),
        }
    }

    /// Whether somebody waits for what the lane has not taken.
    pub(super) fn is_awaited(&self) -> bool {
        match self {
            Self::Alone(shard) => shard.is_awaited(),
            Self::InGroup(group) => group.is_awaited(),
        }
    }

    /// Whether others are to get what it has to say before the core writes by itself.
    pub(super) fn speaks_first(&self) -> bool {
        match self {
            Self::Alone(_) => false,
            Self::InGroup(group) => group.speaks_first(),
        }
    }

    /// Published bytes for which publishers wait.
    pub(super) fn waiting_bytes(&self) -> u64 {
        match self {
            Self::Alone(shard) => shard.uncommitted_bytes(),
            Self::InGroup(group) => group.waiting_bytes(),
        }
    }

    pub(super) fn group(&mut self) -> Option<&mut GroupShard> {
        match self {
            Self::Alone(_) => None,
            Self::InGroup(group) => Some(group),
        }
    }
}
