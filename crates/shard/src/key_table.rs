//! The latest message of each key that a pass has seen: 24 bytes for each key, whatever its length.

use hashbrown::HashMap;

/// The first half of a key's BLAKE3 hash. Finding two keys with the same one takes 2^64 tries.
type KeyHash = [u8; 16];

/// The offset of the latest message of each key.
#[derive(Debug, Default)]
pub(crate) struct KeyTable {
    latest: HashMap<KeyHash, u64, foldhash::fast::FixedState>,
}

impl KeyTable {
    /// The number of keys.
    pub(crate) fn len(&self) -> usize {
        self.latest.len()
    }

    /// Notes that a message at `offset` has this key.
    pub(crate) fn note(&mut self, key: &[u8], offset: u64) {
        let latest = self.latest.entry(hash(key)).or_default();
        *latest = offset.max(*latest);
    }

    /// Returns whether a message behind `offset` has this key.
    pub(crate) fn supersedes(&self, key: &[u8], offset: u64) -> bool {
        !self.latest.is_empty() && self.latest.get(&hash(key)).is_some_and(|&at| at > offset)
    }
}

fn hash(key: &[u8]) -> KeyHash {
    let whole = blake3::hash(key);
    *whole.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_of_a_key_supersedes_the_others_whatever_the_order_they_were_noted_in() {
        let mut table = KeyTable::default();
        for (key, offset) in [("a", 0), ("b", 1), ("a", 7), ("a", 3)] {
            table.note(key.as_bytes(), offset);
        }
        assert_eq!(table.len(), 2);
        let superseded = |key: &str, offset| table.supersedes(key.as_bytes(), offset);
        assert!(superseded("a", 0) && superseded("a", 3) && !superseded("a", 7));
        assert!(!superseded("b", 1) && !superseded("c", 0));
    }
}
