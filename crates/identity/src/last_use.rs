//! The last use of an API key: noted to the minute in memory, at each login and request and while a connection is open,
//! and kept once an hour at most. Time is an argument, and where it is kept is somebody else's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sennit_model::Timestamp;
use serde::{Deserialize, Serialize};

/// What the names of its entries begin with; the id of the key follows.
pub const LAST_USE_ENTRY_PREFIX: &str = "used.";

/// How exactly it is noted, in milliseconds.
const NOTED_TO_MS: u64 = 60_000;

/// How old what is kept may be before it is kept anew, in milliseconds.
const KEPT_TO_MS: u64 = 3_600_000;

/// The last use of one key. All threads share it.
#[derive(Debug, Default)]
pub struct LastUse {
    /// In milliseconds since 1970; 0 as long as it was never used.
    at_ms: AtomicU64,
    kept_ms: AtomicU64,
    connections: AtomicU64,
}

/// The entry that keeps it.
#[derive(Serialize, Deserialize)]
struct LastUseEntry {
    at_ms: u64,
}

impl LastUse {
    /// Notes that the key is used. Returns whether that has to be kept now.
    pub fn note(&self, now: Timestamp) -> bool {
        let at = now.0 - now.0 % NOTED_TO_MS;
        // Most uses are in the minute of the one before.
        at > self.at_ms.load(Relaxed) && {
            self.at_ms.fetch_max(at, Relaxed);
            self.is_due(at)
        }
    }

    /// Notes that a connection with the key is open from now on: as long as it is, the key is in use.
    pub fn open(&self) {
        self.connections.fetch_add(1, Relaxed);
    }

    /// Notes that a connection is open no more.
    pub fn close(&self, now: Timestamp) -> bool {
        self.connections.fetch_sub(1, Relaxed);
        self.note(now)
    }

    /// When the key was last used; `None` if it never was.
    pub fn at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.connections.load(Relaxed) > 0 {
            self.note(now);
        }
        Some(Timestamp(self.at_ms.load(Relaxed))).filter(|at| at.0 > 0)
    }

    /// The entry to keep now, if what is kept is too old.
    pub fn due(&self, now: Timestamp) -> Option<(Timestamp, Vec<u8>)> {
        let at = self.at(now).filter(|at| self.is_due(at.0))?;
        // A number has a form in JSON.
        Some((at, serde_json::to_vec(&LastUseEntry { at_ms: at.0 }).unwrap_or_default()))
    }

    /// Takes note of what is kept.
    pub fn kept(&self, at: Timestamp) {
        self.at_ms.fetch_max(at.0, Relaxed);
        self.kept_ms.store(at.0, Relaxed);
    }

    /// Takes note of the entry that was kept; says whether it could be read.
    pub fn read(&self, entry: &[u8]) -> bool {
        let entry = serde_json::from_slice::<LastUseEntry>(entry);
        entry.map(|entry| self.kept(Timestamp(entry.at_ms))).is_ok()
    }

    fn is_due(&self, at_ms: u64) -> bool {
        at_ms >= self.kept_ms.load(Relaxed).saturating_add(KEPT_TO_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = KEPT_TO_MS;

    fn at(ms: u64) -> Timestamp {
        Timestamp(1_763_712_000_000 + ms)
    }

    #[test]
    fn it_is_noted_to_the_minute_and_kept_once_an_hour() {
        let used = LastUse::default();
        assert_eq!((used.at(at(0)), used.due(at(0))), (None, None), "a new key was never used");
        assert!(used.note(at(59_999)), "the first use is kept at once");
        assert_eq!(used.at(at(HOUR)), Some(at(0)));
        let (first, entry) = used.due(at(59_999)).unwrap();
        assert_eq!(String::from_utf8_lossy(&entry), r#"{"at_ms":1763712000000}"#);
        used.kept(first);
        assert!(!used.note(at(60_000)) && !used.note(at(HOUR - 1)), "once an hour at most");
        assert_eq!(used.at(at(HOUR)), Some(at(HOUR - 60_000)), "in memory it is newer");
        assert_eq!(used.due(at(HOUR)), None);
        assert!(used.note(at(HOUR)) && used.due(at(HOUR)).is_some());
        assert!(!used.note(at(0)), "a clock that is put back changes nothing");
        assert_eq!(used.at(at(HOUR)), Some(at(HOUR)));

        let after_start = LastUse::default();
        assert!(after_start.read(&entry) && !after_start.read(b"{"));
        assert_eq!((after_start.at(at(0)), after_start.due(at(0))), (Some(first), None));
    }

    #[test]
    fn a_key_whose_connection_is_open_is_in_use() {
        let used = LastUse::default();
        used.open();
        used.open();
        assert_eq!(used.at(at(5 * HOUR)), Some(at(5 * HOUR)));
        assert!(used.due(at(6 * HOUR)).is_some_and(|(noted, _)| noted == at(6 * HOUR)));
        used.close(at(6 * HOUR));
        used.close(at(7 * HOUR));
        assert_eq!(used.at(at(9 * HOUR)), Some(at(7 * HOUR)));
    }
}
