//! One subscription: who gets the work, when it comes back, and that nothing impossible comes of any
//! order of events.

use proptest::prelude::*;

use super::*;
use crate::subscriptions::request::{Glob, Way};

const LEASE_MS: u64 = 1_000;

fn name(text: &str) -> TopicName {
    text.parse().unwrap()
}

fn subscription(way: Way) -> Subscription {
    let config = Config {
        way,
        pattern: Some(Glob::parse("events/*").unwrap()),
        streams: Vec::new(),
        lease_ms: LEASE_MS,
        description: None,
    };
    let links = (0..3)
        .map(|n| (name(&format!("events/{n}")), Link::at(false, TopicId(n), Offset(u64::from(n)))));
    Subscription::new(config, "http://here".into(), Timestamp(0), links.collect())
}

fn pulled() -> Subscription {
    subscription(Way::PullWake(name("wake")))
}

fn called() -> Subscription {
    subscription(Way::Webhook("https://there".into()))
}

fn at(ms: u64) -> Timestamp {
    Timestamp(ms)
}

fn fence(subscription: &Subscription) -> Fence {
    let wake: Box<str> = subscription.phase().wake().unwrap_or_default().into();
    Fence { generations: [subscription.generation(); 2], wakes: [wake.clone(), wake] }
}

/// Does it, and says how it is told of.
fn done(subscription: &mut Subscription, moved: Moved) {
    subscription.apply(&moved);
}

fn see(subscription: &mut Subscription, end: u64) {
    subscription.seen(&name("events/0"), TopicId(0), Offset(end));
}

fn acks(offset: u64) -> Vec<(TopicName, Offset)> {
    vec![(name("events/0"), Offset(offset))]
}

/// The links of a subscription, as a webhook is told of them.
fn links_of(subscription: &Subscription) -> Vec<(TopicName, Link)> {
    subscription.links().iter().map(|(stream, link)| (stream.clone(), *link)).collect()
}

#[test]
fn it_rests_until_there_is_something() {
    let mut quiet = pulled();
    assert_eq!(quiet.due(at(0)), Due::Nothing);
    assert_eq!(quiet.wake(at(0), "w".into()), None);
    assert!(quiet.seen(&name("events/0"), TopicId(0), Offset(2)));
    assert!(!quiet.seen(&name("events/0"), TopicId(0), Offset(3)), "it is pending already");
    assert_eq!(quiet.due(at(0)), Due::Wake);
}

#[test]
fn what_lies_in_another_stream_of_that_name_is_not_its_own() {
    let mut quiet = pulled();
    assert!(!quiet.seen(&name("events/0"), TopicId(9), Offset(2)));
    assert!(!quiet.is_pending());
}

#[test]
fn one_worker_has_the_work_until_it_is_done() {
    let mut pulled = pulled();
    see(&mut pulled, 2);
    let woken = pulled.wake(at(0), "w1".into()).unwrap();
    done(&mut pulled, woken);
    assert_eq!((pulled.generation(), pulled.due(at(0))), (1, Due::SendWake));
    pulled.note_wake_sent("w1");
    assert_eq!(pulled.due(at(0)), Due::Nothing);

    let claimed = pulled.claim("one".into(), at(10), "unused".into()).unwrap();
    done(&mut pulled, claimed);
    assert_eq!((pulled.generation(), pulled.phase().wake()), (1, Some("w1")));
    let refused = pulled.claim("two".into(), at(11), "w2".into()).unwrap_err();
    assert_eq!(
        refused,
        SubscriptionRefusal::AlreadyClaimed { holder: "one".into(), generation: 1 }
    );

    let fence = fence(&pulled);
    let acked = pulled.ack(&fence, &acks(2), true, at(20)).unwrap();
    done(&mut pulled, acked);
    assert!(pulled.is_idle() && !pulled.is_pending());
    let again = pulled.ack(&fence, &acks(2), true, at(21));
    assert_eq!(again, Err(SubscriptionRefusal::Fenced { generation: 1 }));
    assert_eq!(
        pulled.claim("two".into(), at(22), "w2".into()),
        Err(SubscriptionRefusal::NoPendingWork)
    );
}

#[test]
fn a_claim_need_not_wait_for_the_wake() {
    let mut pulled = pulled();
    see(&mut pulled, 2);
    let claimed = pulled.claim("one".into(), at(0), "w".into()).unwrap();
    done(&mut pulled, claimed);
    assert_eq!((pulled.generation(), pulled.phase().wake()), (1, Some("w")));
}

