//! The walks of a shard that are under way, and what each has come to so far. `workbench` goes on with them.

use std::{cmp::Reverse, collections::BTreeMap};

use sennit_model::{BatchBuilder, Offset, PartitionId, Timestamp};

use crate::{
    command::Origin,
    effect::Effect,
    walk::{CountRow, Walk, WalkPage},
};

/// A walk that is under way.
#[derive(Debug)]
pub(crate) struct Walking {
    pub(crate) origin: Origin,
    pub(crate) walk: Walk,
    pub(crate) at: u64,
    /// The walk ends here: what was published since it began is not looked at.
    pub(crate) until: u64,
    pub(crate) page: WalkPage,
    pub(crate) counts: BTreeMap<String, (u64, Timestamp)>,
    /// The number of batches that were looked at.
    pub(crate) batches: u64,
    pub(crate) work: u64,
    /// Bytes of what is shown or copied.
    pub(crate) bytes: usize,
    pub(crate) copies: BatchBuilder,
    pub(crate) copied: Vec<Offset>,
}

/// The walks that are under way, by partition.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    pub(crate) by_partition: BTreeMap<PartitionId, Vec<Walking>>,
    pub(crate) count: usize,
}

impl Walking {
    /// A walk that has seen nothing, and ends before `until`.
    pub(crate) fn new(origin: Origin, walk: Walk, until: u64) -> Self {
        Self {
            origin,
            at: walk.from.0,
            walk,
            until,
            page: WalkPage::default(),
            counts: BTreeMap::new(),
            batches: 0,
            work: 0,
            bytes: 0,
            copies: BatchBuilder::for_broker(),
            copied: Vec::new(),
        }
    }

    /// The answer to whoever asked.
    pub(crate) fn answer(self) -> Effect {
        let Self { origin, mut page, counts, mut copies, copied, .. } = self;
        page.copies = copies.take().map(|batch| (batch, copied));
        let row = |(name, (count, oldest))| CountRow { name, count, oldest };
        page.rows = counts.into_iter().map(row).collect();
        page.rows.sort_by_key(|row| Reverse(row.count));
        Effect::Walked { origin, page: Box::new(page) }
    }
}
