//! Any bytes from a peer of a WebSocket, read by ours and by tungstenite: the same messages, and the same verdict. The
//! first byte says which end reads. Where the two differ, `differs` says why ours is right. Knows no compression, which
//! the other one does not do.
#![no_main]

use std::io::{self, Read, Write};

use libfuzzer_sys::fuzz_target;
use sennit_websocket::{Close, CloseCode, Decoder, DecoderLimits, Fault, Incoming, Inflater};
use tungstenite::{
    Error, Message, WebSocket,
    error::ProtocolError,
    protocol::{Role, WebSocketConfig},
};

const BYTES_MAX: usize = 4 << 10;

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// More bytes could come, or a close has.
    Sound,
    /// The protocol was broken.
    Broken,
    /// Text is not UTF-8.
    NotText,
    /// A frame or message is too large.
    TooLarge,
}

/// What a peer sent, and nobody hears what it is answered.
struct Received<'a>(&'a [u8]);

impl Read for Received<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Received<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ours(is_server: bool, mut bytes: &[u8]) -> (Vec<Incoming>, Option<Fault>) {
    let limits = DecoderLimits { message_bytes_max: BYTES_MAX };
    let mut decoder = if is_server {
        Decoder::of_server(limits, false)
    } else {
        Decoder::of_client(limits, false)
    };
    let (mut messages, mut inflater) = (Vec::new(), Inflater::new());
    loop {
        match decoder.next(&mut bytes, &mut inflater) {
            Ok(Some(incoming)) => messages.push(incoming),
            Ok(None) => return (messages, None),
            Err(fault) => return (messages, Some(fault)),
        }
    }
}

fn theirs(is_server: bool, bytes: &[u8]) -> (Vec<Incoming>, Verdict) {
    let role = if is_server { Role::Server } else { Role::Client };
    let config = WebSocketConfig::default()
        .read_buffer_size(1 << 10)
        .max_message_size(Some(BYTES_MAX))
        .max_frame_size(Some(BYTES_MAX));
    let mut socket = WebSocket::from_raw_socket(Received(bytes), role, Some(config));
    let mut messages = Vec::new();
    loop {
        let verdict = match socket.read() {
            Ok(message) => {
                messages.push(match message {
                    Message::Text(text) => Incoming::Text(text.as_str().to_owned()),
                    Message::Binary(bytes) => Incoming::Binary(bytes.to_vec()),
                    Message::Ping(payload) => Incoming::Ping(payload.to_vec()),
                    Message::Pong(payload) => Incoming::Pong(payload.to_vec()),
                    Message::Close(None) => Incoming::Close(Close::default()),
                    Message::Close(Some(close)) => Incoming::Close(Close {
                        code: CloseCode::of(close.code.into()),
                        reason: close.reason.as_str().to_owned(),
                    }),
                    Message::Frame(_) => unreachable!("it is not read"),
                });
                if matches!(messages.last(), Some(Incoming::Close(_))) {
                    return (messages, Verdict::Sound);
                }
                continue;
            }
            Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)) => Verdict::Sound,
            Err(Error::Protocol(_)) => Verdict::Broken,
            Err(Error::Utf8(_)) => Verdict::NotText,
            Err(Error::Capacity(_)) => Verdict::TooLarge,
            Err(error) => panic!("{error}"),
        };
        return (messages, verdict);
    }
}

fn verdict(fault: &Fault) -> Verdict {
    match fault.close_code() {
        CloseCode::PROTOCOL_ERROR => Verdict::Broken,
        CloseCode::INVALID_PAYLOAD => Verdict::NotText,
        CloseCode::TOO_LARGE => Verdict::TooLarge,
        other => panic!("no fault closes with {other}"),
    }
}

/// Whether the other one has a reason of its own to see something else in what is a fault to us.
fn differs(fault: &Fault, theirs: Verdict) -> bool {
    match fault {
        // RFC 6455, section 5.2: "the minimal number of bytes MUST be used". It reads on. To us a control frame that has
        // its length in more than a byte is too long, whatever the length.
        Fault::LengthNotMinimal | Fault::ControlTooLong => true,
        // It has a code in place of the one that may not be sent, and reports a close; or sees the text behind it first.
        Fault::CloseCode(_) => matches!(theirs, Verdict::Sound | Verdict::NotText),
        // It looks at the length before the rest of a head.
        _ => verdict(fault) == Verdict::Broken && theirs == Verdict::TooLarge,
    }
}

/// Code 1014 (bad gateway) is in the registry of IANA, and the other one does not know it.
fn as_the_other_sees_it(incoming: &mut Incoming) {
    if let Incoming::Close(close) = incoming
        && close.code == CloseCode::of(1014)
    {
        *close = Close {
            code: Some(CloseCode::PROTOCOL_ERROR),
            reason: "Protocol violation".to_owned(),
        };
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&end, bytes)) = data.split_first() else { return };
    let is_server = end & 1 == 0;
    let (mut messages, fault) = ours(is_server, bytes);
    messages.iter_mut().for_each(as_the_other_sees_it);
    let (mut others, mut other_verdict) = theirs(is_server, bytes);
    let Some(fault) = fault else {
        assert_eq!((messages, Verdict::Sound), (others, other_verdict));
        return;
    };
    if other_verdict == Verdict::Sound {
        // Ours ends with the first byte that makes a frame wrong, the other one when the frame has come whole.
        let whole = [bytes, &[0; BYTES_MAX + 16]].concat();
        (others, other_verdict) = theirs(is_server, &whole);
    }
    others.truncate(messages.len());
    assert_eq!(messages, others);
    assert!(
        verdict(&fault) == other_verdict || differs(&fault, other_verdict),
        "{fault:?} and {other_verdict:?}"
    );
});
