//! Peers that say anything: a member refuses, or goes into quarantine, and never panics.

use sennit_replication::{
    Body, Content, EntryId, Label, Member, Membership, Message, MessageKind, Orders, Role,
    Settings, Start, Vote,
};

use crate::seed::Seed;
use crate::world::GROUP;

/// Terms, indexes and replicas go up to here, so that they often fit.
const SMALL: u64 = 9;

/// Replica 1 of so many, with a few entries of terms 1 to 3.
fn member(seed: &mut Seed, voters: u64) -> Member {
    let terms = [2, 2, 3, 3, 3];
    let count = seed.below(6) as usize;
    let labels = terms[..count].iter().zip(2..).map(|(term, index)| Label {
        id: EntryId { term: *term, index },
        content: Content::Records(Body { length: 8, checksum: 1, records: 1 }),
    });
    let labels: Vec<_> = labels.collect();
    let start = Start {
        vote: Vote { term: 3, vote: None },
        commit: 1 + seed.below(count as u64 + 1),
        labels,
        ..Start::of_new_group(Membership::of(1..=voters))
    };
    Member::new(Settings { group: GROUP, replica: 1 }, start).expect("a start that can be")
}

/// A message that may be anything.
fn message(seed: &mut Seed) -> Message {
    let id = |seed: &mut Seed| match seed.below(SMALL) {
        0 => EntryId { term: seed.below(2), index: seed.below(2) },
        term => EntryId { term, index: 1 + seed.below(SMALL) },
    };
    let commit = seed.below(SMALL);
    let members = |seed: &mut Seed| Membership {
        voters: (0..seed.below(4)).map(|_| 1 + seed.below(4)).collect(),
        outgoing: (0..seed.below(3)).map(|_| 1 + seed.below(4)).collect(),
        learners: (0..seed.below(2)).map(|_| 1 + seed.below(6)).collect(),
        next_learners: (0..seed.below(2)).map(|_| 1 + seed.below(4)).collect(),
    };
    let kind = match seed.below(9) {
        0..=2 => {
            let before = id(seed);
            let content = match seed.below(4) {
                0 => Content::TermBegan,
                1 => Content::Membership(Box::new(members(seed))),
                _ => Content::Records(Body::default()),
            };
            let entry = EntryId { term: seed.below(SMALL), index: before.index + 1 };
            let label = (!seed.once_in(4)).then_some(Label { id: entry, content });
            MessageKind::Append { before, commit, label }
        }
        3 => MessageKind::Appended { index: seed.below(SMALL), commit },
        4 => MessageKind::NotAppended { index: seed.below(SMALL), hint: id(seed), commit },
        5 => MessageKind::RequestVote {
            pre_vote: seed.once_in(2),
            handed_over: seed.once_in(2),
            last: id(seed),
            commit: id(seed),
        },
        6 => MessageKind::Vote {
            pre_vote: seed.once_in(2),
            granted: !seed.once_in(3),
            commit: id(seed),
        },
        7 => MessageKind::Heartbeat { commit, round: seed.once_in(2).then_some(commit) },
        8 if seed.once_in(2) => MessageKind::TakeOver,
        _ => MessageKind::HeartbeatHeard {
            commit,
            round: seed.once_in(2).then_some(commit),
            is_full: seed.once_in(4),
        },
    };
    let (from, term) = (1 + seed.below(4), seed.below(SMALL));
    Message { group: GROUP, from, to: 1, term, kind }
}

/// Hears and does anything, for a while. Returns the roles that the member had.
fn run(seed: u64) -> Vec<Role> {
    let mut seed = Seed(seed);
    let voters = 1 + seed.below(4);
    let mut member = member(&mut seed, voters);
    let (mut marks, mut roles) = (Vec::new(), Vec::new());
    for _ in 0..120 {
        match seed.below(12) {
            0..=6 => {
                let mut message = message(&mut seed);
                if seed.once_in(2) {
                    message.term = member.leadership().term;
                }
                // Anything may be refused.
                let _ = member.hear(&message);
            }
            7 => (0..seed.below(12)).for_each(|_| member.tick()),
            8 => marks.drain(..).next_back().into_iter().for_each(|mark| member.synced(mark)),
            9 => member.link_lost(2),
            10 => {
                let _ = member.confirm_leadership();
                let _ = member.transfer(2);
                let _ = member.change_members(&Membership::of(1..=voters + 1));
            }
            _ => {
                if let Ok(id) = member.next_entry() {
                    let content = Content::Records(Body::default());
                    member.propose(&Label { id, content }).expect("it is the next entry");
                }
            }
        }
        if seed.once_in(2) {
            let Orders { mark, leadership, .. } = member.orders(0);
            marks.extend(mark);
            roles.push(leadership.role);
        }
    }
    roles
}

#[test]
fn no_message_brings_a_member_down() {
    let seeds: u64 = std::env::var("SEEDS").map_or(3_000, |seeds| seeds.parse().expect("a number"));
    let mut roles = Vec::new();
    for seed in 5_000..5_000 + seeds {
        println!("seed {seed}");
        roles.extend(run(seed));
    }
    for role in [Role::Follower, Role::Candidate, Role::Leader, Role::Quarantined] {
        assert!(roles.contains(&role), "{role:?} never came");
    }
}
