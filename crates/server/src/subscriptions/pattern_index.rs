//! Finds the subscriptions whose patterns may match a stream, by the literal beginnings of the patterns: of ten
//! thousand patterns nearly all begin otherwise and are not checked. It knows text only.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The subscriptions with a pattern.
#[derive(Debug, Default)]
pub(crate) struct PatternIndex {
    /// By the beginning's length in bytes, and by the beginning; none of them is empty.
    ids: BTreeMap<usize, HashMap<Box<str>, BTreeSet<Box<str>>>>,
}

impl PatternIndex {
    /// Names that a subscription means have this beginning.
    pub(crate) fn add(&mut self, beginning: &str, id: &str) {
        let of_length = self.ids.entry(beginning.len()).or_default();
        of_length.entry(beginning.into()).or_default().insert(id.into());
    }

    /// They do not any more.
    pub(crate) fn remove(&mut self, beginning: &str, id: &str) {
        let Some(of_length) = self.ids.get_mut(&beginning.len()) else { return };
        let Some(ids) = of_length.get_mut(beginning) else { return };
        ids.remove(id);
        if ids.is_empty() {
            of_length.remove(beginning);
        }
        if of_length.is_empty() {
            self.ids.remove(&beginning.len());
        }
    }

    /// The subscriptions of which this name has the beginning.
    pub(crate) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.ids
            .range(..=name.len())
            .filter_map(|(&length, of_length)| of_length.get(name.get(..length)?))
            .flatten()
            .map(|id| &**id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'a>(pattern_index: &'a PatternIndex, name: &'a str) -> Vec<&'a str> {
        pattern_index.of(name).collect()
    }

    #[test]
    fn a_name_is_looked_up_by_its_beginnings_and_by_nothing_else() {
        let mut pattern_index = PatternIndex::default();
        let held = [("", "all"), ("a/", "b"), ("a/", "a"), ("a/b", "whole"), ("b/", "other")];
        for (beginning, id) in held {
            pattern_index.add(beginning, id);
        }
        assert_eq!(of(&pattern_index, "a/b"), ["all", "a", "b", "whole"]);
        assert_eq!(of(&pattern_index, "a"), ["all"]);
        assert_eq!(of(&pattern_index, "b/c/d"), ["all", "other"]);
        for (beginning, id) in [("a/", "a"), ("", "all"), ("a/", "nobody"), ("c/", "b")] {
            pattern_index.remove(beginning, id);
        }
        assert_eq!(of(&pattern_index, "a/b"), ["b", "whole"]);
        for (beginning, id) in held {
            pattern_index.remove(beginning, id);
        }
        assert!(pattern_index.ids.is_empty());
    }
}
