//! The standing of a shard in its group: who decides, who delivers, and what becomes of those who wait.

use sennit_engine::{Command, Effect, Origin, PartitionCommand, Refusal, SessionId};
use sennit_journal::disk::MemoryDisk;
use sennit_model::Timestamp;
use sennit_shard::{LANE_LAG_MAX, Standing};

use crate::member::{DURABLE, EARLY, LEADER, Member, NOW, TERM};

const FOLLOWER: Standing = Standing::Follower { leader: Some(2) };
const ALL: usize = usize::MAX / 2;

fn refusal_of(member: &Member, of: Origin) -> Option<&Refusal> {
    member.effects.iter().find_map(|effect| match effect {
        Effect::Refused { origin, refusal } if *origin == of => Some(refusal),
        _ => None,
    })
}

#[test]
fn who_does_not_lead_refuses_before_the_state_is_touched() {
    let not_leader = Refusal::NotLeader { leader: 2 };
    for (standing, expected) in [
        (FOLLOWER, not_leader),
        (Standing::Follower { leader: None }, Refusal::NoLeader),
        (Standing::HandingOver { term: TERM }, Refusal::NoLeader),
        (Standing::Poisoned, Refusal::NoLeader),
    ] {
        let mut member = Member::with_queues(LEADER, 0);
        member.parts.shard.stand(standing, NOW);
        let before = member.parts.shard.engine().replicated_state(NOW);
        let end = member.parts.shard.end();
        let published = member.publish(DURABLE, 1);
        let asked = member.origin();
        member.tell(Command::Partition(asked, DURABLE, PartitionCommand::Describe));
        member
            .tell(Command::EndSession { session: SessionId(1), grace: std::time::Duration::ZERO });
        assert_eq!(refusal_of(&member, published), Some(&expected));
        assert_eq!(refusal_of(&member, asked), Some(&expected));
        assert_eq!(member.parts.shard.end(), end);
        let after = member.parts.shard.engine().replicated_state(NOW);
        assert_eq!(before.difference(&after), None);
    }
}

#[test]
fn a_publish_is_confirmed_and_delivered_by_the_quorum_though_the_own_lane_has_not_written() {
    let mut member = Member::with_queues(LEADER, 0);
    let published = member.publish(DURABLE, 3);
    member.take();
    assert!(!member.has_confirmed(published));
    member.commit(ALL);
    assert!(member.has_confirmed(published));
    assert_eq!(member.deliveries(), 1, "from memory, as the disk has it not");
    assert!(member.parts.shard.cache_bytes() > 0);
    member.write(ALL);
    assert_eq!(member.parts.shard.cache_bytes(), 0, "what is written is not kept in memory");
}

#[test]
fn what_only_the_own_lane_has_written_is_not_confirmed() {
    let mut member = Member::with_queues(LEADER, 0);
    let published = member.publish(DURABLE, 3);
    member.take();
    member.write(ALL);
    assert!(!member.has_confirmed(published));
    assert_eq!(member.deliveries(), 0);
}

#[test]
fn a_leader_without_a_lease_confirms_and_delivers_once_it_has_it() {
    let mut member = Member::with_queues(LEADER, 0);
    member.parts.shard.stand(Standing::Leader { term: TERM, may_give: false }, NOW);
    let published = member.publish(DURABLE, 3);
    member.publish(EARLY, 3);
    member.finish();
    assert!(member.has_confirmed(published));
    assert_eq!(member.deliveries(), 0);
    assert_eq!(member.parts.shard.next_wake().filter(|wake| *wake <= NOW), None, "it waits");
    member.parts.shard.stand(LEADER, NOW);
    member.hear();
    assert_eq!(member.deliveries(), 2);
}

#[test]
fn a_leader_that_hands_over_still_confirms_and_delivers_nothing() {
    let mut member = Member::with_queues(LEADER, 0);
    let published = member.publish(DURABLE, 3);
    member.parts.shard.stand(Standing::HandingOver { term: TERM }, NOW);
    member.finish();
    assert!(member.has_confirmed(published));
    assert_eq!(member.deliveries(), 0);
    // The transfer came to nothing.
    member.parts.shard.stand(LEADER, NOW);
    member.hear();
    assert_eq!(member.deliveries(), 1);
}

