//! The quotas of tenants: what is over one is refused with a time to retry, for the tenant alone.

use sennit_protocol::{
    ErrorCode, Reply, Request,
    control::{self, change_access::Change},
};

use crate::{
    access::{Guarded, Key, create_tenant, logged_in, saying},
    browser::Browser,
    http_streams::{TEXT, ask, header},
    world::{Peer, publish},
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
    peer.send(&Request::Publish(publish(topic, 0, first, texts)));
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
