//! Tests of what a replay makes of the frames of a replica.

use proptest::{collection::vec, prelude::*, sample::Index};
use sennit_journal::BLOCK_BYTES;
use sennit_model::Timestamp;

use super::*;
use crate::labels::LOG_BEGIN;

/// A kind of the engine's records.
const RECORD: u8 = 19;
const IN_GROUP: Replica = Replica { group: 1, id: 2, is_alone: false };

/// A lane that is being written and read at once: each frame is a block.
struct Lane {
    reading: ReplicaReading,
    blocks: u64,
    /// The blocks of the frames whose records were applied, in order.
    applied: Vec<u64>,
}

impl Lane {
    fn of(replica: Replica) -> Self {
        Self { reading: ReplicaReading::new(Some(replica)), blocks: 0, applied: Vec::new() }
    }

    /// Reads a frame that begins with `head`; returns its block.
    fn frame(
        &mut self,
        head: impl Into<GroupRecord>,
        rest: &[(u8, Vec<u8>)],
    ) -> Result<u64, ReplicaError> {
        self.blocks += 1;
        let frame = Position(self.blocks * BLOCK_BYTES as u64);
        let records = 1 + rest.len() as u32;
        let body = FrameBody { frame, bytes: 100, checksum: self.blocks as u32, records };
        let head = head.into();
        let head = (head.kind(), head.encode());
        for (at, (kind, record)) in [&head].into_iter().chain(rest).enumerate() {
            let record = (*kind, frame.plus(72 + at as u64), Bytes::from(record.clone()));
            let mut ready = Vec::new();
            let taken = self.reading.take(record, body, &mut ready);
            self.apply(ready);
            taken?;
        }
        Ok(self.blocks)
    }

    fn entry(&mut self, term: u64, index: u64, commit: u64) -> Result<u64, ReplicaError> {
        let id = EntryId { term, index };
        let entry = Entry { id, commit, content: EntryContent::Records };
        self.frame(entry, &[(RECORD, Vec::new())])
    }

    fn local(&mut self, here: Here) -> Result<u64, ReplicaError> {
        self.frame(here, &[(RECORD, Vec::new())])
    }

    fn apply(&mut self, ready: Vec<EngineRecord>) {
        self.applied.extend(ready.iter().map(|(_, at, _)| at.0 / BLOCK_BYTES as u64));
    }

    fn finish(&mut self) {
        let (mut ready, mut rest) = (Vec::new(), Vec::new());
        self.reading.finish(&mut ready, &mut rest).unwrap();
        self.apply(ready);
        self.apply(rest);
    }

    fn log(&self) -> &ReplicaLog {
        &self.reading.log
    }
}

fn here(commit: u64) -> Here {
    Here { term: 9, vote: 2, commit }
}

#[derive(Clone, Debug)]
enum Step {
    /// An entry that overrides some of those that are not committed, and a term for it.
    Entry(Index, Index),
    /// More is committed, and the next frame of an entry says so.
    Commit(Index),
    /// The replica's own frame says how much is committed.
    Local,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = any::<Index>;
    let step = prop_oneof![
        4 => (at(), at()).prop_map(|(back, term)| Step::Entry(back, term)),
        1 => at().prop_map(Step::Commit),
        1 => Just(Step::Local),
    ];
    vec(step, 0..80)
}

