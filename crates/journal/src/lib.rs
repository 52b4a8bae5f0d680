//! A shard's durable, ordered records. A record is bytes with a kind; the engine interprets them.
//!
//! In reading order: the [`FrameBuilder`] gathers records into a [`Frame`]; the [`Lane`] writes and syncs frames
//! into segments, which lie in slots; [`recover`] reads them back after a crash and distinguishes a torn tail from
//! rot; the [`Reader`] serves consumers that lag. A [`PackWriter`] moves long-lived records into [`Pack`]s, so that
//! their slots come free. All of it uses a [`Disk`]. A [`Cut`] lists the files for a copy. FORMAT.md describes the
//! bytes.

mod block;
mod container;
mod cut;
mod directory;
pub mod disk;
mod fault;
mod format;
mod format_file;
mod frame;
mod frame_buffer;
mod headless;
mod lane;
mod lane_config;
mod log_parts;
mod open_files;
mod paced_file;
mod pack;
mod pack_removal;
mod pack_writer;
mod position;
mod reader;
mod received_body;
mod recovery;
mod scan;
mod scrub;
mod slot;
mod slot_file;
mod slot_survey;
mod verify;
mod walk;

pub use container::Container;
pub use cut::{Cut, CutFile, CutFiles, FileName, MissingFile};
pub use directory::{DataDirectory, UnfinishedDirectory};
pub use disk::{Disk, DiskFile};
pub use fault::Fault;
pub use format::{BLOCK_BYTES, FORMAT_VERSION, FRAME_HEADER_BYTES, FrameBody};
pub use format_file::{DirectorySettings, NODE_ID_MAX, NodeIdentity, SHARDS_MAX};
pub use frame::{Frame, FrameBuilder, PushError};
pub use frame_buffer::FRAME_TARGET_BYTES;
pub use lane::Lane;
pub use lane_config::LaneConfig;
pub use pack::{PACK_BYTES_MAX, Pack, packs};
pub use pack_removal::{PackRemoval, REMOVAL_STEP_BYTES, remove_pack};
pub use pack_writer::{PackPushError, PackWriter};
pub use position::Position;
pub use reader::Reader;
pub use received_body::{BodyError, ReceivedBody};
pub use recovery::{RecoveredLane, ReplayFrom, recover};
pub use scrub::{ScrubResult, scrub};
pub use slot::{Slot, SlotFill, SlotMaker, remove_slot};
pub use verify::{HeadlessSlot, VerifyReport, verify};
pub use walk::{Damage, WalkItem};
