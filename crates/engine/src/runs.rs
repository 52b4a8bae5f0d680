//! Sets of offsets kept as runs: a group's state is a handful of these, so a million messages in the same state
//! cost as much as one.

use std::{collections::BTreeMap, ops::Range};

/// A map from offsets to values, kept as disjoint half-open runs of offsets with an equal value.
/// Neighbours with equal values are one run. Every operation costs O(log runs + runs touched).
#[derive(Clone, Debug)]
pub(crate) struct Runs<V> {
    kept: Kept<V>,
}

/// As a rule there is one run or none; only more take memory of their own.
#[derive(Clone, Debug)]
enum Kept<V> {
    None,
    One(u64, u64, V),
    Many(Box<Many<V>>),
}

#[derive(Clone, Debug)]
struct Many<V> {
    runs: BTreeMap<u64, (u64, V)>,
    count: u64,
}

impl<V> Default for Runs<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V> Runs<V> {
    pub(crate) const fn new() -> Self {
        Self { kept: Kept::None }
    }

    /// The number of offsets inside.
    pub(crate) fn count(&self) -> u64 {
        match &self.kept {
            Kept::None => 0,
            Kept::One(start, end, _) => end - start,
            Kept::Many(many) => many.count,
        }
    }

    /// Whether no offset is inside.
    pub(crate) fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// All runs in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, u64, &V)> {
        self.range(0, u64::MAX)
    }

    /// The runs that begin in `from..to`, in order.
    fn range(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, &V)> {
        let (one, many) = match &self.kept {
            Kept::None => (None, None),
            Kept::One(start, end, value) => {
                (Some((*start, *end, value)).filter(|run| from <= run.0 && run.0 < to), None)
            }
            Kept::Many(many) => (None, Some(many.runs.range(from..to))),
        };
        let many = many.into_iter().flatten().map(|(&start, (end, value))| (start, *end, value));
        one.into_iter().chain(many)
    }

    /// The first run: `(start, end, value)`.
    pub(crate) fn first(&self) -> Option<(u64, u64, &V)> {
        match &self.kept {
            Kept::None => None,
            Kept::One(start, end, value) => Some((*start, *end, value)),
            Kept::Many(many) => {
                many.runs.first_key_value().map(|(&start, (end, value))| (start, *end, value))
            }
        }
    }

    /// The run that holds `offset`.
    pub(crate) fn run_of(&self, offset: u64) -> Option<(u64, u64, &V)> {
        let run = match &self.kept {
            Kept::None => return None,
            Kept::One(start, end, value) => (*start, *end, value),
            Kept::Many(many) => {
                let (&start, (end, value)) = many.runs.range(..=offset).next_back()?;
                (start, *end, value)
            }
        };
        (run.0 <= offset && offset < run.1).then_some(run)
    }

    /// The run that holds `offset`, or else the first behind it.
    pub(crate) fn first_from(&self, offset: u64) -> Option<(u64, u64, &V)> {
        self.run_of(offset).or_else(|| self.range(offset, u64::MAX).next())
    }

    /// Whether a part of `start..end` is inside.
    pub(crate) fn has_any(&self, start: u64, end: u64) -> bool {
        start < end && (self.run_of(start).is_some() || self.range(start, end).next().is_some())
    }
}

impl<V: Clone + PartialEq> Runs<V> {
    /// The parts of `start..end` that are inside, with their values.
    pub(crate) fn within(&self, start: u64, end: u64) -> Vec<(u64, u64, V)> {
        if start >= end {
            return Vec::new();
        }
        let first = self.run_of(start).map_or(start, |run| run.0);
        self.range(first, end)
            .map(|(from, to, value)| (from.max(start), to.min(end), value.clone()))
            .collect()
    }

