//! The messages of a partition whose publisher has delayed them, each with its due time. They lie in blocks by offset,
//! and the blocks by their earliest due time: ten million delayed messages take 17 bytes each, and one timer. It knows
//! no group and no timer.

use std::{
    collections::{BTreeMap, BTreeSet, BinaryHeap},
    ops::Range,
};

use sennit_model::Timestamp;

use crate::timer::NEVER;

/// Most runs of a block. More make every change dearer, fewer make blocks count.
const BLOCK_RUNS_MAX: usize = 256;

/// The due time of a message whose delay was cancelled: it does not come.
pub(crate) const CANCELLED: Timestamp = NEVER;

/// Neighbouring messages that are due at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DueRun {
    /// The first of them, counted from the block's begin.
    from: u32,
    count: u32,
    due: Timestamp,
}

impl DueRun {
    fn range(self, begin: u64) -> Range<u64> {
        let start = begin + u64::from(self.from);
        start..start + u64::from(self.count)
    }
}

/// Runs that follow each other, none before the block's begin and none beyond that of the next block.
#[derive(Debug)]
struct Block {
    earliest: Timestamp,
    runs: Vec<DueRun>,
}

impl Block {
    fn find_earliest(&self) -> Timestamp {
        self.runs.iter().map(|run| run.due).min().unwrap_or(NEVER)
    }

    /// Gives back memory once most of it is unused.
    fn shrink(&mut self) {
        if self.runs.len() * 4 < self.runs.capacity() {
            self.runs.shrink_to(self.runs.len() * 2);
        }
    }
}

#[derive(Debug)]
struct Blocks {
    by_begin: BTreeMap<u64, Block>,
    /// The earliest due time and the begin of each block.
    by_due: BTreeSet<(Timestamp, u64)>,
    /// See [`Delays::timer_due`].
    timer_due: Timestamp,
}

impl Default for Blocks {
    fn default() -> Self {
        Self { by_begin: BTreeMap::new(), by_due: BTreeSet::new(), timer_due: NEVER }
    }
}

/// The delayed messages of a partition; most partitions have none.
#[derive(Debug, Default)]
pub(crate) struct Delays(Option<Box<Blocks>>);

