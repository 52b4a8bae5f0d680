//! Watches, over frames: which topics there are, which come and go, and what is refused.

use sennit_protocol::{ErrorCode, Reply, Request, control};

use crate::{
    reading::reader,
    world::{Broker, Peer},
};

fn watch(peer: &mut Peer, pattern: &str) -> Reply {
    peer.ask(&Request::Watch(control::Watch { subscription: 6, pattern: pattern.into() }))
}

fn code(reply: Reply) -> Option<ErrorCode> {
    match reply {
        Reply::Error(error) => error.error_code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watch_tells_what_there_is_in_pages_and_what_comes_and_goes() {
    let (broker, _folder) = Broker::fresh();
    let mut other = broker.greeted();
    for n in 0..70 {
        other.create_topic(&format!("a.{n}"), 1);
    }
    other.create_topic("b", 1);
    let mut peer = reader(&broker);
    let Reply::Watching(first) = watch(&mut peer, "a.*") else { panic!() };
    let Some((_, Reply::Watching(second))) = peer.next() else { panic!() };
    assert_eq!((first.topics.len(), first.more), (64, true));
    assert_eq!((second.topics.len(), second.more), (6, false));
    let id = other.create_topic("a.new", 3);
    other.create_topic("b.new", 3);
    match peer.next().unwrap().1 {
        Reply::TopicAppeared(control::TopicAppeared { subscription: 6, topic: Some(topic) }) => {
            assert_eq!((topic.name.as_str(), topic.id, topic.partitions), ("a.new", id.0, 3));
        }
        reply => panic!("{reply:?}"),
    }
    other.ask(&Request::DeleteTopic(control::DeleteTopic { name: "a.7".into() }));
    match peer.next().unwrap().1 {
        Reply::TopicGone(body) => assert_eq!(body.topic.unwrap().name, "a.7"),
        reply => panic!("{reply:?}"),
    }
    // Its number is taken until it ends; then nothing more comes.
    assert_eq!(code(watch(&mut peer, ">")), Some(ErrorCode::SubscriptionExists));
    let end = Request::Unsubscribe(control::Unsubscribe { subscription: 6 });
    assert!(matches!(peer.ask(&end), Reply::Done(_)));
    other.create_topic("a.newer", 1);
    assert!(matches!(peer.ask(&Request::Ping), Reply::Pong));
    broker.stop();
}

#[test]
fn a_watch_that_is_none_is_refused() {
    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    for pattern in ["a*", ">.a", "", "a b"] {
        assert_eq!(code(watch(&mut peer, pattern)), Some(ErrorCode::InvalidPattern), "{pattern}");
    }
    peer.create_topic("many.1", 1);
    assert!(matches!(watch(&mut peer, "many.1"), Reply::Watching(page) if page.topics.len() == 1));
    broker.stop();
}

#[test]
fn a_connection_has_so_many_watches_and_no_more_however_fast_it_asks() {
    use sennit_model::limits::WATCHES_PER_CONNECTION_MAX;

    let (broker, _folder) = Broker::fresh();
    let mut peer = reader(&broker);
    let number = |n: usize| u32::try_from(n).unwrap();
    for n in 0..=WATCHES_PER_CONNECTION_MAX {
        let body = control::Watch { subscription: number(n), pattern: "a.*".into() };
        peer.send(&Request::Watch(body));
    }
    // A number twice in one read is taken the second time.
    peer.send(&Request::Watch(control::Watch { subscription: 0, pattern: "b.*".into() }));
    let replies = (0..WATCHES_PER_CONNECTION_MAX + 2).map(|_| peer.next().unwrap().1);
    let (told, refused): (Vec<_>, Vec<_>) =
        replies.partition(|reply| matches!(reply, Reply::Watching(_)));
    let refused: Vec<_> = refused.into_iter().map(code).collect();
    assert_eq!(told.len(), WATCHES_PER_CONNECTION_MAX);
    assert_eq!(refused, [Some(ErrorCode::LimitReached), Some(ErrorCode::SubscriptionExists)]);
    // One that ends, or that never began, leaves its place to another.
    let end = Request::Unsubscribe(control::Unsubscribe { subscription: 0 });
    assert!(matches!(peer.ask(&end), Reply::Done(_)));
    let again =
        |pattern: &str| Request::Watch(control::Watch { subscription: 0, pattern: pattern.into() });
    assert_eq!(code(peer.ask(&again("a*"))), Some(ErrorCode::InvalidPattern));
    assert!(matches!(peer.ask(&again("c.*")), Reply::Watching(_)));
    broker.stop();
}
