//! The matrix of identity: every request of the native protocol with the right that it needs, with and without it, with
//! wrong credentials and with none, for topics that are there and that are not. A new kind of request does not compile
//! without its row.

use std::collections::BTreeSet;

use sennit_identity::{Subject, Verb};
use sennit_model::{GroupId, PartitionIndex, TopicId};
use sennit_protocol::{
    AtomicAck, ErrorCode, Kind, PublishAt, PublishAtomic, Reply, Request, SetCredit, Settle,
    SettleHead, SettleRun, Taken, Verdict, control,
};

use crate::{
    access::{Guarded, changes, create_tenant, logged_in, saying},
    world::{Peer, publish},
};

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// This right to its topic or key, or to the broker.
    Right(Verb),
    /// One of these rights to its topic.
    OneOf(Verb, Verb),
    /// Credentials: it tells what the principal may know, or is about the connection's own subscriptions.
    Login,
    /// It is the login, or is answered without.
    None,
}

/// A topic as requests name it.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: &'static str,
    pub id: TopicId,
}

/// A number that no topic has.
pub const NO_TOPIC: TopicId = TopicId(999_999);

/// The row of a kind: what it needs, and a request about a topic. `None` for what servers send.
fn row(kind: Kind, topic: &Named) -> Option<(Need, Request)> {
    use Need::{Login, Right};
    let (name, group) = (|| topic.name.to_owned(), || "workers".to_owned());
    let right = |verb, request| Some((Right(verb), request));
    match kind {
        Kind::Hello => Some((Need::None, Request::Hello(<_>::default()))),
        Kind::Ping => Some((Need::None, Request::Ping)),
        Kind::Pong => Some((Need::None, Request::Pong)),
        Kind::Goodbye => Some((Need::None, Request::Goodbye)),
        Kind::CreateTopic => right(
            Verb::Create,
            Request::CreateTopic(control::CreateTopic { name: name(), ..<_>::default() }),
        ),
        Kind::AlterTopic => right(
            Verb::Configure,
            Request::AlterTopic(control::AlterTopic { name: name(), ..<_>::default() }),
        ),
        Kind::DeleteTopic => {
            right(Verb::Delete, Request::DeleteTopic(control::DeleteTopic { name: name() }))
        }
        Kind::DescribeTopic => {
            right(Verb::Describe, Request::DescribeTopic(control::DescribeTopic { name: name() }))
        }
        Kind::ListTopics => Some((Login, Request::ListTopics(<_>::default()))),
        Kind::CreateGroup => right(
            Verb::Configure,
            Request::CreateGroup(control::CreateGroup {
                topic: name(),
                name: "more".into(),
                ..<_>::default()
            }),
        ),
        Kind::DeleteGroup => right(
            Verb::Configure,
            Request::DeleteGroup(control::DeleteGroup { topic: name(), name: "more".into() }),
        ),
        Kind::AlterGroup => right(
            Verb::Configure,
            Request::AlterGroup(control::AlterGroup {
                topic: name(),
                name: group(),
                ..<_>::default()
            }),
        ),
        Kind::ListGroups => {
            right(Verb::Describe, Request::ListGroups(control::ListGroups { topic: name() }))
        }
        Kind::DescribeGroup => right(
            Verb::Describe,
            Request::DescribeGroup(control::DescribeGroup { topic: name(), name: group() }),
        ),
        Kind::SetCursor => right(
            Verb::Read,
            Request::SetCursor(control::SetCursor {
                topic: name(),
                name: "c".into(),
                ..<_>::default()
            }),
        ),
        Kind::DeleteCursor => right(
            Verb::Read,
            Request::DeleteCursor(control::DeleteCursor { topic: name(), name: "c".into() }),
        ),
        Kind::ListCursors => {
            right(Verb::Describe, Request::ListCursors(control::ListCursors { topic: name() }))
        }
        Kind::TrimTopic => right(
            Verb::Delete,
            Request::TrimTopic(control::TrimTopic { topic: name(), ..<_>::default() }),
        ),
        Kind::RetryParked => right(
            Verb::Rework,
            Request::RetryParked(control::RetryParked {
                topic: name(),
                name: group(),
                ..<_>::default()
            }),
        ),
        Kind::OpenTopic => Some((
            Need::OneOf(Verb::Publish, Verb::Settle),
            Request::OpenTopic(control::OpenTopic { name: name(), create_if_missing: false }),
        )),
        Kind::Subscribe => right(
            Verb::Consume,
            Request::Subscribe(control::Subscribe {
                subscription: 1,
                topic: name(),
                group: group(),
                credit_messages: 1,
                credit_bytes: 1 << 20,
                ..<_>::default()
            }),
        ),
        Kind::Unsubscribe => {
            Some((Login, Request::Unsubscribe(control::Unsubscribe { subscription: 9 })))
        }
        Kind::Read => right(
            Verb::Read,
            Request::Read(control::Read {
                subscription: 1,
                topic: name(),
                credit_messages: 1,
                credit_bytes: 1 << 20,
                ..<_>::default()
            }),
        ),
        Kind::Watch => {
            Some((Login, Request::Watch(control::Watch { subscription: 1, pattern: ">".into() })))
        }
        Kind::Publish => right(Verb::Publish, Request::Publish(publish(topic.id, 0, 0, &["x"]))),
        Kind::PublishAt => {
            let publish = publish(topic.id, 0, 0, &["x"]);
            let expected = sennit_model::Offset(77);
            right(Verb::Publish, Request::PublishAt(PublishAt { expected, publish }))
        }
        Kind::PublishAtomic => {
            let parts = vec![publish(topic.id, 0, 0, &["x"])];
            let step = PublishAtomic { parts, acks: Vec::new() };
            right(Verb::Publish, Request::PublishAtomic(step))
        }
        Kind::Settle => right(Verb::Settle, Request::Settle(settle(topic.id))),
        Kind::SetCredit => {
            let credit = SetCredit { subscription: 9, messages: 1, bytes: 1 };
            Some((Login, Request::SetCredit(credit)))
        }
        Kind::Taken => {
            let partition = PartitionIndex(0);
            let taken = Taken { subscription: 9, partition, messages: 1, bytes: 1 };
            Some((Login, Request::Taken(taken)))
        }
        Kind::GetConfiguration => right(
            Verb::KvRead,
            Request::GetConfiguration(control::GetConfiguration { key: name() }),
        ),
        Kind::SetConfiguration => right(
            Verb::KvWrite,
            Request::SetConfiguration(control::SetConfiguration { key: name(), ..<_>::default() }),
        ),
        Kind::DeleteConfiguration => right(
            Verb::KvWrite,
            Request::DeleteConfiguration(control::DeleteConfiguration {
                key: name(),
                ..<_>::default()
            }),
        ),
        Kind::ListConfiguration => Some((Login, Request::ListConfiguration(<_>::default()))),
        Kind::WatchConfiguration => Some((
            Login,
            Request::WatchConfiguration(control::WatchConfiguration {
                subscription: 1,
                ..<_>::default()
            }),
        )),
        Kind::SetHook => right(
            Verb::Hook,
            Request::SetHook(control::SetHook {
                topic: name(),
                script: "function on_publish(m) return {} end".into(),
                ..<_>::default()
            }),
        ),
        Kind::UseHook => right(
            Verb::Hook,
            Request::UseHook(control::UseHook { topic: name(), ..<_>::default() }),
        ),
        Kind::DescribeHook => right(
            Verb::Hook,
            Request::DescribeHook(control::DescribeHook { topic: name(), ..<_>::default() }),
        ),
        Kind::ListHooks => Some((Login, Request::ListHooks(<_>::default()))),
        Kind::Inspect => right(
            Verb::Inspect,
            Request::Inspect(control::Inspect {
                topic: name(),
                group: group(),
                verb: control::InspectVerb::Peek.into(),
                matched_max: 1,
                ..<_>::default()
            }),
        ),
        Kind::Rework => right(
            Verb::Rework,
            Request::Rework(control::Rework {
                topic: name(),
                group: group(),
                verb: control::ReworkVerb::Cancel.into(),
                matched_max: 1,
                ..<_>::default()
            }),
        ),
        Kind::ListDelayed => right(
            Verb::Inspect,
            Request::ListDelayed(control::ListDelayed { topic: name(), ..<_>::default() }),
        ),
        Kind::ChangeDelayed => right(
            Verb::Rework,
            Request::ChangeDelayed(control::ChangeDelayed {
                topic: name(),
                offsets: vec![0],
                change: Some(control::change_delayed::Change::Cancel(true)),
                ..<_>::default()
            }),
        ),
        Kind::ChangeSchedule => {
            let config = control::ScheduleConfig {
                topic: name(),
                cron: "0 0 1 1 *".into(),
                zone: "UTC".into(),
                ..<_>::default()
            };
            let change = Some(control::change_schedule::Change::Create(config));
            let schedule = control::ChangeSchedule { name: "yearly".into(), change };
            right(Verb::Publish, Request::ChangeSchedule(schedule))
        }
        Kind::ListSchedules => Some((Login, Request::ListSchedules(<_>::default()))),
        Kind::Explain => right(
            Verb::Inspect,
            Request::Explain(control::Explain {
                topic: name(),
                group: group(),
                partition: Some(0),
                subject: Some(control::explain::Subject::Offset(0)),
            }),
        ),
        Kind::ListFairKeys => right(
            Verb::Inspect,
            Request::ListFairKeys(control::ListFairKeys { topic: name(), group: group(), most: 1 }),
        ),
        Kind::ChangeAccess => right(Verb::Identity, changes(create_tenant("new"))),
        Kind::ListAccess => {
            let kind = control::AccessKind::Keys.into();
            let list = control::ListAccess { kind, ..<_>::default() };
            right(Verb::Identity, Request::ListAccess(list))
        }
        Kind::DecideRight => right(
            Verb::Identity,
            Request::DecideRight(control::DecideRight {
                principal: Some(control::PrincipalName { user: "ada".into(), ..<_>::default() }),
                verb: "read".into(),
                name: name(),
            }),
        ),
        Kind::HelloOk
        | Kind::Error
        | Kind::GoAway
        | Kind::Done
        | Kind::TopicDescription
        | Kind::TopicList
        | Kind::GroupDescription
        | Kind::GroupList
        | Kind::CursorList
        | Kind::TopicOpened
        | Kind::Subscribed
        | Kind::SubscriptionEnded
        | Kind::Watching
        | Kind::TopicAppeared
        | Kind::TopicGone
        | Kind::Confirm
        | Kind::Deliver
        | Kind::Settled
        | Kind::Gap
        | Kind::PublishedAt
        | Kind::ConfigurationValue
        | Kind::ConfigurationChanged
        | Kind::ConfigurationList
        | Kind::WatchingConfiguration
        | Kind::ConfigurationChanges
        | Kind::HookChanged
        | Kind::HookDescription
        | Kind::HookList
        | Kind::Inspected
        | Kind::Reworked
        | Kind::PublishNote
        | Kind::PublishedAtomic
        | Kind::DelayedList
        | Kind::ScheduleList
        | Kind::ScheduleChanged
        | Kind::Explanations
        | Kind::FairKeyList
        | Kind::AccessChanged
        | Kind::AccessList
        | Kind::RightDecision => None,
    }
}

