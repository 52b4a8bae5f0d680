//! The configuration, over frames: pages, watches, and what is refused.

use sennit_model::limits::CONFIGURATION_VALUE_BYTES_MAX;
use sennit_protocol::{ErrorCode, Reply, Request, control};

use crate::world::{Broker, Peer, config};

fn set(peer: &mut Peer, key: &str, value: impl Into<Vec<u8>>) -> Reply {
    let body = control::SetConfiguration {
        key: key.into(),
        value: value.into().into(),
        if_revision: None,
    };
    peer.ask(&Request::SetConfiguration(body))
}

fn is_set(peer: &mut Peer, key: &str, value: impl Into<Vec<u8>>) -> u64 {
    match set(peer, key, value) {
        Reply::ConfigurationChanged(changed) => changed.revision,
        other => panic!("{other:?}"),
    }
}

fn watch(peer: &mut Peer, prefix: &str, after_revision: Option<u64>) -> Reply {
    let prefix = prefix.into();
    let body = control::WatchConfiguration { subscription: 6, prefix, after_revision };
    peer.ask(&Request::WatchConfiguration(body))
}

fn told(peer: &mut Peer) -> control::ConfigurationChanges {
    match peer.next() {
        Some((0, Reply::ConfigurationChanges(told))) => told,
        other => panic!("{other:?}"),
    }
}

fn keys(told: &control::ConfigurationChanges) -> Vec<&str> {
    told.changes.iter().map(|change| change.key.as_str()).collect()
}

