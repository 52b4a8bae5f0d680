//! The crate's tests: groups of members in memory, with a network and lanes that a seed rules, and checkers that look
//! on at each step.

mod chaos;
mod checkers;
mod elections;
mod hearing;
mod hostile;
mod lane;
mod leases;
mod logs;
mod members;
mod messages;
mod seed;
mod world;
