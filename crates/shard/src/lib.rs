//! One shard: the engine's state, the journal's frames, and the order between them. Commands are decided and their
//! records appended; frames go to the lane; a commit of the lane releases the effects that waited for it. Nothing
//! here waits: the owner of the shard carries frames and reads between it and the disk.

mod admission;
mod checkpoint;
mod commit;
mod compaction_scheduling;
mod compaction_state;
mod compactor;
mod counters;
mod damage;
mod entry_queue;
mod entry_writing;
mod group_log;
mod group_orders;
mod group_record;
mod key_table;
mod labels;
mod memory_batches;
mod move_scheduling;
mod move_state;
mod mover;
mod packs;
mod paged_batches;
mod progress;
mod quarantine;
mod read_cache;
mod readable_batches;
mod rebuild;
mod received_entry;
mod reclaim;
mod recover;
mod recover_error;
mod references;
mod repair;
mod replay;
mod replica_log;
mod replica_reading;
mod segments;
mod shard;
mod slot_budget;
mod standing;
mod standing_change;
mod tail_cache;
mod uncommitted;
mod waiting_effects;
mod writer;

pub use compactor::{CompactionDone, CompactionStep, CompactionWork};
pub use counters::Counters;
pub use group_orders::EntryBody;
pub use group_record::{
    Entry, EntryContent, EntryId, GroupRecord, GroupRecordError, Here, MEMBERS_MAX, Membership,
    Stands,
};
pub use labels::{LOG_BEGIN, Label, Labels};
pub use mover::{MoveError, Moved, MovedBatch, Mover, PackLengths, RetentionClass, StoredBatch};
pub use packs::PackSummary;
pub use progress::{LANE_LAG_BYTES_MAX, LANE_LAG_MAX};
pub use quarantine::Quarantine;
pub use read_cache::Fetch;
pub use rebuild::{Rebuild, TakeOver};
pub use received_entry::{EntryError, EntrySize, ReceivedEntry};
pub use recover::{Recovered, RecoveryReport, Settings, recover};
pub use recover_error::RecoverError;
pub use references::{References, find_references};
pub use repair::{RepairError, Repaired, repair};
pub use replica_log::Replica;
pub use replica_reading::ReplicaError;
pub use shard::Shard;
pub use slot_budget::{START_SLOTS, SlotBudget, SlotRequest, SpareSlots, held_slots};
pub use standing::Standing;
pub use uncommitted::UNCOMMITTED_BYTES_MAX;