    /// The parts of `start..end` that are not inside.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut gaps = Vec::new();
        let mut at = start;
        for (from, to, _) in self.within(start, end) {
            if at < from {
                gaps.push(at..from);
            }
            at = to;
        }
        if at < end {
            gaps.push(at..end);
        }
        gaps
    }

    /// Gives every offset of `start..end` this value, whatever it had.
    pub(crate) fn insert(&mut self, start: u64, end: u64, value: V) {
        if start >= end {
            return;
        }
        match &mut self.kept {
            Kept::None => self.kept = Kept::One(start, end, value),
            Kept::One(from, to, held) if *held == value && *from <= end && start <= *to => {
                *from = start.min(*from);
                *to = end.max(*to);
            }
            Kept::One(from, to, held) if start <= *from && *to <= end => {
                (*from, *to, *held) = (start, end, value);
            }
            Kept::One(..) | Kept::Many(_) => self.many().insert(start, end, value),
        }
    }

    /// Takes every offset of `start..end` out and returns the parts that were inside.
    pub(crate) fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64, V)> {
        match &mut self.kept {
            Kept::None => Vec::new(),
            Kept::One(from, to, value) => {
                let (first, last) = (start.max(*from), end.min(*to));
                if first >= last {
                    return Vec::new();
                }
                let removed = vec![(first, last, value.clone())];
                match (*from < first, last < *to) {
                    (false, false) => self.kept = Kept::None,
                    (true, false) => *to = first,
                    (false, true) => *from = last,
                    (true, true) => return self.many().remove(start, end),
                }
                removed
            }
            Kept::Many(many) => {
                let removed = many.remove(start, end);
                if many.count == 0 {
                    self.kept = Kept::None;
                }
                removed
            }
        }
    }

    fn many(&mut self) -> &mut Many<V> {
        if !matches!(self.kept, Kept::Many(_)) {
            let mut many = Many { runs: BTreeMap::new(), count: 0 };
            if let Kept::One(start, end, value) = std::mem::replace(&mut self.kept, Kept::None) {
                many.count = end - start;
                many.runs.insert(start, (end, value));
            }
            self.kept = Kept::Many(Box::new(many));
        }
        match &mut self.kept {
            Kept::Many(many) => many,
            Kept::None | Kept::One(..) => unreachable!("made many just now"),
        }
    }
}

impl<V: Clone + PartialEq> Many<V> {
    fn insert(&mut self, mut start: u64, mut end: u64, value: V) {
        if let Some(mut last) = self.runs.last_entry() {
            // The usual case: the run goes on where the last one ends.
            if *last.key() < start && last.get().0 == start && last.get().1 == value {
                last.get_mut().0 = end;
                self.count += end - start;
                return;
            }
        }
        self.remove(start, end);
        self.count += end - start;
        if let Some((&before, (to, held))) = self.runs.range(..start).next_back()
            && *to == start
            && *held == value
        {
            start = before;
        }
        if let Some((to, held)) = self.runs.get(&end)
            && *held == value
        {
            let to = *to;
            self.runs.remove(&end);
            end = to;
        }
        self.runs.insert(start, (end, value));
    }

    fn remove(&mut self, start: u64, end: u64) -> Vec<(u64, u64, V)> {
        let before = self.runs.range(..=start).next_back();
        let first = before.filter(|(_, (to, _))| start < *to).map_or(start, |(&from, _)| from);
        if start >= end || first >= end {
            return Vec::new();
        }
        let removed: Vec<_> = self
            .runs
            .range(first..end)
            .map(|(&from, (to, value))| (from.max(start), (*to).min(end), value.clone()))
            .collect();
        for (from, to, value) in &removed {
            self.count -= to - from;
            let Some((run, (run_end, _))) =
                self.runs.range(..=from).next_back().map(|(&run, held)| (run, held.clone()))
            else {
                continue;
            };
            self.runs.remove(&run);
            if run < *from {
                self.runs.insert(run, (*from, value.clone()));
            }
            if *to < run_end {
                self.runs.insert(*to, (run_end, value.clone()));
            }
        }
        removed
    }
}

/// The offsets a group is through with: all below a floor, and runs above it.
#[derive(Clone, Debug, Default)]
pub(crate) struct SettledSet {
    floor: u64,
    above: Runs<()>,
}

impl SettledSet {
    /// A set of all offsets below `floor`.
    pub(crate) fn below(floor: u64) -> Self {
        Self { floor, above: Runs::default() }
    }

    /// All offsets below this one are inside, and this one is not.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// The number of offsets inside.
    pub(crate) fn count(&self) -> u64 {
        self.floor + self.above.count()
    }

    /// The runs above the floor.
    pub(crate) fn above(&self) -> impl Iterator<Item = Range<u64>> {
        self.above.iter().map(|(start, end, ())| start..end)
    }

