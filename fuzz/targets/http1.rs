//! Any bytes on a connection of the HTTP port: the same requests however they come in pieces, none beyond
//! the limits, and never more memory than has come and a step. The first byte is the length of the pieces. Knows what a
//! request has, and else the decoder's rim only.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_server::{Received, Refused, RequestDecoder};

const HEADERS_MAX: usize = 64;
const TARGET_BYTES_MAX: usize = 8 << 10;

/// What can be seen of a request.
type Seen = (String, Vec<u8>, bool);

fn seen(received: Received) -> Seen {
    let Received { request, keep_alive } = received;
    let (parts, body) = request.into_parts();
    // The host that a target names comes on top of the headers that were sent.
    assert!(parts.headers.len() <= HEADERS_MAX + 1);
    assert!(parts.uri.to_string().len() <= TARGET_BYTES_MAX);
    let is_path = parts.uri.path().starts_with('/') || parts.uri.path() == "*";
    assert!(is_path && parts.uri.authority().is_none(), "{}", parts.uri);
    let hosts = parts.headers.get_all("host").iter().count();
    assert!(hosts == 1 || hosts == 0 && parts.version == http::Version::HTTP_10);
    let lengths = parts.headers.get_all("content-length").iter().count();
    let codings = parts.headers.get_all("transfer-encoding").iter().count();
    assert!(lengths + codings <= 1, "two readers could see two bodies");
    if let Some(length) = parts.headers.get("content-length") {
        assert_eq!(length.as_bytes(), body.len().to_string().as_bytes());
    }
    (format!("{parts:?}"), body.to_vec(), keep_alive)
}

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Seen>, Option<Refused>) {
    let mut decoder = RequestDecoder::default();
    let mut requests = Vec::new();
    for mut piece in pieces {
        loop {
            match decoder.next(&mut piece) {
                Ok(Some(received)) => requests.push(seen(received)),
                Ok(None) => break,
                Err(refused) => {
                    assert!(refused.status.is_client_error() || refused.status.is_server_error());
                    return (requests, Some(refused));
                }
            }
        }
        assert!(piece.is_empty(), "what is not taken would be lost");
    }
    (requests, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else { return };
    let whole = decode(std::iter::once(stream));
    let pieces = decode(stream.chunks(usize::from(piece).max(1)));
    assert_eq!(whole, pieces, "requests depend on how the bytes arrive");
    let bytes: usize = whole.0.iter().map(|(_, body, _)| body.len()).sum();
    assert!(bytes <= stream.len(), "more bodies than bytes");
});
