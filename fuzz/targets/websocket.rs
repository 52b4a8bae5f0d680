//! Any bytes from a peer of a WebSocket: the same messages and the same fault whatever the size of the pieces, none
//! beyond the limit, little memory, and nothing behind the end. The first byte is the length of the pieces; the second
//! says which end reads, whether messages may be compressed, and whether the bytes are a request instead. Knows only
//! `sennit-websocket`.
#![no_main]

use http::{HeaderValue, Method, StatusCode, Version};
use libfuzzer_sys::fuzz_target;
use sennit_websocket::{
    Decoder, DecoderLimits, Deflater, Fault, FrameHead, Incoming, Inflater, Opcode, Upgrade,
    client::{self, UpgradeRequest},
    frame,
    limits::{CLOSE_REASON_BYTES_MAX, CONTROL_BYTES_MAX, compressed_bytes_max},
};

const LIMITS: DecoderLimits = DecoderLimits { message_bytes_max: 8 << 10 };
/// Of a decoder beside the bytes of its message: a part of a head and of a control frame.
const OWN_BYTES_MAX: usize = 512;

/// Checks what can be said of one message by itself.
fn check(incoming: &Incoming) {
    match incoming {
        Incoming::Text(text) => assert!(text.len() <= LIMITS.message_bytes_max),
        Incoming::Binary(bytes) => assert!(bytes.len() <= LIMITS.message_bytes_max),
        Incoming::Ping(payload) | Incoming::Pong(payload) => {
            assert!(payload.len() <= CONTROL_BYTES_MAX);
        }
        Incoming::Close(close) => {
            assert!(close.reason.len() <= CLOSE_REASON_BYTES_MAX);
            assert!(close.code.is_some() || close.reason.is_empty());
        }
    }
}

fn decode<'a>(
    mut decoder: Decoder,
    inflater: &mut Inflater,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> (Vec<Incoming>, Option<Fault>) {
    let (mut messages, mut fault) = (Vec::new(), None);
    let (mut is_over, mut received) = (false, 0);
    for mut piece in pieces {
        received += piece.len();
        while !piece.is_empty() {
            let before = piece.len();
            match decoder.next(&mut piece, inflater) {
                Ok(Some(incoming)) => {
                    assert!(!is_over, "something comes behind the end");
                    assert!(piece.len() < before);
                    check(&incoming);
                    is_over = matches!(incoming, Incoming::Close(_));
                    messages.push(incoming);
                }
                Ok(None) => assert!(piece.is_empty(), "what is not taken would be lost"),
                Err(found) => {
                    assert!(!is_over, "a fault comes behind the end");
                    assert!(found.to_string().len() <= CLOSE_REASON_BYTES_MAX, "{found}");
                    is_over = true;
                    fault = Some(found);
                }
            }
            assert_eq!(decoder.has_ended(), is_over);
            let held = decoder.held_bytes();
            assert!(held <= OWN_BYTES_MAX + 2 * compressed_bytes_max(LIMITS.message_bytes_max));
            assert!(held <= OWN_BYTES_MAX + 2 * received, "memory for what was not received");
            assert!(decoder.is_in_message() || held == 0);
        }
    }
    (messages, fault)
}

/// What is sent again is received again, compressed or not.
fn check_echo(messages: &[Incoming], inflater: &mut Inflater) {
    let mut deflater = Deflater::new();
    for incoming in messages {
        let mut sent = Vec::new();
        let mut put = |opcode, payload: &[u8]| {
            deflater.put_frame(opcode, payload, Default::default(), &mut sent);
        };
        match incoming {
            Incoming::Text(text) => put(Opcode::Text, text.as_bytes()),
            Incoming::Binary(bytes) => put(Opcode::Binary, bytes),
            Incoming::Ping(payload) => frame::put_frame(Opcode::Ping, payload, &mut sent),
            Incoming::Pong(payload) => frame::put_frame(Opcode::Pong, payload, &mut sent),
            Incoming::Close(close) => match close.code {
                Some(code) => frame::put_close(code, &close.reason, &mut sent),
                None => frame::put_frame(Opcode::Close, &[], &mut sent),
            },
        }
        let read = Decoder::of_client(LIMITS, true).next(&mut &sent[..], inflater);
        assert_eq!(read.as_ref(), Ok(&Some(incoming.clone())));
    }
}

/// Lines of `name: value` as a request, and as an answer to one of ours.
fn check_upgrade(lines: &[u8]) {
    let headers = lines.split(|byte| *byte == b'\n').filter_map(|line| {
        let colon = line.iter().position(|byte| *byte == b':')?;
        Some((&line[..colon], &line[colon + 1..]))
    });
    match Upgrade::of(&Method::GET, Version::HTTP_11, headers.clone()) {
        Err(refusal) => {
            assert!(refusal.status().is_client_error() && !refusal.to_string().is_empty());
        }
        Ok(upgrade) => {
            assert_eq!(upgrade.accept().len(), 28);
            for subprotocol in upgrade.subprotocols() {
                assert!(HeaderValue::from_str(subprotocol).is_ok());
            }
            let subprotocol = upgrade.subprotocols().first().map(String::as_str);
            let wanted =
                3 + usize::from(subprotocol.is_some()) + usize::from(upgrade.deflate().is_some());
            assert_eq!(upgrade.answer(subprotocol, upgrade.deflate()).len(), wanted);
        }
    }
    let request = UpgradeRequest {
        host: "x",
        target: "/",
        key: *b"the sample nonce",
        subprotocols: &["a", "b"],
        offers_deflate: true,
        headers: &[],
    };
    let _ = request.check(StatusCode::SWITCHING_PROTOCOLS, headers);
}

fuzz_target!(|data: &[u8]| {
    let &[piece, mode, ref bytes @ ..] = data else { return };
    if mode & 4 != 0 {
        return check_upgrade(bytes);
    }
    let is_deflate = mode & 2 != 0;
    let decoder = || match mode & 1 {
        0 => Decoder::of_server(LIMITS, is_deflate),
        _ => Decoder::of_client(LIMITS, is_deflate),
    };
    let mut inflater = Inflater::new();
    let whole = decode(decoder(), &mut inflater, std::iter::once(bytes));
    let pieces = bytes.chunks(usize::from(piece).max(1));
    let in_pieces = decode(decoder(), &mut inflater, pieces);
    assert_eq!(whole, in_pieces, "messages depend on how the bytes arrive");
    check_echo(&whole.0, &mut inflater);
    if mode & 1 == 0 {
        return;
    }
    // The same as one message of a client.
    let mut sent = Vec::new();
    let head = FrameHead::whole(Opcode::Binary, bytes.len());
    client::put_fragment(head, bytes, [1, 2, 3, 4], &mut sent);
    let read = Decoder::of_server(LIMITS, false).next(&mut &sent[..], &mut inflater);
    if bytes.len() <= LIMITS.message_bytes_max {
        assert_eq!(read, Ok(Some(Incoming::Binary(bytes.to_vec()))));
    } else {
        assert!(read.is_err());
    }
});
