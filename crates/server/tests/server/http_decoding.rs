//! Bytes to requests: whatever comes, and however it comes in pieces.

use bytes::Bytes;
use proptest::prelude::*;
use sennit_server::{Refused, RequestDecoder};

/// What a decoder makes of a stream: requests, and what ended it.
fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<String>, Option<Refused>) {
    let mut decoder = RequestDecoder::default();
    let mut requests = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(received)) => {
                    requests.push(format!("{} {:?}", received.keep_alive, received.request));
                }
                Ok(None) => break,
                Err(refused) => return (requests, Some(refused)),
            }
        }
        assert!(piece.is_empty(), "what is not taken would be lost");
    }
    (requests, None)
}

fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop::sample::select(vec!["GET", "POST", "OPTIONS"]);
    let target = prop::sample::select(vec!["/", "/a?b=c", "*", "http://y/z", "/a b", "x"]);
    let version = prop::sample::select(vec!["HTTP/1.1", "HTTP/1.0", "HTTP/3.0"]);
    let headers = prop::collection::vec(
        prop::sample::select(vec![
            "Host: localhost",
            "Connection: close",
            "Connection: keep-alive",
            "A: b",
            "Expect: 100-continue",
            "Content-Length: 3",
            "Content-Length: 0",
            "Transfer-Encoding: chunked",
            "Host : y",
            "B:",
        ]),
        0..5,
    );
    let body = prop::sample::select(vec![
        "",
        "abc",
        "3\r\nabc\r\n0\r\n\r\n",
        "1;e=f\r\na\r\n0\r\nT: x\r\n\r\n",
        "0\r\n\r\n",
        "3\r\nab",
    ]);
    (method, target, version, headers, body).prop_map(|(method, target, version, headers, body)| {
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        format!("{method} {target} {version}\r\n{headers}\r\n{body}").into_bytes()
    })
}

proptest! {
    #[test]
    fn requests_do_not_depend_on_how_they_come_in_pieces(
        requests in prop::collection::vec(request(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2),
        lengths in prop::collection::vec(1usize..40, 1..20),
    ) {
        let mut bytes = requests.concat();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let whole = decode(std::iter::once(&bytes[..]));
        prop_assert_eq!(&decode(bytes.chunks(1)), &whole);
        let (mut pieces, mut rest) = (Vec::new(), &bytes[..]);
        for length in lengths.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, behind) = rest.split_at(rest.len().min(*length));
            pieces.push(piece);
            rest = behind;
        }
        prop_assert_eq!(&decode(pieces.into_iter()), &whole);
    }
}

#[test]
fn a_length_that_lies_takes_no_memory_for_what_has_not_come() {
    let mut decoder = RequestDecoder::default();
    let head = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 17000000\r\n\r\nfirst";
    assert!(decoder.next(&mut &head[..]).unwrap().is_none());
    let rest = vec![b'x'; 17_000_000 - 5];
    let mut body = Bytes::new();
    for mut piece in rest.chunks(100_000) {
        if let Some(received) = decoder.next(&mut piece).unwrap() {
            body = received.request.body().clone();
        }
    }
    assert_eq!(body.len(), 17_000_000);
    assert!(body.starts_with(b"firstxxx"));
}

#[test]
fn the_extensions_of_all_chunks_of_a_body_are_bounded_too() {
    for (chunks, is_refused) in [(20, false), (21, true)] {
        let chunk = format!("1;{}\r\na\r\n", "e".repeat(200));
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        let request = format!("{head}{}0\r\n\r\n", chunk.repeat(chunks));
        let (requests, refused) = decode(std::iter::once(request.as_bytes()));
        assert_eq!((requests.is_empty(), refused.is_some()), (is_refused, is_refused));
    }
}
