//! Any bytes as a message of the Centrifuge client protocol, from a client or from a server, in either encoding: refused
//! with a reason, or as much as the limits allow, which is written and read again to the same, and converted to the other
//! encoding and back. The first byte says which. Knows only `sennit-centrifuge`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_centrifuge::{
    Command, DecodeError, EmulationRequest, Encoding, FromServer, Limits, decode_commands,
    decode_replies, put_command, put_ping, put_push, put_reply,
};

/// JSON may spell a byte with six, and bytes that are not text with base64.
const WIDE: Limits = Limits { message_bytes_max: 1 << 24, ..LIMITS };
const LIMITS: Limits =
    Limits { message_bytes_max: 48 << 10, commands_max: 64, depth_max: 20, entries_max: 16 };

fn put_from_server(encoding: Encoding, sent: &FromServer, out: &mut Vec<u8>) {
    match sent {
        FromServer::Reply(reply) => put_reply(encoding, reply, out),
        FromServer::Push(push) => put_push(encoding, push, out),
        FromServer::Ping => put_ping(encoding, out),
    }
}

fn check_error(error: &DecodeError) {
    let text = error.to_string();
    assert!(text.starts_with("command ") && text.len() < 300, "{text}");
}

/// Decodes `message`, and checks all that is before its fault.
fn check<T>(
    encoding: Encoding,
    message: &[u8],
    decode: impl Fn(Encoding, &[u8], Limits) -> Vec<Result<T, DecodeError>>,
    put: impl Fn(Encoding, &T, &mut Vec<u8>),
) {
    let decoded = decode(encoding, message, LIMITS);
    let faults = decoded.iter().filter(|item| item.is_err()).count();
    let is_last = decoded.last().is_some_and(Result::is_err);
    assert!(faults == usize::from(is_last), "something follows a fault");
    assert!(decoded.len() <= LIMITS.commands_max + 1);
    for item in &decoded {
        let item = match item {
            Ok(item) => item,
            Err(error) => return check_error(error),
        };
        for to in [Encoding::Json, Encoding::Protobuf] {
            let mut written = Vec::new();
            put(to, item, &mut written);
            assert!(to != Encoding::Json || written.iter().filter(|b| **b == b'\n').count() == 1);
            // A negative number of 5 bytes is written with 10.
            let is_same_encoding = to == Encoding::Protobuf && encoding == to;
            assert!(!is_same_encoding || written.len() <= 2 * message.len());
            let again = decode(to, &written, WIDE);
            let [Ok(again)] = &again[..] else {
                panic!("it is not read back: {}", written.escape_ascii())
            };
            let mut rewritten = Vec::new();
            put(to, again, &mut rewritten);
            assert!(written == rewritten, "{}", written.escape_ascii());
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&kind, message)) = data.split_first() else { return };
    let encoding = if kind & 1 == 0 { Encoding::Json } else { Encoding::Protobuf };
    match kind >> 1 & 3 {
        0 | 1 => check::<Command>(
            encoding,
            message,
            |encoding, message, limits| decode_commands(encoding, message, limits).collect(),
            put_command,
        ),
        2 => check::<FromServer>(
            encoding,
            message,
            |encoding, message, limits| decode_replies(encoding, message, limits).collect(),
            put_from_server,
        ),
        _ => match EmulationRequest::decode(encoding, message, LIMITS) {
            Ok(request) => assert!(request.message.len() <= message.len()),
            Err(error) => check_error(&error),
        },
    }
});
