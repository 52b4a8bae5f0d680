//! What a group has confirmed as settled, by place.

use std::collections::BTreeMap;

use crate::{
    history::History,
    operation::{Settlement, What},
};

/// A confirm that a message is settled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settled {
    pub(crate) offset: u64,
    pub(crate) ended_ns: u64,
    pub(crate) operation: u32,
    /// The delivery that was acked: its generation and its attempt.
    pub(crate) delivery: (u64, u32),
}

/// By group and partition, in the order of offsets: of each message the first confirm.
pub(crate) struct SettledMessages(BTreeMap<(u32, u32), Vec<Settled>>);

impl SettledMessages {
    pub(crate) fn of(history: &History) -> Self {
        let mut settled: BTreeMap<(u32, u32), Vec<Settled>> = BTreeMap::new();
        for (operation, each) in (0..).zip(history.operations()) {
            let (What::Settlement(settlement), Some(ended_ns)) = (&each.what, each.ended_ns) else {
                continue;
            };
            let &Settlement { group, partition, first, count, generation, attempt, is_confirmed } =
                settlement;
            if is_confirmed {
                let offsets = (0..u64::from(count)).map(|at| first.saturating_add(at));
                let delivery = (generation, attempt);
                let list = settled.entry((group, partition)).or_default();
                list.extend(offsets.map(|offset| Settled {
                    offset,
                    ended_ns,
                    operation,
                    delivery,
                }));
            }
        }
        for list in settled.values_mut() {
            list.sort_unstable_by_key(|each| (each.offset, each.ended_ns));
            list.dedup_by_key(|each| each.offset);
        }
        Self(settled)
    }

    pub(crate) fn find(&self, group: u32, partition: u32, offset: u64) -> Option<Settled> {
        let list = self.0.get(&(group, partition))?;
        let at = list.binary_search_by_key(&offset, |each| each.offset).ok()?;
        list.get(at).copied()
    }
}
