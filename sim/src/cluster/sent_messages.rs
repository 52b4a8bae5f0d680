//! What a message says of its sender is on the sender's disk before it leaves.

use sennit_replication::{GROUP_BEGINS, Member, Message, MessageKind, Vote};

use crate::{cluster::label_lane::Found, oracle::Violation};

/// The promise that nothing is acknowledged that a crash takes back.
pub const AFTER_SYNC: &str = "I6 no vote and no acknowledgement leaves before its sync";

/// Checks that a message which leaves speaks of nothing that a crash of its node would take back.
///
/// # Errors
/// The promise that was broken.
pub fn check_sent(
    node: usize,
    message: &Message,
    member: &Member,
    durable: &Found,
) -> Result<(), Violation> {
    let keeps_vote = |vote: Option<u64>| {
        let is_newer = durable.vote.term > message.term;
        is_newer || durable.vote == Vote { term: message.term, vote }
    };
    let is_kept = match &message.kind {
        MessageKind::Appended { index, .. } if *index > GROUP_BEGINS.index => {
            // An entry that was cut since is of an older leader, whom nobody believes any more.
            let own = member.label(*index);
            message.term < member.leadership().term || durable.label(*index) == own && own.is_some()
        }
        MessageKind::Vote { pre_vote: false, granted: true, .. } => keeps_vote(Some(message.to)),
        MessageKind::RequestVote { pre_vote: false, .. } => keeps_vote(Some(message.from)),
        _ => true,
    };
    match is_kept {
        true => Ok(()),
        false => Err(Violation::new(AFTER_SYNC, format!("{node} sends {message:?}"))),
    }
}
