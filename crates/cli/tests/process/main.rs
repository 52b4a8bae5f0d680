//! The real binary against the real disk: what goes in comes out, what was confirmed survives a
//! kill, what is wrong is said, and ends with its code. Knows commands and processes only.

mod broker;
mod checker;
mod crash;
mod files;
mod refusals;
mod torture;
