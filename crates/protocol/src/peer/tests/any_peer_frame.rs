//! Strategies for frames between nodes, and how tests send them.

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, option, prelude::*};

use crate::peer::{
    Class, Content, Greeting, GreetingAnswer, PIECE_BYTES_MAX, PeerError, PeerFrame, PeerReader,
    Pieces, Refusal,
};

prop_compose! {
    pub(super) fn greeting()(
        (cluster, incarnation, start_epoch, clock_ms) in any::<(u64, u64, u64, u64)>(),
        node in 1..=4095_u16,
        newest in 1..=u32::MAX,
        older in any::<u32>(),
        features in vec("[a-z-]{0,32}", 0..4),
        level in any::<u32>(),
        (cores, link, shards) in (1..=1024_u32, 0..1024_u32, 1..=1024_u32),
    ) -> Greeting {
        let protocol = (newest - older % newest, newest);
        Greeting {
            cluster,
            node,
            incarnation,
            start_epoch,
            protocol,
            features,
            level,
            clock_ms,
            cores,
            link,
            shards,
        }
    }
}

pub(super) fn answer() -> impl Strategy<Value = GreetingAnswer> {
    let refusal = (prop::sample::select(Refusal::ALL), ".{0,40}");
    let outcome = (1..=u32::MAX, option::of(refusal));
    (greeting(), outcome).prop_map(|(greeting, (protocol, refused))| GreetingAnswer {
        greeting,
        outcome: refused.map_or(Ok(protocol), Err),
    })
}

/// A body of some pieces as a rule of few bytes.
fn body(pieces: usize) -> impl Strategy<Value = Bytes> {
    let few = vec(any::<u8>(), 0..40).prop_map(Bytes::from);
    let many = (any::<u8>(), 0..=pieces * PIECE_BYTES_MAX).prop_map(|(begin, length)| {
        (0..length).map(|at| begin.wrapping_add((at % 251) as u8)).collect()
    });
    prop_oneof![4 => few, 1 => many]
}

/// Any frame but greetings.
pub(super) fn frame() -> impl Strategy<Value = PeerFrame> {
    let raft = |pieces| {
        (any::<[[u8; 32]; 3]>(), body(pieces)).prop_map(|(table, body)| Content::Raft {
            table: Box::new(table.concat().try_into().unwrap()),
            body,
        })
    };
    let content = prop_oneof![
        raft(1).prop_map(|content| (Class::Urgent, content)),
        raft(3).prop_map(|content| (Class::Ordinary, content)),
        (any::<u32>(), body(3))
            .prop_map(|(count, body)| (Class::Ordinary, Content::Commands { count, body })),
        (any::<u32>(), body(3))
            .prop_map(|(count, body)| (Class::Ordinary, Content::Effects { count, body })),
        (any::<u32>(), body(3))
            .prop_map(|(sort, body)| (Class::Ordinary, Content::Request { sort, body })),
        (any::<u32>(), body(3))
            .prop_map(|(sort, body)| (Class::Ordinary, Content::Answer { sort, body })),
        any::<u64>().prop_map(|clock_ms| (Class::Urgent, Content::Ping { clock_ms })),
        any::<u64>().prop_map(|clock_ms| (Class::Urgent, Content::Pong { clock_ms })),
    ];
    (content, any::<(u32, u64)>()).prop_map(|((class, content), (group, number))| PeerFrame {
        class,
        group,
        number,
        content,
    })
}

/// The frame that carries a greeting or an answer to one.
pub(super) fn first_frame(content: Content) -> PeerFrame {
    PeerFrame { class: Class::Urgent, group: 0, number: 0, content }
}

/// All bytes of a frame, one piece behind the other.
pub(super) fn bytes_of(frame: PeerFrame) -> BytesMut {
    let (mut pieces, mut out) = (Pieces::new(frame), BytesMut::new());
    while !pieces.is_sent() {
        let body = pieces.next_piece(&mut out);
        out.extend_from_slice(&body);
    }
    out
}

/// A reader that has seen the greeting.
pub(super) fn greeted() -> PeerReader {
    let mut reader = PeerReader::before_greeting();
    reader.set_greeted();
    reader
}

/// The frames of `bytes`, which come in parts of `part` bytes.
pub(super) fn read(
    mut reader: PeerReader,
    bytes: &[u8],
    part: usize,
) -> Result<Vec<PeerFrame>, PeerError> {
    let (mut input, mut frames) = (BytesMut::new(), Vec::new());
    for part in bytes.chunks(part) {
        input.extend_from_slice(part);
        while let Some(frame) = reader.next_frame(&mut input)? {
            frames.push(frame);
        }
    }
    Ok(frames)
}
