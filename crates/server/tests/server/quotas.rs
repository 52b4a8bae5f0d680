//! The quotas of tenants: what is over one is refused with a time to retry, for the tenant alone.

use std::cell::RefCell;

use sennit_protocol::{
    ErrorCode, Reply, Request,
    control::{self, change_access::Change, change_schedule::Change as ScheduleStep},
};

use crate::{
    access::{Guarded, Key, create_tenant, logged_in, saying},
    browser::Browser,
    http_streams::{TEXT, ask, header},
    world::{Peer, publish, until},
};

/// A tenant with these quotas, and a key that may do everything in it.
fn tenant(guarded: &mut Guarded, name: &str, quotas: control::Quotas) -> Key {
    guarded.change(create_tenant(name));
    let quotas = control::TenantQuotas { tenant: name.into(), quotas: Some(quotas) };
    guarded.change(Change::SetQuotas(quotas));
    guarded.key(name, &["* >"])
}

/// Publishes a batch; the refusal, if it is refused.
fn refusal(
    peer: &mut Peer,
    topic: sennit_model::TopicId,
    first: u64,
    texts: &[&str],
) -> Option<control::Error> {
    refused(peer, publish(topic, 0, first, texts))
}

fn refused(peer: &mut Peer, batch: sennit_protocol::Publish) -> Option<control::Error> {
    peer.send(&Request::Publish(batch));
    loop {
        match peer.next().expect("an answer") {
            (_, Reply::Confirm(_)) => return None,
            (_, Reply::Error(error)) => return Some(error),
            _ => {}
        }
    }
}

#[test]
fn a_tenant_that_publishes_too_much_is_refused_with_a_time_to_retry_and_others_go_on() {
    let mut guarded = Guarded::start();
    let quotas = control::Quotas { messages_per_second: Some(2), ..<_>::default() };
    let flood = tenant(&mut guarded, "acme", quotas);
    let quiet = tenant(&mut guarded, "beta", <_>::default());
    let mut flooding = logged_in(&guarded.broker, &flood.text);
    let mut going_on = logged_in(&guarded.broker, &quiet.text);
    let (of_flood, of_quiet) =
        (flooding.create_topic("acme.a", 1), going_on.create_topic("beta.a", 1));
    assert_eq!(
        refusal(&mut flooding, of_flood, 0, &["a", "b", "c", "d"]),
        None,
        "it is paid for later"
    );
    let over = refusal(&mut flooding, of_flood, 4, &["e"]).expect("the quota is used up");
    assert_eq!(over.error_code(), Some(ErrorCode::QuotaExceeded), "{over:?}");
    assert!(over.message.contains("messages_per_second is 2"), "{over:?}");
    assert!(over.retryable && (1..=3000).contains(&over.retry_after_ms), "{over:?}");
    assert_eq!(over.first_sequence, Some(4), "the publisher knows which batch it was");
    for first in 0..100 {
        assert_eq!(refusal(&mut going_on, of_quiet, first, &["x"]), None);
    }
    // The operator is no tenant.
    let admin = &mut guarded.admin;
    for first in 0..10 {
        assert_eq!(refusal(admin, of_quiet, first, &["x"]), None);
    }
    // Without the quota the same batch is taken.
    let none = control::TenantQuotas { tenant: "acme".into(), quotas: None };
    guarded.change(Change::SetQuotas(none));
    assert_eq!(refusal(&mut flooding, of_flood, 4, &["e"]), None);
}

#[test]
fn bytes_are_counted_over_http_as_well() {
    let mut guarded = Guarded::start();
    let quotas = control::Quotas { bytes_per_second: Some(1), ..<_>::default() };
    let key = tenant(&mut guarded, "acme", quotas);
    let http = &mut Browser::of(&guarded.broker);
    let headers = format!("Authorization: Bearer {}\r\n{TEXT}", key.text);
    assert_eq!(ask(http, "PUT", "acme/notes", &headers, "").status, 201);
    assert_eq!(ask(http, "POST", "acme/notes", &headers, "first").status, 204);
    let over = ask(http, "POST", "acme/notes", &headers, "second");
    assert_eq!(over.status, 429, "{over:?}");
    assert!(over.body.contains("quota_exceeded"), "{over:?}");
    assert!(header(&over, "retry-after").is_some(), "{over:?}");
    assert_eq!(ask(http, "GET", "acme/notes", &headers, "").body, "first");
}

