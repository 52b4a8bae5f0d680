//! A follower of the shard: it knows the records of its frames, in order, and nothing of commands, time and leases.

use sennit_engine::{Engine, Record};
use sennit_journal::{Frame, Position};
use sennit_model::{Generation, Timestamp};
use sennit_shard::GroupRecord;

/// The records of a shard, of all its lives.
#[derive(Debug, Default)]
pub struct Follower {
    /// Each with the position of its body and the length of its head.
    records: Vec<(Record, Position, usize)>,
    /// Whether it does not follow any more.
    is_lost: bool,
}

impl Follower {
    /// Takes the records of frames that the lane is to write.
    pub fn hear(&mut self, frames: &[Frame]) {
        if self.is_lost {
            return;
        }
        let records = frames.iter().flat_map(Frame::records);
        for (kind, position, body) in records.filter(|(kind, ..)| !GroupRecord::is_kind(*kind)) {
            let (record, head) = Record::decode(kind, body).expect("it was encoded just now");
            let is_checkpoint = matches!(
                record,
                Record::CheckpointBegan { .. }
                    | Record::CheckpointPart { .. }
                    | Record::CheckpointEnded { .. }
            );
            if !is_checkpoint {
                self.records.push((record, position, head));
            }
        }
    }

    /// Forgets what was written behind the record at `last`: a crash has taken it.
    pub fn forget_behind(&mut self, last: Position) {
        let kept = self.records.partition_point(|(_, position, _)| *position <= last);
        self.records.truncate(kept);
    }

    /// From now on it follows nothing: something of the journal is damaged, and a start makes of it what was not heard, or
    /// nobody wants to know.
    pub fn lose_track(&mut self) {
        self.is_lost = true;
        self.records = Vec::new();
    }

    /// The state after all that was heard and `more`; `None` if it has lost track.
    #[must_use]
    pub fn state(&self, more: Vec<Record>, now: Timestamp) -> Option<Engine> {
        if self.is_lost {
            return None;
        }
        let mut engine = Engine::new(Generation(0), now);
        for (record, position, head) in &self.records {
            engine.apply(record, position.0 + *head as u64);
            engine.take_freed();
        }
        for record in &more {
            engine.apply(record, 0);
        }
        Some(engine)
    }
}
