//! Replicas of one group on disks in memory, linked by a test.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod changing;
mod chaos;
mod group;
mod leading;
mod limits;
mod quarantine;