#[test]
fn what_is_moved_or_comes_from_a_schedule_is_paid_for_by_what_comes_next() {
    let mut guarded = Guarded::start();
    let quotas = control::Quotas { messages_per_second: Some(1), ..<_>::default() };
    let key = tenant(&mut guarded, "acme", quotas);
    let mut peer = logged_in(&guarded.broker, &key.text);
    let (_, to) = (peer.create_topic("acme.a", 1), peer.create_topic("acme.b", 1));
    let code = |reply: Reply| match reply {
        Reply::Error(error) => (error.error_code(), error.retry_after_ms),
        other => panic!("{other:?}"),
    };
    let config = control::ScheduleConfig {
        topic: "acme.a".into(),
        cron: "0 0 1 1 *".into(),
        ..<_>::default()
    };
    let change = |change| {
        let change = Some(change);
        Request::ChangeSchedule(control::ChangeSchedule { name: "yearly".into(), change })
    };
    let made = peer.ask(&change(ScheduleStep::Create(config)));
    assert!(matches!(made, Reply::ScheduleChanged(_)), "{made:?}");
    // A message that is asked for now is refused as a publish is.
    let run_now = || change(ScheduleStep::RunNow(true));
    let first = peer.ask(&run_now());
    assert!(matches!(first, Reply::ScheduleChanged(_)), "{first:?}");
    assert_eq!(code(peer.ask(&run_now())).0, Some(ErrorCode::QuotaExceeded));

    // The operator publishes as much as it likes; the tenant moves it, and owes that much afterwards.
    peer.subscribe("acme.a", 1, 0);
    let admin = &mut guarded.admin;
    let from = admin.create_topic("acme.a", 1);
    assert_eq!(refusal(admin, from, 0, &["x"; 100]), None);
    let rework = control::Rework {
        topic: "acme.a".into(),
        group: "workers".into(),
        verb: control::ReworkVerb::Move.into(),
        to: "acme.b".into(),
        ..<_>::default()
    };
    let rework = || Request::Rework(rework.clone());
    let peer = RefCell::new(peer);
    let done = std::cell::Cell::new(0);
    until("nothing is moved, though nothing is owed by now", || {
        match peer.borrow_mut().ask(&rework()) {
            Reply::Reworked(page) => done.set(page.done),
            other => assert_eq!(code(other).0, Some(ErrorCode::QuotaExceeded)),
        }
        done.get() > 0
    });
    assert_eq!(done.get(), 101, "with the message of the schedule");
    let mut peer = peer.into_inner();
    let over = refusal(&mut peer, to, 0, &["x"]).expect("it owes a hundred seconds' worth");
    assert!((90_000..=102_000).contains(&over.retry_after_ms), "{over:?}");
    assert_eq!(code(peer.ask(&rework())).0, Some(ErrorCode::QuotaExceeded));
    let dry_run = match rework() {
        Request::Rework(rework) => Request::Rework(control::Rework { dry_run: true, ..rework }),
        other => other,
    };
    let told = peer.ask(&dry_run);
    assert!(matches!(told, Reply::Reworked(_)), "what publishes nothing is free: {told:?}");
}

