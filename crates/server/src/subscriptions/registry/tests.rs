//! The registry: who is linked to what as streams come and go, and that a replay of what it says leaves
//! it as it was.

use super::*;
use crate::subscriptions::{
    request::{Config, Glob, Way},
    subscription::Due,
};

fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn config(pattern: Option<&str>, wake_stream: &str) -> Config {
    Config {
        way: Way::PullWake(name(wake_stream)),
        pattern: pattern.map(|text| Glob::parse(text).unwrap()),
        streams: Vec::new(),
        lease_ms: 1_000,
        description: None,
    }
}

fn subscription(pattern: Option<&str>, explicit: &[&str]) -> Subscription {
    let links = explicit.iter().map(|stream| (name(stream), Link::to_come(true)));
    let base = "http://here".into();
    let now = sennit_model::Timestamp(0);
    Subscription::new(config(pattern, "events/wake"), base, now, links.collect())
}

fn links(registry: &Registry, id: &str) -> Vec<String> {
    registry.get(id).unwrap().subscription.links().keys().map(ToString::to_string).collect()
}

fn is_pending(registry: &Registry, id: &str) -> bool {
    registry.get(id).unwrap().subscription.is_pending()
}

#[test]
fn a_stream_that_appears_is_linked_to_those_who_mean_it() {
    let mut registry = Registry::default();
    registry.add("all", subscription(Some("events/**"), &[]));
    registry.add("named", subscription(None, &["events/a"]));
    registry.add("other", subscription(Some("bills/*"), &[]));
    let (changes, new) = registry.appeared(&name("events/a"), TopicId(1), Offset(0));
    assert_eq!(changes.len(), 2);
    assert!(new.is_empty(), "it was followed already: somebody had named it");
    assert_eq!(links(&registry, "all"), ["events/a"]);
    assert!(links(&registry, "other").is_empty());
    registry.seen(&name("events/a"), TopicId(1), Offset(1));
    assert!(is_pending(&registry, "all") && is_pending(&registry, "named"));
    let again = registry.appeared(&name("events/a"), TopicId(1), Offset(0));
    assert!(again.0.is_empty() && again.1.is_empty());
}

#[test]
fn nobody_is_woken_by_their_own_wakes() {
    let mut registry = Registry::default();
    registry.add("all", subscription(Some("**"), &[]));
    for kept_out in ["events/wake", "__ds/subscriptions"] {
        let (changes, _) = registry.appeared(&name(kept_out), TopicId(1), Offset(0));
        assert!(changes.is_empty(), "{kept_out}");
    }
}

#[test]
fn a_stream_that_goes_takes_its_links_and_those_who_named_it_wait_for_the_next() {
    let mut registry = Registry::default();
    registry.add("all", subscription(Some("events/**"), &[]));
    registry.add("named", subscription(None, &["events/a"]));
    registry.appeared(&name("events/a"), TopicId(1), Offset(0));
    registry.seen(&name("events/a"), TopicId(1), Offset(5));
    let changes = registry.gone(&name("events/a"), TopicId(1));
    assert_eq!(changes.len(), 2);
    assert!(links(&registry, "all").is_empty());
    assert_eq!(links(&registry, "named"), ["events/a"]);
    assert!(!is_pending(&registry, "named"));

    registry.seen(&name("events/a"), TopicId(1), Offset(9));
    assert!(!is_pending(&registry, "named"), "what is said of the old one concerns nobody");
    registry.appeared(&name("events/a"), TopicId(2), Offset(0));
    registry.seen(&name("events/a"), TopicId(2), Offset(1));
    assert!(is_pending(&registry, "all") && is_pending(&registry, "named"));
}

#[test]
fn ends_are_wanted_while_somebody_rests() {
    let mut registry = Registry::default();
    let (_, new) = registry.add("one", subscription(None, &["a"]));
    let life = new[0].1;
    assert_eq!(registry.wanted(&name("a"), life).unwrap().topic, None, "it is not there");
    registry.appeared(&name("a"), TopicId(1), Offset(0));
    assert_eq!(registry.wanted(&name("a"), life).unwrap().topic, Some(TopicId(1)));
    registry.seen(&name("a"), TopicId(1), Offset(1));
    let now = sennit_model::Timestamp(0);
    let woken = registry.get("one").unwrap().subscription.wake(now, "w".into()).unwrap();
    registry.apply("one", &woken);
    assert_eq!(registry.wanted(&name("a"), life).unwrap().topic, None, "nobody rests");
    assert!(registry.wanted(&name("a"), life + 1).is_none(), "another life");
    registry.remove("one");
    assert!(registry.wanted(&name("a"), life).is_none());
}

#[test]
fn who_comes_later_knows_what_is_known() {
    let mut registry = Registry::default();
    registry.add("one", subscription(None, &["a"]));
    registry.appeared(&name("a"), TopicId(1), Offset(0));
    registry.seen(&name("a"), TopicId(1), Offset(9));
    registry.add("two", subscription(None, &[]));
    let new = registry.link("two", &name("a"), Link::at(true, TopicId(1), Offset(4)));
    assert!(new.is_empty() && is_pending(&registry, "two"));
}

