//! Messages as bytes.

use proptest::collection::btree_set;
use proptest::prelude::*;
use sennit_replication::{
    Body, Content, EntryId, Label, MESSAGE_TABLE_BYTES, Membership, Message, MessageError,
    MessageKind, NUMBER_MAX, TERM_MAX,
};

fn id() -> impl Strategy<Value = EntryId> {
    let entry = (1..=TERM_MAX, 1..=NUMBER_MAX);
    prop_oneof![
        8 => entry.prop_map(|(term, index)| EntryId { term, index }),
        1 => Just(EntryId::default()),
    ]
}

fn membership() -> impl Strategy<Value = Membership> {
    let lists =
        (btree_set(1..50_u64, 1..6), btree_set(1..50_u64, 0..6), btree_set(51..99_u64, 0..6));
    lists.prop_map(|(voters, outgoing, learners)| {
        let next_learners = outgoing.difference(&voters).take(1).copied().collect();
        Membership { voters, outgoing, learners, next_learners }
    })
}

fn content() -> impl Strategy<Value = Content> {
    let body = any::<(u32, u32, u32)>().prop_map(|(length, checksum, records)| {
        Content::Records(Body { length, checksum, records })
    });
    prop_oneof![
        body,
        Just(Content::TermBegan),
        membership().prop_map(|members| Content::Membership(Box::new(members))),
    ]
}

fn kind() -> impl Strategy<Value = MessageKind> {
    let number = || 0..=NUMBER_MAX;
    let round = || proptest::option::of(any::<u64>());
    prop_oneof![
        (id(), number(), proptest::option::of(content()), 0..3_u64).prop_map(
            |(before, commit, content, newer)| {
                let term = before.term.max(1) + newer;
                let id = EntryId { term, index: before.index + 1 };
                let label = content.map(|content| Label { id, content });
                MessageKind::Append { before, commit, label }
            }
        ),
        (number(), number()).prop_map(|(index, commit)| MessageKind::Appended { index, commit }),
        (number(), id(), number()).prop_map(|(index, hint, commit)| MessageKind::NotAppended {
            index,
            hint,
            commit
        }),
        (any::<bool>(), any::<bool>(), id(), id()).prop_map(
            |(pre_vote, handed_over, last, commit)| MessageKind::RequestVote {
                pre_vote,
                handed_over,
                last,
                commit
            }
        ),
        (any::<bool>(), any::<bool>(), id()).prop_map(|(pre_vote, granted, commit)| {
            MessageKind::Vote { pre_vote, granted, commit }
        }),
        (number(), round()).prop_map(|(commit, round)| MessageKind::Heartbeat { commit, round }),
        (number(), round(), any::<bool>()).prop_map(|(commit, round, is_full)| {
            MessageKind::HeartbeatHeard { commit, round, is_full }
        }),
        Just(MessageKind::TakeOver),
    ]
}

/// An entry is of its message's term or an older one.
fn with_a_term_that_can_be(message: Message) -> Message {
    match &message.kind {
        MessageKind::Append { before, .. } => {
            Message { term: before.term.saturating_add(3).min(TERM_MAX), ..message }
        }
        _ => message,
    }
}

fn message() -> impl Strategy<Value = Message> {
    (any::<u64>(), 1..=u64::MAX, 1..=u64::MAX, 1..=TERM_MAX, kind())
        .prop_map(|(group, from, to, term, kind)| Message { group, from, to, term, kind })
        .prop_map(with_a_term_that_can_be)
        .prop_filter("a message that can be", |message| message.check().is_ok())
}

proptest! {
    #[test]
    fn a_message_is_the_same_after_its_bytes(message in message()) {
        let bytes = message.encode();
        let table = bytes.first_chunk::<MESSAGE_TABLE_BYTES>().unwrap();
        prop_assert_eq!(Message::length(table), Ok(bytes.len()));
        prop_assert_eq!(Message::decode(&bytes), Ok(message));
    }

    #[test]
    fn bytes_that_are_a_message_are_the_bytes_of_that_message(
        message in message(), at in any::<usize>(), byte in any::<u8>(), cut in 0..4_usize,
    ) {
        let mut bytes = message.encode();
        let at = at % bytes.len();
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut);
        if let Ok(decoded) = Message::decode(&bytes) {
            prop_assert_eq!(decoded.encode(), bytes);
        }
    }
}

/// The example of the format: an append of entry 1000 of term 5, with 12 records.
#[test]
fn a_message_has_these_bytes_for_ever() {
    let label = Label {
        id: EntryId { term: 5, index: 1000 },
        content: Content::Records(Body { length: 4096, checksum: 0x1234_5678, records: 12 }),
    };
    let before = EntryId { term: 4, index: 999 };
    let kind = MessageKind::Append { before, commit: 998, label: Some(label) };
    let message = Message { group: 7, from: 1, to: 2, term: 5, kind };
    let expected = [
        "0104000000000000",
        "0700000000000000",
        "0100000000000000",
        "0200000000000000",
        "0500000000000000",
        "e703000000000000",
        "0400000000000000",
        "e603000000000000",
        "0000000000000000",
        "0500000000000000",
        "0010000078563412",
        "0c00000000000000",
    ];
    let bytes = message.encode();
    let hex: Vec<_> = bytes
        .chunks(8)
        .map(|eight| eight.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
        .collect();
    assert_eq!(hex, expected);
    assert_eq!(Message::decode(&bytes), Ok(message));
}

#[test]
fn an_entry_of_members_carries_them_behind_the_table() {
    let members = Membership { learners: [4].into(), ..Membership::of(1..=3) };
    let label = Label {
        id: EntryId { term: 2, index: 6 },
        content: Content::Membership(Box::new(members)),
    };
    let before = EntryId { term: 2, index: 5 };
    let kind = MessageKind::Append { before, commit: 5, label: Some(label) };
    let bytes = Message { group: 7, from: 1, to: 2, term: 2, kind }.encode();
    assert_eq!(bytes.len(), MESSAGE_TABLE_BYTES + 4 * 4 + 4 * 8);
    assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), Err(MessageError::Length));
}

#[test]
fn an_unknown_kind_and_fields_that_are_not_used_are_errors() {
    let kind = MessageKind::TakeOver;
    let bytes = Message { group: 7, from: 1, to: 2, term: 5, kind }.encode();
    let with = |at: usize, byte| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        Message::decode(&bytes)
    };
    assert_eq!(with(0, 99), Err(MessageError::Kind { kind: 99 }));
    for at in [1, 2, 3, 40, 48, 56, 64, 72, 80, 84, 88, 92] {
        assert!(with(at, 1).is_err(), "byte {at}");
    }
    assert_eq!(with(4, 1), Err(MessageError::Length));
    let mut longer = [&bytes[..], &[0]].concat();
    longer[4] = 1;
    assert_eq!(Message::decode(&longer), Err(MessageError::Length), "it carries no members");
}
