//! The log that a group has agreed on: its committed entries, and the state that they make.

use std::collections::BTreeMap;

use sennit_engine::{Engine, Record};
use sennit_journal::Frame;
use sennit_model::{Generation, Timestamp};
use sennit_shard::{Entry, EntryId, GroupRecord, LOG_BEGIN, Label};

use crate::{
    cluster::{raft_judge::LOGS_MATCH, synced_log::begin_of},
    oracle::Violation,
    world::SAME_STATE,
};

/// A time behind all: everything is due then.
const FAR: Timestamp = Timestamp(1 << 50);

/// A label of an entry, apart from where that lies: the term, and length and checksum of the body.
type Agreed = (u64, (u32, u32));

/// The committed entries, from the first one on.
pub struct AgreedLog {
    entries: Vec<Agreed>,
    /// The records of all entries that were written anywhere and are not applied, each with the place of its batch.
    records: BTreeMap<EntryId, Vec<(Record, u64)>>,
    /// The state that the entries make.
    engine: Engine,
    /// The index up to which they are applied.
    applied: u64,
    with_records: u64,
}

fn agreed(label: &Label) -> Agreed {
    (label.term, (label.body.bytes, label.body.checksum))
}

impl AgreedLog {
    /// The log of a new group.
    pub fn new() -> Self {
        Self {
            entries: Vec::new(),
            records: BTreeMap::new(),
            engine: Engine::new(Generation(0), Timestamp(0)),
            applied: LOG_BEGIN.index,
            with_records: 0,
        }
    }

    /// The index of the last entry.
    pub fn last(&self) -> u64 {
        LOG_BEGIN.index + self.entries.len() as u64
    }

    /// The number of entries with records.
    pub fn with_records(&self) -> u64 {
        self.with_records
    }

    /// The term of an entry.
    pub fn term(&self, index: u64) -> Option<u64> {
        self.get(index).map(|agreed| agreed.0)
    }

    fn get(&self, index: u64) -> Option<Agreed> {
        let at = index.checked_sub(LOG_BEGIN.index + 1)?;
        self.entries.get(at as usize).copied()
    }

    /// Takes the records of frames that a lane was given.
    pub fn hear(&mut self, frames: &[Frame]) {
        for frame in frames {
            let Some(GroupRecord::Entry(Entry { id, .. })) = begin_of(frame) else { continue };
            if id.index <= self.applied || self.records.contains_key(&id) {
                continue;
            }
            let records = frame.records().filter(|(kind, ..)| !GroupRecord::is_kind(*kind));
            let decoded = records.map(|(kind, position, body)| {
                let decoded = Record::decode(kind, body);
                let (record, head) = decoded.expect("it was encoded just now");
                (record, position.0 + head as u64)
            });
            self.records.insert(id, decoded.collect());
        }
    }

    /// A replica takes an entry for committed. Returns whether it is the first one that does.
    ///
    /// # Errors
    /// [`Violation`] if another entry was committed there.
    pub fn commit(&mut self, node: usize, index: u64, label: &Label) -> Result<bool, Violation> {
        let own = agreed(label);
        match self.get(index) {
            Some(before) if before == own => Ok(false),
            None if index == self.last() + 1 => {
                self.entries.push(own);
                Ok(true)
            }
            before => {
                let detail = format!("{index}: {before:?} is committed, but {node} has {own:?}");
                Err(Violation::new(LOGS_MATCH, detail))
            }
        }
    }

    /// Applies what is committed.
    pub fn apply(&mut self) {
        while self.applied < self.last() {
            let index = self.applied + 1;
            let id = EntryId { index, term: self.term(index).unwrap_or_default() };
            let Some(records) = self.records.remove(&id) else { return };
            self.with_records += u64::from(!records.is_empty());
            for (record, position) in &records {
                self.engine.apply(record, *position);
            }
            self.engine.end_followed_turn();
            self.engine.take_freed();
            self.applied = index;
        }
        // Entries that are not committed there never will be.
        self.records.retain(|id, _| id.index > self.applied);
    }

    /// Compares a state that comes from the entries up to the last one.
    ///
    /// # Errors
    /// [`Violation`] if it is another.
    pub fn compare(&self, node: usize, found: &Engine) -> Result<(), Violation> {
        let expected = self.engine.replicated_state(FAR);
        match found.replicated_state(FAR).difference(&expected) {
            None => Ok(()),
            Some((one, other)) => {
                let last = self.last();
                let detail = format!("{node} at entry {last}:\n    {one}\n    {other}");
                Err(Violation::new(SAME_STATE, detail))
            }
        }
    }

    /// Whether all that is committed is applied.
    pub fn is_applied(&self) -> bool {
        self.applied == self.last()
    }
}
