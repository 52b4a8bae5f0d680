//! Requests that two readers could read in two ways, or that nobody should read: each is refused and
//! the connection closed, so that nothing behind it is taken for a request. And a few odd ones that are
//! fine.

use crate::{browser::Browser, world::Broker};

/// What a request is, the request, and what it is answered. `POST` and a body of 5 unless it says so.
const REFUSED: &[(&str, &str, u16)] = &[
    // Where does the body end?
    (
        "a length and chunks",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 5\nTransfer-Encoding: chunked\n\n0\n\n",
        400,
    ),
    (
        "chunks and a length",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\nContent-Length: 5\n\n0\n\n",
        400,
    ),
    (
        "two lengths",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 5\nContent-Length: 6\n\nhello",
        400,
    ),
    (
        "the same length twice",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 5\nContent-Length: 5\n\nhello",
        400,
    ),
    ("a list of lengths", "POST / HTTP/1.1\nHost: localhost\nContent-Length: 5, 5\n\nhello", 400),
    ("a length with a plus", "POST / HTTP/1.1\nHost: localhost\nContent-Length: +5\n\nhello", 400),
    ("a length with a minus", "POST / HTTP/1.1\nHost: localhost\nContent-Length: -1\n\n", 400),
    ("a length with zeros", "POST / HTTP/1.1\nHost: localhost\nContent-Length: 05\n\nhello", 400),
    ("a length of zeros", "POST / HTTP/1.1\nHost: localhost\nContent-Length: 00\n\n", 400),
    (
        "a length in hexadecimal",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 0x5\n\nhello",
        400,
    ),
    (
        "a length with a space",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 5 0\n\nhello",
        400,
    ),
    ("a length of nothing", "POST / HTTP/1.1\nHost: localhost\nContent-Length:\n\nhello", 400),
    (
        "a length beyond all numbers",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 99999999999999999999999\n\n",
        413,
    ),
    (
        "a length beyond the limit",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 17825793\n\n",
        413,
    ),
    (
        "another coding",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: gzip, chunked\n\n0\n\n",
        501,
    ),
    (
        "chunks not last",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked, gzip\n\n0\n\n",
        400,
    ),
    (
        "chunks twice",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked, chunked\n\n0\n\n",
        400,
    ),
    (
        "two codings",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked\n\n0\n\n",
        400,
    ),
    (
        "two codings, one unknown",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: identity\nTransfer-Encoding: chunked\n\n0\n\n",
        400,
    ),
    (
        "an unknown coding",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: xchunked\n\n0\n\n",
        400,
    ),
    (
        "a coding in quotes",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: \"chunked\"\n\n0\n\n",
        400,
    ),
    (
        "a coding with a tab inside",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\x0b\n\n0\n\n",
        400,
    ),
    (
        "a coding with a parameter",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked;q=1\n\n0\n\n",
        400,
    ),
    ("a coding of nothing", "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding:\n\n0\n\n", 400),
    (
        "a coding and a comma",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: , chunked\n\n0\n\n",
        400,
    ),
    ("chunks of 1.0", "POST / HTTP/1.0\nHost: localhost\nTransfer-Encoding: chunked\n\n0\n\n", 400),
    // Chunks.
    (
        "a chunk of no length",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n\nabc",
        400,
    ),
    (
        "a chunk with a prefix",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n0x3\nabc\n0\n\n",
        400,
    ),
    (
        "a chunk with a sign",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n+3\nabc\n0\n\n",
        400,
    ),
    (
        "a chunk with a space",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3 \nabc\n0\n\n",
        400,
    ),
    (
        "a chunk with a space before",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n 3\nabc\n0\n\n",
        400,
    ),
    (
        "a chunk of too many digits",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n000000003\nabc\n0\n\n",
        400,
    ),
    (
        "a chunk beyond all numbers",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\nffffffff\nabc",
        413,
    ),
    (
        "a chunk that goes on",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3\nabcd\n0\n\n",
        400,
    ),
    (
        "a chunk's length with a bare line feed",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3\u{1}abc\n0\n\n",
        400,
    ),
    (
        "a chunk's end with a bare line feed",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3\nabc\u{1}0\n\n",
        400,
    ),
    (
        "a chunk's end with a bare return",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3\nabc\u{2}0\n\n",
        400,
    ),
    (
        "an extension with a bare line feed",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3;a\u{1}abc\n0\n\n",
        400,
    ),
    (
        "a trailer that is none",
        "POST / HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n0\nGET / HTTP/1.1\n\n",
        400,
    ),
    // Lines.
    ("a bare line feed in the request line", "GET / HTTP/1.1\u{1}Host: localhost\n\n", 400),
    ("a bare line feed in a header", "GET / HTTP/1.1\nHost: localhost\u{1}A: b\n\n", 400),
    ("a bare line feed at the end", "GET / HTTP/1.1\nHost: localhost\n\u{1}", 400),
    ("a bare return in a value", "GET / HTTP/1.1\nHost: localhost\nA: b\u{2}c\n\n", 400),
    ("NUL in a value", "GET / HTTP/1.1\nHost: localhost\nA: b\0c\n\n", 400),
    ("NUL in a name", "GET / HTTP/1.1\nHost: localhost\nA\0: b\n\n", 400),
    ("a control character in a value", "GET / HTTP/1.1\nHost: localhost\nA: \x08b\n\n", 400),
    ("a folded line", "GET / HTTP/1.1\nHost: localhost\nA: b\n c\n\n", 400),
    ("a line folded with a tab", "GET / HTTP/1.1\nHost: localhost\nA: b\n\tc\n\n", 400),
    ("white space before the first header", "GET / HTTP/1.1\n Host: localhost\n\n", 400),
    (
        "a space before a colon",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length : 5\n\nhello",
        400,
    ),
    ("a tab before a colon", "POST / HTTP/1.1\nHost: localhost\nContent-Length\t: 5\n\nhello", 400),
    ("a header without a colon", "GET / HTTP/1.1\nHost: localhost\nfoo\n\n", 400),
    ("a header without a name", "GET / HTTP/1.1\nHost: localhost\n: foo\n\n", 400),
    ("a name that is no token", "GET / HTTP/1.1\nHost: localhost\nf(o)o: x\n\n", 400),
    // The host.
    ("no host", "GET / HTTP/1.1\n\n", 400),
    ("two hosts", "GET / HTTP/1.1\nHost: localhost\nHost: y\n\n", 400),
    ("two hosts of 1.0", "GET / HTTP/1.0\nHost: localhost\nHost: localhost\n\n", 400),
    ("a host with a path", "GET / HTTP/1.1\nHost: localhost/y\n\n", 400),
    ("a host with a user", "GET / HTTP/1.1\nHost: u@x\n\n", 400),
    ("a host with a space", "GET / HTTP/1.1\nHost: localhost y\n\n", 400),
    // The request line.
    ("no method", " / HTTP/1.1\nHost: localhost\n\n", 400),
    ("a method that is no token", "GE(T / HTTP/1.1\nHost: localhost\n\n", 400),
    ("two spaces", "GET  / HTTP/1.1\nHost: localhost\n\n", 400),
    ("a tab", "GET\t/ HTTP/1.1\nHost: localhost\n\n", 400),
    ("a space at the end", "GET / HTTP/1.1 \nHost: localhost\n\n", 400),
    ("a space in the target", "GET /a b HTTP/1.1\nHost: localhost\n\n", 400),
    ("a fragment", "GET /a#b HTTP/1.1\nHost: localhost\n\n", 400),
    ("bytes that no target has", "GET /\u{e9} HTTP/1.1\nHost: localhost\n\n", 400),
    ("no version", "GET /\nHost: localhost\n\n", 400),
    ("HTTP/0.9", "GET / HTTP/0.9\nHost: localhost\n\n", 505),
    ("HTTP/1.2", "GET / HTTP/1.2\nHost: localhost\n\n", 505),
    ("HTTP/2.0 in a line", "GET / HTTP/2.0\nHost: localhost\n\n", 505),
    ("HTTP/1.10", "GET / HTTP/1.10\nHost: localhost\n\n", 400),
    ("http/1.1", "GET / http/1.1\nHost: localhost\n\n", 400),
    ("two empty lines first", "\n\nGET / HTTP/1.1\nHost: localhost\n\n", 400),
    // The target's form.
    ("a path without a slash", "GET healthz HTTP/1.1\nHost: localhost\n\n", 400),
    ("a host as the target", "GET x:80 HTTP/1.1\nHost: localhost\n\n", 400),
    ("a star", "GET * HTTP/1.1\nHost: localhost\n\n", 400),
    ("a tunnel", "CONNECT x:80 HTTP/1.1\nHost: localhost:80\n\n", 501),
    ("another scheme", "GET ftp://x/ HTTP/1.1\nHost: localhost\n\n", 400),
    ("an address with a user", "GET http://u@x/ HTTP/1.1\nHost: localhost\n\n", 400),
    // The rest.
    (
        "another expectation",
        "POST / HTTP/1.1\nHost: localhost\nContent-Length: 5\nExpect: tea\n\n",
        417,
    ),
];

