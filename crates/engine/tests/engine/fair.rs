//! Fair groups: keys take turns by weight, cost and priority, within the limits of their rules.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use sennit_engine::{
    Command, Credit, Delivery, DeliveryRun, ExplainSubject, Origin, PartitionCommand, Verdict,
    WaitReason,
};
use sennit_model::{
    Cost, Generation, GroupConfig, KeyRule, KeyRules, Message, MessageFields, Messages, Offset,
    Retention, ThrottleRate, ThrottleRule, TopicConfig,
};

use crate::world::{
    ALICE, BOB, ORDERS, World, check,
    fair_groups::{SECOND, alter, fair, fields, group, many, of, rate, restarted, rule, served},
    queue, run,
};

fn shares(served: &[String]) -> BTreeMap<&str, usize> {
    let mut shares = BTreeMap::new();
    for payload in served {
        *shares.entry(payload.as_str()).or_default() += 1;
    }
    shares
}

#[test]
fn a_quiet_key_is_served_within_two_rounds_behind_the_backlog_of_a_noisy_one() {
    let mut world = World::with(fair(), group(vec![]));
    for _ in 0..20 {
        world.publish(&many("noisy", 500));
    }
    world.publish(&many("quiet", 1));
    world.subscribe(ALICE, 1);
    assert!(served(&mut world, 3).contains(&"quiet".to_owned()));
    // One that comes while the round is under way joins it.
    for tenant in ["a", "b", "c"] {
        world.publish(&many(tenant, 1));
    }
    let next = served(&mut world, 8);
    assert_eq!(shares(&next)["a"] + shares(&next)["b"] + shares(&next)["c"], 3, "{next:?}");
}

#[test]
fn keys_have_shares_by_their_weights_in_any_window() {
    let mut world = World::with(fair(), group(vec![]));
    let tenants = ["1", "2", "3", "4", "5"];
    for tenant in tenants {
        let message = of(tenant, &[("weight", tenant)]);
        world.publish(&vec![message; 700 * tenant.parse::<usize>().unwrap()]);
    }
    world.subscribe(ALICE, 10);
    let served = served(&mut world, 3000);
    for window in served.windows(1500) {
        for (tenant, count) in shares(window) {
            let share = 100 * tenant.parse::<usize>().unwrap();
            assert!(count.abs_diff(share) <= 5, "{tenant} has {count} of 1500");
        }
    }
}

#[test]
fn a_rule_for_a_key_has_precedence_over_the_weight_of_its_messages() {
    let weights = vec![KeyRule { weight: Some(3), ..rule("paid-*") }];
    let mut world = World::with(fair(), group(weights));
    world.publish(&many("paid-a", 100));
    world.publish(&many("free-b", 100));
    world.subscribe(ALICE, 1);
    assert_eq!(shares(&served(&mut world, 40))["paid-a"], 30);
    alter(&mut world, fair(), group(vec![KeyRule { weight: Some(3), ..rule("free-b") }]));
    let next = served(&mut world, 41);
    assert!((28..=31).contains(&shares(&next)["free-b"]), "{:?}", shares(&next));
}

#[test]
fn a_dear_message_uses_up_more_of_its_keys_share() {
    let costs = [Cost::Header("cost".parse().unwrap()), Cost::Bytes];
    for cost in costs {
        let config = MessageFields { cost, ..fields() }.if_any();
        let mut world = World::with(TopicConfig { fields: config, ..queue() }, group(vec![]));
        let large = vec![0; 10 << 10];
        let dear = Message { payload: large.into(), ..of("dear", &[("cost", "10")]) };
        for _ in 0..10 {
            world.publish(&vec![dear.clone(); 10]);
        }
        world.publish(&many("cheap", 1000));
        world.subscribe(ALICE, 1);
        let served = served(&mut world, 440);
        let cheap = shares(&served)["cheap"];
        assert!((395..=408).contains(&cheap), "{cheap} cheap ones of 440");
    }
}

