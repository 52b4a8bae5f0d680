//! The journal from outside: frames, lanes, recovery and the disks below them, each in its file.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on may as well stop")]

mod crashes;
mod cuts;
mod data_directory;
mod disk_contract;
mod faulty_disk;
mod format_page;
mod frames;
mod golden;
mod golden_pack;
mod golden_used_again;
mod headless;
mod impossible;
mod lanes;
mod log_parts;
mod model;
mod node_directory;
mod pack_crashes;
mod pack_rot;
mod packs;
mod passed_over;
mod received;
mod recovery;
mod rot;
mod rot_skipped;
mod salvage;
mod scrubs;
mod unreadable;
mod verify;
mod walks;
mod world;
