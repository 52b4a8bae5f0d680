//! What sessions see of a change of leaders: of one that is handed over nothing, and of one that was lost which of their
//! requests it was.

mod nodes;

use std::collections::BTreeSet;

use sennit_engine::{Credit, Refusal};
use sennit_model::Timestamp;
use sennit_replica::Moment;
use sennit_shard::Standing;

use self::nodes::Nodes;

/// Checks what sessions read in the end: each message that was confirmed is there once, those of each node in the order
/// in which they were published.
#[track_caller]
fn check_messages(nodes: &mut Nodes, published: &[(u16, u64)], reader: u16) {
    nodes.read(reader, Credit { messages: 10_000, bytes: 1 << 20 });
    nodes.run_until("the reader has something", |nodes| !nodes.delivered(reader).is_empty());
    nodes.run_until("it has all", |_| true);
    let read = nodes.delivered(reader);
    let distinct: BTreeSet<u64> = read.iter().copied().collect();
    assert_eq!(distinct.len(), read.len(), "none is there twice: {read:?}");
    for node in 1..=3 {
        let of_node: Vec<u64> =
            published.iter().filter(|(by, _)| *by == node).map(|(_, request)| *request).collect();
        let there: Vec<u64> =
            read.iter().copied().filter(|request| of_node.contains(request)).collect();
        assert!(there.is_sorted(), "node {node}: {there:?}");
        let confirmed = nodes.node(node).confirmed();
        assert!(confirmed.iter().all(|request| distinct.contains(request)), "node {node}");
    }
}

#[test]
fn sessions_of_no_node_see_anything_of_a_hand_over() {
    for seed in 0..40 {
        let mut nodes = Nodes::with_leader(seed);
        let leader = nodes.leader().unwrap();
        let heir = nodes.others(leader)[(seed % 2) as usize];
        let mut published = Vec::new();
        for round in 0..60 {
            for node in 1..=3 {
                published.push((node, nodes.publish(node)));
            }
            if round == 20 {
                let group = &mut nodes.node(leader).group;
                let now = group.now();
                group.hand_to(heir, now);
            }
            if round % 5 == 0 {
                nodes.tick();
            }
            nodes.carry((seed % 7) as usize);
        }
        nodes.run_until("all is answered", |nodes| {
            let answered = |(_, node): (_, &nodes::Node)| node.told.len();
            nodes.nodes.iter().map(answered).sum::<usize>() == published.len()
        });
        assert_eq!(nodes.leader(), Some(heir), "seed {seed}");
        for (id, node) in &nodes.nodes {
            assert_eq!(node.refused(), [], "seed {seed}, node {id}");
        }
        check_messages(&mut nodes, &published, heir);
    }
}

#[test]
fn of_a_leader_that_is_gone_each_request_has_one_answer() {
    for seed in 0..40 {
        let mut nodes = Nodes::with_leader(seed);
        let leader = nodes.leader().unwrap();
        let [one, other] = nodes.others(leader);
        let mut published = Vec::new();
        for round in 0..60 {
            for node in [one, other] {
                published.push((node, nodes.publish(node)));
            }
            if round == 20 {
                nodes.set_down(leader, true);
            }
            if round % 5 == 0 {
                nodes.tick();
            }
            nodes.carry((seed % 7) as usize);
        }
        nodes.run_until("all is answered", |nodes| {
            let answered = |node: &u16| nodes.nodes[node].told.len();
            [one, other].iter().map(answered).sum::<usize>() == published.len()
        });
        for id in [one, other] {
            let node = &nodes.nodes[&id];
            let refused = node.refused();
            let is_unknown = |(_, refusal): &(u64, &Refusal)| **refusal == Refusal::OutcomeUnknown;
            assert!(refused.iter().all(is_unknown), "seed {seed}: {refused:?}");
            let answered = node.confirmed().len() + refused.len();
            assert_eq!(answered, 60, "seed {seed}, node {id}");
        }
        check_messages(&mut nodes, &published, one);
    }
}

#[test]
fn a_link_that_takes_the_place_of_another_brings_no_answers_of_that_one() {
    let mut nodes = Nodes::with_leader(1);
    let leader = nodes.leader().unwrap();
    let [one, _] = nodes.others(leader);
    nodes.read(one, Credit { messages: 10, bytes: 1 << 20 });
    nodes.run_until("it reads", Nodes::is_still);
    let request = nodes.publish(one);
    nodes.node(one).group.send();
    nodes.replace_link(one, leader);
    nodes.run_until("it is told", |nodes| !nodes.nodes[&one].refused().is_empty());
    assert_eq!(nodes.node(one).refused(), [(request, &Refusal::OutcomeUnknown)]);
    let request = nodes.publish(one);
    nodes.run_until("it is read", |nodes| nodes.delivered(one) == [request]);
}

#[test]
fn another_leader_is_asked_all_that_sessions_count_on() {
    let mut nodes = Nodes::with_leader(1);
    let leader = nodes.leader().unwrap();
    let [one, _] = nodes.others(leader);
    nodes.read(one, Credit { messages: 10, bytes: 1 << 20 });
    nodes.run_until("it reads", Nodes::is_still);
    let question = nodes.describe(one);
    nodes.node(one).group.send();
    nodes.set_down(leader, true);
    nodes.run_until("the question is answered", |nodes| nodes.described(one) == [question]);
    let request = nodes.publish(one);
    nodes.run_until("it is read", |nodes| nodes.delivered(one) == [request]);
    assert_eq!(nodes.node(one).refused(), []);
}

#[test]
fn a_leader_that_is_silent_is_not_waited_for_longer_than_its_answers_may_take() {
    let mut nodes = Nodes::with_leader(1);
    let leader = nodes.leader().unwrap();
    let [one, _] = nodes.others(leader);
    nodes.silence(leader);
    let request = nodes.publish(one);
    nodes.run_until("another leads", |nodes| nodes.leader().is_some_and(|new| new != leader));
    for _ in 0..7 {
        nodes.tick();
        nodes.carry(10_000);
    }
    assert_eq!(nodes.node(one).refused(), [(request, &Refusal::OutcomeUnknown)]);
    let request = nodes.publish(one);
    nodes.run_until("it goes on", |nodes| nodes.nodes[&one].confirmed() == [request]);
}

#[test]
fn leadership_is_given_to_the_node_that_is_to_have_it_though_it_lacks_what_is_under_way() {
    const PREFERRED: u16 = 1;
    let led_by_another = |nodes: &Nodes| nodes.leader() != Some(PREFERRED);
    let mut nodes = (0..20).map(Nodes::with_leader).find(led_by_another).unwrap();
    let leader = nodes.leader().unwrap();
    nodes.hold_back(PREFERRED, true);
    for _ in 0..100 {
        nodes.publish(leader);
        nodes.carry(4);
    }
    let group = &mut nodes.node(leader).group;
    let lags = group.replica.lags();
    let lag = lags.iter().find(|lag| lag.replica == u64::from(PREFERRED)).unwrap();
    assert!(lag.entries > 64, "{lag:?}");
    group.kept_since = Moment { time: Timestamp(0), monotonic_ns: 0 };
    let hands_over = |nodes: &Nodes| {
        matches!(nodes.nodes[&leader].group.shard().standing(), Standing::HandingOver { .. })
    };
    nodes.run_until("it hands over", hands_over);
    nodes.hold_back(PREFERRED, false);
    nodes.run_until("the other leads", |nodes| nodes.leader() == Some(PREFERRED));
    assert_eq!(nodes.node(leader).refused(), []);
}