#[test]
fn one_message_that_costs_a_million_does_not_change_the_turns_of_others() {
    let cost = Cost::Header("cost".parse().unwrap());
    let config = MessageFields { cost, ..fields() }.if_any();
    let mut world = World::with(TopicConfig { fields: config, ..queue() }, group(vec![]));
    world.publish(&vec![of("dear", &[("cost", "1000000")]); 2]);
    world.publish(&[many("a", 100), many("b", 100)].concat());
    world.subscribe(ALICE, 1);
    let served = served(&mut world, 180);
    for window in served[60..].windows(20) {
        assert_eq!(shares(window)["a"], 10, "{served:?}");
    }
}

#[test]
fn a_higher_priority_goes_first_and_the_lowest_has_its_share() {
    let mut world = World::with(fair(), group(vec![]));
    world.publish(&vec![of("low", &[("priority", "1")]); 100]);
    world.publish(&vec![of("high", &[("priority", "8")]); 100]);
    world.publish(&many("middle", 100));
    world.subscribe(ALICE, 1);
    let served = served(&mut world, 96);
    let shares = shares(&served);
    assert_eq!((shares["high"], shares["low"], shares.get("middle")), (90, 6, None));
}

#[test]
fn a_key_is_given_no_more_at_once_than_its_rule_allows() {
    let limits = vec![KeyRule { concurrency: Some(2), ..rule("*") }];
    let mut world = World::with(fair(), group(limits));
    world.publish(&[many("a", 10), many("b", 10)].concat());
    world.subscribe(ALICE, 100);
    let first = world.delivered();
    assert_eq!(first.len(), 4, "{first:?}");
    // A message that is settled, however, leaves its place to the next.
    world.ack(run(first[0].0, 1, 1));
    assert_eq!(world.delivered().len(), 1);
    world.settle(Verdict::DeadLetter { reason: "no".into() }, vec![run(first[1].0, 1, 1)]);
    assert_eq!(world.delivered().len(), 1);
    world.settle(Verdict::RetryAfter(SECOND), vec![run(first[2].0, 1, 1)]);
    assert_eq!(world.delivered().len(), 1);
    world.pass(SECOND);
    assert_eq!(world.delivered().len(), 0);
    // Leases that end return their messages, which take the places.
    world.pass(Duration::from_secs(40));
    assert_eq!(world.delivered().len(), 4);
    assert_eq!(world.group().leased, 4);
    // And so do those of a consumer that leaves.
    world.subscribe(BOB, 100);
    world.do_now(Command::EndSession { session: ALICE, grace: Duration::ZERO });
    assert_eq!(world.group().leased, 4);
    alter(&mut world, fair(), group(vec![]));
    assert_eq!(world.group().ready, 0, "without a limit all is given");
}

#[test]
fn a_key_has_its_places_back_when_what_it_has_under_way_is_freed() {
    let limits = vec![KeyRule { concurrency: Some(4), ..rule("*") }];
    let retention = Retention { count: Some(4), ..Retention::FOREVER };
    let mut world = World::with(TopicConfig { retention, ..fair() }, group(limits));
    world.subscribe(ALICE, 100);
    for _ in 0..3 {
        world.publish(&many("a", 4));
        assert_eq!(world.delivered().len(), 4);
    }
}

#[test]
fn a_throttle_lets_messages_pass_evenly_at_its_rate() {
    let limits = vec![KeyRule { throttle: rate("50/s burst 1"), ..rule("slow") }];
    let lease = Duration::from_secs(3600);
    let mut world = World::with(fair(), GroupConfig { lease, ..group(limits) });
    world.publish(&many("slow", 4000));
    for tenant in 0..50 {
        world.publish(&many(&format!("t{tenant}"), 20));
    }
    world.subscribe(ALICE, 1_000_000);
    let (mut slow, mut most) = (0, 0);
    let first = world.delivered();
    assert_eq!(first.len(), 1001, "the others do not wait");
    for _ in 0..6000 {
        world.pass(Duration::from_millis(10));
        let given = world.delivered().len();
        (slow, most) = (slow + given, most.max(given));
    }
    assert!((2970..=3030).contains(&slow) && most == 1, "{slow}, {most} at once");
}

