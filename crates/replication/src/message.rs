//! Messages between the replicas of a group. A link carries the messages of a group from one replica to another in
//! the order in which they were ordered; it may lose any tail of them.

use crate::label::{Content, EntryId, Label};
use crate::membership::MembershipError;

/// Greatest term and index that a message may name: far from any that a group reaches, and counting on from there
/// does not overflow.
pub const NUMBER_MAX: u64 = 1 << 62;
/// The highest term. A term is the generation of the deliveries that its leader makes, which has 32 bits.
pub const TERM_MAX: u64 = u32::MAX as u64;

/// A message from one replica of a group to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The group.
    pub group: u64,
    /// The replica that sends.
    pub from: u64,
    /// The replica that is to hear.
    pub to: u64,
    /// The sender's term; in requests for a vote, and in votes, the term that is asked for.
    pub term: u64,
    /// What is said.
    pub kind: MessageKind,
}

/// The kinds of messages, with their fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageKind {
    /// The leader sends an entry, or asks whether the logs agree up to `before`.
    Append {
        /// The entry before it.
        before: EntryId,
        /// The leader's commit index.
        commit: u64,
        /// The entry. The body of records travels beside the message.
        label: Option<Label>,
    },
    /// A replica has all entries up to an index, synced.
    Appended {
        /// The index; 0 from a replica of a newer term.
        index: u64,
        /// The sender's commit index.
        commit: u64,
    },
    /// A replica does not have the entry before the one that it was sent.
    NotAppended {
        /// The index of the entry before.
        index: u64,
        /// The last entry up to which the logs may agree.
        hint: EntryId,
        /// The sender's commit index.
        commit: u64,
    },
    /// A replica asks for a vote.
    RequestVote {
        /// Only asks whether it would get the vote.
        pre_vote: bool,
        /// The leader has handed leadership to the sender: nobody has to wait until the leader is silent.
        handed_over: bool,
        /// The sender's last entry.
        last: EntryId,
        /// The last entry that the sender knows to be committed.
        commit: EntryId,
    },
    /// The answer to a request for a vote.
    Vote {
        /// It answers a request with `pre_vote`.
        pre_vote: bool,
        /// The vote is given.
        granted: bool,
        /// If it is not: the last entry that the sender knows to be committed.
        commit: EntryId,
    },
    /// The leader is alive.
    Heartbeat {
        /// The commit index, as far as the receiver has the log.
        commit: u64,
        /// The leader asks whether it still leads: the number of the round.
        round: Option<u64>,
    },
    /// The answer to a heartbeat. It says nothing of the log, and waits for no sync.
    HeartbeatHeard {
        /// The sender's commit index.
        commit: u64,
        /// The round that the heartbeat belongs to.
        round: Option<u64>,
        /// The sender's disk has no room for more messages.
        is_full: bool,
    },
    /// The leader hands leadership to the receiver.
    TakeOver,
}

/// The reason why a message cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The kind is unknown: a newer program has sent it.
    #[error("message kind {kind} of a group is not known to this version")]
    Kind {
        /// The kind's number.
        kind: u8,
    },
    /// The bytes end too early or too late.
    #[error("a message of a group does not end where its fields end")]
    Length,
    /// A field has a value that it cannot have.
    #[error("{field} of a message of a group cannot be {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The membership in it cannot be.
    #[error("the membership in a message of a group cannot be")]
    Membership(#[from] MembershipError),
}

impl Message {
    /// # Errors
    /// A [`MessageError`] if a field has a value that no replica sends.
    pub fn check(&self) -> Result<(), MessageError> {
        within("from", 1, self.from, u64::MAX)?;
        within("to", 1, self.to, u64::MAX)?;
        within("term", 1, self.term, TERM_MAX)?;
        match &self.kind {
            MessageKind::Append { before, commit, label } => {
                // raft takes term 0 for the term of what lies beyond its log.
                check_entry("entry before", *before)?;
                within("commit", 0, *commit, NUMBER_MAX)?;
                within("term of the entry before", 0, before.term, self.term)?;
                label.as_ref().map_or(Ok(()), |label| self.check_label(*before, label))
            }
            MessageKind::Appended { index, commit } => {
                within("index", 0, *index, NUMBER_MAX)?;
                within("commit", 0, *commit, NUMBER_MAX)
            }
            MessageKind::NotAppended { index, hint, commit } => {
                within("index", 0, *index, NUMBER_MAX)?;
                within("commit", 0, *commit, NUMBER_MAX)?;
                check_id("hint", *hint)
            }
            MessageKind::RequestVote { last, commit, .. } => {
                check_entry("last entry", *last)?;
                check_entry("commit", *commit)
            }
            MessageKind::Vote { commit, .. } => check_entry("commit", *commit),
            MessageKind::Heartbeat { commit, .. } | MessageKind::HeartbeatHeard { commit, .. } => {
                within("commit", 0, *commit, NUMBER_MAX)
            }
            MessageKind::TakeOver => Ok(()),
        }
    }

    fn check_label(&self, before: EntryId, label: &Label) -> Result<(), MessageError> {
        within("index of a label", before.index + 1, label.id.index, before.index + 1)?;
        within("term of a label", before.term.max(1), label.id.term, self.term)?;
        match &label.content {
            Content::Membership(membership) => Ok(membership.check()?),
            Content::Records(_) | Content::TermBegan => Ok(()),
        }
    }
}

/// An entry, or what lies before all entries: with a term as well as an index, or with neither.
fn check_entry(field: &'static str, id: EntryId) -> Result<(), MessageError> {
    check_id(field, id)?;
    match (id.term == 0) == (id.index == 0) {
        true => Ok(()),
        false => Err(MessageError::Field { field, value: id.index }),
    }
}

fn check_id(field: &'static str, id: EntryId) -> Result<(), MessageError> {
    within(field, 0, id.index, NUMBER_MAX)?;
    within(field, 0, id.term, TERM_MAX)
}

fn within(field: &'static str, least: u64, value: u64, most: u64) -> Result<(), MessageError> {
    match (least..=most).contains(&value) {
        true => Ok(()),
        false => Err(MessageError::Field { field, value }),
    }
}
