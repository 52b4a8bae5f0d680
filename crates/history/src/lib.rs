//! Histories: what clients of a topic asked, what they were told, and when; and the checker that judges them.
//!
//! A program records each call of its clients as an [`Operation`], with the instants of one monotonic clock between
//! which it ran. [`check`] rebuilds each partition's log from what the clients were told, and finds each promise that
//! no log could have kept: the operations of a partition have to be those of one log, each of them done at one instant
//! between its begin and its end (Herlihy and Wing, "Linearizability", 1990).
//!
//! This crate knows no broker, no protocol and no clock: it judges a node, a cluster or a simulation alike.

mod check;
mod groups;
mod history;
mod instants;
mod log;
mod operation;
mod publishes;
mod readers;
mod settled;
mod violation;

pub use check::{Counts, Verdict, check};
pub use history::History;
pub use operation::{
    Answer, Content, Delivered, Ended, Gap, MessageName, Operation, Published, Read, ReadStart,
    Settlement, What,
};
pub use violation::{Rule, Violation};