proptest! {
    #[test]
    fn of_each_index_the_last_frame_counts_whatever_its_term(steps in steps()) {
        let mut lane = Lane::of(IN_GROUP);
        // Term and block of each entry; the first stands for the begin of the log.
        let (mut log, mut newest_term) = (vec![(LOG_BEGIN.term, 0)], LOG_BEGIN.term);
        let (mut commit, mut said, mut locals) = (1, 1, Vec::new());
        for step in steps {
            match step {
                Step::Entry(back, term) => {
                    log.truncate(commit + back.index(log.len() - commit + 1));
                    let before = log[log.len() - 1].0;
                    // Any leader since then may have made it.
                    let term = before + term.index((newest_term - before) as usize + 2) as u64;
                    newest_term = newest_term.max(term);
                    said = said.max(commit);
                    let block = lane.entry(term, log.len() as u64 + 1, commit as u64).unwrap();
                    log.push((term, block));
                }
                Step::Commit(more) => commit += more.index(log.len() - commit + 1),
                Step::Local => {
                    said = said.max(commit);
                    locals.push((lane.local(here(commit as u64)).unwrap(), said));
                }
            }
        }
        lane.finish();
        let is_local = |block: &u64| locals.iter().any(|(local, _)| local == block);
        let entries: Vec<u64> = lane.applied.iter().copied().filter(|block| !is_local(block)).collect();
        let expected: Vec<u64> = log[1..].iter().map(|(_, block)| *block).collect();
        prop_assert_eq!(&entries, &expected);
        for (local, said) in &locals {
            let before = lane.applied.iter().take_while(|block| *block != local);
            let entries = before.filter(|block| !is_local(block)).count();
            prop_assert_eq!(entries + 1, *said, "it comes behind all that is committed, and nothing else");
        }
        let labels = &lane.log().labels;
        prop_assert_eq!(labels.last().index, log.len() as u64);
        for (index, (term, block)) in (1..).zip(&log).skip(1) {
            let label = labels.get(index).unwrap();
            prop_assert_eq!((label.term, u64::from(label.body.checksum)), (*term, *block));
        }
        prop_assert_eq!(lane.log().here.commit, said as u64);
    }

    #[test]
    fn no_records_of_a_lane_end_a_start_otherwise_than_with_an_error(
        frames in vec((128..132_u8, vec(prop_oneof![0..4_u8, any::<u8>()], 3), 0..3_u8), 0..12),
    ) {
        let mut lane = Lane::of(IN_GROUP);
        for (head, [one, other, third], more) in
            frames.iter().map(|(head, numbers, more)| (*head, [numbers[0], numbers[1], numbers[2]], *more))
        {
            let [one, other, third] = [one, other, third].map(u64::from);
            let id = EntryId { term: one.max(1), index: other.max(1) };
            let membership = Membership::default();
            let content = EntryContent::Records;
            let head = match head {
                128 => Entry { id, commit: third.min(id.index - 1), content }.into(),
                129 => Here { term: one, vote: other, commit: third }.into(),
                130 => GroupRecord::Stands(Stands { group: 1, replica: 2, last: id, time: Timestamp(0), membership }),
                _ => GroupRecord::Membership(membership),
            };
            let stands = Stands { group: 1, replica: 2, last: id, time: Timestamp(0), membership: Membership::default() };
            let rest = [(RECORD, Vec::new()), (130, GroupRecord::Stands(stands).encode())];
            if lane.frame(head, &rest[..usize::from(more)]).is_err() {
                break;
            }
            if third == 3 {
                let mut ready = Vec::new();
                lane.reading.damage(&mut ready).unwrap();
                lane.apply(ready);
            }
        }
        let _ = lane.reading.finish(&mut Vec::new(), &mut Vec::new());
    }
}

#[test]
fn an_entry_of_a_lower_term_overrides_one_of_a_higher() {
    let mut lane = Lane::of(IN_GROUP);
    let kept = lane.entry(1, 2, 1).unwrap();
    lane.entry(2, 3, 1).unwrap();
    lane.entry(4, 3, 1).unwrap();
    let later = lane.entry(3, 3, 2).unwrap();
    lane.finish();
    assert_eq!(lane.applied, [kept, later]);
    assert_eq!(lane.log().labels.last(), EntryId { term: 3, index: 3 });
}

#[test]
fn what_waits_at_the_end_is_applied_and_only_alone_committed_by_that() {
    for replica in [IN_GROUP, Replica { is_alone: true, ..IN_GROUP }] {
        let mut lane = Lane::of(replica);
        let entries = [lane.entry(1, 2, 1).unwrap(), lane.entry(1, 3, 2).unwrap()];
        assert_eq!(lane.applied, [entries[0]]);
        lane.finish();
        assert_eq!(lane.applied, entries);
        assert_eq!(lane.log().here.commit, if replica.is_alone { 3 } else { 2 });
    }
}

#[test]
fn the_last_vote_counts_unless_an_entry_has_a_newer_term() {
    let mut lane = Lane::of(IN_GROUP);
    let vote = |term, vote| Here { term, vote, commit: 1 };
    lane.local(vote(4, 2)).unwrap();
    lane.local(vote(5, 3)).unwrap();
    lane.finish();
    assert_eq!(lane.log().here, vote(5, 3));
    lane.entry(6, 2, 1).unwrap();
    lane.finish();
    assert_eq!(lane.log().here, vote(6, 0));
}

#[test]
fn members_are_those_of_the_last_change_that_is_committed() {
    let mut lane = Lane::of(IN_GROUP);
    let mut change = |index, commit, members: &Membership| {
        let id = EntryId { term: 1, index };
        let entry = Entry { id, commit, content: EntryContent::Membership };
        let record = GroupRecord::Membership(members.clone());
        lane.frame(entry, &[(record.kind(), record.encode())]).unwrap();
    };
    let (one, other) = (Membership::of_one(2), Membership::of_one(5));
    change(2, 1, &one);
    change(3, 2, &other);
    lane.finish();
    assert_eq!(lane.log().membership, one);
    let labels = &lane.log().labels;
    assert_eq!((labels.membership(2), labels.membership(3)), (Some(&one), Some(&other)));
}

#[test]
fn a_checkpoint_that_stands_behind_an_entry_voids_those_behind_it() {
    let mut lane = Lane::of(IN_GROUP);
    let kept = lane.entry(1, 2, 1).unwrap();
    lane.entry(1, 3, 1).unwrap();
    let stands = |index, term| {
        let (last, membership) = (EntryId { term, index }, Membership::default());
        let stands = Stands { group: 1, replica: 2, last, time: Timestamp(0), membership };
        [(130, GroupRecord::Stands(stands).encode())]
    };
    lane.frame(here(1), &stands(2, 1)).unwrap();
    assert_eq!(lane.reading.take_voided(), Some(3));
    lane.finish();
    assert_eq!((&lane.applied[..], lane.log().labels.last().index), (&[kept][..], 2));
    let missing = ReplicaError::Order {
        found: EntryId { term: 1, index: 5 },
        last: EntryId { term: 1, index: 2 },
    };
    assert_eq!(lane.frame(here(1), &stands(5, 1)), Err(missing));
}