#[test]
fn an_ack_prolongs_the_lease_and_its_end_brings_the_work_back() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    let claimed = pulled.claim("one".into(), at(0), "w1".into()).unwrap();
    done(&mut pulled, claimed);
    let fence = fence(&pulled);
    let acked = pulled.ack(&fence, &acks(3), false, at(900)).unwrap();
    done(&mut pulled, acked);
    assert_eq!(pulled.due(at(900)), Due::At(at(900 + LEASE_MS)));
    assert!(pulled.ack(&fence, &acks(4), false, at(899 + LEASE_MS)).is_ok());
    let late = pulled.ack(&fence, &acks(5), true, at(900 + LEASE_MS));
    assert_eq!(late, Err(SubscriptionRefusal::Fenced { generation: 1 }), "not even before a wake");

    assert_eq!(pulled.due(at(900 + LEASE_MS)), Due::Wake);
    let woken = pulled.wake(at(900 + LEASE_MS), "w2".into()).unwrap();
    done(&mut pulled, woken);
    assert_eq!((pulled.generation(), pulled.phase().wake()), (2, Some("w2")));
    assert_eq!(pulled.links()[&name("events/0")].acked, Offset(3), "what was acked stays so");
}

#[test]
fn a_lease_that_ends_with_nothing_to_do_wakes_nobody() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    let claimed = pulled.claim("one".into(), at(0), "w1".into()).unwrap();
    done(&mut pulled, claimed);
    let acked = pulled.ack(&fence(&pulled), &acks(5), false, at(1)).unwrap();
    done(&mut pulled, acked);
    let ended = pulled.wake(at(10_000), "w2".into()).unwrap();
    done(&mut pulled, ended);
    assert_eq!((pulled.generation(), pulled.due(at(10_000))), (1, Due::Nothing));
}

#[test]
fn what_is_let_go_of_goes_to_the_next() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    let claimed = pulled.claim("one".into(), at(0), "w1".into()).unwrap();
    done(&mut pulled, claimed);
    let released = pulled.release(&fence(&pulled), at(1)).unwrap();
    done(&mut pulled, released);
    assert_eq!(pulled.due(at(1)), Due::Wake);
}

#[test]
fn each_part_of_the_fence_has_to_hold() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    let claimed = pulled.claim("one".into(), at(0), "w1".into()).unwrap();
    done(&mut pulled, claimed);
    let right = fence(&pulled);
    assert!(pulled.ack(&right, &[], false, at(1)).is_ok());
    for wrong in [
        Fence { generations: [0, 1], ..right.clone() },
        Fence { generations: [1, 0], ..right.clone() },
        Fence { wakes: ["w0".into(), "w1".into()], ..right.clone() },
        Fence { wakes: ["w1".into(), "w0".into()], ..right.clone() },
    ] {
        let fenced = Err(SubscriptionRefusal::Fenced { generation: 1 });
        assert_eq!(pulled.ack(&wrong, &acks(2), true, at(1)), fenced, "{wrong:?}");
        assert_eq!(pulled.release(&wrong, at(1)), fenced, "{wrong:?}");
    }
}

#[test]
fn nobody_acks_what_is_not_there() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    let claimed = pulled.claim("one".into(), at(0), "w1".into()).unwrap();
    done(&mut pulled, claimed);
    let beyond = pulled.ack(&fence(&pulled), &acks(6), true, at(1)).unwrap_err();
    assert_eq!(beyond.code(), "INVALID_OFFSET");
    let gone = [(name("gone"), Offset(6))];
    assert_eq!(pulled.ack(&fence(&pulled), &gone, true, at(1)).unwrap().acks, []);
}

#[test]
fn a_webhook_that_is_done_has_acked_what_it_was_told_of() {
    let mut called = called();
    see(&mut called, 5);
    let woken = called.wake(at(0), "w1".into()).unwrap();
    done(&mut called, woken);
    let five = links_of(&called);
    see(&mut called, 7);
    let answered = called.answered("w1", &WakeOutcome::Done(five), at(1)).unwrap();
    done(&mut called, answered);
    assert_eq!(called.links()[&name("events/0")].acked, Offset(5));
    assert_eq!(called.due(at(1)), Due::Wake, "more has come since");
    assert_eq!(called.answered("w1", &WakeOutcome::Done(links_of(&called)), at(1)), None);
}