#[test]
fn a_message_waits_for_all_of_its_throttle_keys_and_holds_back_no_others() {
    let mut world = World::with(fair(), group(vec![]));
    let rules = [("smtp", "10/s burst 1"), ("tenant:*", "1/s burst 2")];
    let rules = rules.map(|(pattern, rate)| ThrottleRule {
        pattern: pattern.parse().unwrap(),
        rate: ThrottleRate::parse(rate).unwrap(),
    });
    world.do_now(Command::SetThrottles(rules.into()));
    let limited = of("a", &[("throttle", "smtp,tenant:a")]);
    let free = of("a", &[]);
    world.publish(&[vec![limited.clone(); 10], vec![free; 10], vec![limited; 10]].concat());
    world.subscribe(ALICE, 100);
    assert_eq!(world.delivered().len(), 11, "one, and those without a throttle key");
    world.pass(Duration::from_millis(99));
    assert_eq!(world.delivered().len(), 0);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.delivered().len(), 1);
    // Both tokens of the tenant are gone.
    world.pass(Duration::from_millis(500));
    assert_eq!(world.delivered().len(), 0);
    for _ in 0..5 {
        world.pass(SECOND);
    }
    assert!((4..=5).contains(&world.delivered().len()));
    world.do_now(Command::SetThrottles([].into()));
    assert_eq!(world.group().ready, 0, "a rule that goes holds nothing back");
}

#[test]
fn rules_may_change_while_a_key_that_has_gone_is_held_back() {
    let mut world = World::with(fair(), group(vec![]));
    let rate = ThrottleRate::parse("1/s burst 1").unwrap();
    let rule = ThrottleRule { pattern: "t*".parse().unwrap(), rate };
    world.do_now(Command::SetThrottles([rule].into()));
    let of_a = |throttle| vec![of("a", &[("throttle", throttle)]); 2];
    world.publish(&[of_a("t1"), of_a("t2")].concat());
    world.subscribe(ALICE, 100);
    assert_eq!(world.delivered().len(), 2, "one of each is held back");
    let trim = PartitionCommand::Trim(Offset(4));
    world.do_now(Command::Partition(Origin::default(), ORDERS, trim));
    // Another key has its number, and the number of one of its classes.
    world.publish(&many("b", 1));
    assert_eq!(world.delivered().len(), 1);
    world.do_now(Command::SetThrottles([].into()));
    world.publish(&[of_a("t1"), of_a("t2"), many("b", 2)].concat());
    assert_eq!(world.delivered().len(), 6);
    check(&world.engine);
}

#[test]
fn one_fair_key_with_thousands_of_throttle_keys_gives_the_oldest_message_that_none_holds_back() {
    let lease = Duration::from_secs(3600);
    let mut world = World::with(fair(), GroupConfig { lease, ..group(vec![]) });
    let rule = ThrottleRule {
        pattern: "t*".parse().unwrap(),
        rate: ThrottleRate::parse("1/m burst 1").unwrap(),
    };
    world.do_now(Command::SetThrottles([rule].into()));
    for _ in 0..2 {
        for start in (0..5000).step_by(100) {
            let batch = |number: i32| of("a", &[("throttle", format!("t{number}").as_str())]);
            world.publish(&(start..start + 100).map(batch).collect::<Vec<_>>());
        }
    }
    world.publish(&[of("a", &[])]);
    world.subscribe(ALICE, 20_000);
    let offsets = |world: &mut World| -> Vec<u64> {
        let runs = world.deliveries().into_iter();
        runs.flat_map(|run| run.first.0..run.first.0 + u64::from(run.count)).collect()
    };
    let first: Vec<_> = (0..5000).chain([10_000]).collect();
    assert_eq!(offsets(&mut world), first, "one of each throttle key, and one that has none");
    world.pass(Duration::from_secs(59));
    assert_eq!(offsets(&mut world), []);
    world.pass(SECOND);
    assert_eq!(offsets(&mut world), (5000..10_000).collect::<Vec<_>>());
}

#[test]
fn the_throttle_of_a_group_counts_over_all_of_its_keys() {
    let config = GroupConfig { throttle: rate("10/s burst 5"), ..group(vec![]) };
    // It needs no fair key.
    for topic in [fair(), queue()] {
        let mut world = World::with(topic, config.clone());
        world.publish(&[many("a", 50), many("b", 50)].concat());
        world.subscribe(ALICE, 100);
        assert_eq!(world.delivered().len(), 5);
        for _ in 0..20 {
            world.pass(Duration::from_millis(100));
        }
        assert!((19..=20).contains(&world.delivered().len()));
    }
}

