//! The clients that are subscribed to a topic, on all cores, and what was not told yet of those who come and go. One core
//! keeps it for each topic. It knows no connections.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use foldhash::fast::RandomState;
use sennit_centrifuge::ClientInfo;

use super::{connection_id::ConnectionId, relay::message::NodeId};
use crate::runtime::index::CoreIndex;

/// A subscriber among those of all cores, and of other brokers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct MemberId {
    /// The broker, if it is another one.
    pub(crate) node: Option<NodeId>,
    pub(crate) core: CoreIndex,
    pub(crate) connection: ConnectionId,
}

/// A subscriber, as others see it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) info: ClientInfo,
    /// Whether it is told who comes and goes.
    pub(crate) is_told: bool,
}

/// A client came, or went.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Joined(Arc<Member>),
    Left(Arc<Member>),
}

#[derive(Debug)]
struct Held {
    member: Arc<Member>,
    /// The number of its coming, while that is not told.
    untold: Option<u64>,
}

/// The subscribers of a topic.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    members: HashMap<MemberId, Held, RandomState>,
    /// How many of them each user has.
    users: HashMap<String, u32, RandomState>,
    /// How many of each core are told.
    told: BTreeMap<CoreIndex, usize>,
    /// Changes that are not told, by their number: no more than there are members, and were when the last was told.
    untold: BTreeMap<u64, Change>,
    changes: u64,
    /// The number of the newest change when somebody asked last who is there.
    listed: u64,
}

impl Presence {
    /// A client is subscribed.
    pub(crate) fn join(&mut self, id: MemberId, member: Member) {
        // The newest word counts, should one be there already.
        self.leave(id);
        let member = Arc::new(member);
        *self.users.entry(member.info.user.clone()).or_default() += 1;
        if member.is_told {
            *self.told.entry(id.core).or_default() += 1;
        }
        let untold = self.note(Change::Joined(member.clone()));
        self.members.insert(id, Held { member, untold });
    }

    /// A client is not subscribed any more.
    pub(crate) fn leave(&mut self, id: MemberId) {
        let Some(Held { member, untold }) = self.members.remove(&id) else { return };
        if let Some(users) = self.users.get_mut(&member.info.user) {
            *users -= 1;
            if *users == 0 {
                self.users.remove(&member.info.user);
            }
        }
        if member.is_told
            && let Some(told) = self.told.get_mut(&id.core)
        {
            *told -= 1;
            if *told == 0 {
                self.told.remove(&id.core);
            }
        }
        let was_told = untold.is_none_or(|number| self.untold.remove(&number).is_none());
        let was_listed = untold.is_some_and(|number| number <= self.listed);
        // Nobody has to know that one has gone of whom nobody knows.
        if was_told || was_listed {
            self.note(Change::Left(member));
        }
        if self.told.is_empty() {
            self.untold.clear();
        }
    }

    /// The number of a change, if there is anybody to tell it.
    fn note(&mut self, change: Change) -> Option<u64> {
        if self.told.is_empty() {
            return None;
        }
        self.changes += 1;
        self.untold.insert(self.changes, change);
        Some(self.changes)
    }

    /// Subscribers, and their different users.
    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.members.len(), self.users.len())
    }

    /// All of them. Whoever is told the changes that are not told yet, and all behind, knows who is there.
    pub(crate) fn list(&mut self) -> Vec<Arc<Member>> {
        self.listed = self.changes;
        self.members.values().map(|held| held.member.clone()).collect()
    }

    pub(crate) fn has(&self, id: MemberId) -> bool {
        self.members.contains_key(&id)
    }

    /// Those go that are such.
    pub(crate) fn leave_where(&mut self, is_such: impl Fn(MemberId) -> bool) {
        let such: Vec<MemberId> = self.members.keys().copied().filter(|id| is_such(*id)).collect();
        such.into_iter().for_each(|id| self.leave(id));
    }

    /// Those that are subscribed at this broker.
    pub(crate) fn own(&self) -> Vec<ClientInfo> {
        let own = self.members.iter().filter(|(id, _)| id.node.is_none());
        own.map(|(_, held)| held.member.info.clone()).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// How many are told who comes and goes.
    pub(crate) fn told(&self) -> usize {
        self.told.values().sum()
    }

    /// The cores of those.
    pub(crate) fn told_cores(&self) -> impl Iterator<Item = CoreIndex> + '_ {
        self.told.keys().copied()
    }

    pub(crate) fn has_untold(&self) -> bool {
        !self.untold.is_empty()
    }

    /// The oldest changes that are not told, at most so many. They are told with that.
    pub(crate) fn tell(&mut self, most: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        while changes.len() < most
            && let Some((_, change)) = self.untold.pop_first()
        {
            changes.push(change);
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn id(number: u32) -> MemberId {
        let core = CoreIndex(number % 3);
        MemberId { node: None, core, connection: ConnectionId { slot: number, generation: 1 } }
    }

    fn member(number: u32, is_told: bool) -> Member {
        let (user, client) = (format!("user {}", number % 5), number.to_string());
        Member { info: ClientInfo { user, client, ..ClientInfo::default() }, is_told }
    }

    fn clients(presence: &mut Presence) -> BTreeSet<String> {
        presence.list().into_iter().map(|member| member.info.client.clone()).collect()
    }

    #[test]
    fn a_user_with_several_connections_counts_once() {
        let mut presence = Presence::default();
        for number in [1, 6, 2] {
            presence.join(id(number), member(number, false));
        }
        assert_eq!(presence.counts(), (3, 2));
        presence.leave(id(6));
        assert_eq!(presence.counts(), (2, 2), "the user is there with another connection");
        presence.leave(id(1));
        assert_eq!(presence.counts(), (1, 1));
        presence.leave(id(1));
        assert_eq!(presence.counts(), (1, 1), "who has gone does not go again");
    }

    #[test]
    fn nothing_is_kept_to_be_told_where_nobody_is_told() {
        let mut presence = Presence::default();
        presence.join(id(1), member(1, false));
        assert!(!presence.has_untold());
        presence.join(id(2), member(2, true));
        presence.join(id(3), member(3, false));
        assert!(presence.has_untold());
        presence.leave(id(2));
        assert!(!presence.has_untold());
        assert_eq!(presence.told_cores().count(), 0);
    }

    proptest! {
        /// Whoever knows the members at some time, and is told all changes behind, knows the members.
        #[test]
        fn changes_lead_from_what_one_knew_to_what_is(
            steps in prop::collection::vec((0_u32..12, 0_usize..4), 0..200),
            asked_at in 0_usize..200,
        ) {
            let mut presence = Presence::default();
            presence.join(id(100), member(100, true));
            let mut known = None;
            let hear = |known: &mut Option<BTreeSet<String>>, changes: Vec<Change>| {
                let Some(known) = known else { return };
                for change in changes {
                    match change {
                        Change::Joined(member) => known.insert(member.info.client.clone()),
                        Change::Left(member) => known.remove(&member.info.client),
                    };
                }
            };
            for (at, (number, act)) in steps.into_iter().enumerate() {
                if at == asked_at {
                    known = Some(clients(&mut presence));
                }
                match act {
                    0 | 1 => presence.join(id(number), member(number, false)),
                    2 => presence.leave(id(number)),
                    _ => hear(&mut known, presence.tell(number as usize)),
                }
                prop_assert!(presence.untold.len() <= 30, "{}", presence.untold.len());
            }
            let rest = presence.tell(usize::MAX);
            hear(&mut known, rest);
            if let Some(known) = known {
                prop_assert_eq!(known, clients(&mut presence));
            }
        }
    }
}