#[test]
fn a_tenant_that_stores_too_much_is_refused_until_something_is_freed_and_after_a_restart() {
    let mut guarded = Guarded::start();
    let quotas = control::Quotas { stored_bytes: Some(10_000), ..<_>::default() };
    let full = tenant(&mut guarded, "acme", quotas);
    let quiet = tenant(&mut guarded, "beta", <_>::default());
    let mut peer = logged_in(&guarded.broker, &full.text);
    let (spread, small) = (peer.create_topic("acme.a", 8), peer.create_topic("acme/b", 1));
    let text = "x".repeat(1000);
    let fill = |peer: &mut Peer, partition, first| {
        refused(peer, publish(spread, partition, first, &[&text]))
    };
    for partition in 0..8 {
        assert_eq!(fill(&mut peer, partition, 0), None);
    }
    assert_eq!(refusal(&mut peer, small, 0, &[&text]), None);
    let over = fill(&mut peer, 0, 1).expect("the quota is used up");
    assert_eq!(over.error_code(), Some(ErrorCode::QuotaExceeded), "{over:?}");
    assert!(over.message.contains("stored_bytes is 10000, and 9"), "{over:?}");
    assert!(over.message.contains("delete messages or topics"), "{over:?}");
    assert_eq!((over.retryable, over.retry_after_ms), (true, 1000), "consumers may settle some");
    let much = "x".repeat(20_000);
    let never = refusal(&mut peer, small, 1, &[&much]).expect("it has no room at all");
    assert_eq!((never.retryable, never.retry_after_ms), (false, 0), "{never:?}");
    assert!(refusal(&mut peer, small, 1, &["little"]).is_none(), "what fits is taken");

    let http = &mut Browser::of(&guarded.broker);
    let headers = format!("Authorization: Bearer {}\r\n{TEXT}", full.text);
    assert_eq!(ask(http, "PUT", "acme/notes", &headers, "").status, 201);
    let over = ask(http, "POST", "acme/notes", &headers, &text);
    assert_eq!(over.status, 507, "{over:?}");
    assert!(over.body.contains("quota_exceeded"), "{over:?}");

    // Others go on, and so do readers and those who settle.
    let mut other = logged_in(&guarded.broker, &quiet.text);
    let of_other = other.create_topic("beta.a", 1);
    for first in 0..20 {
        assert_eq!(refusal(&mut other, of_other, first, &[&text]), None);
    }
    peer.subscribe("acme/b", 1, 10);
    let (texts, _) = peer.deliveries(2);
    assert_eq!(texts, [text.as_str(), "little"]);

    // A restart measures before it lets anybody in.
    let mut guarded = guarded.restarted();
    let mut peer = logged_in(&guarded.broker, &full.text);
    let over = fill(&mut peer, 1, 1).expect("it is still used up");
    assert_eq!(over.error_code(), Some(ErrorCode::QuotaExceeded), "{over:?}");
    let list = control::ListAccess { kind: control::AccessKind::Tenants.into(), ..<_>::default() };
    let Reply::AccessList(list) = guarded.admin.ask(&Request::ListAccess(list)) else { panic!() };
    let stored: Vec<_> = list.entries.iter().map(|tenant| tenant.stored_bytes).collect();
    assert!(matches!(stored[..], [Some(9000..=10_000), None]), "{stored:?}");

    // What is deleted counts back, within seconds.
    let trim = control::DeleteTopic { name: "acme/b".into() };
    peer.ask(&Request::DeleteTopic(trim));
    let peer = RefCell::new(peer);
    until("what was freed counts back", || fill(&mut peer.borrow_mut(), 1, 1).is_none());
    assert!(fill(&mut peer.borrow_mut(), 2, 1).is_some(), "and no more than that");
    // A larger quota counts at once.
    let quotas = control::Quotas { stored_bytes: Some(12_000), ..<_>::default() };
    let larger = control::TenantQuotas { tenant: "acme".into(), quotas: Some(quotas) };
    guarded.change(Change::SetQuotas(larger));
    assert_eq!(fill(&mut peer.borrow_mut(), 2, 1), None);

    // With one that is less than what is stored, nothing is published again; what makes room goes on.
    let quotas = control::Quotas { stored_bytes: Some(5000), ..<_>::default() };
    let smaller = control::TenantQuotas { tenant: "acme".into(), quotas: Some(quotas) };
    guarded.change(Change::SetQuotas(smaller));
    let peer = &mut *peer.borrow_mut();
    peer.subscribe("acme.a", 2, 0);
    for (verb, is_refused) in [
        (control::ReworkVerb::Redrive, true),
        (control::ReworkVerb::Move, true),
        (control::ReworkVerb::Cancel, false),
    ] {
        let rework = control::Rework {
            topic: "acme.a".into(),
            group: "workers".into(),
            verb: verb.into(),
            to: "acme.a".into(),
            ..<_>::default()
        };
        let reply = peer.ask(&Request::Rework(rework));
        let over = matches!(&reply, Reply::Error(error) if error.error_code() == Some(ErrorCode::QuotaExceeded));
        assert_eq!(over, is_refused, "{verb:?}: {reply:?}");
    }
}

