//! The seeds of frames between nodes.

use bytes::Bytes;
use sennit_protocol::peer::{Class, Content, Greeting, GreetingAnswer, PeerFrame, Pieces, Refusal};

use crate::write;

/// Writes the seeds of `peer`: one frame each, behind a byte that says whether the greeting was before, and one of the
/// length of the parts.
pub fn write_all() {
    let greeting = |node| Greeting {
        cluster: 0x1122_3344_5566_7788,
        node,
        incarnation: 0x99,
        start_epoch: 7,
        protocol: (1, 3),
        features: vec!["moves".to_owned()],
        level: 2,
        clock_ms: 1_700_000_000_123,
        cores: 4,
        link: 3,
        shards: 6,
    };
    let answer =
        |outcome| Content::GreetingAnswer(GreetingAnswer { greeting: greeting(2), outcome });
    let refusal = (Refusal::OtherCluster, "another cluster".to_owned());
    let table = Box::new(std::array::from_fn(|at| at as u8));
    let body = |body| Bytes::from_static(body);
    let (urgent, ordinary) = (Class::Urgent, Class::Ordinary);
    let frames = [
        ("greeting", 0, urgent, 0, 0, Content::Greeting(greeting(1))),
        ("accepted", 0, urgent, 0, 0, answer(Ok(1))),
        ("refused", 0, urgent, 0, 0, answer(Err(refusal))),
        ("raft", 1, ordinary, 5, 0, Content::Raft { table, body: body(b"body") }),
        ("commands", 1, ordinary, 6, 41, Content::Commands { count: 2, body: body(b"abc") }),
        ("effects", 1, ordinary, 6, 42, Content::Effects { count: 0, body: body(b"") }),
        ("ping", 1, urgent, 0, 9, Content::Ping { clock_ms: 1_700_000_000_123 }),
        ("pong", 1, urgent, 0, 9, Content::Pong { clock_ms: 1_700_000_000_125 }),
    ];
    for (name, is_greeted, class, group, number, content) in frames {
        let mut seed = vec![is_greeted, 1];
        let mut pieces = Pieces::new(PeerFrame { class, group, number, content });
        let body = pieces.next_piece(&mut seed);
        write("peer", name, &[&seed[..], &body].concat());
    }
}
