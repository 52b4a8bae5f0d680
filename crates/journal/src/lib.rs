//! A shard's durable, ordered records. Records are bytes with a kind; what they mean is for others.
//!
//! In reading order: records are gathered into a [`Frame`] by the [`FrameBuilder`]; the [`Lane`]
//! writes and syncs frames into segments that lie in slots; [`recover`] reads them back after a
//! crash and tells a torn tail from rot; the [`Reader`] serves those who lag. A [`PackWriter`] moves
//! records that live long into [`Pack`]s, so that their slots come free. All of it stands on a
//! [`Disk`]. A [`Cut`] is what a copy has to hold. FORMAT.md is the page of the bytes.

mod block;
mod cut;
mod directory;
pub mod disk;
mod fault;
mod format;
mod frame;
mod gather;
mod headless;
mod home;
mod lane;
mod lane_config;
mod open_files;
mod paced;
mod pack;
mod pack_removal;
mod pack_writer;
mod position;
mod reader;
mod recovery;
mod scan;
mod scrub;
mod slot;
mod slot_file;
mod verify;
mod walk;

pub use cut::{Cut, CutFile, CutFiles, FileName, Missing};
pub use directory::{DataDirectory, DirectorySettings, SHARDS_MAX, UnmadeDirectory};
pub use disk::{Disk, DiskFile};
pub use fault::Fault;
pub use format::{BLOCK_BYTES, FORMAT_VERSION};
pub use frame::{Frame, FrameBuilder, PushError};
pub use gather::FRAME_TARGET_BYTES;
pub use home::Home;
pub use lane::Lane;
pub use lane_config::LaneConfig;
pub use pack::{PACK_BYTES_MAX, Pack, packs};
pub use pack_removal::{PackRemoval, REMOVAL_STEP_BYTES, remove_pack};
pub use pack_writer::{PackPushError, PackWriter};
pub use position::Position;
pub use reader::Reader;
pub use recovery::{RecoveredEnd, ReplayFrom, recover};
pub use scrub::{Scrubbed, scrub};
pub use slot::{Slot, SlotFill, SlotMaker, remove_slot};
pub use verify::{HeadlessSlot, Verdict, verify};
pub use walk::{Damage, Walked};