/// Messages that are due at the same time: in the order in which a listing has them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) due: Timestamp,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Delays {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The earliest due time; [`NEVER`] without one.
    pub(crate) fn earliest(&self) -> Timestamp {
        let first = self.0.as_ref().and_then(|blocks| blocks.by_due.first());
        first.map_or(NEVER, |&(due, _)| due)
    }

    /// When the timer is due that was set for the first of them, [`NEVER`] without one. What it was set for may be
    /// gone by then; without any message, nobody needs it.
    pub(crate) fn timer_due(&self) -> Timestamp {
        self.0.as_ref().map_or(NEVER, |blocks| blocks.timer_due)
    }

    /// A timer is due at this time.
    pub(crate) fn set_timer_due(&mut self, due: Timestamp) {
        if let Some(blocks) = &mut self.0 {
            blocks.timer_due = due;
        }
    }

    /// The due time of a message, if it is here. O(log n).
    pub(crate) fn due_of(&self, offset: u64) -> Option<Timestamp> {
        self.pieces(offset, offset + 1).next().map(|piece| piece.due)
    }

    /// The parts of `start..end` that are inside, in order. Neighbours with the same due time may come as several.
    pub(crate) fn pieces(&self, start: u64, end: u64) -> impl Iterator<Item = Due> {
        let blocks = self.0.as_deref().filter(|_| start < end);
        let from = blocks.and_then(|blocks| blocks.by_begin.range(..=start).next_back());
        let from = from.map_or(start, |(&begin, _)| begin);
        let blocks = blocks.map(|blocks| blocks.by_begin.range(from..end.max(from)));
        let pieces = blocks.into_iter().flatten().flat_map(move |(&begin, block)| {
            let is_before = |run: &DueRun| run.range(begin).end <= start;
            let first = block.runs.partition_point(is_before);
            block.runs[first..].iter().map(move |run| (run.range(begin), run.due))
        });
        let pieces = pieces.take_while(move |(range, _)| range.start < end);
        pieces.map(move |(range, due)| Due {
            due,
            start: range.start.max(start),
            end: range.end.min(end),
        })
    }

    /// The same, with neighbours of the same due time as one: however they came here, they are the same.
    pub(crate) fn runs(&self, start: u64, end: u64) -> impl Iterator<Item = Due> {
        let mut pieces = self.pieces(start, end).peekable();
        std::iter::from_fn(move || {
            let mut run = pieces.next()?;
            while let Some(next) =
                pieces.next_if(|next| next.start == run.end && next.due == run.due)
            {
                run.end = next.end;
            }
            Some(run)
        })
    }

    /// The parts of `start..end` that are not inside.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let (mut gaps, mut at) = (Vec::new(), start);
        for piece in self.pieces(start, end) {
            if at < piece.start {
                gaps.push(at..piece.start);
            }
            at = piece.end;
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }

    /// The number of messages of `start..end` that are inside.
    pub(crate) fn count(&self, start: u64, end: u64) -> u64 {
        self.pieces(start, end).map(|piece| piece.end - piece.start).sum()
    }

    /// The messages of `start..end` are due at this time, whatever was said of them before.
    pub(crate) fn insert(&mut self, start: u64, end: u64, due: Timestamp) {
        self.remove(start, end);
        let blocks = self.0.get_or_insert_default();
        let mut at = start;
        while at < end {
            at = blocks.insert_up_to(at, end, due);
        }
    }

    /// The messages of `start..end` are not delayed any more.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        let Some(blocks) = self.0.as_deref_mut().filter(|_| start < end) else { return };
        let from = blocks.by_begin.range(..=start).next_back().map_or(start, |(&begin, _)| begin);
        let touches = |(begin, block): (&u64, &Block)| {
            let last = block.runs.last().map_or(0, |run| run.range(*begin).end);
            (start < last).then_some(*begin)
        };
        let touched: Vec<u64> =
            blocks.by_begin.range(from..end.max(from)).filter_map(touches).collect();
        for begin in touched {
            blocks.change(begin, |runs| cut(runs, begin, start..end));
        }
        if blocks.by_begin.is_empty() {
            self.0 = None;
        }
    }

    /// Takes messages out that are due by `now`, those of one block; `None` once there are none.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Option<Vec<Range<u64>>> {
        let blocks = self.0.as_deref_mut()?;
        let &(_, begin) =
            blocks.by_due.first().filter(|(due, _)| *due <= now && *due < CANCELLED)?;
        let mut taken = Vec::new();
        blocks.change(begin, |runs| {
            runs.retain(|run| {
                let is_due = run.due <= now && run.due < CANCELLED;
                if is_due {
                    taken.push(run.range(begin));
                }
                !is_due
            });
        });
        if blocks.by_begin.is_empty() {
            self.0 = None;
        }
        Some(taken)
    }

    /// The next messages by due time and offset behind `after`, `most` runs at most, of those parts that `wanted`
    /// lets pass. Costs a step for each run of the blocks that have some due by the last that is returned.
    pub(crate) fn page(
        &self,
        after: Option<(Timestamp, u64)>,
        most: usize,
        wanted: impl Fn(Range<u64>) -> Vec<Range<u64>>,
    ) -> Vec<Due> {
        let Some(blocks) = &self.0 else { return Vec::new() };
        // The last in order is on top, and gives way.
        let mut page = BinaryHeap::<Due>::new();
        for &(earliest, begin) in &blocks.by_due {
            let is_full = |page: &BinaryHeap<Due>| page.len() >= most;
            if earliest == CANCELLED
                || is_full(&page) && page.peek().is_none_or(|last| last.due < earliest)
            {
                break;
            }
            for run in &blocks.by_begin[&begin].runs {
                let Range { mut start, end } = run.range(begin);
                if let Some((due, offset)) = after {
                    if run.due < due {
                        continue;
                    }
                    if run.due == due {
                        start = start.max(offset.saturating_add(1));
                    }
                }
                let may_be_on = |start| {
                    let last = page.peek().filter(|_| is_full(&page));
                    last.is_none_or(|last| (run.due, start) < (last.due, last.start))
                };
                if run.due == CANCELLED || start >= end || !may_be_on(start) {
                    continue;
                }
                for part in wanted(start..end) {
                    page.push(Due { due: run.due, start: part.start, end: part.end });
                    if page.len() > most {
                        page.pop();
                    }
                }
            }
        }
        page.into_sorted_vec()
    }

    #[cfg(test)]
    fn check(&self) {
        let Some(blocks) = &self.0 else { return };
        assert!(!blocks.by_begin.is_empty());
        assert_eq!(blocks.by_begin.len(), blocks.by_due.len());
        let mut at = 0;
        for (&begin, block) in &blocks.by_begin {
            assert!(!block.runs.is_empty() && block.runs.len() <= BLOCK_RUNS_MAX);
            assert!(begin >= at, "{self:?}");
            at = begin;
            for run in &block.runs {
                assert!(run.range(begin).start >= at && run.count > 0, "{self:?}");
                at = run.range(begin).end;
            }
            assert_eq!(block.earliest, block.find_earliest());
            assert!(blocks.by_due.contains(&(block.earliest, begin)));
        }
    }
}

