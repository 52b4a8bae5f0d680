//! Golden: frames and their bytes. Another program made the bytes from the tables of the files and from the
//! schema.

use bytes::{Bytes, BytesMut};

use super::any_peer_frame::{bytes_of, first_frame, greeted};
use crate::peer::{
    Class, Content, Greeting, GreetingAnswer, PIECE_BYTES_MAX, PeerFrame, PeerReader, Pieces,
    Refusal,
};

const GREETING: &str = "\
    3000000001010000000000000000000000000000f8cc5ead098877665544332211100119990000000000000020072801\
    30033a056d6f766573400248fbd095ffbc31500458036006";
const ACCEPTED: &str = "\
    340000000201000000000000000000000000000032cd83ef0a3009887766554433221110021999000000000000002007\
    280130033a056d6f766573400248fbd095ffbc315004580360061001";
const REFUSED: &str = "\
    4500000002010000000000000000000000000000b7cc5b7e0a3009887766554433221110021999000000000000002007\
    280130033a056d6f766573400248fbd095ffbc315004580360061801220f616e6f7468657220636c7573746572";
const RAFT: &str = "\
    6400000003020000050000000000000000000000af89e84c000102030405060708090a0b0c0d0e0f1011121314151617\
    18191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f4041424344454647\
    48494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f626f6479";
const COMMANDS: &str = "0b00000004020000060000002900000000000000916cff8102000000b73f4b36616263";
const EFFECTS: &str = "0800000005020000060000002a0000000000000002d4e2b10000000000000000";
const REQUEST: &str = "0b000000090200000000000007000000000000002053c28b030000008e0ef59061736b";
const ANSWER: &str = "0e0000000a020000000000000700000000000000bab357e1040000006406b2d2616e73776572";
const PING: &str = "0800000006010000000000000900000000000000750506f67b68e5cf8b010000";
const PONG: &str = "0800000007010000000000000900000000000000d8bf2cff7d68e5cf8b010000";
const PIECE: &str = "03000000080200000600000000000400000000000b5428b6656e64";

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn greeting(node: u16) -> Greeting {
    Greeting {
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
    }
}

fn answer(outcome: Result<u32, (Refusal, String)>) -> PeerFrame {
    first_frame(Content::GreetingAnswer(GreetingAnswer { greeting: greeting(2), outcome }))
}

fn check(mut reader: PeerReader, frame: PeerFrame, hex: &str) {
    assert_eq!(bytes_of(frame.clone())[..], bytes(hex), "{frame:?}");
    let read = reader.next_frame(&mut BytesMut::from(&bytes(hex)[..]));
    assert_eq!(read, Ok(Some(frame)));
}

#[test]
fn greetings_have_the_bytes_of_the_schema() {
    let reader = PeerReader::before_greeting;
    check(reader(), first_frame(Content::Greeting(greeting(1))), GREETING);
    check(reader(), answer(Ok(1)), ACCEPTED);
    let refusal = (Refusal::OtherCluster, "another cluster".to_owned());
    check(reader(), answer(Err(refusal)), REFUSED);
}

#[test]
fn frames_have_the_bytes_of_their_tables() {
    let table: Box<[u8; 96]> = Box::new(std::array::from_fn(|at| at as u8));
    let urgent = |number, content| PeerFrame { class: Class::Urgent, group: 0, number, content };
    let ordinary = |group, number, content| {
        let class = Class::Ordinary;
        PeerFrame { class, group, number, content }
    };
    let body = |bytes| Bytes::from_static(bytes);
    let raft = Content::Raft { table, body: body(b"body") };
    check(greeted(), ordinary(5, 0, raft), RAFT);
    let commands = Content::Commands { count: 2, body: body(b"abc") };
    check(greeted(), ordinary(6, 41, commands), COMMANDS);
    let effects = Content::Effects { count: 0, body: body(b"") };
    check(greeted(), ordinary(6, 42, effects), EFFECTS);
    let request = Content::Request { sort: 3, body: body(b"ask") };
    check(greeted(), ordinary(0, 7, request), REQUEST);
    let answer = Content::Answer { sort: 4, body: body(b"answer") };
    check(greeted(), ordinary(0, 7, answer), ANSWER);
    check(greeted(), urgent(9, Content::Ping { clock_ms: 1_700_000_000_123 }), PING);
    check(greeted(), urgent(9, Content::Pong { clock_ms: 1_700_000_000_125 }), PONG);
}

#[test]
fn a_long_body_goes_on_in_pieces_with_heads_of_their_own() {
    let body = [vec![0; PIECE_BYTES_MAX], b"end".to_vec()].concat();
    let content = Content::Commands { count: 1, body: body.into() };
    let frame = PeerFrame { class: Class::Ordinary, group: 6, number: 41, content };
    let mut pieces = Pieces::new(frame);
    assert_eq!(pieces.next_piece(&mut Vec::new()).len(), PIECE_BYTES_MAX);
    let mut piece = Vec::new();
    let body = pieces.next_piece(&mut piece);
    piece.extend_from_slice(&body);
    assert_eq!(piece, bytes(PIECE));
    assert!(pieces.is_sent());
}