fn settle(topic: TopicId) -> Settle {
    let run = SettleRun {
        partition: PartitionIndex(0),
        first: sennit_model::Offset(0),
        count: 1,
        attempt: 1,
        generation: sennit_model::Generation(1),
    };
    let head = SettleHead { topic, group: GroupId(1), verdict: Verdict::Ack, confirm: true };
    Settle { head, runs: [run].into_iter().collect() }
}

/// All requests with the right that each needs, about this topic.
pub fn rows(topic: &Named) -> Vec<(Kind, Need, Request)> {
    let rows = Kind::ALL.iter().filter_map(|&kind| {
        let (need, request) = row(kind, topic)?;
        assert_eq!(request.kind(), kind, "the row of another kind");
        Some((kind, need, request))
    });
    rows.collect()
}

/// The right to do this to the topic, and to nothing else.
pub fn right(verb: Verb, topic: &Named) -> String {
    match verb.subject() {
        Subject::Broker => verb.to_string(),
        Subject::Topic | Subject::Key => format!("{verb} {}", topic.name),
    }
}

/// All rights but this one.
pub fn all_but(verb: Verb) -> Vec<String> {
    let others = |subject: Subject| {
        let verbs = Verb::ALL.iter().filter(|it| it.subject() == subject && **it != verb);
        // Every verb about a topic includes knowing it.
        let pattern = match subject {
            Subject::Broker => "",
            Subject::Topic if verb == Verb::Describe => " other.>",
            Subject::Topic | Subject::Key => " >",
        };
        verbs.map(|it| format!("{it}{pattern}")).collect::<Vec<_>>()
    };
    [Subject::Topic, Subject::Key, Subject::Broker].into_iter().flat_map(others).collect()
}

