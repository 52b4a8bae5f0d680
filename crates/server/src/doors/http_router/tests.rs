//! Every route there is, asked by programs, by the broker's own pages and by others: the table of routes
//! is gone through, so that a new one cannot be forgotten.

use std::{net::Ipv4Addr, path::PathBuf, sync::mpsc};

use bytes::Bytes;
use http::HeaderMap;
use sennit_journal::DirectorySettings;

use super::*;
use crate::{
    broker::backup::Backups,
    doors::streams::PAGE_HEADERS,
    http::{
        allowed_hosts::AllowedHosts, allowed_origins::AllowedOrigins, body::Body,
        browser_guard::BrowserRules,
    },
    identity::authority::Authority,
    runtime::{index::IndexVec, shard_files::ShardFiles},
};

const HOST: (&str, &str) = ("host", "127.0.0.1:4437");
const EVIL: (&str, &str) = ("origin", "https://evil.example");
/// A page of another server on this machine.
const LOCAL: (&str, &str) = ("origin", "http://localhost:3000");
const OWN: (&str, &str) = ("origin", "http://127.0.0.1:4437");
/// A form or a picture on some page.
const CROSS_SITE: (&str, &str) = ("sec-fetch-site", "cross-site");

/// The door of a broker that starts, as it listens on the loopback: nothing lies behind it yet, and all
/// that is looked at first is looked at.
fn door_with(origins: &[&str]) -> Rc<HttpRouter> {
    let settings =
        DirectorySettings { shards: 1, segment_bytes: 20 << 20, incarnation: 1, node: None };
    let backups =
        Backups::new(settings, PathBuf::new(), Arc::new(ShardFiles::closed(1)), mpsc::channel().0);
    let status = Arc::new(Status::recovering(
        IndexVec::of(1, |_| Arc::default()),
        IndexVec::of(1, |_| Arc::default()),
        backups,
        PathBuf::new(),
        None,
        Authority::default(),
    ));
    let origins: Vec<_> = origins.iter().map(|text| text.parse().unwrap()).collect();
    let rules = BrowserRules {
        hosts: AllowedHosts::new(Ipv4Addr::LOCALHOST.into(), Vec::new()),
        origins: AllowedOrigins::new(&origins, None),
        page_headers: &PAGE_HEADERS,
    };
    Rc::new(HttpRouter::new(
        Rc::new(HttpThreadState::new(Arc::default(), None, rules)),
        status,
        (None, None),
        (None, None),
        Authority::default(),
        tokio::sync::mpsc::unbounded_channel().0,
    ))
}

fn door() -> Rc<HttpRouter> {
    door_with(&[])
}

