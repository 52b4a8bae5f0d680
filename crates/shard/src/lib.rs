//! One shard: the engine's state, the journal's frames, and the order between them. Commands are
//! decided and their records appended; frames go to the lane; what the lane has committed
//! releases the effects that waited for it. Nothing here waits: whoever owns the shard carries
//! frames and reads between it and the disk.

mod at_hand;
mod checkpoint;
mod compacting;
mod compactor;
mod counters;
mod kept;
mod key_table;
mod mover;
mod moves;
mod moving;
mod packs;
mod passes;
mod read_cache;
mod reclaim;
mod recover;
mod recover_error;
mod referred;
mod repair;
mod replay;
mod room;
mod segments;
mod shard;
mod tail_cache;
mod writer;

pub use compactor::{CompactionDone, CompactionStep, CompactionWork};
pub use counters::Counters;
pub use mover::{Held, Keeping, MoveError, Moved, MovedBatch, Mover, PackLengths};
pub use read_cache::Fetch;
pub use recover::{Recovered, RecoveryReport, Settings, recover};
pub use recover_error::RecoverError;
pub use referred::{Referred, referred};
pub use repair::{RepairError, Repaired, repair};
pub use room::{Room, START_SLOTS, Spare, Wish, held_slots};
pub use shard::Shard;