/// The broker with a topic that is there, and one that is not.
pub fn guarded() -> (Guarded, Named, Named) {
    let mut guarded = Guarded::start();
    let id = guarded.admin.create_topic("acme.orders", 1);
    guarded.admin.subscribe("acme.orders", 1, 0);
    let there = Named { name: "acme.orders", id };
    (guarded, there, Named { name: "acme.absent", id: NO_TOPIC })
}

/// What a request is answered with.
pub fn answer(peer: &mut Peer, request: &Request) -> Reply {
    if matches!(request, Request::Publish(_)) {
        // Its answer has no number.
        peer.send(request);
        loop {
            let (_, reply) = peer.next().expect("an answer");
            if matches!(reply, Reply::Confirm(_) | Reply::Error(_)) {
                return reply;
            }
        }
    }
    peer.ask(request)
}

/// The refusal, without what tells the two topics apart in the request itself.
pub fn refusal(reply: &Reply, topic: &Named) -> (Option<ErrorCode>, String) {
    let Reply::Error(error) = reply else { panic!("not refused: {reply:?}") };
    let number = format!("\"number {}\"", topic.id.0);
    let message = error.message.replace(topic.name, "TOPIC").replace(&number, "\"TOPIC\"");
    let is_told = error.topic.is_some() && error.topic.as_deref() != Some(topic.name);
    assert!(!is_told, "{error:?}");
    (error.error_code(), message)
}