    /// Adds every offset of `start..end`.
    pub(crate) fn insert(&mut self, start: u64, end: u64) {
        if end <= self.floor {
            return;
        }
        if start <= self.floor && self.above.is_empty() {
            self.floor = end;
            return;
        }
        self.above.insert(start.max(self.floor), end, ());
        if let Some((from, to, ())) = self.above.first()
            && from <= self.floor
        {
            self.floor = to;
            self.above.remove(from, to);
        }
    }

    /// The parts of `start..end` that are not inside.
    pub(crate) fn gaps(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        self.above.gaps(start.max(self.floor), end)
    }

    /// The parts of `start..end` that are inside.
    pub(crate) fn within(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let below = (start < end.min(self.floor)).then(|| start..end.min(self.floor));
        let above = self.above.within(start.max(self.floor), end);
        below.into_iter().chain(above.into_iter().map(|(from, to, ())| from..to)).collect()
    }

    /// Whether every offset of `start..end` is inside. O(log runs).
    pub(crate) fn holds(&self, start: u64, end: u64) -> bool {
        let start = start.max(self.floor);
        start >= end || self.above.run_of(start).is_some_and(|(_, to, ())| end <= to)
    }

    /// Takes every offset of `start..end` out.
    pub(crate) fn remove(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        if start < self.floor {
            self.above.insert(end.min(self.floor), self.floor, ());
            self.floor = start;
        }
        self.above.remove(start, end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_say_the_same_as_a_plain_map(
            steps in proptest::collection::vec((0..60u64, 0..20u64, proptest::option::of(0..3u8)), 1..60),
            ask in (0..60u64, 0..30u64),
        ) {
            let mut runs = Runs::default();
            let mut twin = BTreeMap::new();
            for (start, length, value) in steps {
                let end = start + length;
                match value {
                    Some(value) => {
                        runs.insert(start, end, value);
                        twin.extend((start..end).map(|offset| (offset, value)));
                    }
                    None => {
                        let removed = runs.remove(start, end);
                        let flat: Vec<_> =
                            removed.iter().flat_map(|&(a, b, v)| (a..b).map(move |o| (o, v))).collect();
                        let expected: Vec<_> =
                            (start..end).filter_map(|o| twin.remove(&o).map(|v| (o, v))).collect();
                        prop_assert_eq!(flat, expected);
                    }
                }
                prop_assert_eq!(runs.count(), twin.len() as u64);
                let listed: Vec<_> = runs.iter().collect();
                for pair in listed.windows(2) {
                    prop_assert!(pair[0].1 < pair[1].0 || (pair[0].1 == pair[1].0 && pair[0].2 != pair[1].2));
                }
                let flat: BTreeMap<_, _> =
                    listed.iter().flat_map(|&(a, b, v)| (a..b).map(move |o| (o, *v))).collect();
                prop_assert_eq!(&flat, &twin);
            }
            let (start, end) = (ask.0, ask.0 + ask.1);
            let gaps: Vec<_> = runs.gaps(start, end).into_iter().flatten().collect();
            let expected: Vec<_> = (start..end).filter(|o| !twin.contains_key(o)).collect();
            prop_assert_eq!(gaps, expected);
        }

        #[test]
        fn a_settled_set_says_the_same_as_a_plain_set(
            steps in proptest::collection::vec((0..60u64, 0..20u64, prop::bool::weighted(0.8)), 1..60),
        ) {
            let mut settled = SettledSet::default();
            let mut twin = std::collections::BTreeSet::new();
            for (start, length, inserts) in steps {
                if inserts {
                    settled.insert(start, start + length);
                    twin.extend(start..start + length);
                } else {
                    settled.remove(start, start + length);
                    twin.retain(|offset| !(start..start + length).contains(offset));
                }
                prop_assert_eq!(settled.holds(20, 30), (20..30).all(|o| twin.contains(&o)));
                let inside: Vec<_> = settled.within(5, 70).into_iter().flatten().collect();
                prop_assert_eq!(inside, twin.range(5..70).copied().collect::<Vec<_>>());
                let floor = (0..).find(|o| !twin.contains(o)).unwrap();
                prop_assert_eq!(settled.floor(), floor);
                prop_assert_eq!(settled.count(), twin.len() as u64);
                let gaps: Vec<_> = settled.gaps(0, 90).into_iter().flatten().collect();
                prop_assert_eq!(gaps, (0..90).filter(|o| !twin.contains(o)).collect::<Vec<_>>());
            }
        }
    }
}