/// What a request is, the request, and what it is answered; the connection stays.
const TAKEN: &[(&str, &str, u16)] = &[
    ("an empty line first", "\nGET /healthz HTTP/1.1\nHost: localhost\n\n", 200),
    ("an empty host", "GET /healthz HTTP/1.1\nHost:\n\n", 421),
    ("no host in 1.0", "GET /healthz HTTP/1.0\nConnection: keep-alive\n\n", 421),
    ("a host that is not the broker's", "GET /healthz HTTP/1.1\nHost: evil.example\n\n", 421),
    (
        "another host as the target",
        "GET http://evil.example/healthz HTTP/1.1\nHost: localhost\n\n",
        421,
    ),
    ("a host of v6 with a port", "GET /healthz HTTP/1.1\nHost: [::1]:80\n\n", 200),
    ("a whole address", "GET http://localhost:80/healthz?x=y HTTP/1.1\nHost: localhost\n\n", 200),
    ("an address without a path", "GET http://localhost HTTP/1.1\nHost: localhost\n\n", 404),
    ("a star", "OPTIONS * HTTP/1.1\nHost: localhost\n\n", 404),
    ("a path of two slashes", "GET //healthz HTTP/1.1\nHost: localhost\n\n", 404),
    ("a method of nobody's", "BREW /healthz HTTP/1.1\nHost: localhost\n\n", 405),
    (
        "names in capitals",
        "POST /healthz HTTP/1.1\nHOST: localhost\nCONTENT-LENGTH: 5\n\nhello",
        405,
    ),
    (
        "white space around a value",
        "POST /healthz HTTP/1.1\nHost: localhost\nContent-Length: \t5 \t\n\nhello",
        405,
    ),
    (
        "a coding in capitals",
        "POST /healthz HTTP/1.1\nHost: localhost\nTransfer-Encoding: CHUNKED\n\n3\nabc\n0\n\n",
        405,
    ),
    (
        "chunks with zeros and capitals",
        "POST /healthz HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n0000000A\n0123456789\n000\n\n",
        405,
    ),
    (
        "an extension",
        "POST /healthz HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n3;a=\"b c\"\nabc\n0;d\n\n",
        405,
    ),
    (
        "trailers",
        "POST /healthz HTTP/1.1\nHost: localhost\nTransfer-Encoding: chunked\n\n0\nA: b\nContent-Length: 7\n\n",
        405,
    ),
    ("a body of GET", "GET /healthz HTTP/1.1\nHost: localhost\nContent-Length: 5\n\nhello", 200),
    ("values beyond ASCII", "GET /healthz HTTP/1.1\nHost: localhost\nA: \u{e9}\u{fc}\n\n", 200),
    (
        "an expectation fulfilled",
        "POST /healthz HTTP/1.1\nHost: localhost\nContent-Length: 2\nExpect: 100-Continue\n\nhi",
        405,
    ),
];

