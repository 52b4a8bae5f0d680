//! What a member does not believe, and what it takes for a sign that it has forgotten.

use sennit_replication::{
    Body, Content, EntryId, HearError, Label, Member, Membership, Message, MessageError,
    MessageKind, Orders, Quarantine, Refusal, Role, Settings, Start, Vote,
};

use crate::world::{GROUP, World};

const FIRST: EntryId = EntryId { term: 1, index: 1 };

fn message(term: u64, kind: MessageKind) -> Message {
    Message { group: GROUP, from: 2, to: 1, term, kind }
}

fn entry(term: u64, index: u64) -> Label {
    let body = Body { length: 8, checksum: 5, records: 1 };
    Label { id: EntryId { term, index }, content: Content::Records(body) }
}

fn append(term: u64, before: EntryId, commit: u64, label: Option<Label>) -> Message {
    message(term, MessageKind::Append { before, commit, label })
}

/// Replica 1 of three, with two entries of term 2 of which the first is committed.
fn follower() -> Member {
    let start = Start {
        vote: Vote { term: 2, vote: None },
        commit: 2,
        labels: vec![entry(2, 2), entry(2, 3)],
        ..Start::of_new_group(Membership::of(1..=3))
    };
    Member::new(Settings { group: GROUP, replica: 1 }, start).expect("a start that can be")
}

#[test]
fn a_commit_beyond_the_own_log_is_a_sign_that_the_replica_has_forgotten() {
    let mut member = follower();
    let heartbeat = message(3, MessageKind::Heartbeat { commit: 4, round: None });
    let quarantine = Quarantine::Forgotten { committed: 4, last: 3 };
    assert_eq!(member.hear(&heartbeat), Err(HearError::Quarantined(quarantine)));
    assert_eq!(member.quarantine(), Some(quarantine));
    // From now on it does nothing at all.
    let asks = MessageKind::RequestVote {
        pre_vote: false,
        handed_over: true,
        last: EntryId { term: 3, index: 9 },
        commit: FIRST,
    };
    assert_eq!(member.hear(&message(4, asks)), Err(HearError::Quarantined(quarantine)));
    (0..100).for_each(|_| member.tick());
    member.campaign();
    let orders = member.orders(0);
    assert_eq!(orders.leadership.role, Role::Quarantined);
    assert_eq!((orders.messages, orders.append, orders.vote), (vec![], vec![], None));
    assert_eq!(member.next_entry(), Err(Refusal::Quarantined(quarantine)));
}

#[test]
fn a_heartbeat_of_an_older_term_is_no_sign() {
    let mut member = follower();
    let heartbeat = message(1, MessageKind::Heartbeat { commit: 4, round: None });
    assert_eq!(member.hear(&heartbeat), Ok(()));
    assert_eq!(member.quarantine(), None);
}

#[test]
fn an_entry_that_contradicts_a_committed_one_is_a_sign_too() {
    let before = append(4, EntryId { term: 3, index: 2 }, 0, None);
    let itself = append(4, FIRST, 0, Some(entry(3, 2)));
    for message in [before, itself] {
        let mut member = follower();
        let quarantine = Quarantine::Contradicted { index: 2, own: 2, leaders: 3 };
        assert_eq!(member.hear(&message), Err(HearError::Quarantined(quarantine)));
    }
}

#[test]
fn an_entry_that_contradicts_one_that_is_not_committed_cuts_the_log() {
    let mut member = follower();
    let replaces = append(4, EntryId { term: 2, index: 2 }, 2, Some(entry(4, 3)));
    member.hear(&replaces).unwrap();
    let orders = member.orders(0);
    assert_eq!((orders.cut_from, orders.append), (Some(3), vec![entry(4, 3)]));
    assert_eq!(orders.vote, Some(Vote { term: 4, vote: None }));
    assert_eq!(orders.messages, []);
    member.synced(orders.mark.unwrap());
    let appended = MessageKind::Appended { index: 3, commit: 2 };
    let answer = Message { from: 1, to: 2, ..message(4, appended) };
    assert_eq!(member.orders(0).messages, [answer]);
}

