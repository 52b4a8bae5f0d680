//! How long a replica waits for its leader before it asks for votes: a slot of its own by its rank among the voters,
//! turned by a hash of group and term. No two voters of a group have the same, and no term prefers the same one.

use crate::membership::Membership;
use crate::settings::{ELECTION_TICKS, ELECTION_TICKS_END};

/// The ticks for a replica.
pub(crate) fn timeout_ticks(membership: &Membership, replica: u64, group: u64, term: u64) -> usize {
    let count = membership.all_voters().count();
    let Some(rank) = membership.all_voters().position(|voter| voter == replica) else {
        return ELECTION_TICKS_END - 1;
    };
    let mut key = [0; 16];
    key[..8].copy_from_slice(&group.to_le_bytes());
    key[8..].copy_from_slice(&term.to_le_bytes());
    let turned = (xxhash_rust::xxh3::xxh3_64(&key) % count as u64) as usize;
    let slots = ELECTION_TICKS_END - ELECTION_TICKS;
    ELECTION_TICKS + (rank + turned) % count * slots / count
}
