//! However a stream of frames is cut on its way, the same comes out, in the memory that the limit allows.

use proptest::prelude::*;
use sennit_websocket::{
    Decoder, DecoderLimits, Deflater, Fault, FrameHead, Incoming, Inflater, Opcode, WindowBits,
    client, limits,
};

const BYTES_MAX: usize = 3000;
const LIMITS: DecoderLimits = DecoderLimits { message_bytes_max: BYTES_MAX };

/// What a connection may hold beside a message: what is unfinished of a frame, and a control frame.
const BESIDE_BYTES: usize = 512;

/// A frame as a client may send it, right or wrong.
#[derive(Clone, Debug)]
struct Sent {
    is_final: bool,
    is_compressed: bool,
    opcode: Opcode,
    payload: Vec<u8>,
    mask: [u8; 4],
}

fn opcodes() -> impl Strategy<Value = Opcode> {
    prop_oneof![
        4 => Just(Opcode::Text),
        2 => Just(Opcode::Binary),
        6 => Just(Opcode::Continuation),
        1 => Just(Opcode::Ping),
        1 => Just(Opcode::Pong),
    ]
}

fn frames() -> impl Strategy<Value = Vec<Sent>> {
    let payload = prop_oneof![
        "[a-zκóσ ]{0,40}".prop_map(String::into_bytes),
        "[ab]{0,2000}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), 0..6),
    ];
    let frame = (any::<bool>(), any::<bool>(), opcodes(), payload, any::<[u8; 4]>());
    let sent = frame.prop_map(|(is_final, is_compressed, opcode, mut payload, mask)| {
        if opcode.is_control() {
            payload.truncate(limits::CONTROL_BYTES_MAX);
        }
        let is_compressed = is_compressed && matches!(opcode, Opcode::Text | Opcode::Binary);
        Sent { is_final: is_final || opcode.is_control(), is_compressed, opcode, payload, mask }
    });
    proptest::collection::vec(sent, 1..30)
}

/// The bytes of the frames, such that mostly a message ends before the next begins.
fn bytes_of(frames: &[Sent]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut deflater = Deflater::new();
    let mut is_in_message = false;
    for sent in frames {
        let Sent { is_final, is_compressed, opcode, payload, mask } = sent.clone();
        let mut head = FrameHead { is_final, is_compressed, ..FrameHead::whole(opcode, 0) };
        let mut payload = payload;
        if !opcode.is_control() {
            head.is_compressed &= !is_in_message;
            head.opcode = match (is_in_message, opcode) {
                (true, _) => Opcode::Continuation,
                (false, Opcode::Continuation) => Opcode::Binary,
                (false, opcode) => opcode,
            };
            is_in_message = !is_final;
            if head.is_compressed && is_final {
                match deflater.deflate(&payload, WindowBits::MAX) {
                    Some(deflated) => payload = deflated.to_vec(),
                    None => head.is_compressed = false,
                }
            }
        }
        client::put_fragment(head, &payload, mask, &mut out);
    }
    out
}

fn decode<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Incoming>, Option<Fault>) {
    let mut decoder = Decoder::of_server(LIMITS, true);
    let mut inflater = Inflater::new();
    let mut all = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece, &mut inflater) {
                Ok(Some(incoming)) => all.push(incoming),
                Ok(None) => break,
                Err(fault) => return (all, Some(fault)),
            }
        }
        assert!(piece.is_empty());
        assert!(decoder.held_bytes() <= limits::compressed_bytes_max(BYTES_MAX) + BESIDE_BYTES);
    }
    (all, None)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn byte_by_byte_is_all_at_once_and_any_other_way(
        frames in frames(),
        flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
        step in 1..300_usize,
    ) {
        let mut bytes = bytes_of(&frames);
        for (place, flip) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= flip;
        }
        let at_once = decode([&bytes[..]]);
        prop_assert_eq!(&decode(bytes.chunks(1)), &at_once);
        prop_assert_eq!(&decode(bytes.chunks(step)), &at_once);
    }

    #[test]
    fn any_bytes_are_the_same_however_they_are_cut(
        bytes in proptest::collection::vec(any::<u8>(), 0..200),
        step in 1..50_usize,
    ) {
        let at_once = decode([&bytes[..]]);
        prop_assert_eq!(&decode(bytes.chunks(1)), &at_once);
        prop_assert_eq!(&decode(bytes.chunks(step)), &at_once);
    }
}