#[test]
fn who_waits_when_leadership_is_lost_is_told_that_the_outcome_is_unknown() {
    let mut member = Member::with_queues(LEADER, 0);
    let published = member.publish(DURABLE, 3);
    member.take();
    member.parts.shard.stand(FOLLOWER, NOW);
    member.hear();
    assert_eq!(refusal_of(&member, published), Some(&Refusal::OutcomeUnknown));
    let interrupted = |effect: &&Effect| matches!(effect, Effect::SubscriptionInterrupted { .. });
    assert_eq!(member.effects.iter().filter(interrupted).count(), 2);
    let said = member.effects.len();
    member.finish();
    assert_eq!(member.effects.len(), said, "the commit is nobody's any more");
    assert_eq!(member.deliveries(), 0);
}

#[test]
fn a_follower_runs_no_timers_and_asks_for_no_time() {
    let mut member = Member::with_queues(LEADER, 64 << 20);
    member.publish(DURABLE, 3);
    member.finish();
    assert_eq!(member.deliveries(), 1);
    let far = Timestamp(1 << 40);
    // Leases end by a timer.
    assert!(member.parts.shard.next_wake().is_some_and(|wake| wake < far));
    member.parts.shard.stand(FOLLOWER, NOW);
    member.parts.shard.advance(far);
    member.finish();
    assert_eq!(member.parts.shard.next_wake(), None);
    assert!(!member.parts.shard.needs_compaction());
}

#[test]
fn a_poisoned_state_is_not_saved_and_frees_nothing() {
    let run = |standing: Option<Standing>| {
        let mut member = Member::with_queues(LEADER, 0);
        for _ in 0..10 {
            member.publish(DURABLE, 8);
            member.finish();
            member.ack();
        }
        member.take();
        member.commit(ALL);
        if let Some(standing) = standing {
            member.parts.shard.stand(standing, NOW);
        }
        member.write(ALL);
        member.parts.shard.checkpoint_soon();
        for _ in 0..3 {
            member.parts.shard.start_segment();
            member.finish();
        }
        (member.released().len(), member.parts.shard.counters().checkpoints)
    };
    let (freed, checkpoints) = run(Some(Standing::Poisoned));
    let (freed_usually, checkpoints_usually) = run(None);
    assert!(freed < freed_usually, "{freed} {freed_usually}");
    assert!(checkpoints < checkpoints_usually, "{checkpoints} {checkpoints_usually}");
    assert_eq!(run(Some(FOLLOWER)), (freed_usually, checkpoints_usually), "a follower does both");
}

#[test]
fn a_replay_begins_with_a_checkpoint_only_once_it_is_committed_and_written() {
    let replayed = |commits: bool, writes: bool| {
        let mut member = Member::with_queues(LEADER, 0);
        for _ in 0..20 {
            member.publish(DURABLE, 1);
        }
        member.finish();
        member.parts.shard.checkpoint_soon();
        member.take();
        if commits {
            member.commit(ALL);
        }
        if writes {
            member.write(ALL);
        }
        // The header of this segment says where a replay begins.
        member.parts.shard.start_segment();
        member.take();
        member.write(ALL);
        let disk: MemoryDisk = member.disk.clone();
        Member::open(&disk, FOLLOWER, 0).parts.report.records
    };
    let from_checkpoint = replayed(true, true);
    let from_start = replayed(false, false);
    assert!(from_checkpoint < from_start, "{from_checkpoint} {from_start}");
    assert_eq!(replayed(false, true), from_start);
    assert_eq!(replayed(true, false), from_start);
}

#[test]
fn a_lane_that_stands_still_behind_the_commit_is_reported() {
    let mut member = Member::with_queues(LEADER, 0);
    member.publish(DURABLE, 1);
    member.take();
    let late = NOW.plus(LANE_LAG_MAX);
    assert!(!member.parts.shard.is_lane_behind(late), "nothing is committed");
    member.commit(ALL);
    assert!(!member.parts.shard.is_lane_behind(NOW));
    assert!(member.parts.shard.is_lane_behind(late));
    member.write(ALL);
    assert!(!member.parts.shard.is_lane_behind(late));
}
