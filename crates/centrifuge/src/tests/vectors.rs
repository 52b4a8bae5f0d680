//! The vectors of `vectors.json`: JSON written by hand, and the Protobuf that the codec of the JavaScript SDK makes of it.

use serde::Deserialize;

use crate::*;

const ENCODINGS: [Encoding; 2] = [Encoding::Json, Encoding::Protobuf];

#[derive(Deserialize)]
struct Vector {
    name: String,
    what: String,
    json: String,
    protobuf: String,
}

impl Vector {
    fn bytes(&self, encoding: Encoding) -> Vec<u8> {
        match encoding {
            Encoding::Json => format!("{}\n", self.json).into_bytes(),
            Encoding::Protobuf => {
                let hex = self.protobuf.as_bytes().chunks(2);
                let byte = |hex: &[u8]| u8::from_str_radix(str::from_utf8(hex).expect("text"), 16);
                hex.map(|hex| byte(hex).expect("hex")).collect()
            }
        }
    }

    /// The bytes in `to` that become of those in `from`.
    fn converted(&self, from: Encoding, to: Encoding) -> Vec<u8> {
        let (bytes, limits) = (self.bytes(from), Limits::default());
        let mut out = Vec::new();
        if self.what == "command" {
            for command in decode_commands(from, &bytes, limits) {
                put_command(to, &command.expect(&self.name), &mut out);
            }
        } else {
            for sent in decode_replies(from, &bytes, limits) {
                put_from_server(to, &sent.expect(&self.name), &mut out);
            }
        }
        out
    }
}

pub(super) fn put_from_server(encoding: Encoding, sent: &FromServer, out: &mut Vec<u8>) {
    match sent {
        FromServer::Reply(reply) => put_reply(encoding, reply, out),
        FromServer::Push(push) => put_push(encoding, push, out),
        FromServer::Ping => put_ping(encoding, out),
    }
}

fn vectors() -> Vec<Vector> {
    let vectors: Vec<Vector> =
        serde_json::from_str(include_str!("../../vectors.json")).expect("vectors");
    assert!(vectors.len() > 30);
    vectors
}

#[test]
fn each_encoding_of_a_vector_becomes_the_other_and_itself() {
    for vector in vectors() {
        for (from, to) in ENCODINGS.iter().flat_map(|from| ENCODINGS.map(|to| (*from, to))) {
            let (got, wanted) = (vector.converted(from, to), vector.bytes(to));
            let name = &vector.name;
            assert!(
                got == wanted,
                "{name}, {from:?} to {to:?}: {} in place of {}",
                got.escape_ascii(),
                wanted.escape_ascii()
            );
        }
    }
}

#[test]
fn all_vectors_in_one_message_are_read_in_their_order() {
    for encoding in ENCODINGS {
        let of_commands = vectors().into_iter().filter(|vector| vector.what == "command");
        let (mut all, mut names) = (Vec::new(), Vec::new());
        for vector in of_commands {
            all.extend(vector.bytes(encoding));
            names.push(vector.name);
        }
        let mut out = Vec::new();
        let mut count = 0;
        for command in decode_commands(encoding, &all, Limits::default()) {
            put_command(encoding, &command.expect("a command"), &mut out);
            count += 1;
        }
        assert_eq!((count, out), (names.len(), all));
    }
}

#[test]
fn a_vector_that_is_cut_anywhere_is_refused_or_shorter_but_never_read_beyond() {
    for vector in vectors().iter().filter(|vector| vector.what == "command") {
        for encoding in ENCODINGS {
            let bytes = vector.bytes(encoding);
            for end in 0..bytes.len() - 1 {
                let mut commands = decode_commands(encoding, &bytes[..end], Limits::default());
                let first = commands.next();
                assert!(
                    // A line is whole without its line break.
                    matches!(first, None | Some(Err(_)))
                        || encoding == Encoding::Json && end == bytes.len() - 1,
                    "{} cut to {end}: {first:?}",
                    vector.name
                );
                assert!(commands.next().is_none());
            }
        }
    }
}