#[test]
fn what_came_and_went_unseen_is_made_good() {
    let mut registry = Registry::default();
    registry.add("all", subscription(Some("events/**"), &[]));
    registry.appeared(&name("events/old"), TopicId(1), Offset(0));
    registry.appeared(&name("events/again"), TopicId(2), Offset(0));
    let now = [(name("events/again"), TopicId(3)), (name("events/new"), TopicId(4))];
    let (changes, _) = registry.reconcile(&now.into());
    assert_eq!(changes.len(), 4, "two are gone, two are new: {changes:?}");
    assert_eq!(links(&registry, "all"), ["events/again", "events/new"]);
    assert!(
        registry
            .reconcile(&HashMap::from([
                (name("events/again"), TopicId(3)),
                (name("events/new"), TopicId(4)),
            ]))
            .0
            .is_empty()
    );
}

#[test]
fn one_link_too_many_is_not_made() {
    let mut registry = Registry::default();
    registry.add("all", subscription(Some("**"), &[]));
    assert!(registry.check_room(SUBSCRIPTION_LINKS_MAX, 1).is_ok());
    let refused = registry.check_room(SUBSCRIPTION_LINKS_MAX + 1, 1).unwrap_err();
    assert_eq!(refused.to_string(), "SUBSCRIPTION_LINKS_MAX is 10000");
    for n in 0..=SUBSCRIPTION_LINKS_MAX as u32 {
        registry.appeared(&name(&format!("s{n}")), TopicId(n), Offset(0));
    }
    assert_eq!(links(&registry, "all").len(), SUBSCRIPTION_LINKS_MAX);
}

#[test]
fn one_subscription_too_many_is_refused() {
    let mut registry = Registry::default();
    for n in 0..SUBSCRIPTIONS_MAX {
        assert!(registry.check_members().is_ok());
        registry.add(&format!("s{n}"), subscription(Some("events/*"), &[]));
    }
    assert_eq!(registry.check_members().unwrap_err().to_string(), "SUBSCRIPTIONS_MAX is 10000");
}

#[test]
fn a_replay_of_what_it_says_leaves_it_as_it_was() {
    let mut registry = Registry::default();
    registry.add("all", subscription(Some("events/**"), &["named"]));
    let mut said: Vec<Change> = registry.keep().collect();
    said.extend(registry.appeared(&name("events/a"), TopicId(1), Offset(0)).0);
    said.extend(registry.appeared(&name("events/b"), TopicId(2), Offset(0)).0);
    said.extend(registry.appeared(&name("named"), TopicId(3), Offset(0)).0);
    registry.seen(&name("events/a"), TopicId(1), Offset(5));
    let now = sennit_model::Timestamp(7);
    let claimed = registry.get("all").unwrap().subscription.claim("me".into(), now, "w".into());
    let claimed = claimed.unwrap();
    registry.apply("all", &claimed);
    said.push(Change { id: "all".into(), what: What::Moved(claimed) });
    said.extend(registry.gone(&name("events/b"), TopicId(2)));
    said.extend(registry.gone(&name("named"), TopicId(3)));
    let mut replayed = Registry::default();
    for change in said.iter().cloned() {
        assert!(replayed.replay(change));
    }
    let kept: Vec<Change> = registry.keep().collect();
    assert_eq!(replayed.keep().collect::<Vec<_>>(), kept);
    // Written whole again in between, it comes to the same.
    for change in kept.iter().chain(&said).cloned() {
        assert!(replayed.replay(change));
    }
    assert_eq!(replayed.keep().collect::<Vec<_>>(), kept);
    assert!(replayed.replay(Change { id: "all".into(), what: What::Deleted }));
    assert!(replayed.is_empty() && replayed.followed.is_empty() && replayed.links == 0);
    assert!(
        replayed.by_wake_stream.is_empty()
            && replayed.pattern_index.of("events/a").next().is_none()
    );
}

#[test]
fn those_whose_wake_stream_is_made_anew_are_told_again() {
    let mut registry = Registry::default();
    registry.add("one", subscription(Some("events/**"), &[]));
    registry.appeared(&name("events/a"), TopicId(1), Offset(0));
    registry.seen(&name("events/a"), TopicId(1), Offset(1));
    let now = sennit_model::Timestamp(1);
    let woken = registry.get("one").unwrap().subscription.wake(now, "wake_1".into()).unwrap();
    registry.apply("one", &woken);
    let due = |registry: &Registry| registry.get("one").unwrap().subscription.due(now);
    registry.get_mut("one").unwrap().subscription.note_wake_sent("wake_1");
    registry.wakes_appeared(&name("events/other"));
    assert_eq!(due(&registry), Due::Nothing);
    registry.wakes_appeared(&name("events/wake"));
    assert_eq!(due(&registry), Due::SendWake);
}