#[test]
fn a_paused_topic_group_or_key_is_given_nothing_until_it_goes_on() {
    let paused = |topic: bool, of_group: bool, key: bool| {
        let rules = vec![KeyRule { is_paused: true, ..rule("a") }];
        let config = group(if key { rules } else { vec![] });
        let config = GroupConfig { is_paused: of_group, ..config };
        (TopicConfig { is_paused: topic, ..fair() }, config)
    };
    for (topic, of_group, key, given) in
        [(true, false, false, 0), (false, true, false, 0), (false, false, true, 5)]
    {
        let (config, of) = paused(topic, of_group, key);
        let mut world = World::with(config, of);
        world.publish(&[many("a", 5), many("b", 5)].concat());
        world.subscribe(ALICE, 100);
        assert_eq!(world.delivered().len(), given);
        let (config, of) = paused(false, false, false);
        alter(&mut world, config, of);
        assert_eq!(world.delivered().len(), 10 - given);
    }
}

#[test]
fn a_header_may_say_the_delay() {
    let mut world = World::with(fair(), group(vec![]));
    world.publish(&[of("a", &[("delay", "1500")]), of("a", &[])]);
    world.subscribe(ALICE, 100);
    assert_eq!(world.attempts(), [(1, 1)]);
    world.pass(Duration::from_millis(1499));
    assert_eq!(world.attempts(), []);
    world.pass(Duration::from_millis(1));
    assert_eq!(world.attempts(), [(0, 1)]);
}

#[test]
fn the_messages_of_a_key_keep_their_order_and_what_returns_comes_first() {
    let mut world = World::with(fair(), group(vec![]));
    world.publish(&[many("a", 3), many("b", 3), many("a", 3)].concat());
    world.subscribe(ALICE, 2);
    let first = world.attempts();
    let firsts: Vec<u64> = first.iter().map(|&(offset, _)| offset).collect();
    assert_eq!(firsts, [0, 3]);
    world.settle(Verdict::Retry, vec![run(0, 1, 1)]);
    let again = world.attempts();
    assert!(again == [(0, 2)] || again == [(4, 1)], "{again:?}");
    let mut last = BTreeMap::new();
    world.subscribe(BOB, 1000);
    for (offset, attempt, tenant) in world.delivered() {
        let before = last.insert(tenant, offset);
        assert!(before.is_none_or(|before| before < offset) || attempt > 1);
    }
}

#[test]
fn turns_are_the_same_after_a_restart_with_and_without_a_checkpoint() {
    for with_checkpoint in [false, true] {
        let mut world = World::with(fair(), group(vec![]));
        world.publish(&[many("a", 50), many("b", 50)].concat());
        world.publish(&vec![of("c", &[("weight", "2")]); 50]);
        world.publish(&many("", 10));
        let mut world = restarted(world, with_checkpoint);
        world.subscribe(ALICE, 1);
        let served = served(&mut world, 50);
        let shares = shares(&served);
        assert_eq!((shares["a"], shares["b"], shares["c"], shares[""]), (10, 10, 20, 10));
    }
}

#[test]
fn a_batch_that_has_to_be_fetched_is_delivered_once_it_is_there() {
    let mut world = World::with(fair(), group(vec![]));
    world.publish(&many("a", 5));
    world.journal.absent = true;
    world.subscribe(ALICE, 100);
    assert_eq!(world.delivered().len(), 0);
    world.journal.absent = false;
    world.engine.fetched(ORDERS);
    world.pass(Duration::ZERO);
    assert_eq!(world.delivered().len(), 5);
}

/// Something that happens to a fair group.
#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<(u8, u8, u8)>),
    Subscribe(bool, u32),
    Leave(bool),
    Settle(u8, Vec<usize>),
    Pass(u16),
    Rules(Vec<(u8, u8, u8)>),
    Throttle(u8),
    Restart(bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let some = || proptest::collection::vec((0..6u8, 0..6u8, 0..6u8), 1..20);
    prop_oneof![
        4 => some().prop_map(Step::Publish),
        2 => (any::<bool>(), 1..40u32).prop_map(|(who, credit)| Step::Subscribe(who, credit)),
        1 => any::<bool>().prop_map(Step::Leave),
        6 => (0..5u8, proptest::collection::vec(0..40usize, 1..9))
            .prop_map(|(verdict, which)| Step::Settle(verdict, which)),
        3 => (0..20_000u16).prop_map(Step::Pass),
        1 => some().prop_map(Step::Rules),
        1 => (0..4u8).prop_map(Step::Throttle),
        1 => any::<bool>().prop_map(Step::Restart),
    ]
}

