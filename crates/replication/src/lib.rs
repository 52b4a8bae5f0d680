//! Replication: a shard's group. Who leads, which entries the group has decided, and in which order.
//!
//! A [`Member`] is one replica's part of its group. It is told what happens ([`Member::hear`], [`Member::tick`],
//! [`Member::synced`], [`Member::propose`]), and [`Member::orders`] says what is to be done. It knows labels and
//! messages: no payload, no file, no socket, no clock. The same calls have the same orders, always.
//!
//! This is the only crate that names `raft` (docs/decisions/0053-a-shard-of-a-cluster-is-a-raft-group.md and 0056), and
//! none of its types shows. `raft_form` turns labels, messages and members into raft's, and back; `log` is its storage.

mod change;
mod election;
mod heir;
mod label;
mod lag;
mod lease;
mod log;
mod member;
mod membership;
mod message;
mod message_codec;
mod orders;
mod outcome;
mod raft_form;
mod refusal;
mod rooms;
mod settings;
mod sync_queue;
mod transfer;

pub use label::{Body, Content, EntryId, GROUP_BEGINS, Label};
pub use lag::Lag;
pub use member::Member;
pub use membership::{MEMBERS_MAX, Membership, MembershipError};
pub use message::{Message, MessageError, MessageKind, NUMBER_MAX, TERM_MAX};
pub use message_codec::{MESSAGE_BYTES_MAX, MESSAGE_TABLE_BYTES};
pub use orders::{Confirmed, Leadership, Mark, MembershipChange, Orders, Role, Round, Vote};
pub use refusal::{HearError, Quarantine, Refusal};
pub use settings::{
    ELECTION_TICKS, ELECTION_TICKS_END, HEARTBEAT_TICKS, LEASE_NS, ROUNDS_MAX, Settings, Start,
    StartError, TICK_MS, WINDOW_MAX, WINDOW_MIN,
};