#[test]
fn a_webhook_that_is_done_has_acked_nothing_of_a_stream_that_came_since() {
    let mut called = called();
    see(&mut called, 5);
    let woken = called.wake(at(0), "w1".into()).unwrap();
    done(&mut called, woken);
    let of_the_first = links_of(&called);
    let second = Link { end: Offset(9), ..Link::at(false, TopicId(7), Offset(0)) };
    called.link(name("events/0"), second);
    let answered = called.answered("w1", &WakeOutcome::Done(of_the_first), at(1)).unwrap();
    done(&mut called, answered);
    assert_eq!(called.links()[&name("events/0")].acked, Offset(0));
    assert_eq!(called.due(at(1)), Due::Wake, "nothing of it is done");
}

#[test]
fn a_webhook_that_fails_is_told_again_under_the_same_wake() {
    let mut called = called();
    see(&mut called, 5);
    let woken = called.wake(at(0), "w1".into()).unwrap();
    done(&mut called, woken);
    for attempt in 0..10 {
        let now = at(100_000 * (attempt + 1));
        assert_eq!(called.due(now), Due::SendWake);
        let failed = called.answered("w1", &WakeOutcome::Failed(attempt), now).unwrap();
        done(&mut called, failed);
        assert!(matches!(called.due(now), Due::At(next) if next > now && next.0 <= now.0 + 72_000));
    }
    assert_eq!(called.generation(), 1);
}

#[test]
fn a_webhook_may_call_back_before_it_has_answered() {
    let mut called = called();
    see(&mut called, 5);
    let woken = called.wake(at(0), "w1".into()).unwrap();
    done(&mut called, woken);
    let early = called.ack(&fence(&called), &acks(3), false, at(1)).unwrap();
    done(&mut called, early);
    assert_eq!(called.answered("w1", &WakeOutcome::Taken, at(2)), None, "it works already");
    assert_eq!(called.answered("w1", &WakeOutcome::Failed(0), at(2)), None, "it works already");
    let acked = called.ack(&fence(&called), &acks(5), true, at(2)).unwrap();
    done(&mut called, acked);
    assert!(called.is_idle());
}

#[test]
fn a_wake_that_waits_to_be_claimed_is_nobodys() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    let woken = pulled.wake(at(0), "w1".into()).unwrap();
    done(&mut pulled, woken);
    let fenced = Err(SubscriptionRefusal::Fenced { generation: 1 });
    assert_eq!(pulled.ack(&fence(&pulled), &acks(5), true, at(1)), fenced);
}

#[test]
fn a_stream_that_goes_takes_its_work_along() {
    let mut pulled = pulled();
    see(&mut pulled, 5);
    assert!(pulled.unlink(&name("events/0")).is_some());
    assert!(!pulled.is_pending());
    let old = pulled.link(name("events/1"), Link::to_come(true));
    assert_eq!(old.map(|link| link.acked), Some(Offset(1)));
    assert_eq!(pulled.due(at(0)), Due::Nothing);
}

/// What may happen to a subscription.
#[derive(Clone, Debug)]
enum Event {
    Seen { stream: u32, more: u64 },
    Wake,
    Claim,
    Ack { stream: u32, offset: u64, is_done: bool, stale: bool },
    Release { stale: bool },
    Answered { told: u8, stale: bool },
    Told,
    Unlink { stream: u32 },
    Link { stream: u32 },
    Restart,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..3u32, 0..4u64).prop_map(|(stream, more)| Event::Seen { stream, more }),
        Just(Event::Wake),
        Just(Event::Claim),
        (0..3u32, 0..12u64, any::<bool>(), prop::bool::weighted(0.2)).prop_map(
            |(stream, offset, is_done, stale)| Event::Ack { stream, offset, is_done, stale }
        ),
        prop::bool::weighted(0.2).prop_map(|stale| Event::Release { stale }),
        (0..3u8, prop::bool::weighted(0.2))
            .prop_map(|(told, stale)| Event::Answered { told, stale }),
        Just(Event::Told),
        (0..3u32).prop_map(|stream| Event::Unlink { stream }),
        (0..3u32).prop_map(|stream| Event::Link { stream }),
        Just(Event::Restart),
    ]
}

fn stream(n: u32) -> TopicName {
    name(&format!("events/{n}"))
}