fn rules_of(rules: &[(u8, u8, u8)]) -> Vec<KeyRule> {
    let rules = rules.iter().map(|&(key, what, value)| {
        let rule = rule(&format!("k{key}*"));
        match what {
            0 => KeyRule { is_paused: true, ..rule },
            1 => KeyRule { throttle: rate("3/s burst 2"), ..rule },
            2 => KeyRule { weight: Some(1 + u32::from(value)), ..rule },
            _ => KeyRule { concurrency: Some(1 + u32::from(value)), ..rule },
        }
    });
    rules.fold(KeyRules::default(), |held, rule| held.with(&[rule])).iter().cloned().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn whatever_happens_limits_hold_and_everything_is_given_in_the_end(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut world = World::with(fair(), group(vec![]));
        let mut published = 0;
        let mut held: Vec<(DeliveryRun, String, bool)> = Vec::new();
        for step in steps {
            match step {
                Step::Publish(messages) => {
                    let messages: Vec<_> = messages.iter().map(|(key, priority, throttle)| {
                        let throttle = format!("t{throttle}");
                        let more = [("priority", priority.to_string()), ("throttle", throttle)];
                        let more = more.each_ref().map(|(name, value)| (*name, value.as_str()));
                        of(&format!("k{key}"), &more)
                    }).collect();
                    published += messages.len();
                    world.publish(&messages);
                }
                Step::Subscribe(is_bob, credit) => {
                    world.subscribe(if is_bob { BOB } else { ALICE }, credit);
                }
                Step::Leave(is_bob) => {
                    let session = if is_bob { BOB } else { ALICE };
                    world.do_now(Command::EndSession { session, grace: Duration::ZERO });
                    held.retain(|(.., of_bob)| *of_bob != is_bob);
                }
                Step::Settle(verdict, which) => {
                    let verdict = match verdict {
                        0 => Verdict::Retry,
                        1 => Verdict::RetryAfter(SECOND),
                        _ => Verdict::Ack,
                    };
                    for index in which {
                        if index < held.len() {
                            let (run, _, of_bob) = held.swap_remove(index);
                            let session = if of_bob { BOB } else { ALICE };
                            world.settle_as(session, verdict.clone(), vec![run]);
                        }
                    }
                }
                Step::Pass(ms) => {
                    world.pass(Duration::from_millis(ms.into()));
                }
                Step::Rules(changed) => {
                    alter(&mut world, fair(), group(rules_of(&changed)));
                }
                Step::Throttle(which) => {
                    let rule = ThrottleRule {
                        pattern: format!("t{which}").parse().unwrap(),
                        rate: rate("5/s burst 1").unwrap(),
                    };
                    world.do_now(Command::SetThrottles([rule].into()));
                }
                Step::Restart(from_snapshot) => {
                    world = restarted(world, from_snapshot);
                    held.clear();
                }
            }
            for delivery in world.deliveries() {
                let of_bob = delivery.session == BOB;
                let messages = Messages::of_checked(&delivery.messages);
                for (offset, message) in (delivery.first.0..).zip(messages) {
                    let key = String::from_utf8_lossy(message.payload()).into_owned();
                    let Delivery { attempt, generation, .. } = delivery;
                    let run = DeliveryRun { first: Offset(offset), count: 1, attempt, generation };
                    held.push((run, key, of_bob));
                }
            }
        }
        // Without rules, and with time and room, everything is given.
        alter(&mut world, fair(), group(vec![]));
        world.do_now(Command::SetThrottles([].into()));
        for session in [ALICE, BOB] {
            world.do_now(Command::EndSession { session, grace: Duration::ZERO });
        }
        world.subscribe_to(ORDERS, ALICE, Credit { messages: 1_000_000, bytes: 1 << 30 });
        world.pass(Duration::from_secs(60));
        let described = world.group();
        prop_assert_eq!((described.ready, described.delayed), (0, 0));
        prop_assert!(described.leased as usize <= published);
    }
}

