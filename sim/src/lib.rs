//! The simulator: one seed, one run of everything below the waterline on a disk that fails, with a
//! clock that jumps, judged by an oracle that knows only the promises.
//!
//! In reading order: `swarm` draws what a seed's world is like, `run` draws what happens in it,
//! `world` does it with `moving` for the mover, `publishers`, `consumers`, `readers`, `streams`, `natives` and `topics` are those who speak, `oracle` judges.

mod act;
mod consumers;
mod disk;
mod drain;
mod full_disk;
mod letter;
mod moving;
mod natives;
pub mod oracle;
mod publishers;
mod publishing;
mod random;
mod readers;
mod reading;
mod rot;
mod run;
mod scenarios;
mod script;
mod sequences;
mod streaming;
mod streams;
mod swarm;
mod takes;
mod tellers;
mod together;
mod topics;
mod trace;
mod world;

pub use act::Act;
pub use disk::Trouble;
pub use run::{Failure, Finished, mix, run, run_all};
pub use scenarios::{SCENARIOS, run_rot, run_scenarios};
pub use script::Ending;
pub use sequences::{ALPHABET, BrokenCourse, Counted, run_sequences, traced_course};

/// Millions of short lives, each of which allocates anew.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
