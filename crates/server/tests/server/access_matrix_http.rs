//! The matrix of identity over HTTP: every route and method of the page for machines, with the right that it needs, with and
//! without it, with wrong credentials and with none. A new route fails without its row.

use sennit_identity::Verb;
use sennit_protocol::control::change_access::Change;

use crate::{
    access::{Guarded, Key},
    access_matrix::{NO_TOPIC, Named, Need, all_but, guarded, right},
    browser::{Answer, Browser},
};

/// The page for machines: each path with the methods that it names. A test of the server compares it with the routes.
pub fn documented() -> Vec<(String, String)> {
    let page = include_str!("../../../../docs/reference/openapi.yaml");
    let paths = page.split_once("\npaths:\n").unwrap().1.split_once("\ncomponents:").unwrap().0;
    let (mut documented, mut path) = (Vec::new(), String::new());
    for line in paths.lines() {
        if let Some(found) = line.strip_prefix("  /") {
            path = format!("/{}", found.trim_end_matches(':'));
        } else if let Some(word) = line.strip_prefix("    ").and_then(|l| l.strip_suffix(':'))
            && ["get", "head", "post", "put", "delete"].contains(&word)
        {
            documented.push((path.clone(), word.to_ascii_uppercase()));
        }
    }
    documented
}

