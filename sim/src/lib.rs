//! The simulator: one seed, one run of everything below the waterline on a disk that fails, with a
//! clock that jumps, judged by an oracle that knows only the promises.
//!
//! In reading order: `swarm` draws what a seed's world is like, `run` draws what happens in it,
//! `world` does it with `moving` for the mover, `publishers`, `consumers` and `topics` are those who speak, `oracle` judges.

mod consumers;
mod disk;
mod drain;
mod letter;
mod moving;
pub mod oracle;
mod publishers;
mod random;
mod run;
mod swarm;
mod topics;
mod trace;
mod world;

pub use run::{Failure, Finished, run, run_all};