#[test]
fn a_run_of_messages_of_one_key_is_one_delivery() {
    let mut world = World::with(fair(), group(vec![]));
    world.publish(&many("a", 100));
    world.subscribe(ALICE, 100);
    let deliveries = world.deliveries();
    assert_eq!(deliveries.len(), 1);
    assert_eq!((deliveries[0].first, deliveries[0].count), (Offset(0), 100));
    // Keys that take turns message by message share deliveries too.
    let turns: Vec<_> = (0..90).map(|n| of(["a", "b", "c"][n % 3], &[])).collect();
    world.publish(&turns);
    world.subscribe(BOB, 90);
    assert_eq!(world.deliveries().len(), 1);
    world.settle_as(
        BOB,
        Verdict::Ack,
        vec![DeliveryRun { first: Offset(100), count: 90, attempt: 1, generation: Generation(1) }],
    );
}

#[test]
fn each_message_that_waits_has_one_reason_which_can_be_asked_for() {
    let limits = vec![
        KeyRule { concurrency: Some(1), ..rule("limited") },
        KeyRule { is_paused: true, ..rule("paused") },
        KeyRule { throttle: rate("1/s burst 1"), ..rule("slow") },
    ];
    let mut world = World::with(fair(), group(limits.clone()));
    let ask = |world: &mut World, subject| world.explain(subject);
    let at = |offset| ExplainSubject::Offset(Offset(offset));
    let until = |world: &World, ms| world.now.plus(Duration::from_millis(ms));
    let keys = ["limited", "limited", "paused", "slow", "slow", "free"];
    world.publish(&keys.map(|key| of(key, &[])));
    world.publish(&[of("late", &[("delay", "60000")])]);
    assert_eq!(ask(&mut world, at(0)).reason, WaitReason::NoConsumer);
    let delayed = WaitReason::Delayed { until: until(&world, 60_000) };
    assert_eq!(ask(&mut world, at(6)).reason, delayed);
    world.subscribe(ALICE, 4);
    let held = ask(&mut world, at(0));
    assert_eq!(held.fair_key, "limited");
    assert!(matches!(held.reason, WaitReason::Leased { session: ALICE, attempt: 1, .. }));
    let concurrency = WaitReason::Concurrency { in_flight: 1, limit: 1 };
    assert_eq!(ask(&mut world, at(1)).reason, concurrency);
    assert_eq!(ask(&mut world, at(2)).reason, WaitReason::KeyPaused);
    let throttled = WaitReason::Throttled { until: until(&world, 1000) };
    assert_eq!(ask(&mut world, at(4)).reason, throttled);
    for none in [99, u64::MAX] {
        assert_eq!(ask(&mut world, at(none)).reason, WaitReason::NoMessage);
    }
    world.ack(run(0, 1, 1));
    assert_eq!(ask(&mut world, at(0)).reason, WaitReason::Settled);
    world.settle(Verdict::RetryAfter(SECOND), vec![run(1, 1, 1)]);
    assert!(matches!(ask(&mut world, at(1)).reason, WaitReason::Retrying { failed: 1, .. }));
    // The consumer holds one and two others of the key: its window is full with the next two.
    world.publish(&[many("free", 3), many("other", 3)].concat());
    world.subscribe(ALICE, 3);
    assert_eq!(ask(&mut world, at(9)).reason, WaitReason::NoCredit);
    let by_key = ask(&mut world, ExplainSubject::FairKey("paused".into()));
    assert_eq!((by_key.offset, by_key.reason), (Some(Offset(2)), WaitReason::KeyPaused));
    let none = ask(&mut world, ExplainSubject::FairKey("nobody".into()));
    assert_eq!((none.offset, none.reason), (None, WaitReason::NoMessage));
    let listed = world.keys(2);
    assert_eq!(listed.len(), 2);
    assert!(listed[0].ready >= listed[1].ready && listed[0].ready > 0);
    alter(&mut world, fair(), GroupConfig { is_paused: true, ..group(limits.clone()) });
    assert_eq!(ask(&mut world, at(9)).reason, WaitReason::GroupPaused);
    alter(&mut world, TopicConfig { is_paused: true, ..fair() }, group(limits));
    assert_eq!(ask(&mut world, at(9)).reason, WaitReason::TopicPaused);
}
