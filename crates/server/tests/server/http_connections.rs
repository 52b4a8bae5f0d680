//! Connections of the HTTP port over real sockets: how long they live and what goes over them.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, StatusCode, Version};
use hyper_util::rt::TokioIo;
use sennit_server::Config;
use tempfile::TempDir;

use crate::{
    browser::Browser,
    world::{Broker, LONG, config},
};

#[test]
fn a_connection_stays_open_until_it_is_asked_to_close() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    for _ in 0..3 {
        let answer = browser.get("/healthz");
        assert_eq!((answer.status, answer.body.as_str()), (200, "{\"alive\":true}\n"));
        assert!(answer.head.contains("\r\ndate: "));
        assert_eq!(browser.get("/nothing").status, 404);
    }
    browser.say("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: Foo, Close\r\n\r\n");
    assert!(browser.hear(true).head.contains("connection: close"));
    assert!(browser.is_closed());
    broker.stop();
}

#[test]
fn a_client_of_1_0_gets_one_answer_unless_it_asks_for_more() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    for _ in 0..2 {
        browser.say("GET /healthz HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n");
        let answer = browser.hear(true);
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("connection: keep-alive"));
    }
    browser.say("GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n");
    assert_eq!(browser.hear(true).status, 200);
    assert!(browser.is_closed());
    broker.stop();
}

#[test]
fn many_requests_in_one_piece_are_answered_in_their_order() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    let paths = ["/healthz", "/readyz", "/nothing", "/metrics"];
    let all = paths.iter().cycle().take(200);
    let all: String =
        all.map(|path| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).collect();
    browser.say(&all);
    for path in paths.iter().cycle().take(200) {
        let answer = browser.hear(true);
        let begin = match *path {
            "/healthz" => "{\"alive\"",
            "/readyz" => "{\"ready\":true",
            "/metrics" => "# ",
            _ => "{\"code\":\"unknown_path\"",
        };
        assert!(answer.body.starts_with(begin), "{path}: {answer:?}");
    }
    broker.stop();
}

#[test]
fn a_request_that_comes_byte_by_byte_is_as_good_as_any() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    let request = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3;a=b\r\nabc\r\n0\r\nTrailer: x\r\n\r\n";
    for byte in request.bytes() {
        browser.say([byte]);
    }
    let answer = browser.hear(true);
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: GET, HEAD"));
    assert_eq!(browser.get("/healthz").status, 200);
    broker.stop();
}

#[test]
fn a_client_that_waits_for_it_is_told_to_send_the_body() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    browser.say(
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(browser.hear(false).status, 100);
    browser.say("hello");
    assert_eq!(browser.hear(true).status, 405);
    assert_eq!(browser.get("/healthz").status, 200);
    broker.stop();
}

#[test]
fn head_is_answered_like_get_without_the_body() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    browser.say("HEAD /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let answer = browser.hear(false);
    assert_eq!(answer.status, 200);
    assert!(answer.head.contains("content-length: 15\r\n"));
    assert_eq!(browser.get("/healthz").status, 200);
    broker.stop();
}

#[test]
fn a_body_of_the_limit_is_taken_and_a_longer_one_refused() {
    let (broker, _folder) = Broker::fresh();
    let most = 17 << 20;
    let mut browser = Browser::of(&broker);
    browser.say(format!(
        "POST /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: {most}\r\n\r\n"
    ));
    browser.say(vec![b'x'; most]);
    assert_eq!(browser.hear(true).status, 405);
    assert_eq!(browser.get("/healthz").status, 200);
    let chunked = "POST /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    browser.say(chunked);
    browser.say(format!("{most:x}\r\n"));
    browser.say(vec![b'x'; most]);
    browser.say("\r\n1\r\nx\r\n0\r\n\r\n");
    let answer = browser.hear(true);
    assert_eq!(answer.status, 413);
    assert!(answer.body.contains("BODY_BYTES_MAX"));
    assert!(browser.is_closed());
    broker.stop();
}