impl Blocks {
    /// Changes the runs of a block, and what is known of it.
    fn change(&mut self, begin: u64, change: impl FnOnce(&mut Vec<DueRun>)) {
        let Some(block) = self.by_begin.get_mut(&begin) else { return };
        change(&mut block.runs);
        let earliest = block.find_earliest();
        if earliest != block.earliest || block.runs.is_empty() {
            self.by_due.remove(&(block.earliest, begin));
            block.earliest = earliest;
            if !block.runs.is_empty() {
                self.by_due.insert((earliest, begin));
            }
        }
        if block.runs.is_empty() {
            self.by_begin.remove(&begin);
        } else if block.runs.len() > BLOCK_RUNS_MAX {
            self.split(begin);
        } else {
            block.shrink();
        }
    }

    /// Puts the front of `start..end`, none of which is inside, into the block where it belongs. Returns where the
    /// rest begins.
    fn insert_up_to(&mut self, start: u64, end: u64, due: Timestamp) -> u64 {
        let next = self.by_begin.range(start + 1..).next().map_or(u64::MAX, |(&begin, _)| begin);
        let is_near = |begin: u64, block: &Block| {
            // What comes at the end of a full block begins the next.
            let goes_behind = block.runs.last().is_none_or(|run| run.range(begin).end <= start);
            let is_full = block.runs.len() >= BLOCK_RUNS_MAX && goes_behind;
            start - begin < u64::from(u32::MAX) && !is_full
        };
        let before = self.by_begin.range(..=start).next_back();
        let before =
            before.filter(|(begin, block)| is_near(**begin, block)).map(|(&begin, _)| begin);
        let reach = before.unwrap_or(start) + u64::from(u32::MAX);
        let end = end.min(next).min(reach);
        let count = (end - start) as u32;
        match before {
            Some(begin) => {
                let run = DueRun { from: (start - begin) as u32, count, due };
                self.put(begin, run);
            }
            None => {
                let runs = vec![DueRun { from: 0, count, due }];
                self.by_begin.insert(start, Block { earliest: due, runs });
                self.by_due.insert((due, start));
            }
        }
        end
    }

    /// Puts a run, none of which is inside, into a block. A block that gets too long is split.
    fn put(&mut self, begin: u64, run: DueRun) {
        let Some(block) = self.by_begin.get_mut(&begin) else { return };
        let at = block.runs.partition_point(|held| held.from < run.from);
        let goes_on = |held: &DueRun| {
            let end = u64::from(held.from) + u64::from(held.count);
            end == u64::from(run.from) && held.due == run.due
        };
        match at.checked_sub(1) {
            Some(before) if goes_on(&block.runs[before]) => block.runs[before].count += run.count,
            _ => block.runs.insert(at, run),
        }
        if run.due < block.earliest {
            self.by_due.remove(&(block.earliest, begin));
            block.earliest = run.due;
            self.by_due.insert((run.due, begin));
        }
        if block.runs.len() > BLOCK_RUNS_MAX {
            self.split(begin);
        }
    }

    /// Makes two blocks of one.
    fn split(&mut self, begin: u64) {
        let Some(mut block) = self.by_begin.remove(&begin) else { return };
        self.by_due.remove(&(block.earliest, begin));
        let mut behind = block.runs.split_off(block.runs.len() / 2);
        let base = behind.first().map_or(0, |run| run.from);
        behind.iter_mut().for_each(|run| run.from -= base);
        block.runs.shrink_to_fit();
        for (begin, runs) in [(begin, block.runs), (begin + u64::from(base), behind)] {
            let mut block = Block { earliest: NEVER, runs };
            block.earliest = block.find_earliest();
            self.by_due.insert((block.earliest, begin));
            self.by_begin.insert(begin, block);
        }
    }
}