#[test]
fn every_request_is_refused_without_its_right_as_if_nothing_were_there() {
    let (mut guarded, there, absent) = guarded();
    for ((kind, need, request), (.., elsewhere)) in rows(&there).into_iter().zip(rows(&absent)) {
        let Need::Right(verb) = need else { continue };
        let all = all_but(verb);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        for rights in [&all[..], &[]] {
            let (mut peer, _) = guarded.connect(rights);
            let refused = refusal(&answer(&mut peer, &request), &there);
            assert_eq!(refused.0, Some(ErrorCode::Forbidden), "{kind} {refused:?}");
            assert!(refused.1.contains(verb.name()), "{kind} {refused:?}");
            let other = refusal(&answer(&mut peer, &elsewhere), &absent);
            assert_eq!(other, refused, "{kind}: it tells whether the topic is there");
        }
    }
}

#[test]
fn every_request_is_allowed_with_its_right_alone_and_no_more_once_it_is_taken() {
    let mut asked = BTreeSet::new();
    for (kind, need, _) in rows(&Named { name: "acme.orders", id: NO_TOPIC }) {
        let Need::Right(verb) = need else { continue };
        asked.insert(verb);
        // One for each: they create and delete.
        let (mut guarded, there, _) = guarded();
        let Some((_, request)) = row(kind, &there) else { unreachable!() };
        let right = right(verb, &there);
        let (mut peer, key) = guarded.connect(&[&right, "describe nothing"]);
        if let Reply::Error(error) = answer(&mut peer, &request) {
            let code = error.error_code();
            let is_refused = matches!(code, Some(ErrorCode::Forbidden | ErrorCode::Unauthorized));
            assert!(!is_refused, "{kind} {error:?}");
        }
        guarded.revoke(&key, &right);
        let refused = refusal(&answer(&mut peer, &request), &there);
        assert_eq!(refused.0, Some(ErrorCode::Forbidden), "{kind} {refused:?}");
        guarded.broker.stop();
    }
    // Those of HTTP alone, and of the door to come.
    let elsewhere =
        [Verb::Subscribe, Verb::Presence, Verb::Monitor, Verb::Backup, Verb::Webhook, Verb::Live];
    let all: BTreeSet<Verb> = Verb::ALL.iter().copied().collect();
    assert_eq!(all.difference(&asked).copied().collect::<Vec<_>>(), elsewhere);
}

#[test]
fn a_topic_is_opened_by_who_may_publish_to_it_or_settle_and_by_nobody_else() {
    let (mut guarded, there, absent) = guarded();
    let open = |topic: &Named| row(Kind::OpenTopic, topic).expect("a client sends it").1;
    for right in ["publish acme.>", "settle acme.>"] {
        let (mut peer, _) = guarded.connect(&[right]);
        assert!(matches!(peer.ask(&open(&there)), Reply::TopicOpened(_)), "{right}");
    }
    let others = ["consume,read,describe,create,configure,delete,inspect,rework,hook >"];
    let (mut peer, _) = guarded.connect(&others);
    let refused = refusal(&peer.ask(&open(&there)), &there);
    assert_eq!(refused.0, Some(ErrorCode::Forbidden));
    assert_eq!(refusal(&peer.ask(&open(&absent)), &absent), refused);
}