#[test]
fn a_quota_of_stored_bytes_counts_what_is_stored_when_it_is_set() {
    let mut guarded = Guarded::start();
    guarded.change(create_tenant("acme"));
    let key = guarded.key("acme", &["* >"]);
    let mut peer = logged_in(&guarded.broker, &key.text);
    let topic = peer.create_topic("acme.a", 1);
    assert_eq!(refusal(&mut peer, topic, 0, &[&"x".repeat(1000)]), None);
    let quotas = control::Quotas { stored_bytes: Some(1100), ..<_>::default() };
    let quotas = control::TenantQuotas { tenant: "acme".into(), quotas: Some(quotas) };
    guarded.change(Change::SetQuotas(quotas));
    assert!(refusal(&mut peer, topic, 1, &[&"x".repeat(500)]).is_some());
    // The operator is no tenant, and what it publishes there counts.
    let admin = &mut guarded.admin;
    assert_eq!(refusal(admin, topic, 1, &[&"x".repeat(5000)]), None);
    let peer = RefCell::new(peer);
    let is_refused = || refusal(&mut peer.borrow_mut(), topic, 2, &["x"]).is_some();
    until("what the operator has stored is not counted", is_refused);
}

#[test]
fn topics_and_connections_are_counted_while_they_are_there() {
    let mut guarded = Guarded::start();
    let quotas = control::Quotas { topics: Some(2), connections: Some(2), ..<_>::default() };
    let key = tenant(&mut guarded, "acme", quotas);
    let mut peer = logged_in(&guarded.broker, &key.text);
    peer.create_topic("acme.a", 1);
    peer.create_topic("acme/b", 1);
    let create = |name: &str| {
        Request::CreateTopic(control::CreateTopic { name: name.into(), ..<_>::default() })
    };
    let code = |peer: &mut Peer, request: &Request| match peer.ask(request) {
        Reply::Error(error) => error.error_code(),
        _ => None,
    };
    let over = Some(ErrorCode::QuotaExceeded);
    assert_eq!(code(&mut peer, &create("acme.c")), over);
    let open = control::OpenTopic { name: "acme.d".into(), create_if_missing: true };
    assert_eq!(code(&mut peer, &Request::OpenTopic(open)), over);
    let http = &mut Browser::of(&guarded.broker);
    let headers = format!("Authorization: Bearer {}\r\n{TEXT}", key.text);
    assert_eq!(ask(http, "PUT", "acme/e", &headers, "").status, 429);
    // The operator may, and what the operator has created counts.
    guarded.admin.create_topic("acme.f", 1);
    peer.ask(&Request::DeleteTopic(control::DeleteTopic { name: "acme.a".into() }));
    assert_eq!(code(&mut peer, &create("acme.c")), over);
    peer.ask(&Request::DeleteTopic(control::DeleteTopic { name: "acme.f".into() }));
    peer.create_topic("acme.c", 1);

    let second = logged_in(&guarded.broker, &key.text);
    let hello = || control::Hello { token: Some(key.text.clone()), ..<_>::default() };
    let third = saying(&guarded.broker, hello()).error();
    assert_eq!(third.error_code(), over, "{third:?}");
    drop(second);
    loop {
        match saying(&guarded.broker, hello()).next() {
            Some((_, Reply::HelloOk(_))) => break,
            Some((_, Reply::Error(error))) => assert_eq!(error.error_code(), over),
            other => panic!("{other:?}"),
        }
    }
}
