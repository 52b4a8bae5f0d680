//! The state apart from what is a replica's own: whoever has applied the same records has the same, wherever the
//! batches lie, whatever the clock has made ready, and whoever leads.

use std::{fmt, mem};

use foldhash::fast::FixedState;
use sennit_model::{Durability, OffsetRange, PartitionId, Timestamp};

use crate::{
    codec::Reader,
    engine::Engine,
    group::range,
    kept::{GroupSlice, Item, Slice},
    runs::Runs,
    snapshot::{SNAPSHOT, VERSION},
    tries::Waiting,
};

/// Characters that are shown of a line that differs: of its begin, and before the difference.
const BEFORE_SHOWN: usize = 200;

/// The state as text, a line for each item.
#[derive(Clone, PartialEq, Eq)]
pub struct ReplicatedState {
    lines: Vec<String>,
}

impl ReplicatedState {
    /// A number that differs, as a rule, if the state does.
    #[must_use]
    pub fn hash(&self) -> u64 {
        use std::hash::BuildHasher;
        FixedState::default().hash_one(&self.lines)
    }

    /// Where the first lines differ, of this state and of the other: how both go on, and how they begin. `None` if
    /// the states are the same.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Option<(String, String)> {
        let line = |of: &Self, at: usize| of.lines.get(at).cloned().unwrap_or_default();
        let most = self.lines.len().max(other.lines.len());
        let differing = (0..most).find(|&at| self.lines.get(at) != other.lines.get(at))?;
        let (one, other) = (line(self, differing), line(other, differing));
        let common = one.chars().zip(other.chars()).take_while(|(one, other)| one == other).count();
        let from = common.saturating_sub(BEFORE_SHOWN);
        let excerpt = |of: &str| -> String {
            let begin: String = of.chars().take(BEFORE_SHOWN.min(from)).collect();
            let rest: String = of.chars().skip(from).take(2 * BEFORE_SHOWN).collect();
            format!("{begin} ... {rest}")
        };
        Some((excerpt(&one), excerpt(&other)))
    }
}

impl fmt::Debug for ReplicatedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.lines).finish()
    }
}

impl Engine {
    /// The state that all replicas have in common. What is due by `now` counts as due, whether its timer has fired or
    /// not. Of a topic in memory it says what its records say: settings, reservations and cursors. For tests, the
    /// simulator and audits: it costs a walk over everything.
    ///
    /// Between two turns it is what the records come to; within a turn a cursor may be ahead of them.
    #[must_use]
    pub fn replicated_state(&self, now: Timestamp) -> ReplicatedState {
        let mut snapshot = Vec::new();
        self.encode_snapshot(&mut snapshot);
        let mut r = Reader { kind: SNAPSHOT, rest: snapshot.into() };
        let header = (r.u32(), r.u32(), r.u32());
        assert_eq!(header.0, Ok(VERSION), "it was encoded just now");
        let mut lines = vec![format!("next topic {:?}, next group {:?}", header.1, header.2)];
        while let Some(mut item) = Item::decode(&mut r).expect("it was encoded just now") {
            self.make_common(&mut item, now);
            lines.push(format!("{item:?}"));
        }
        ReplicatedState { lines }
    }

    /// Takes out of an item what is a replica's own.
    fn make_common(&self, item: &mut Item, now: Timestamp) {
        match item {
            Item::Slice(slice) => slice.make_common(now),
            Item::Head(head) if self.is_in_memory(head.id) => (head.start, head.end) = (0, 0),
            _ => {}
        }
    }

    fn is_in_memory(&self, id: PartitionId) -> bool {
        self.partitions
            .peek(&id)
            .is_some_and(|view| view.partition().config.durability == Durability::Memory)
    }
}

impl Slice {
    fn make_common(&mut self, now: Timestamp) {
        for entry in &mut self.entries {
            entry.place.position = 0;
        }
        self.delays.retain(|(_, due)| *due > now);
        self.groups.iter_mut().for_each(|group| group.make_common(now));
    }
}

impl GroupSlice {
    /// What waits until a time that has come is ready. Neighbours that differ in what is in memory alone are one run.
    fn make_common(&mut self, now: Timestamp) {
        let mut tried = mem::take(&mut self.tried);
        let is_due = |(_, waiting): &mut (OffsetRange, Waiting)| waiting.due <= now;
        let due = self.waiting.extract_if(.., is_due).filter(|(_, held)| held.tries.failed > 0);
        tried.extend(due.map(|(range, waiting)| (range, waiting.tries)));
        self.tried = joined(tried);
        self.waiting = joined(mem::take(&mut self.waiting));
        self.dying = joined(mem::take(&mut self.dying));
    }
}

/// Runs in order, of which no two neighbours are equal.
fn joined<V: Clone + PartialEq>(runs: Vec<(OffsetRange, V)>) -> Vec<(OffsetRange, V)> {
    let mut joined = Runs::default();
    for (range, value) in runs {
        joined.insert(range.start.0, range.end.0, value);
    }
    joined.iter().map(|(start, end, value)| (range(start, end), value.clone())).collect()
}
