//! Labels, messages and members in raft's form, and back. What comes from raft was made here or by raft itself, so it
//! is turned back without a doubt.

use raft::eraftpb::{ConfState, Entry, EntryType, Message as RaftMessage, MessageType};
use raft::{CAMPAIGN_TRANSFER, INVALID_ID};

use crate::label::{Body, Content, EntryId, Label};
use crate::membership::Membership;
use crate::message::{Message, MessageKind};

/// Bytes of an entry of records in raft's log: length, checksum, number of records.
const BODY_BYTES: usize = 12;

/// An entry with this label. A membership is the entry's context, in our own form: raft reads the data only of what its
/// leader proposes.
pub(crate) fn entry(label: &Label) -> Entry {
    let mut entry = Entry { term: label.id.term, index: label.id.index, ..Entry::default() };
    match &label.content {
        Content::Records(body) => entry.data = data(*body).into(),
        Content::TermBegan => {}
        Content::Membership(membership) => {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            entry.context = context(membership).into();
        }
    }
    entry
}

/// The data of an entry of records.
pub(crate) fn data(body: Body) -> Vec<u8> {
    let mut data = Vec::with_capacity(BODY_BYTES);
    for number in [body.length, body.checksum, body.records] {
        data.extend_from_slice(&number.to_le_bytes());
    }
    data
}

/// The context of an entry of members.
pub(crate) fn context(membership: &Membership) -> Vec<u8> {
    let mut context = Vec::new();
    membership.encode(&mut context);
    context
}

/// The label of an entry.
pub(crate) fn label(entry: &Entry) -> Label {
    let content = match entry.get_entry_type() {
        EntryType::EntryConfChangeV2 => {
            let membership = Membership::decode(&entry.context).expect("a membership of our own");
            Content::Membership(Box::new(membership))
        }
        _ if entry.data.is_empty() => Content::TermBegan,
        _ => {
            assert_eq!(entry.data.len(), BODY_BYTES, "an entry's data");
            let number =
                |at: usize| u32::from_le_bytes(std::array::from_fn(|nth| entry.data[at + nth]));
            Content::Records(Body { length: number(0), checksum: number(4), records: number(8) })
        }
    };
    Label { id: EntryId { term: entry.term, index: entry.index }, content }
}

/// A message of ours that was heard.
pub(crate) fn to_raft(message: &Message) -> RaftMessage {
    let mut raft = RaftMessage {
        from: message.from,
        to: message.to,
        term: message.term,
        ..RaftMessage::default()
    };
    let kind = match &message.kind {
        MessageKind::Append { before, commit, label } => {
            (raft.index, raft.log_term, raft.commit) = (before.index, before.term, *commit);
            raft.entries.extend(label.iter().map(entry));
            MessageType::MsgAppend
        }
        MessageKind::Appended { index, commit } => {
            (raft.index, raft.commit) = (*index, *commit);
            MessageType::MsgAppendResponse
        }
        MessageKind::NotAppended { index, hint, commit } => {
            (raft.index, raft.commit, raft.reject) = (*index, *commit, true);
            (raft.reject_hint, raft.log_term) = (hint.index, hint.term);
            MessageType::MsgAppendResponse
        }
        MessageKind::RequestVote { pre_vote, handed_over, last, commit } => {
            (raft.index, raft.log_term) = (last.index, last.term);
            (raft.commit, raft.commit_term) = (commit.index, commit.term);
            if *handed_over {
                raft.context = CAMPAIGN_TRANSFER.into();
            }
            match pre_vote {
                true => MessageType::MsgRequestPreVote,
                false => MessageType::MsgRequestVote,
            }
        }
        MessageKind::Vote { pre_vote, granted, commit } => {
            raft.reject = !granted;
            (raft.commit, raft.commit_term) = (commit.index, commit.term);
            match pre_vote {
                true => MessageType::MsgRequestPreVoteResponse,
                false => MessageType::MsgRequestVoteResponse,
            }
        }
        MessageKind::Heartbeat { commit, round } => {
            raft.commit = *commit;
            raft.context = round.map(round_context).unwrap_or_default().into();
            MessageType::MsgHeartbeat
        }
        MessageKind::HeartbeatHeard { commit, round, is_full: _ } => {
            raft.commit = *commit;
            raft.context = round.map(round_context).unwrap_or_default().into();
            MessageType::MsgHeartbeatResponse
        }
        MessageKind::TakeOver => MessageType::MsgTimeoutNow,
    };
    raft.set_msg_type(kind);
    raft
}