#[test]
fn behind_damage_an_entry_may_override_what_was_not_committed_before_it() {
    let mut lane = Lane::of(IN_GROUP);
    let before = [lane.entry(1, 2, 1).unwrap(), lane.entry(1, 3, 1).unwrap()];
    let mut ready = Vec::new();
    lane.reading.damage(&mut ready).unwrap();
    lane.apply(ready);
    assert_eq!(lane.applied, before, "whether it is committed cannot be told");
    lane.entry(2, 3, 1).unwrap();
    lane.entry(2, 4, 2).unwrap();
    lane.finish();
    assert_eq!(lane.applied, before, "the state is of no use any more");
    assert_eq!(lane.log().labels.last(), EntryId { term: 2, index: 4 });
}

#[test]
fn behind_damage_the_log_begins_again_with_the_first_entry_that_is_there() {
    let mut lane = Lane::of(Replica { is_alone: true, ..IN_GROUP });
    let mut blocks = vec![lane.entry(1, 2, 1).unwrap(), lane.entry(1, 3, 1).unwrap()];
    let mut ready = Vec::new();
    lane.reading.damage(&mut ready).unwrap();
    lane.apply(ready);
    assert_eq!(lane.applied, blocks, "what lies before the damage is applied before it");
    blocks.extend([lane.entry(2, 7, 5).unwrap(), lane.entry(2, 8, 5).unwrap()]);
    lane.finish();
    assert_eq!(lane.applied, blocks);
    let labels = &lane.log().labels;
    assert_eq!((labels.before(), labels.last().index), (EntryId { term: 2, index: 7 }, 8));
}

#[test]
fn what_was_applied_at_damage_is_void_once_an_entry_contradicts_it() {
    let mut lane = Lane::of(IN_GROUP);
    for index in 2..=5 {
        lane.entry(1, index, 1).unwrap();
    }
    lane.reading.damage(&mut Vec::new()).unwrap();
    assert_eq!(lane.log().here.commit, 5, "it may be committed");
    assert_eq!(lane.reading.take_voided(), None);
    lane.entry(2, 4, 1).unwrap();
    assert_eq!(lane.reading.take_voided(), Some(2), "no frame has said that it is committed");
}

#[test]
fn frames_that_no_replica_writes_are_refused_by_name() {
    let mut lane = Lane::of(IN_GROUP);
    lane.entry(2, 2, 1).unwrap();
    lane.entry(2, 3, 2).unwrap();
    let last = EntryId { term: 2, index: 3 };
    let committed = ReplicaError::Committed { index: 2, commit: 2 };
    assert_eq!(lane.entry(3, 2, 1), Err(committed));
    let found = EntryId { term: 2, index: 5 };
    assert_eq!(lane.entry(2, 5, 1), Err(ReplicaError::Order { found, last }));
    let found = EntryId { term: 1, index: 4 };
    assert_eq!(lane.entry(1, 4, 1), Err(ReplicaError::Order { found, last }));
    let began =
        Entry { id: EntryId { term: 2, index: 4 }, commit: 0, content: EntryContent::TermBegan };
    let misplaced = Err(ReplicaError::Misplaced { kind: RECORD });
    assert_eq!(lane.frame(began, &[(RECORD, Vec::new())]), misplaced);
    let stands = Stands {
        group: 1,
        replica: 3,
        last,
        time: Timestamp(0),
        membership: Membership::default(),
    };
    let other = Err(ReplicaError::Other { group: 1, replica: 3 });
    assert_eq!(lane.frame(here(2), &[(130, GroupRecord::Stands(stands).encode())]), other);
    let headless = (RECORD, Position(1 << 20), Bytes::new());
    let frame = FrameBody { frame: Position(1 << 20), bytes: 0, checksum: 0, records: 1 };
    assert_eq!(lane.reading.take(headless, frame, &mut Vec::new()), Err(ReplicaError::NoHead));
}

#[test]
fn more_than_a_group_accepts_without_a_commit_is_refused_and_alone_is_committed() {
    let frame =
        |block: u64| FrameBody { frame: Position(block), bytes: 20 << 20, checksum: 0, records: 1 };
    let fill = |replica| {
        let mut reading = ReplicaReading::new(Some(replica));
        for index in 2..10 {
            let id = EntryId { term: 1, index };
            let entry = GroupRecord::from(Entry { id, commit: 1, content: EntryContent::Records });
            let position = Position(index << 32);
            let record = (entry.kind(), position, Bytes::from(entry.encode()));
            reading.take(record, frame(position.0), &mut Vec::new())?;
        }
        Ok(reading.log.here.commit)
    };
    assert_eq!(fill(IN_GROUP), Err(ReplicaError::Uncommitted { bytes: 140 << 20 }));
    assert_eq!(fill(Replica { is_alone: true, ..IN_GROUP }), Ok(8));
}