/// What a route needs, and what is sent to it about a stream of this name.
pub fn http_row(path: &str, method: &str, stream: &str) -> (Need, String, String) {
    use Need::Right;
    let subscription = |rest: &str| format!("/v1/stream/__ds/subscriptions{rest}");
    let stream_path = format!("/v1/stream/{stream}");
    let body = || r#"{"type":"pull-wake","streams":["x"],"wake_stream":"w"}"#.to_owned();
    match (path, method) {
        ("/v1/stream/{path}", "PUT") => (Right(Verb::Create), stream_path, String::new()),
        ("/v1/stream/{path}", "POST") => (Right(Verb::Publish), stream_path, "x".into()),
        ("/v1/stream/{path}", "GET") => (Right(Verb::Read), stream_path, String::new()),
        ("/v1/stream/{path}", "HEAD") => (Right(Verb::Describe), stream_path, String::new()),
        ("/v1/stream/{path}", "DELETE") => (Right(Verb::Delete), stream_path, String::new()),
        ("/v1/atomic", "POST") => {
            let appends = format!(
                r#"{{"appends":[{{"stream":"{stream}","content_type":"text/plain","body":"x"}}]}}"#
            );
            (Right(Verb::Publish), "/v1/atomic".into(), appends)
        }
        (path, method) if path.starts_with("/v1/stream/__ds/subscriptions") => {
            let rest = path.trim_start_matches("/v1/stream/__ds/subscriptions");
            let need = match rest {
                "/{id}/{verb}" => Need::None,
                _ => Right(Verb::Webhook),
            };
            let body = || match rest {
                "/{id}/claim" => r#"{"worker":"w"}"#.to_owned(),
                _ => body(),
            };
            let rest = rest.replace("{id}", "s").replace("{path}", "x").replace("{stream}", "x");
            let body = if method == "PUT" || method == "POST" { body() } else { String::new() };
            (need, subscription(&rest.replace("{verb}", "ack")), body)
        }
        ("/v1/stream/__ds/jwks.json" | "/healthz" | "/readyz", "GET") => {
            (Need::None, path.into(), String::new())
        }
        ("/api/v1/publish", "POST") => {
            let message = format!(r#"{{"topic":"{stream}","data":1}}"#);
            (Right(Verb::Publish), path.into(), message)
        }
        ("/api/v1/live/send", "POST") => {
            (Right(Verb::Live), path.into(), r#"{"all":true,"data":1}"#.into())
        }
        ("/api/v1/live/connections", "GET") => (Right(Verb::Live), path.into(), String::new()),
        ("/api/v1/live/connections", "DELETE") => {
            (Right(Verb::Live), format!("{path}?user=nobody"), String::new())
        }
        ("/api/v1/live/connections/{id}", "GET" | "DELETE") => {
            let path = path.replace("{id}", "0000ffffffff00000000");
            (Right(Verb::Live), path, String::new())
        }
        ("/api/v1/live/subscribe" | "/api/v1/live/unsubscribe", "POST") => {
            (Right(Verb::Live), path.into(), r#"{"user":"nobody","channel":"a"}"#.into())
        }
        // Its first command says who asks, or it looks at credentials itself: `access_live` and `live_wse` go on with that.
        ("/connection/websocket" | "/wse" | "/connection/sse" | "/native", "GET") => {
            (Need::None, path.into(), String::new())
        }
        // The same, and no command is sent; commands beside it name a session, which nobody else knows.
        ("/connection/sse" | "/connection/http_stream" | "/emulation", "POST") => {
            (Need::None, path.into(), String::new())
        }
        ("/metrics", "GET") => (Right(Verb::Monitor), path.into(), String::new()),
        ("/v1/admin/cluster", "GET") => (Right(Verb::Monitor), path.into(), String::new()),
        ("/v1/admin/backup", "GET") => (Right(Verb::Backup), path.into(), String::new()),
        other => panic!("{other:?} has no row"),
    }
}

fn http_answer(guarded: &Guarded, row: (&str, &str, &str), authorization: &str) -> Answer {
    http_answer_by(Browser::of(&guarded.broker), row, authorization)
}

/// What a row is answered with that is sent over this connection.
pub fn http_answer_by(
    mut browser: Browser,
    (method, path, body): (&str, &str, &str),
    authorization: &str,
) -> Answer {
    let length = body.len();
    let kind = if path == "/v1/atomic" || path.contains("subscriptions") {
        "application/json"
    } else {
        "text/plain"
    };
    browser.say(format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n{authorization}Content-Length: {length}\r\n\r\n{body}"
    ));
    // A backup is no text.
    let head = browser.until("\r\n\r\n");
    let is_text = !head.contains("application/x-tar");
    browser.hear_after(&head, method != "HEAD" && is_text)
}

#[test]
fn every_route_of_http_is_closed_without_its_right_and_open_with_it_alone() {
    let (mut guarded, ..) = guarded();
    let bearer = |key: &Key| format!("Authorization: Bearer {}\r\n", key.text);
    let (_, creator) = guarded.connect(&["create >"]);
    let there = ("PUT", "/v1/stream/chat/there", "");
    assert_eq!(http_answer(&guarded, there, &bearer(&creator)).status, 201);
    let mut rows = 0;
    for (path, method) in documented() {
        rows += 1;
        let (need, of_there, body) = http_row(&path, &method, "chat/there");
        let (_, of_absent, body_absent) = http_row(&path, &method, "chat/absent");
        let [there, absent] = [(&of_there, &body), (&of_absent, &body_absent)]
            .map(|(path, body)| (method.as_str(), path.as_str(), body.as_str()));
        let Need::Right(verb) = need else {
            let status = http_answer(&guarded, there, "").status;
            let others = ["/wse", "/emulation", "/native"];
            let is_live = path.starts_with("/connection/") || others.contains(&path.as_str());
            let is_open = status == 200 || is_live && matches!(status, 400 | 426);
            assert!(path.contains("{verb}") || is_open, "{method} {path} {status}");
            continue;
        };
        for wrong in ["", "Authorization: Bearer sennit_x\r\n", "Authorization: Basic eDp5\r\n"] {
            let (one, other) =
                (http_answer(&guarded, there, wrong), http_answer(&guarded, absent, wrong));
            assert_eq!((one.status, one.body.as_str()), (401, other.body.as_str()), "{path}");
        }
        let all = all_but(verb);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        let key = guarded.key("", &all);
        let (one, other) = (
            http_answer(&guarded, there, &bearer(&key)),
            http_answer(&guarded, absent, &bearer(&key)),
        );
        assert_eq!(one.status, 403, "{method} {path} {one:?}");
        let same = |text: &str| text.replace("chat/there", "S").replace("chat/absent", "S");
        assert_eq!((same(&one.body), one.status), (same(&other.body), other.status), "{path}");
        let name = Named { name: "chat/there", id: NO_TOPIC };
        let key = guarded.key("", &[&right(verb, &name)]);
        let status = http_answer(&guarded, there, &bearer(&key)).status;
        assert!(![401, 403].contains(&status), "{method} {path} {status}");
        guarded.change(Change::DeleteKey(key.id.clone()));
        assert_eq!(http_answer(&guarded, there, &bearer(&key)).status, 401, "{method} {path}");
        // It may be deleted by now.
        http_answer(&guarded, ("PUT", "/v1/stream/chat/there", ""), &bearer(&creator));
    }
    assert!(rows > 15, "{rows}");
}