/// A path of each route, and some where nothing lies.
fn paths() -> Vec<(Option<(&'static Route, Resource)>, String)> {
    let filled = |(route, resource): (&'static Route, Resource)| {
        let path = route.path.replace("{id}", "s").replace("{path}", "a").replace("{stream}", "a");
        (Some((route, resource)), path)
    };
    let nowhere = ["/", "*", "/v1/admin", "/v1/stream/__ds/other", "/favicon.ico"];
    http_routes::all().map(filled).chain(nowhere.map(|path| (None, path.to_owned()))).collect()
}

const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"];

struct Told {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Told {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

fn ask(door: &Rc<HttpRouter>, method: &str, path: &str, headers: &[(&str, &str)]) -> Told {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = Request::from(request.body(Bytes::new()).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let Response { status, headers, body, upgrade: _ } =
        runtime.block_on(door.clone().of_peer(Peer::default()).answer(Rc::new(request)));
    let body = match body {
        Body::Full(body) => String::from_utf8(body.to_vec()).unwrap(),
        _ => String::new(),
    };
    Told { status: status.as_u16(), headers: headers.iter().cloned().collect(), body }
}

/// Asks every route, with every method.
fn ask_all(door: &Rc<HttpRouter>, headers: &[(&str, &str)], mut look: impl FnMut(Asked, &Told)) {
    for (found, path) in paths() {
        let (route, resource) = found.unzip();
        for method in METHODS {
            let told = ask(door, method, &path, headers);
            let reach = route.map_or(Reach::Own, |route| route.reach);
            look(Asked { what: format!("{method} {path}"), method, route, resource, reach }, &told);
        }
    }
}

/// What was asked.
struct Asked {
    what: String,
    method: &'static str,
    route: Option<&'static Route>,
    resource: Option<Resource>,
    reach: Reach,
}

impl Asked {
    fn is_read(&self) -> bool {
        matches!(self.method, "GET" | "HEAD")
    }
}

#[test]
fn only_streams_and_live_connections_are_for_pages_of_other_origins() {
    let of = |reach: Reach| -> Vec<_> {
        let routes = http_routes::all().filter(|(route, _)| route.reach == reach);
        routes.map(|(route, _)| route.path).collect()
    };
    assert_eq!(of(Reach::Allowed), ["/v1/stream/{path}", "/v1/atomic"]);
    let live = [
        "/connection/websocket",
        "/wse",
        "/connection/sse",
        "/connection/http_stream",
        "/emulation",
        "/native",
    ];
    assert_eq!(of(Reach::AllowedToChange), live);
}

#[test]
fn no_route_is_asked_for_by_a_host_that_is_not_the_brokers() {
    let door = door();
    for host in
        ["evil.example:4437", "evil.example", "localhost.evil.example", "10.0.0.1", "", "a b"]
    {
        // As a program, and as a page that has come by that host and takes the broker for its own origin.
        let origin = format!("http://{host}");
        for asker in [&[][..], &[("origin", origin.as_str())], &[("sec-fetch-site", "same-origin")]]
        {
            let headers = [&[("host", host)], asker].concat();
            ask_all(&door, &headers, |asked, told| {
                assert_eq!(told.status, 421, "{} {headers:?}", asked.what);
                assert!(told.body.contains("host_not_allowed"), "{}", told.body);
                assert_eq!(told.header("access-control-allow-origin"), None);
            });
        }
    }
    ask_all(&door, &[], |asked, told| assert_eq!(told.status, 421, "{} without one", asked.what));
    ask_all(&door, &[HOST, ("host", "evil.example")], |asked, told| {
        assert_eq!(told.status, 421, "{} with two", asked.what);
    });
}

#[test]
fn a_program_may_ask_every_route() {
    let door = door();
    for host in ["127.0.0.1:4437", "localhost", "LOCALHOST:80", "[::1]:4437", "a.localhost"] {
        ask_all(&door, &[("host", host)], |asked, told| {
            let expected = match asked.route {
                None => 404,
                Some(route) if !route.knows(asked.method) => 405,
                Some(_) if asked.method == "OPTIONS" => 204,
                Some(_) if matches!(asked.resource, Some(Resource::Alive | Resource::Metrics)) => {
                    200
                }
                // It has no peers.
                Some(_) if matches!(asked.resource, Some(Resource::Cluster)) => 404,
                // It is no request for a WebSocket.
                Some(_) if matches!(asked.resource, Some(Resource::Live | Resource::Wse)) => 426,
                Some(_) => 503,
            };
            assert_eq!(told.status, expected, "{}", asked.what);
            if told.status == 405 {
                assert_eq!(told.header("allow"), asked.route.map(|route| route.methods));
            }
        });
    }
}

#[test]
fn a_page_of_the_brokers_own_origin_may_ask_every_route() {
    let door = door();
    for page in [OWN, ("sec-fetch-site", "same-origin"), ("sec-fetch-site", "none")] {
        ask_all(&door, &[HOST, page], |asked, told| {
            assert!(told.status != 403 && told.status != 421, "{} {page:?}", asked.what);
        });
    }
}

#[test]
fn a_page_of_another_origin_may_ask_no_route() {
    let door = door();
    for origin in
        [EVIL, ("origin", "null"), ("origin", ""), ("origin", "http://127.0.0.1.evil.example")]
    {
        ask_all(&door, &[HOST, origin], |asked, told| {
            if asked.reach == Reach::Allowed && asked.method == "OPTIONS" {
                // A preflight: without this a browser takes it for a no.
                assert_eq!(told.status, 204, "{}", asked.what);
            } else {
                assert_eq!(told.status, 403, "{}", asked.what);
                assert!(told.body.contains("foreign_origin"), "{}", told.body);
            }
            assert_eq!(told.header("access-control-allow-origin"), None, "{}", asked.what);
        });
    }
    ask_all(&door, &[HOST, OWN, EVIL], |asked, told| {
        assert!(matches!(told.status, 403 | 204), "{} with two origins", asked.what);
        assert_eq!(told.header("access-control-allow-origin"), None, "{}", asked.what);
    });
}

#[test]
fn a_page_that_says_no_origin_changes_nothing_and_begins_no_backup() {
    let door = door();
    for site in [CROSS_SITE, ("sec-fetch-site", "same-site")] {
        ask_all(&door, &[HOST, site], |asked, told| {
            // It cannot read what it gets of a stream.
            let reads = asked.reach == Reach::Allowed && asked.is_read();
            if reads {
                assert_ne!(told.status, 403, "{}", asked.what);
                assert_eq!(told.header("cross-origin-resource-policy"), Some("same-origin"));
            } else if !(asked.reach == Reach::Allowed && asked.method == "OPTIONS") {
                assert_eq!(told.status, 403, "{}", asked.what);
            }
        });
    }
}

#[test]
fn a_page_of_this_machine_or_one_that_is_named_may_use_what_is_for_pages_and_nothing_else() {
    let named = ("origin", "https://app.example.com");
    let door = door_with(&["https://app.example.com"]);
    for page in [LOCAL, named] {
        ask_all(&door, &[HOST, page], |asked, told| {
            if asked.reach == Reach::Own {
                assert_eq!(told.status, 403, "{}", asked.what);
                assert_eq!(told.header("access-control-allow-origin"), None, "{}", asked.what);
            } else if matches!(asked.resource, Some(Resource::Live | Resource::Native)) {
                let asked_for = if asked.resource == Some(Resource::Live) { 426 } else { 503 };
                assert_eq!(told.status, if asked.method == "GET" { asked_for } else { 405 });
            } else if asked.route.is_some_and(|route| route.knows(asked.method)) {
                assert_eq!(told.header("access-control-allow-origin"), Some("*"), "{}", asked.what);
                if asked.method == "OPTIONS" {
                    let methods = asked.route.map(|route| route.methods);
                    assert_eq!(told.header("access-control-allow-methods"), methods);
                }
            }
        });
    }
    ask_all(&door, &[HOST, EVIL], |asked, told| {
        assert!(matches!(told.status, 403 | 204), "{}", asked.what);
    });
}

#[test]
fn where_all_pages_may_read_streams_they_change_nothing() {
    let door = door_with(&["*"]);
    ask_all(&door, &[HOST, EVIL], |asked, told| {
        let may_read = asked.reach == Reach::Allowed && asked.is_read();
        if may_read && asked.route.is_some_and(|route| route.knows(asked.method)) {
            assert_eq!(told.status, 503, "{}", asked.what);
            assert_eq!(told.header("access-control-allow-origin"), Some("*"));
            assert_eq!(told.header("vary"), None, "all are told the same: caches share it");
        } else if asked.reach == Reach::Allowed && asked.method == "OPTIONS" {
            assert_eq!(told.header("access-control-allow-methods"), Some("GET, HEAD, OPTIONS"));
        } else if !may_read {
            assert_eq!(told.status, 403, "{}", asked.what);
        }
    });
}

#[test]
fn no_answer_is_guessed_at_embedded_kept_by_accident_or_given_with_credentials() {
    let door = door();
    for asker in [&[HOST][..], &[HOST, LOCAL], &[HOST, EVIL], &[HOST, CROSS_SITE], &[]] {
        ask_all(&door, asker, |asked, told| {
            let what = format!("{} {asker:?}", asked.what);
            assert_eq!(told.header("x-content-type-options"), Some("nosniff"), "{what}");
            assert_eq!(told.header("cross-origin-resource-policy"), Some("same-origin"), "{what}");
            assert_eq!(told.header("access-control-allow-credentials"), None, "{what}");
            if !told.body.is_empty() {
                assert!(told.header("content-type").is_some(), "{what}");
                assert_eq!(told.header("cache-control"), Some("no-store"), "{what}");
            }
            if told.status >= 400 {
                let kind = told.header("content-type");
                let is_problem = kind == Some("application/problem+json");
                assert!(is_problem || asked.resource == Some(Resource::Ready), "{what}");
            }
            let varies = told.header("access-control-allow-origin").is_some();
            assert!(!varies || told.header("vary") == Some("origin"), "{what}");
        });
    }
}

#[test]
fn what_lies_in_a_stream_is_no_page_of_the_brokers() {
    let told = ask(&door(), "GET", "/v1/stream/a", &[HOST]);
    assert_eq!(told.header("content-security-policy"), Some("sandbox; frame-ancestors 'none'"));
}

#[test]
fn only_reads_and_appends_have_company_and_only_of_their_kind() {
    let door = door();
    let concurrency = |method: &str, path: &str| {
        let request = http::Request::builder().method(method).uri(path);
        door.clone()
            .of_peer(Peer::default())
            .concurrency(&request.body(Bytes::new()).unwrap().into())
    };
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(concurrency(method, "/v1/stream/a"), Concurrency::Reads);
    }
    assert_eq!(concurrency("POST", "/v1/stream/a"), Concurrency::Appends);
    for (method, path) in [
        ("PUT", "/v1/stream/a"),
        ("DELETE", "/v1/stream/a"),
        ("POST", "/v1/atomic"),
        ("POST", "/v1/stream/__ds/subscriptions/a/ack"),
        ("PATCH", "/v1/stream/a"),
    ] {
        assert_eq!(concurrency(method, path), Concurrency::Alone, "{method} {path}");
    }
}