/// A message of raft's that is to be sent by a replica whose disk is full or not.
pub(crate) fn from_raft(group: u64, is_full: bool, raft: &RaftMessage) -> Message {
    let index = EntryId { term: raft.log_term, index: raft.index };
    let commit = EntryId { term: raft.commit_term, index: raft.commit };
    let kind = match raft.get_msg_type() {
        MessageType::MsgAppend => MessageKind::Append {
            before: index,
            commit: raft.commit,
            label: raft.entries.first().map(label),
        },
        MessageType::MsgAppendResponse if raft.reject => MessageKind::NotAppended {
            index: raft.index,
            hint: EntryId { term: raft.log_term, index: raft.reject_hint },
            commit: raft.commit,
        },
        MessageType::MsgAppendResponse => {
            MessageKind::Appended { index: raft.index, commit: raft.commit }
        }
        kind @ (MessageType::MsgRequestVote | MessageType::MsgRequestPreVote) => {
            MessageKind::RequestVote {
                pre_vote: kind == MessageType::MsgRequestPreVote,
                handed_over: raft.context == CAMPAIGN_TRANSFER,
                last: index,
                commit,
            }
        }
        kind @ (MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse) => {
            MessageKind::Vote {
                pre_vote: kind == MessageType::MsgRequestPreVoteResponse,
                granted: !raft.reject,
                commit,
            }
        }
        MessageType::MsgHeartbeat => {
            MessageKind::Heartbeat { commit: raft.commit, round: round_number(&raft.context) }
        }
        MessageType::MsgHeartbeatResponse => MessageKind::HeartbeatHeard {
            commit: raft.commit,
            round: round_number(&raft.context),
            is_full,
        },
        MessageType::MsgTimeoutNow => MessageKind::TakeOver,
        kind => panic!("raft sends {kind:?}, which nothing here asks for"),
    };
    Message { group, from: raft.from, to: raft.to, term: raft.term, kind }
}

/// The context of a round's heartbeats, and of the request with which the round begins.
pub(crate) fn round_context(round: u64) -> Vec<u8> {
    round.to_le_bytes().to_vec()
}

/// The round of a context that [`round_context`] made.
pub(crate) fn round_number(context: &[u8]) -> Option<u64> {
    context.try_into().ok().map(u64::from_le_bytes)
}

/// The members in raft's form.
pub(crate) fn conf_state(membership: &Membership) -> ConfState {
    let list = |members: &std::collections::BTreeSet<u64>| members.iter().copied().collect();
    ConfState {
        voters: list(&membership.voters),
        voters_outgoing: list(&membership.outgoing),
        learners: list(&membership.learners),
        learners_next: list(&membership.next_learners),
        ..ConfState::default()
    }
}

/// The members that raft has.
pub(crate) fn membership(state: &ConfState) -> Membership {
    Membership {
        voters: state.voters.iter().copied().collect(),
        outgoing: state.voters_outgoing.iter().copied().collect(),
        learners: state.learners.iter().copied().collect(),
        next_learners: state.learners_next.iter().copied().collect(),
    }
}

/// raft's number of nobody, as an option.
pub(crate) fn replica(number: u64) -> Option<u64> {
    (number != INVALID_ID).then_some(number)
}