#[test]
fn what_was_synced_before_a_cut_is_not_taken_for_what_came_again_after_it() {
    let mut member = follower();
    let at_two = EntryId { term: 2, index: 2 };
    member.hear(&append(4, at_two, 2, Some(entry(4, 3)))).unwrap();
    let first = member.orders(0);
    member.hear(&append(5, at_two, 2, Some(entry(5, 3)))).unwrap();
    let second = member.orders(0);
    member.hear(&append(6, at_two, 2, Some(entry(4, 3)))).unwrap();
    let third = member.orders(0);
    assert!([&first, &second, &third].iter().all(|orders| orders.cut_from == Some(3)));
    let acknowledged = |orders: Orders| {
        let kinds = orders.messages.into_iter().map(|message| (message.term, message.kind));
        kinds.collect::<Vec<_>>()
    };
    member.synced(first.mark.unwrap());
    assert_eq!(acknowledged(member.orders(0)), [], "the lane has cut this entry since");
    member.synced(second.mark.unwrap());
    assert_eq!(acknowledged(member.orders(0)), []);
    member.synced(third.mark.unwrap());
    let appended = MessageKind::Appended { index: 3, commit: 2 };
    let terms = [4, 5, 6].map(|term| (term, appended.clone()));
    assert_eq!(acknowledged(member.orders(0)), terms);
}

#[test]
fn a_vote_and_entries_may_come_in_the_same_orders() {
    let mut member = follower();
    member.hear(&append(3, EntryId { term: 2, index: 3 }, 3, Some(entry(3, 4)))).unwrap();
    let asks = MessageKind::RequestVote {
        pre_vote: false,
        handed_over: true,
        last: EntryId { term: 3, index: 9 },
        commit: FIRST,
    };
    let from_three = Message { from: 3, ..message(4, asks) };
    member.hear(&from_three).unwrap();
    let orders = member.orders(0);
    assert_eq!(orders.append, [entry(3, 4)]);
    assert_eq!(orders.vote, Some(Vote { term: 4, vote: Some(3) }));
    assert_eq!(orders.messages, [], "the vote waits for its sync");
    member.synced(orders.mark.unwrap());
    let kinds: Vec<_> = member.orders(0).messages.into_iter().map(|one| one.kind).collect();
    let granted = MessageKind::Vote { pre_vote: false, granted: true, commit: EntryId::default() };
    assert_eq!(kinds, [MessageKind::Appended { index: 4, commit: 3 }, granted]);
}

#[test]
fn answers_to_heartbeats_do_not_wait_for_a_sync() {
    let mut member = follower();
    member.hear(&append(3, EntryId { term: 2, index: 3 }, 2, Some(entry(3, 4)))).unwrap();
    member.hear(&message(3, MessageKind::Heartbeat { commit: 3, round: Some(9) })).unwrap();
    let orders = member.orders(0);
    let heard = MessageKind::HeartbeatHeard { commit: 3, round: Some(9), is_full: false };
    assert_eq!(orders.messages, [Message { from: 1, to: 2, ..message(3, heard) }]);
    assert!(orders.mark.is_some());
}