#[test]
fn nothing_is_answered_to_a_client_without_valid_credentials() {
    let (mut guarded, there, _) = guarded();
    let expired = guarded.expiring_key("", &["* >"], Some(now_ms() + 200));
    let wrong = format!("{}x", guarded.admin_key);
    while !is_refused(&guarded, &expired.text) {
        std::thread::yield_now();
    }
    for token in [None, Some(wrong), Some(expired.text)] {
        for (kind, need, request) in rows(&there) {
            if need == Need::None {
                continue;
            }
            let hello = control::Hello { token: token.clone(), ..<_>::default() };
            let mut peer = guarded.broker.connect();
            peer.send_bytes(&sennit_protocol::Preface::BYTES);
            peer.send_together(&[Request::Hello(hello), request]);
            let (number, reply) = peer.next().expect("a refusal");
            let Reply::Error(error) = reply else { panic!("{kind} {reply:?}") };
            assert_eq!((number, error.error_code()), (1, Some(ErrorCode::Unauthorized)), "{kind}");
            assert_eq!(peer.next(), None, "{kind} is answered");
        }
    }
    for (kind, need, request) in rows(&there) {
        if need == Need::None {
            continue;
        }
        let mut peer = guarded.broker.connect();
        peer.send_bytes(&sennit_protocol::Preface::BYTES);
        peer.send(&request);
        let error = peer.error();
        assert_eq!(error.error_code(), Some(ErrorCode::HelloExpected), "{kind} {error:?}");
        assert_eq!(peer.next(), None, "{kind} is answered");
    }
}

pub fn now_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

fn is_refused(guarded: &Guarded, key: &str) -> bool {
    let hello = control::Hello { token: Some(key.into()), ..<_>::default() };
    matches!(saying(&guarded.broker, hello).next(), Some((_, Reply::Error(_))))
}

#[test]
fn a_connection_ends_when_its_key_expires() {
    let (mut guarded, ..) = guarded();
    let key = guarded.expiring_key("", &["* >"], Some(now_ms() + 2000));
    logged_in(&guarded.broker, &key.text).hears_the_end_with(ErrorCode::Unauthorized);
}

#[test]
fn a_tenant_reaches_nothing_of_another_whatever_its_rights_say() {
    let (mut guarded, there, absent) = guarded();
    guarded.change(create_tenant("beta"));
    let rights = ["* >", "kv-read,kv-write >", "monitor,backup,webhook,identity"];
    let key = guarded.key("beta", &rights);
    let mut peer = logged_in(&guarded.broker, &key.text);
    for ((kind, need, request), (.., elsewhere)) in rows(&there).into_iter().zip(rows(&absent)) {
        match need {
            // Of its own tenant.
            Need::Right(Verb::Identity) | Need::None => continue,
            Need::Right(_) | Need::OneOf(..) => {
                let refused = refusal(&answer(&mut peer, &request), &there);
                assert_eq!(refused.0, Some(ErrorCode::Forbidden), "{kind} {refused:?}");
                assert_eq!(refusal(&answer(&mut peer, &elsewhere), &absent), refused, "{kind}");
            }
            Need::Login => {
                let shown = format!("{:?}", peer.ask(&request));
                assert!(!shown.contains("acme"), "{kind} {shown}");
            }
        }
    }
    // Its own is its own.
    peer.create_topic("beta.orders", 1);
}

#[test]
fn an_ack_of_an_atomic_publish_needs_the_right_to_settle() {
    let (mut guarded, there, _) = guarded();
    let (mut peer, key) = guarded.connect(&["publish acme.>"]);
    let acks = vec![AtomicAck { topic: there.id, group: GroupId(1), runs: settle(there.id).runs }];
    let parts = vec![publish(there.id, 0, 0, &["x"])];
    let step = Request::PublishAtomic(PublishAtomic { parts, acks });
    assert_eq!(refusal(&peer.ask(&step), &there).0, Some(ErrorCode::Forbidden));
    guarded.grant(&key, "settle acme.orders");
    let code = refusal(&peer.ask(&step), &there).0;
    assert_eq!(code, Some(ErrorCode::StaleDelivery), "it has no such delivery");
}
