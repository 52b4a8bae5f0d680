//! Settings that many partitions share, kept once: half a million topics have a handful of them.

use std::sync::Arc;

use hashbrown::HashMap;

/// Values by their encoding.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    known: HashMap<Box<[u8]>, Arc<T>, foldhash::fast::FixedState>,
    /// How many there are when those that nobody has any more are looked for.
    sweep_at: usize,
    key: Vec<u8>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { known: HashMap::default(), sweep_at: 64, key: Vec::new() }
    }
}

impl<T> Interner<T> {
    /// The one value that is encoded as `encode` does: `value`, or an earlier one.
    pub(crate) fn get(&mut self, value: T, encode: impl FnOnce(&T, &mut Vec<u8>)) -> Arc<T> {
        self.key.clear();
        encode(&value, &mut self.key);
        if let Some(known) = self.known.get(&self.key[..]) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, held| Arc::strong_count(held) > 1);
            self.sweep_at = (2 * self.known.len()).max(64);
        }
        let value = Arc::new(value);
        self.known.insert(self.key.clone().into_boxed_slice(), value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_and_those_that_nobody_has_are_forgotten() {
        let mut interner = Interner::default();
        let mut get = |value: u64| interner.get(value, |v, out| out.extend(v.to_le_bytes()));
        let kept = get(7);
        for value in 1_000..10_000 {
            get(value);
        }
        assert!(Arc::ptr_eq(&kept, &get(7)));
        assert!(interner.known.len() <= 65);
    }
}
