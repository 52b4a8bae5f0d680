//! Any bytes on a connection of the HTTP port: the same requests whatever the size of the pieces, none beyond the
//! limits, and little more memory than the input. The first byte is the length of the pieces. Knows the parts of a
//! request, and otherwise the decoder's interface only.
#![no_main]

use http::header;
use libfuzzer_sys::fuzz_target;
use sennit_server::{Received, Refused, RequestDecoder};

const HEADERS_MAX: usize = 64;
const TARGET_BYTES_MAX: usize = 8 << 10;

/// What can be seen of a request.
type Seen = (String, Vec<u8>, bool);

fn seen(received: Received) -> Seen {
    let Received { request, keep_alive } = received;
    let (headers, body) = (request.headers(), request.body().to_vec());
    // The host that a target names comes on top of the headers that were sent.
    assert!(headers.iter().count() <= HEADERS_MAX + 1);
    let (path, query) = (request.path(), request.query());
    assert!(path.len() + query.map_or(0, |query| query.len() + 1) <= TARGET_BYTES_MAX);
    assert!(path.starts_with('/') || path == "*", "{path}");
    let hosts = headers.all(&header::HOST).count();
    assert!(hosts == 1 || hosts == 0 && request.is_old());
    let lengths = headers.all(&header::CONTENT_LENGTH).count();
    let codings = headers.all(&header::TRANSFER_ENCODING).count();
    assert!(lengths + codings <= 1, "two readers could see two bodies");
    if let Some(length) = headers.get(&header::CONTENT_LENGTH) {
        assert_eq!(length, body.len().to_string().as_bytes());
    }
    // What other readers of targets and headers take for wrong, this one does too.
    let target = [path, query.map_or("", |_| "?"), query.unwrap_or_default()].concat();
    assert!(http::Uri::try_from(target).is_ok_and(|uri| uri.authority().is_none()));
    for (name, value) in headers.iter() {
        assert!(http::HeaderName::from_bytes(name).is_ok());
        assert!(http::HeaderValue::from_bytes(value).is_ok());
    }
    (format!("{request:?}"), body, keep_alive)
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
