//! Which group holds messages that other groups are through with.

use std::time::Duration;

use sennit_engine::{
    Command, Credit, DeadLetters, GroupSetting, HoldingGroup, Settle, Subscribe, Verdict,
};
use sennit_model::{GroupConfig, GroupId, TopicConfig, TopicKind};

use crate::world::{ALICE, ORDERS, World, queue, run, setting};

const USED: GroupId = GroupId(7);
const UNUSED: GroupId = GroupId(3);

fn with_groups(config: TopicConfig, groups: &[GroupId]) -> World {
    let one = setting(GroupConfig::default());
    let groups =
        groups.iter().map(|&id| GroupSetting { id, config: one.config.clone(), ..one }).collect();
    let mut world = World::empty();
    world.open(ORDERS, config, groups, DeadLetters::NotYet);
    world
}

/// `USED` acks the first message.
fn ack_first(world: &mut World) {
    let (partition, group) = (ORDERS, USED);
    let origin = world.origin(ALICE);
    let credit = Credit { messages: 9, bytes: 999 };
    let subscribe = Subscribe { origin, subscription: 1, partition, group, credit };
    world.do_now(Command::Subscribe(subscribe));
    let (origin, runs) = (world.origin(ALICE), vec![run(0, 1, 1)]);
    let verdict = Verdict::Ack;
    world.do_now(Command::Settle(Settle {
        origin,
        partition,
        group,
        verdict,
        runs,
        confirm: false,
    }));
}

#[test]
fn a_group_that_nobody_uses_holds_what_another_is_through_with() {
    let mut world = with_groups(queue(), &[UNUSED, USED]);
    let appended_at = world.now;
    world.publish_texts(&["a", "b"]);
    assert_eq!(world.describe(ORDERS).holding, None);
    world.pass(Duration::from_secs(3600));
    ack_first(&mut world);
    let holding = world.describe(ORDERS).holding.expect("one is behind");
    assert_eq!((holding.groups, holding.since), (vec![UNUSED], appended_at));
    let found = world.engine.survey(1).expect("it has come round");
    let held = HoldingGroup { topic: ORDERS.topic, group: UNUSED, since: appended_at };
    assert_eq!(found.holding, [held]);
}

#[test]
fn a_group_alone_and_one_whose_topic_keeps_by_other_rules_hold_nothing() {
    let mut world = with_groups(queue(), &[USED]);
    world.publish_texts(&["a", "b"]);
    ack_first(&mut world);
    assert_eq!(world.describe(ORDERS).holding, None);
    let mut world = with_groups(TopicConfig::of_kind(TopicKind::Stream), &[UNUSED, USED]);
    world.publish_texts(&["a", "b"]);
    ack_first(&mut world);
    assert_eq!(world.describe(ORDERS).holding, None);
    assert_eq!(world.engine.survey(1).map(|found| found.holding), Some(Vec::new()));
}

#[test]
fn a_survey_in_parts_comes_round_and_counts_what_is_parked() {
    let mut world = World::new();
    world.open(ORDERS, queue(), vec![setting(GroupConfig::default())], DeadLetters::Stay);
    world.subscribe(ALICE, 9);
    world.publish_texts(&["a", "b"]);
    world.settle(Verdict::DeadLetter { reason: "no".into() }, vec![run(0, 2, 1)]);
    let found = (0..9).find_map(|_| world.engine.survey(4)).expect("it comes round");
    assert_eq!(found.parked, 2);
}
