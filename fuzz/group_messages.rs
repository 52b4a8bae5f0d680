//! Seeds of the target `group_message`: what the replicas of a group tell each other.

use sennit_replication::{Body, Content, EntryId, Label, Membership, Message, MessageKind};

use crate::write;

/// Conversations with a member, of one message or two; the first byte says whether it is to lead.
pub fn write_all() {
    let id = |term, index| EntryId { term, index };
    let commit = 1;
    let append = |content| {
        let label = Label { id: id(2, 2), content };
        MessageKind::Append { before: id(1, 1), commit, label: Some(label) }
    };
    let body = Body { length: 4096, checksum: 5, records: 12 };
    let members = Membership::of([1, 2, 3, 4]);
    let kinds = [
        ("append", append(Content::Records(body))),
        ("term-began", append(Content::TermBegan)),
        ("members", append(Content::Membership(Box::new(members)))),
        ("appended", MessageKind::Appended { index: 2, commit }),
        ("not-appended", MessageKind::NotAppended { index: 2, hint: id(1, 1), commit }),
        ("heartbeat", MessageKind::Heartbeat { commit, round: Some(1) }),
        ("heard", MessageKind::HeartbeatHeard { commit, round: None, is_full: true }),
        ("take-over", MessageKind::TakeOver),
    ];
    let bytes = |kind: &MessageKind| {
        Message { group: 1, from: 2, to: 1, term: 2, kind: kind.clone() }.encode()
    };
    for (name, kind) in &kinds {
        write("group_message", name, &[&[0], &bytes(kind)[..]].concat());
    }
    for handed_over in [false, true] {
        let commit = id(1, 1);
        let asks = MessageKind::RequestVote { pre_vote: false, handed_over, last: commit, commit };
        let gives = MessageKind::Vote { pre_vote: handed_over, granted: true, commit };
        let both = [&[1], &bytes(&asks)[..], &bytes(&gives)[..]].concat();
        write("group_message", if handed_over { "handed-over" } else { "vote" }, &both);
    }
}