#[test]
fn no_more_connections_are_served_than_there_are_places() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(Config { http_connections: 1, ..config(folder.path()) });
    let mut first = Browser::of(&broker);
    assert_eq!(first.get("/healthz").status, 200);
    let mut second = Browser::of(&broker);
    second.say("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let counted = first.get("/metrics").body;
    let opened = counted.lines().filter(|line| line.starts_with("sennit_http_connections_opened"));
    let opened: u64 =
        opened.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(opened, 1);
    drop(first);
    assert_eq!(second.hear(true).status, 200);
    broker.stop();
}

#[test]
fn who_finds_no_place_is_told_to_come_again() {
    let folder = TempDir::new().unwrap();
    let broker = Broker::start(Config { http_connections: 1, ..config(folder.path()) });
    let mut first = Browser::of(&broker);
    assert_eq!(first.get("/healthz").status, 200);
    let mut second = Browser::of(&broker);
    let refused = second.get("/healthz");
    assert_eq!((refused.status, refused.body.contains("CONNECTIONS_MAX")), (503, true));
    assert!(refused.head.contains("retry-after: 1\r\n"), "{}", refused.head);
    assert!(second.is_closed());
    assert_eq!(first.get("/healthz").status, 200);
    drop(first);
    let again = || Browser::of(&broker).get("/healthz").status;
    assert!((0..100).map(|_| again()).any(|status| status == 200));
    broker.stop();
}

#[test]
fn connections_at_rest_close_when_the_broker_stops() {
    let (broker, _folder) = Broker::fresh();
    let mut browser = Browser::of(&broker);
    assert_eq!(browser.get("/healthz").status, 200);
    let mut silent = Browser::of(&broker);
    let begin = std::time::Instant::now();
    broker.stop();
    assert!(browser.is_closed() && silent.is_closed());
    assert!(begin.elapsed() < std::time::Duration::from_secs(4));
}

#[test]
fn http_2_is_spoken_with_who_begins_with_it() {
    let (broker, _folder) = Broker::fresh();
    let address = broker.addresses.http;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let asking = async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let client = hyper::client::conn::http2::Builder::new(LocalExecutor);
        let (sender, connection) = client.handshake(TokioIo::new(stream)).await.unwrap();
        tokio::task::spawn_local(connection);
        let ask = |method: &str, path: &str, body: Vec<u8>| {
            let uri = format!("http://localhost{path}");
            let body = Full::new(Bytes::from(body));
            let request = Request::builder().method(method).uri(uri).body(body).unwrap();
            let mut sender = sender.clone();
            async move {
                let answer = sender.send_request(request).await.unwrap();
                let (parts, body) = answer.into_parts();
                assert_eq!(parts.version, Version::HTTP_2);
                (parts, body.collect().await.unwrap().to_bytes())
            }
        };
        let (parts, body) = ask("GET", "/healthz", Vec::new()).await;
        assert_eq!((parts.status, &body[..]), (StatusCode::OK, &b"{\"alive\":true}\n"[..]));
        let (parts, body) = ask("HEAD", "/healthz", Vec::new()).await;
        assert_eq!((parts.status, body.len()), (StatusCode::OK, 0));
        assert_eq!(parts.headers["content-length"], "15");
        let (parts, _) = ask("POST", "/healthz", vec![b'x'; 17 << 20]).await;
        assert_eq!(parts.status, StatusCode::METHOD_NOT_ALLOWED);
        let (parts, _) = ask("POST", "/healthz", vec![b'x'; (17 << 20) + 1]).await;
        assert_eq!(parts.status, StatusCode::PAYLOAD_TOO_LARGE);
        let many = (0..100).map(|_| ask("GET", "/readyz", Vec::new()));
        for answer in many.map(tokio::task::spawn_local).collect::<Vec<_>>() {
            assert_eq!(answer.await.unwrap().0.status, StatusCode::OK);
        }
    };
    let all = async { tokio::time::timeout(LONG, asking).await.expect("all is answered") };
    tokio::task::LocalSet::new().block_on(&runtime, all);
    broker.stop();
}

/// Runs what the client starts on this thread.
#[derive(Clone)]
pub struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}
