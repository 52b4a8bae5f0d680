//! Any bytes as messages of a group: each is refused with a reason, or decoded and encoded to the same bytes; and a
//! member that hears them goes on or refuses. The first byte says whether the member leads.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_replication::{
    Body, Content, ELECTION_TICKS_END, Label, MESSAGE_TABLE_BYTES, Member, Membership, Message,
    MessageKind, Settings, Start,
};

const SETTINGS: Settings = Settings { group: 1, replica: 1 };

fuzz_target!(|data: &[u8]| {
    let Some((&leads, mut rest)) = data.split_first() else { return };
    let mut member = member(leads % 2 == 1);
    while let Some(table) = rest.first_chunk::<MESSAGE_TABLE_BYTES>() {
        let Ok(length) = Message::length(table) else { return };
        let Some((bytes, behind)) = rest.split_at_checked(length) else { return };
        rest = behind;
        let Ok(message) = Message::decode(bytes) else { continue };
        assert_eq!(message.encode(), bytes, "a message has one form");
        // Anything may be refused.
        let _ = member.hear(&Message { group: SETTINGS.group, to: SETTINGS.replica, ..message });
        obey(&mut member);
    }
});

/// One of three voters. To lead, it asks for votes until it has them.
fn member(leads: bool) -> Member {
    let start = Start::of_new_group(Membership::of([1, 2, 3]));
    let mut member = Member::new(SETTINGS, start).expect("a start that can be");
    if leads {
        (0..ELECTION_TICKS_END).for_each(|_| member.tick());
        for pre_vote in [true, false] {
            obey(&mut member);
            let commit = Default::default();
            let kind = MessageKind::Vote { pre_vote, granted: true, commit };
            let vote = Message { group: 1, from: 2, to: 1, term: 2, kind };
            member.hear(&vote).expect("a vote that was asked for");
        }
        obey(&mut member);
    }
    member
}

/// A lane that syncs at once, and records whenever they are taken.
fn obey(member: &mut Member) {
    if let Ok(id) = member.next_entry() {
        let content = Content::Records(Body::default());
        member.propose(&Label { id, content }).expect("it is the next entry");
    }
    if let Some(mark) = member.orders(0).mark {
        member.synced(mark);
    }
    member.orders(0);
}
