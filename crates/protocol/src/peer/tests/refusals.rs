//! Bytes that no node sends are refused, before memory is allocated for them.

use bytes::{Bytes, BytesMut};
use proptest::{collection::vec, prelude::*};

use super::any_peer_frame::{bytes_of, first_frame, frame, greeted, read};
use crate::peer::{
    BODY_BYTES_MAX, Class, Content, Greeting, PIECE_BYTES_MAX, PeerError, PeerFrame, PeerHeader,
    PeerKind, PeerReader, Pieces,
};

fn greeting() -> Greeting {
    Greeting {
        cluster: 1,
        node: 2,
        incarnation: 3,
        start_epoch: 4,
        protocol: (1, 1),
        features: Vec::new(),
        level: 1,
        clock_ms: 5,
        cores: 6,
        link: 0,
        shards: 7,
    }
}

fn commands(length: usize) -> PeerFrame {
    let content = Content::Commands { count: 1, body: Bytes::from(vec![7; length]) };
    PeerFrame { class: Class::Ordinary, group: 1, number: 0, content }
}

fn ping() -> BytesMut {
    bytes_of(first_frame(Content::Ping { clock_ms: 8 }))
}

/// A head without a body.
fn head(length: u32, kind: PeerKind, class: Class, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    PeerHeader { length, kind, class, group: 1, number }.encode(&[], &mut out);
    out
}

#[test]
fn only_a_greeting_comes_first_and_only_once() {
    let first = bytes_of(first_frame(Content::Greeting(greeting())));
    let refused = Err(PeerError::Order { kind: PeerKind::Ping });
    assert_eq!(read(PeerReader::before_greeting(), &ping(), 8), refused);
    let refused = Err(PeerError::Order { kind: PeerKind::Greeting });
    assert_eq!(read(greeted(), &first, 8), refused);
}

#[test]
fn a_length_beyond_the_limit_is_refused_by_its_header_alone() {
    let most = BODY_BYTES_MAX as u32 + 8;
    for (length, kind, class) in [
        (most + 1, PeerKind::Commands, Class::Ordinary),
        (7, PeerKind::Effects, Class::Ordinary),
        (PIECE_BYTES_MAX as u32 + 97, PeerKind::Raft, Class::Urgent),
        (95, PeerKind::Raft, Class::Ordinary),
        (9, PeerKind::Ping, Class::Urgent),
        (0, PeerKind::Piece, Class::Ordinary),
        (PIECE_BYTES_MAX as u32 + 1, PeerKind::Piece, Class::Bulk),
    ] {
        let refused = read(greeted(), &head(length, kind, class, 0), 24);
        assert!(
            matches!(refused, Err(PeerError::Length { .. })),
            "{kind} of {length}: {refused:?}"
        );
    }
    let first = head(4097, PeerKind::Greeting, Class::Urgent, 0);
    let refused = read(PeerReader::before_greeting(), &first, 24);
    assert!(matches!(refused, Err(PeerError::Length { most: 4096, .. })), "{refused:?}");
}

#[test]
fn no_more_room_than_for_a_piece_is_made_for_bytes_that_have_not_come() {
    let mut input = BytesMut::from(&bytes_of(commands(3 * PIECE_BYTES_MAX))[..32]);
    assert_eq!(greeted().next_frame(&mut input), Ok(None));
    assert!(input.capacity() < 2 * PIECE_BYTES_MAX, "{} bytes", input.capacity());
}

#[test]
fn kinds_classes_and_flags_that_do_not_exist_are_refused() {
    for (place, value) in [(4, 0), (4, 11), (5, 0), (5, 2), (5, 4), (6, 1), (7, 128)] {
        let mut bytes = ping();
        bytes[place] = value;
        let refused = read(greeted(), &bytes, 1).unwrap_err();
        let expected = match place {
            4 => matches!(refused, PeerError::Kind { .. }),
            5 => matches!(refused, PeerError::Class { .. }),
            _ => matches!(refused, PeerError::Flags { .. }),
        };
        assert!(expected, "byte {place} is {value}: {refused:?}");
    }
}

#[test]
fn a_piece_that_continues_nothing_is_refused() {
    let refused = read(greeted(), &[head(1, PeerKind::Piece, Class::Bulk, 0), vec![0]].concat(), 9);
    assert!(matches!(refused, Err(PeerError::Piece { at: 0, length: 0, .. })), "{refused:?}");
}

#[test]
fn a_piece_of_the_wrong_place_or_too_long_is_refused() {
    let begun = {
        let (mut out, mut pieces) = (BytesMut::new(), Pieces::new(commands(PIECE_BYTES_MAX + 3)));
        let body = pieces.next_piece(&mut out);
        out.extend_from_slice(&body);
        out
    };
    let at = PIECE_BYTES_MAX as u64;
    for (length, number) in [(3, at - 1), (3, 0), (4, at)] {
        let piece = head(length, PeerKind::Piece, Class::Ordinary, number);
        let bytes = [&begun[..], &piece, &vec![7; length as usize]].concat();
        let refused = read(greeted(), &bytes, 1 << 20);
        assert!(matches!(refused, Err(PeerError::Piece { .. })), "{length} at {number}");
    }
    let bytes = [&begun[..], &bytes_of(commands(1))].concat();
    assert!(matches!(read(greeted(), &bytes, 1 << 20), Err(PeerError::Piece { .. })));
}

#[test]
fn a_damaged_body_of_commands_is_refused() {
    let mut bytes = bytes_of(commands(40));
    bytes[40] ^= 1;
    let refused = Err(PeerError::BodyChecksum { kind: PeerKind::Commands });
    assert_eq!(read(greeted(), &bytes, 64), refused);
}

#[test]
fn fields_of_a_greeting_that_no_node_sends_are_refused() {
    type Change = fn(&mut Greeting);
    let fields: [(&str, Change); 9] = [
        ("node", |greeting| greeting.node = 0),
        ("node", |greeting| greeting.node = 4096),
        ("protocol_max", |greeting| greeting.protocol = (0, 0)),
        ("protocol_min", |greeting| greeting.protocol = (2, 1)),
        ("cores", |greeting| greeting.cores = 1025),
        ("link", |greeting| greeting.link = 1024),
        ("shards", |greeting| greeting.shards = 0),
        ("number of features", |greeting| greeting.features = vec!["f".to_owned(); 65]),
        ("length of a feature", |greeting| greeting.features = vec!["f".repeat(33)]),
    ];
    for (expected, change) in fields {
        let mut greeting = greeting();
        change(&mut greeting);
        let bytes = bytes_of(first_frame(Content::Greeting(greeting)));
        let refused = read(PeerReader::before_greeting(), &bytes, 1000).unwrap_err();
        assert!(
            matches!(refused, PeerError::Field { field, .. } if field == expected),
            "{expected}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_damaged_head_is_refused(frame in frame(), bit in 0..(32 * 8_usize)) {
        let mut bytes = bytes_of(frame);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // A head that announces more than has come waits for the rest.
        let read = read(greeted(), &bytes, 1 << 20);
        prop_assert!(read.is_err() || read.unwrap().is_empty());
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in vec(any::<u8>(), 0..200), part in 1..50_usize) {
        let _ = read(greeted(), &bytes, part);
        let _ = read(PeerReader::before_greeting(), &bytes, part);
    }
}
