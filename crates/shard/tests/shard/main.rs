//! A shard on a disk in memory: restarts, moves, rot.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod atomic_publish;
mod broker;
mod commit_order;
mod compaction;
mod durability;
mod full;
mod golden;
mod group_member;
mod headless;
mod member;
mod moving;
mod rebuild;
mod received;
mod replica;
mod restart;
mod rot;
mod standing;
mod together;
mod two_rots;
mod uncommitted_tail;
