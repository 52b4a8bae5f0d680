//! The head of an HTTP/1 request: its line, its headers, and what these fix for the body and the connection (RFC
//! 9112). A head that two parsers could read as two different requests is refused. It takes whole heads, and knows
//! no sockets.

use std::mem::MaybeUninit;

use http::{Method, StatusCode, Uri, uri::Scheme};
use memchr::memchr;

use super::{
    bad_request::Refused,
    limits::{BODY_BYTES_MAX, HEADERS_MAX, TARGET_BYTES_MAX},
    request::{Headers, Line, Place, Request, target_of},
};

/// How the body is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes.
    Length(usize),
    Chunked,
}

/// A head, and what it says of the rest.
#[derive(Debug)]
pub(crate) struct Head {
    /// Without its body.
    pub(crate) request: Request,
    pub(crate) framing: Framing,
    /// Whether the connection stays open behind the answer.
    pub(crate) keep_alive: bool,
    /// Whether the client waits to be told to send the body.
    pub(crate) expects_continue: bool,
}

/// What the headers say that is not for the service alone.
#[derive(Default)]
struct Said {
    hosts: usize,
    length: Option<usize>,
    is_chunked: bool,
    closes: bool,
    keeps_alive: bool,
    expects_continue: bool,
}

impl Head {
    /// Reads a head, with the empty line that ends it.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, Refused> {
        let mut request = httparse::Request::new(&mut []);
        let mut lines = [const { MaybeUninit::uninit() }; HEADERS_MAX];
        let read = httparse::ParserConfig::default().parse_request_with_uninit_headers(
            &mut request,
            bytes,
            &mut lines,
        );
        match read {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err(Refused::bad("the head does not end where its lines do")),
            Err(error) => return Err(refused(error, bytes)),
        }
        let (Some(method), Some(target), Some(minor)) =
            (request.method, request.path, request.version)
        else {
            return Err(Refused::bad("the request line is not whole"));
        };
        if target.len() > TARGET_BYTES_MAX {
            let detail = "the target is longer than TARGET_BYTES_MAX, 8 KiB";
            return Err(Refused::with(StatusCode::URI_TOO_LONG, detail));
        }
        let method = Method::from_bytes(method.as_bytes())
            .map_err(|_| Refused::bad("the method is not a token"))?;
        let mut said = Said::default();
        let mut lines = Vec::with_capacity(request.headers.len() + 1);
        for line in request.headers.iter() {
            said.listen(line.name, line.value, minor)?;
            let name = Place::of(line.name.as_bytes(), bytes);
            lines.push(Line { name, value: Place::of(line.value, bytes) });
        }
        if said.hosts != 1 && (said.hosts > 1 || minor == 1) {
            return Err(Refused::bad("a request has exactly one Host header"));
        }
        let framing = match (said.length, said.is_chunked) {
            (Some(_), true) => {
                return Err(Refused::bad(
                    "Content-Length and Transfer-Encoding contradict each other",
                ));
            }
            (_, true) => Framing::Chunked,
            (length, false) => Framing::Length(length.unwrap_or(0)),
        };
        if matches!(framing, Framing::Length(length) if length > BODY_BYTES_MAX) {
            return Err(too_long());
        }
        let keep_alive = !said.closes && (minor == 1 || said.keeps_alive);
        let request = read_target(Raw { bytes, method, is_old: minor == 0, target, lines })?;
        Ok(Self { request, framing, keep_alive, expects_continue: said.expects_continue })
    }
}

/// The body is longer than any may be.
pub(crate) const fn too_long() -> Refused {
    let detail = "the body is longer than BODY_BYTES_MAX, 17 MiB";
    Refused::with(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

impl Said {
    fn listen(&mut self, name: &str, value: &[u8], minor: u8) -> Result<(), Refused> {
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        if is("host") {
            self.hosts += 1;
            if !is_authority(value) {
                return Err(Refused::bad("the Host header is no host"));
            }
        } else if is("content-length") {
            if self.length.is_some() {
                return Err(Refused::bad("there is more than one Content-Length"));
            }
            self.length = Some(content_length(value)?);
        } else if is("transfer-encoding") {
            if self.is_chunked {
                return Err(Refused::bad("there is more than one Transfer-Encoding"));
            }
            if minor == 0 {
                return Err(Refused::bad("HTTP/1.0 knows no Transfer-Encoding"));
            }
            check_coding(value)?;
            self.is_chunked = true;
        } else if is("connection") {
            for option in value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii) {
                self.closes |= option.eq_ignore_ascii_case(b"close");
                self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            }
        } else if is("expect") && minor == 1 {
            // HTTP/1.0 knows no expectations: there they are passed over.
            if !value.eq_ignore_ascii_case(b"100-continue") {
                let detail = "100-continue is all that can be expected";
                return Err(Refused::with(StatusCode::EXPECTATION_FAILED, detail));
            }
            self.expects_continue = true;
        }
        Ok(())
    }
}

/// Digits, and as few of them as the number needs.
fn content_length(value: &[u8]) -> Result<usize, Refused> {
    match value {
        [b'0'] => Ok(0),
        [b'1'..=b'9', rest @ ..] if rest.iter().all(u8::is_ascii_digit) => {
            let digits = str::from_utf8(value).unwrap_or_default();
            digits.parse().map_err(|_| too_long())
        }
        _ => Err(Refused::bad("Content-Length is not a plain decimal number")),
    }
}

fn check_coding(value: &[u8]) -> Result<(), Refused> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(());
    }
    let mut codings = value.rsplit(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
    let ends_chunked = codings.next().is_some_and(is_chunked);
    if ends_chunked && codings.all(|coding| !coding.is_empty() && !is_chunked(coding)) {
        let detail = "no transfer coding but chunked is known";
        return Err(Refused::with(StatusCode::NOT_IMPLEMENTED, detail));
    }
    Err(Refused::bad("Transfer-Encoding does not say where the body ends"))
}