/// Takes the offsets of `gone` out of runs.
fn cut(runs: &mut Vec<DueRun>, begin: u64, gone: Range<u64>) {
    let first = runs.partition_point(|run| run.range(begin).end <= gone.start);
    let behind = runs.partition_point(|run| run.range(begin).start < gone.end);
    let mut kept = [None, None];
    if let Some(run) = runs[first..behind].first() {
        let range = run.range(begin);
        if range.start < gone.start {
            kept[0] = Some(DueRun { count: (gone.start - range.start) as u32, ..*run });
        }
    }
    if let Some(run) = runs[first..behind].last() {
        let range = run.range(begin);
        if gone.end < range.end {
            let (from, count) = ((gone.end - begin) as u32, (range.end - gone.end) as u32);
            kept[1] = Some(DueRun { from, count, due: run.due });
        }
    }
    runs.splice(first..behind, kept.into_iter().flatten());
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn runs_of(twin: &BTreeMap<u64, u64>, start: u64, end: u64) -> Vec<Due> {
        let mut runs: Vec<Due> = Vec::new();
        for (&offset, &due) in twin.range(start..end) {
            match runs.last_mut() {
                Some(last) if last.end == offset && last.due.0 == due => last.end += 1,
                _ => runs.push(Due { due: Timestamp(due), start: offset, end: offset + 1 }),
            }
        }
        runs
    }

    proptest! {
        #[test]
        fn delays_say_the_same_as_a_plain_map(
            steps in proptest::collection::vec(
                (0..3_000u64, 1..40u64, proptest::option::weighted(0.8, 0..50u64), any::<bool>()), 1..400),
            ask in (0..3_000u64, 0..900u64),
            now in 0..50u64,
        ) {
            let (mut delays, mut twin) = (Delays::default(), BTreeMap::new());
            for (start, length, due, singly) in steps {
                let end = start + length;
                for offset in start..end {
                    // Every other message has a due time of its own, so that blocks fill and are split.
                    let due = due.map(|due| if singly { due + offset % 2 * 7 } else { due });
                    match due {
                        Some(due) if singly => delays.insert(offset, offset + 1, Timestamp(due)),
                        _ => {}
                    }
                    match due {
                        Some(due) => twin.insert(offset, due),
                        None => twin.remove(&offset),
                    };
                }
                match due {
                    Some(due) if !singly => delays.insert(start, end, Timestamp(due)),
                    None => delays.remove(start, end),
                    _ => {}
                }
            }
            delays.check();
            let (start, end) = (ask.0, ask.0 + ask.1);
            prop_assert_eq!(delays.runs(0, u64::MAX).collect::<Vec<_>>(), runs_of(&twin, 0, u64::MAX));
            prop_assert_eq!(delays.runs(start, end).collect::<Vec<_>>(), runs_of(&twin, start, end));
            let gaps: Vec<_> = delays.gaps(start, end).into_iter().flatten().collect();
            prop_assert_eq!(gaps, (start..end).filter(|o| !twin.contains_key(o)).collect::<Vec<_>>());
            prop_assert_eq!(delays.count(start, end), twin.range(start..end).count() as u64);
            prop_assert_eq!(delays.due_of(start).map(|due| due.0), twin.get(&start).copied());
            prop_assert_eq!(delays.earliest().0, twin.values().min().copied().unwrap_or(u64::MAX));
            let mut listed = Vec::new();
            let mut after = None;
            loop {
                let odd = |range: Range<u64>| range.filter(|o| o % 3 > 0).map(|o| o..o + 1).collect();
                let page = delays.page(after, 7, odd);
                let Some(last) = page.last() else { break };
                after = Some((last.due, last.end - 1));
                listed.extend(page.iter().flat_map(|run| (run.start..run.end).map(|o| (run.due.0, o))));
            }
            let mut expected: Vec<_> =
                twin.iter().filter(|(o, _)| *o % 3 > 0).map(|(&o, &due)| (due, o)).collect();
            expected.sort_unstable();
            prop_assert_eq!(listed, expected);
            let mut taken = Vec::new();
            while let Some(some) = delays.take_due(Timestamp(now)) {
                taken.extend(some.into_iter().flatten());
            }
            delays.check();
            taken.sort_unstable();
            let is_due = |due: &u64| *due <= now;
            let expected: Vec<_> = twin.iter().filter(|(_, due)| is_due(due)).map(|(&o, _)| o).collect();
            prop_assert_eq!(taken, expected);
            twin.retain(|_, due| !is_due(due));
            prop_assert_eq!(delays.runs(0, u64::MAX).collect::<Vec<_>>(), runs_of(&twin, 0, u64::MAX));
        }
    }

    #[test]
    fn a_cancelled_delay_is_never_due_and_not_listed() {
        let mut delays = Delays::default();
        delays.insert(0, 4, Timestamp(9));
        delays.insert(1, 3, CANCELLED);
        let listed = delays.page(None, 9, |range| vec![range]);
        let listed: Vec<_> = listed.iter().map(|run| (run.start, run.end)).collect();
        assert_eq!(listed, [(0, 1), (3, 4)]);
        assert_eq!(delays.take_due(CANCELLED).map(|taken| taken.len()), Some(2));
        assert_eq!(delays.take_due(CANCELLED), None);
        assert_eq!((delays.due_of(1), delays.earliest()), (Some(CANCELLED), NEVER));
    }

    #[test]
    fn runs_that_are_longer_or_further_apart_than_a_block_holds_are_kept() {
        let far = 1 << 40;
        let mut delays = Delays::default();
        delays.insert(0, far, Timestamp(5));
        delays.insert(far + far, far + far + 1, Timestamp(6));
        delays.check();
        let runs: Vec<_> = delays.runs(0, u64::MAX).collect();
        assert_eq!(runs.len(), 2);
        assert_eq!((runs[0].start, runs[0].end), (0, far));
        delays.remove(7, far);
        delays.check();
        assert_eq!(delays.count(0, u64::MAX), 8);
    }
}