/// The lines as HTTP ends them; \u{1} stands for a bare line feed, \u{2} for a bare return.
fn on_the_wire(text: &str) -> String {
    text.replace('\n', "\r\n").replace('\u{1}', "\n").replace('\u{2}', "\r")
}

#[test]
fn what_could_be_read_in_two_ways_is_refused_and_nothing_behind_it_is_read() {
    let (broker, _folder) = Broker::fresh();
    for &(what, request, status) in REFUSED {
        let mut browser = Browser::of(&broker);
        browser.say(on_the_wire(request));
        browser.say("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = browser.hear(true);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert!(answer.head.contains("content-type: application/problem+json"), "{what}");
        assert!(answer.head.contains("connection: close"), "{what}: {answer:?}");
        assert!(browser.is_closed(), "{what}");
    }
    broker.stop();
}

#[test]
fn a_client_that_speaks_tls_to_a_plain_port_hears_an_alert_of_tls_and_nothing_behind_it_is_read() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    browser.say("\x16\x03\x01\x02\x01\x01");
    browser.say("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let said = browser.until_closed();
    assert!(said.starts_with("\x15\x03") && !said.contains("HTTP"), "{said:?}");
    broker.stop();
}

#[test]
fn what_is_only_odd_is_taken_and_what_comes_behind_it_too() {
    let (broker, _folder) = Broker::fresh();
    for &(what, request, status) in TAKEN {
        let mut browser = Browser::of(&broker);
        browser.say(on_the_wire(request));
        let answer = browser.hear(true);
        assert_eq!(answer.status, status, "{what}: {answer:?}");
        assert_eq!(browser.get("/healthz").status, 200, "{what}");
    }
    broker.stop();
}

#[test]
fn a_head_beyond_its_limits_is_refused_with_the_limit_s_name() {
    let (broker, _folder) = Broker::fresh();
    let line = |bytes: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(bytes - 1));
    let headers = |count: usize| (0..count).map(|n| format!("a{n}: b\r\n")).collect::<String>();
    let long = |bytes: usize| format!("A: {}\r\n", "b".repeat(bytes));
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\n";
    let heads = [
        (line(8 << 10) + "Host: localhost\r\n", 404, ""),
        (line((8 << 10) + 1) + "Host: localhost\r\n", 414, "TARGET_BYTES_MAX"),
        (line(20 << 10) + "Host: localhost\r\n", 414, "TARGET_BYTES_MAX"),
        (get.to_owned() + &headers(63), 404, ""),
        (get.to_owned() + &headers(64), 431, "HEADERS_MAX"),
        (get.to_owned() + &long((16 << 10) - get.len() - 7), 404, ""),
        (get.to_owned() + &long((16 << 10) - get.len() - 6), 431, "HEAD_BYTES_MAX"),
    ];
    for (head, status, limit) in heads {
        let mut browser = Browser::of(&broker);
        browser.say(head + "\r\n");
        let answer = browser.hear(true);
        assert_eq!(answer.status, status, "{answer:?}");
        assert!(answer.body.contains(limit), "{answer:?}");
    }
    broker.stop();
}
