//! Room on the disks of a group: what a leader has heard of its followers' disks. A group whose quorum has room takes
//! publishes, and one that has room leads.

use std::collections::BTreeMap;

use crate::membership::Membership;

/// The room on the group's disks, as a member knows it.
#[derive(Default)]
pub(crate) struct Rooms {
    /// Its own disk has none.
    pub(crate) is_full: bool,
    /// Whether the disks of the others are full, as they have said since this replica leads.
    others: BTreeMap<u64, bool>,
}

impl Rooms {
    /// Forgets what was heard.
    pub(crate) fn forget(&mut self) {
        self.others.clear();
    }

    /// Another replica has said whether its disk is full.
    pub(crate) fn heard(&mut self, replica: u64, is_full: bool) {
        self.others.insert(replica, is_full);
    }

    /// Whether a replica has said that it has room.
    pub(crate) fn has_said_so(&self, replica: u64) -> bool {
        self.others.get(&replica) == Some(&false)
    }

    /// Whether a quorum may have room, as replica `own` sees it: only who has said that it has none counts as full.
    pub(crate) fn quorum_has_room(&self, membership: &Membership, own: u64) -> bool {
        let has_room = |id: &u64| match *id == own {
            true => !self.is_full,
            false => self.others.get(id) != Some(&true),
        };
        [&membership.voters, &membership.outgoing].into_iter().all(|voters| {
            voters.is_empty() || voters.iter().filter(|id| has_room(id)).count() > voters.len() / 2
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quorum_has_room_unless_so_many_have_said_otherwise_in_either_half_of_a_change() {
        let mut rooms = Rooms::default();
        let joint = Membership { outgoing: [1, 4, 5].into(), ..Membership::of(1..=3) };
        assert!(rooms.quorum_has_room(&joint, 1), "nobody has said anything");
        rooms.heard(2, true);
        rooms.heard(4, true);
        assert!(rooms.quorum_has_room(&joint, 1));
        rooms.is_full = true;
        assert!(!rooms.quorum_has_room(&joint, 1));
        rooms.heard(2, false);
        assert!(!rooms.quorum_has_room(&joint, 1), "of the outgoing ones two are full");
        rooms.heard(4, false);
        assert!(rooms.quorum_has_room(&joint, 1));
        assert!(rooms.has_said_so(2) && !rooms.has_said_so(3));
    }
}