proptest! {
    /// Whatever happens in whatever order: generations and acks never go back, an old fence changes
    /// nothing, one at a time has the work, and what was kept is what there is.
    #[test]
    fn nothing_impossible_comes_of_it(
        is_webhook in any::<bool>(),
        events in prop::collection::vec((event(), 0..2 * LEASE_MS), 1..80),
    ) {
        let mut this = if is_webhook { called() } else { pulled() };
        let mut kept = this.clone();
        let mut now = 0;
        let mut wakes = 0;
        let mut old: Option<Fence> = None;
        for (event, later) in events {
            now += later;
            let before = this.clone();
            wakes += 1;
            let wake: Box<str> = format!("w{wakes}").into();
            let shown = |stale: bool| match &old {
                Some(old) if stale => (old.clone(), *old != fence(&before)),
                _ => (fence(&before), false),
            };
            let moved = match event {
                Event::Seen { stream: n, more } => {
                    let end = before.links().get(&stream(n)).map_or(0, |link| link.end.0);
                    this.seen(&stream(n), TopicId(n), Offset(end + more));
                    None
                }
                Event::Wake => this.wake(at(now), wake),
                Event::Claim if is_webhook => None,
                Event::Claim => this.claim("one".into(), at(now), wake).ok(),
                Event::Ack { stream: n, offset, is_done, stale } => {
                    let (fence, is_old) = shown(stale);
                    let acked = this.ack(&fence, &[(stream(n), Offset(offset))], is_done, at(now));
                    prop_assert!(!(is_old && acked.is_ok()), "an old fence was let through");
                    acked.ok()
                }
                Event::Release { stale } => {
                    let (fence, is_old) = shown(stale);
                    let released = this.release(&fence, at(now));
                    prop_assert!(!(is_old && released.is_ok()), "an old fence was let through");
                    released.ok()
                }
                Event::Answered { told, stale } if is_webhook => {
                    let (fence, _) = shown(stale);
                    let told = match told {
                        0 => WakeOutcome::Taken,
                        1 => WakeOutcome::Failed(u64::from(told) * now),
                        _ => WakeOutcome::Done(links_of(&this)),
                    };
                    this.answered(&fence.wakes[0], &told, at(now))
                }
                Event::Answered { .. } => None,
                Event::Told => {
                    if let Some(wake) = before.phase().wake() {
                        this.note_wake_sent(wake);
                    }
                    None
                }
                Event::Unlink { stream: n } => {
                    this.unlink(&stream(n));
                    kept.unlink(&stream(n));
                    None
                }
                Event::Link { stream: n } => {
                    if !this.links().contains_key(&stream(n)) {
                        this.link(stream(n), Link::at(false, TopicId(n), Offset(0)));
                        kept.link(stream(n), Link::at(false, TopicId(n), Offset(0)));
                    }
                    None
                }
                Event::Restart => {
                    this = Subscription::read(this.keep()).unwrap();
                    None
                }
            };
            if let Some(moved) = moved {
                if before.phase().wake() != moved.phase.wake() && before.phase().wake().is_some() {
                    old = Some(fence(&before));
                }
                this.apply(&moved);
                kept.apply(&moved);
            }
            prop_assert!(this.generation() >= before.generation());
            if this.generation() == before.generation() {
                let same = this.phase().wake() == before.phase().wake();
                prop_assert!(same || this.is_idle(), "another wake has another generation");
            } else {
                prop_assert!(this.phase().wake() != before.phase().wake());
            }
            if let (Phase::Held { wake, .. }, Phase::Held { wake: was, until_ms, .. }) =
                (this.phase(), before.phase())
                && *until_ms > now
            {
                prop_assert_eq!(wake, was, "two have the work at once");
            }
            for (stream, link) in this.links() {
                prop_assert!(link.acked <= link.end);
                if let Some(was) = before.links().get(stream) {
                    prop_assert!(link.acked >= was.acked, "an ack was taken back");
                }
            }
            let pending = this.links().values().filter(|link| link.is_pending()).count();
            prop_assert_eq!(this.is_pending(), pending > 0);
            prop_assert!(this.is_idle() != this.phase().wake().is_some());
            if this.is_pending() && this.is_idle() {
                prop_assert_eq!(this.due(at(now)), Due::Wake);
            }
            prop_assert_eq!(this.keep(), kept.keep());
        }
    }
}