#[test]
fn messages_that_cannot_be_are_errors_and_change_nothing() {
    let heartbeat = MessageKind::Heartbeat { commit: 0, round: None };
    let astray = Message { to: 3, ..message(3, heartbeat.clone()) };
    let elsewhere = Message { group: GROUP + 1, ..message(3, heartbeat.clone()) };
    let stranger = Message {
        from: 9,
        ..message(2, MessageKind::HeartbeatHeard { commit: 0, round: None, is_full: false })
    };
    let gap = append(3, FIRST, 0, Some(entry(3, 5)));
    let newer_than_its_message = append(3, FIRST, 0, Some(entry(4, 2)));
    let no_term_before = append(3, EntryId { term: 0, index: 9 }, 9, None);
    let no_term = message(0, heartbeat.clone());
    let too_great = message(u64::MAX, heartbeat);
    let field = |field, value| HearError::Message(MessageError::Field { field, value });
    let cases = [
        (astray, HearError::Astray { group: GROUP, replica: 3 }),
        (elsewhere, HearError::Astray { group: GROUP + 1, replica: 1 }),
        (stranger, HearError::UnknownReplica { replica: 9 }),
        (gap, field("index of a label", 5)),
        (newer_than_its_message, field("term of a label", 4)),
        (no_term_before, field("entry before", 9)),
        (no_term, field("term", 0)),
        (too_great, field("term", u64::MAX)),
    ];
    let mut member = follower();
    for (message, error) in cases {
        assert_eq!(member.hear(&message), Err(error), "{message:?}");
        assert_eq!(member.orders(0), follower().orders(0), "{message:?}");
    }
}

#[test]
fn a_leader_does_not_believe_in_a_second_one_nor_in_entries_that_it_does_not_have() {
    let mut world = World::new(80, 3);
    let leader = world.elect();
    let other = if leader == 1 { 2 } else { 1 };
    let term = world.member(leader).leadership().term;
    let last = world.member(leader).last();
    let from = |kind| Message { group: GROUP, from: other, to: leader, term, kind };
    let second = HearError::SecondLeader { replica: other, term };
    let heartbeat = from(MessageKind::Heartbeat { commit: 1, round: None });
    assert_eq!(world.member(leader).hear(&heartbeat), Err(second));
    let ahead = from(MessageKind::Appended { index: last.index + 1, commit: 1 });
    let error = HearError::Ahead { replica: other, index: last.index + 1, last: last.index };
    assert_eq!(world.member(leader).hear(&ahead), Err(error));
    world.run_ms(1_000);
    assert_eq!(world.leader(), Some(leader));
}

#[test]
fn a_vote_is_not_believed_before_it_was_asked_for() {
    let mut member = follower();
    member.hear(&append(3, EntryId { term: 2, index: 3 }, 2, Some(entry(3, 4)))).unwrap();
    member.hear(&message(3, MessageKind::TakeOver)).unwrap();
    let orders = member.orders(0);
    assert_eq!((orders.leadership.role, orders.leadership.term), (Role::Candidate, 4));
    assert_eq!(orders.messages, [], "the requests wait for the sync");
    let granted = |commit| MessageKind::Vote { pre_vote: false, granted: true, commit };
    let vote = message(4, granted(EntryId::default()));
    assert_eq!(member.hear(&vote), Err(HearError::VoteUnasked { replica: 2, term: 4 }));
    let late = message(3, granted(EntryId::default()));
    assert_eq!(member.hear(&late), Ok(()), "one of an older term may come late");
    member.synced(orders.mark.unwrap());
    assert_eq!(member.hear(&vote), Ok(()));
    assert_eq!(member.leadership().role, Role::Leader);
}

#[test]
fn a_start_that_no_lane_can_say_is_an_error() {
    let good = Start {
        vote: Vote { term: 2, vote: None },
        labels: vec![entry(2, 2)],
        ..Start::of_new_group(Membership::of(1..=3))
    };
    let bad = [
        Start { labels: vec![entry(2, 3)], ..good.clone() },
        Start { labels: vec![entry(2, 2), entry(1, 3)], ..good.clone() },
        Start { commit: 3, ..good.clone() },
        Start { commit: 0, ..good.clone() },
        Start { vote: Vote { term: 1, vote: None }, ..good.clone() },
        Start { membership: Membership::of([0, 1]), ..good.clone() },
    ];
    let settings = Settings { group: GROUP, replica: 1 };
    assert!(Member::new(settings, good.clone()).is_ok());
    assert!(Member::new(Settings { replica: 0, ..settings }, good).is_err());
    for start in bad {
        assert!(Member::new(settings, start.clone()).is_err(), "{start:?}");
    }
}