/// Whether these may stand in a host and port (RFC 3986).
fn is_authority(bytes: &[u8]) -> bool {
    is_all(bytes, &OF_AUTHORITY)
}

/// What may.
static OF_AUTHORITY: [bool; 256] = printable_but(b"\"#/<>?@\\^`{|}");

/// What may stand in a path. RFC 3986 has fewer; who came by a browser cannot help the others.
static OF_PATH: [bool; 256] = printable_but(b"#<>?`");

/// What may stand in a query, its question mark included.
static OF_QUERY: [bool; 256] = printable_but(b"\"#<>");

/// The bytes of ASCII that can be seen, without these.
const fn printable_but(others: &[u8]) -> [bool; 256] {
    let mut may = [false; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        may[byte as usize] = true;
        byte += 1;
    }
    let mut at = 0;
    while at < others.len() {
        may[others[at] as usize] = false;
        at += 1;
    }
    may
}

/// Whether all of `bytes` are of those.
fn is_all(bytes: &[u8], of: &[bool; 256]) -> bool {
    bytes.iter().fold(true, |is_all, &byte| is_all & of[usize::from(byte)])
}

/// A head whose target was not looked at.
struct Raw<'a> {
    bytes: &'a [u8],
    method: Method,
    is_old: bool,
    target: &'a str,
    lines: Vec<Line>,
}

/// Reads the target in whichever of its four forms; the service sees its path, and the host in
/// the header.
fn read_target(raw: Raw<'_>) -> Result<Request, Refused> {
    let target = raw.target.as_bytes();
    if target.contains(&b'#') || !target.is_ascii() {
        return Err(Refused::bad("the target has bytes that no target has"));
    }
    if raw.method == Method::CONNECT {
        return Err(Refused::with(StatusCode::NOT_IMPLEMENTED, "this is no proxy"));
    }
    let is_asterisk = target == b"*";
    if is_asterisk && raw.method != Method::OPTIONS {
        return Err(Refused::bad("only OPTIONS asks for *"));
    }
    if !(target.first() == Some(&b'/') || is_asterisk) {
        return read_address(raw);
    }
    let path_bytes = memchr(b'?', target).unwrap_or(target.len());
    let (path, query) = target.split_at(path_bytes);
    if !(is_all(path, &OF_PATH) && is_all(query, &OF_QUERY)) {
        return Err(Refused::bad("the target is no path, and no http address"));
    }
    let Raw { bytes, method, is_old, target, lines } = raw;
    Ok(Request::new(method, is_old, target, path_bytes, Headers::new(bytes, lines)))
}

/// Reads a target that is an address.
fn read_address(raw: Raw<'_>) -> Result<Request, Refused> {
    let Raw { bytes, method, is_old, target, mut lines } = raw;
    let uri: Uri =
        target.parse().map_err(|_| Refused::bad("the target is no path, and no http address"))?;
    let is_http = uri.scheme() == Some(&Scheme::HTTP) || uri.scheme() == Some(&Scheme::HTTPS);
    let (Some(authority), true) = (uri.authority(), is_http) else {
        return Err(Refused::bad("the target is no path, and no http address"));
    };
    if !is_authority(authority.as_str().as_bytes()) {
        return Err(Refused::bad("the target's host is no host"));
    }
    let mut head = bytes.to_vec();
    let mut put = |text: &str| {
        let from = head.len();
        head.extend_from_slice(text.as_bytes());
        Place::from(from..head.len())
    };
    // RFC 9112, 3.2.2: what the target says counts, whatever the header says.
    let host = Line { name: put("host"), value: put(authority.as_str()) };
    lines.retain(|line| !line.name.look(bytes).eq_ignore_ascii_case(b"host"));
    lines.push(host);
    let (target, path_bytes) = target_of(&uri);
    Ok(Request::new(method, is_old, &target, path_bytes, Headers::new(&head, lines)))
}

/// What the parser found, as a client is told it.
fn refused(error: httparse::Error, head: &[u8]) -> Refused {
    match error {
        httparse::Error::TooManyHeaders => {
            let detail = "there are more than HEADERS_MAX headers, 64";
            Refused::with(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, detail)
        }
        httparse::Error::Version if is_other_version(head) => {
            let detail = "HTTP/1.0, HTTP/1.1 and HTTP/2 are spoken";
            Refused::with(StatusCode::HTTP_VERSION_NOT_SUPPORTED, detail)
        }
        httparse::Error::HeaderName => Refused::bad("the name of a header is not a token"),
        httparse::Error::HeaderValue => {
            Refused::bad("the value of a header has control characters")
        }
        httparse::Error::NewLine => Refused::bad("a line does not end in CR LF"),
        _ => Refused::bad("the request line is not METHOD TARGET HTTP/1.1"),
    }
}

/// Whether the request line is one of another version.
fn is_other_version(head: &[u8]) -> bool {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&byte| byte == b' ');
    let version = words.nth(2).unwrap_or_default();
    words.next().is_none()
        && matches!(version, [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', b'.', b'0'..=b'9'])
}