fn code(reply: Reply) -> Option<ErrorCode> {
    match reply {
        Reply::Error(error) => error.error_code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_begins_with_all_entries_and_tells_each_change_on_every_core() {
    let folder = tempfile::TempDir::new().unwrap();
    let shards = Some(4);
    let broker =
        Broker::start(sennit_server::Config { shards, cores: Some(2), ..config(folder.path()) });
    let mut setter = broker.greeted();
    is_set(&mut setter, "a.1", "x");
    is_set(&mut setter, "b.1", "x");
    // Connections go round the cores.
    let mut peers: Vec<_> = (0..4).map(|_| broker.greeted()).collect();
    for peer in &mut peers {
        assert!(matches!(watch(peer, "a.", None), Reply::WatchingConfiguration(_)));
        let all = told(peer);
        assert_eq!((keys(&all), all.revision, all.reset, all.more), (vec!["a.1"], 2, true, false));
    }
    is_set(&mut setter, "b.1", "y");
    is_set(&mut setter, "a.2", "");
    let delete = control::DeleteConfiguration { key: "a.1".into(), if_revision: Some(1) };
    let deleted = setter.ask(&Request::DeleteConfiguration(delete));
    assert!(matches!(deleted, Reply::ConfigurationChanged(changed) if changed.existed));
    for peer in &mut peers {
        let mut changes = Vec::new();
        while changes.len() < 2 {
            let told = told(peer);
            assert!(!told.reset);
            changes.extend(told.changes);
        }
        let seen =
            changes.iter().map(|change| (change.key.as_str(), change.revision, change.deleted));
        assert_eq!(seen.collect::<Vec<_>>(), [("a.2", 4, false), ("a.1", 5, true)]);
        assert_eq!(code(watch(peer, "", None)), Some(ErrorCode::SubscriptionExists));
        let end = Request::Unsubscribe(control::Unsubscribe { subscription: 6 });
        assert!(matches!(peer.ask(&end), Reply::Done(_)));
    }
    is_set(&mut setter, "a.3", "");
    for peer in &mut peers {
        peer.send(&Request::Ping);
        assert!(matches!(peer.next(), Some((_, Reply::Pong))), "the watch has ended");
        assert!(matches!(watch(peer, "", Some(5)), Reply::WatchingConfiguration(_)));
        let told = told(peer);
        assert_eq!((keys(&told), told.revision, told.reset), (vec!["a.3"], 6, false));
    }
    broker.stop();
}

#[test]
fn entries_come_in_pages_that_the_frames_of_the_connection_hold() {
    let (broker, _folder) = Broker::fresh();
    let mut setter = broker.greeted();
    for n in 0..40 {
        is_set(&mut setter, &format!("k{n:02}"), vec![b'x'; 2000]);
    }
    // 16 KiB, the least that a client may ask for.
    let mut peer = broker.connect().greeted(1);
    let (mut listed, mut page_token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let list = control::ListConfiguration { page_token, ..<_>::default() };
        let Reply::ConfigurationList(page) = peer.ask(&Request::ListConfiguration(list)) else {
            panic!("a page is one")
        };
        listed.extend(page.entries.into_iter().map(|entry| entry.key));
        (page_token, pages) = (page.next_page_token, pages + 1);
        if page_token.is_empty() {
            break;
        }
    }
    let names: Vec<_> = (0..40).map(|n| format!("k{n:02}")).collect();
    assert_eq!((listed, pages > 4), (names.clone(), true));
    assert!(matches!(watch(&mut peer, "", None), Reply::WatchingConfiguration(_)));
    let mut watched = Vec::new();
    loop {
        let page = told(&mut peer);
        assert!(page.reset);
        watched.extend(page.changes.into_iter().map(|change| change.key));
        if !page.more {
            break;
        }
    }
    watched.sort();
    assert_eq!(watched, names);
    // An entry that no frame of it holds ends the watch, and is refused where it is asked for.
    is_set(&mut setter, "large", vec![b'x'; 20_000]);
    match peer.next() {
        Some((0, Reply::SubscriptionEnded(ended))) => {
            assert_eq!(ended.code, ErrorCode::LimitReached.number());
        }
        other => panic!("{other:?}"),
    }
    let get = Request::GetConfiguration(control::GetConfiguration { key: "large".into() });
    assert_eq!(code(peer.ask(&get)), Some(ErrorCode::LimitReached));
    broker.stop();
}

#[test]
fn what_is_refused_says_why_and_the_connection_stays() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    assert_eq!(code(set(&mut peer, "a b", "x")), Some(ErrorCode::InvalidKey));
    assert_eq!(code(set(&mut peer, "", "x")), Some(ErrorCode::InvalidKey));
    let longest = vec![0xff; CONFIGURATION_VALUE_BYTES_MAX];
    is_set(&mut peer, "a", longest.clone());
    for longer in [1, 4 << 20] {
        let value = [longest.clone(), vec![0; longer]].concat();
        assert_eq!(code(set(&mut peer, "a", value)), Some(ErrorCode::LimitReached));
    }
    assert_eq!(code(set(&mut peer, "throttle.a", "1/d")), Some(ErrorCode::InvalidConfig));
    let expecting = |if_revision| {
        let (key, value) = ("a".to_owned(), Default::default());
        Request::SetConfiguration(control::SetConfiguration { key, value, if_revision })
    };
    match peer.ask(&expecting(Some(0))) {
        Reply::Error(error) => {
            assert_eq!(error.error_code(), Some(ErrorCode::RevisionMismatch));
            assert_eq!(error.revision, Some(1));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(peer.ask(&expecting(Some(1))), Reply::ConfigurationChanged(_)));
    broker.stop();
}

#[test]
fn of_sets_that_are_sent_together_each_is_answered_and_one_that_expects_wins() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = broker.greeted();
    let requests: Vec<_> = (0..20)
        .map(|n| {
            let (key, value) = ("one".to_owned(), vec![n].into());
            let if_revision = Some(0);
            Request::SetConfiguration(control::SetConfiguration { key, value, if_revision })
        })
        .collect();
    let numbers = peer.send_together(&requests);
    let answers = numbers.iter().map(|_| peer.next().expect("each is answered").1);
    let won = answers.filter(|answer| matches!(answer, Reply::ConfigurationChanged(_))).count();
    assert_eq!(won, 1);
    broker.stop();
}
