//! Fetches from issuers of all kinds, over sockets of the loopback address.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// What an issuer sends: this text, then zeros, until the client has enough; then it waits, if it is told to.
#[derive(Clone)]
struct Script {
    head: String,
    zeros: u64,
    waits: bool,
}

fn answer(headers: &str, body: &str) -> Script {
    let length = body.len();
    let head = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {length}\r\n\r\n{body}");
    Script { head, zeros: 0, waits: false }
}

/// An issuer on a port of its own, and the number of bytes that it has sent.
async fn issuer(script: Script) -> (KeySetUrl, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/keys?a=b", listener.local_addr().unwrap());
    let sent = Arc::new(AtomicU64::new(0));
    let counter = sent.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (script, sent) = (script.clone(), counter.clone());
            tokio::spawn(async move {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                assert!(request[..length].starts_with(b"GET /keys?a=b HTTP/1.1\r\n"));
                stream.write_all(script.head.as_bytes()).await.unwrap();
                let mut left = script.zeros;
                while left > 0 {
                    let chunk = [b' '; 8192];
                    if stream.write_all(&chunk).await.is_err() {
                        return;
                    }
                    sent.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                    left = left.saturating_sub(chunk.len() as u64);
                }
                if script.waits {
                    std::future::pending::<()>().await;
                }
            });
        }
    });
    (url.parse().unwrap(), sent)
}

async fn fetch_from(script: Script) -> Result<FetchedKeySet, KeySetFetchFailure> {
    let (url, _) = issuer(script).await;
    fetch(&HttpClient::default(), &url).await
}

#[tokio::test]
async fn keys_come_with_the_time_for_which_they_are_fresh() {
    for (headers, max_age) in [
        ("", None),
        ("cache-control: max-age=600\r\n", Some(600)),
        ("Cache-Control: public, MAX-AGE=\"60\", must-revalidate\r\n", Some(60)),
        ("cache-control: no-store, max-age=600\r\n", Some(0)),
        ("cache-control: max-age=x\r\n", None),
        ("cache-control: max-age=-1\r\n", None),
    ] {
        let fetched = fetch_from(answer(headers, KEYS)).await.unwrap();
        assert_eq!(fetched.keys.keys()[0].id(), Some("a"));
        assert_eq!(fetched.max_age, max_age.map(Duration::from_secs), "{headers}");
    }
}

#[tokio::test]
async fn what_is_no_key_set_is_refused() {
    for body in ["", "<html>", "{}", "[]", "\0\u{1}\u{2}"] {
        let refused = fetch_from(answer("", body)).await.unwrap_err();
        let expected = KeySetFetchFailure::KeySet(KeySetError::NotAKeySet);
        assert_eq!(refused.to_string(), expected.to_string(), "{body:?}");
    }
    let refused = fetch_from(answer("", r#"{"keys":[]}"#)).await.unwrap_err();
    assert!(matches!(refused, KeySetFetchFailure::KeySet(KeySetError::NoKey)));
    for head in ["SSH-2.0-OpenSSH_9.6\r\n\r\n", "HTTP/9 what\r\n\r\n"] {
        let script = Script { head: head.to_owned(), zeros: 0, waits: false };
        let refused = fetch_from(script).await.unwrap_err();
        assert!(matches!(refused, KeySetFetchFailure::Client(ClientFailure::Http(_))), "{refused}");
    }
    let script = Script {
        head: format!("HTTP/1.1 200 OK\r\ncontent-length: 9000\r\n\r\n{KEYS}"),
        zeros: 0,
        waits: false,
    };
    let refused = fetch_from(script).await.unwrap_err();
    assert!(matches!(refused, KeySetFetchFailure::Body(_)), "{refused}");
}

#[tokio::test]
async fn other_statuses_and_redirects_are_refused() {
    for (status, is_redirect) in [
        ("301 Moved", true),
        ("307 Temporary", true),
        ("404 Not Found", false),
        ("500 Oops", false),
        ("204 No Content", false),
    ] {
        let head = format!(
            "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
        );
        let refused = fetch_from(Script { head, zeros: 0, waits: false }).await.unwrap_err();
        assert_eq!(matches!(refused, KeySetFetchFailure::Redirect(_)), is_redirect, "{refused}");
        assert_eq!(matches!(refused, KeySetFetchFailure::Status(_)), !is_redirect, "{refused}");
    }
}

/// With and without a length that is told, and in chunks.
#[tokio::test]
async fn a_hundred_megabytes_are_refused_while_they_come() {
    let hundred = 100_u64 << 20;
    for head in [
        format!("HTTP/1.1 200 OK\r\ncontent-length: {hundred}\r\n\r\n"),
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{hundred:x}\r\n"),
    ] {
        let (url, sent) = issuer(Script { head: head.clone(), zeros: hundred, waits: true }).await;
        let refused = fetch(&HttpClient::default(), &url).await.unwrap_err();
        assert!(matches!(refused, KeySetFetchFailure::TooLong), "{head}: {refused}");
        // What lies in the buffers of both sockets is sent and not read.
        let sent = sent.load(Ordering::Relaxed);
        assert!(sent < 32 << 20, "{sent} bytes were sent");
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_issuer_is_not_waited_for() {
    for head in [String::new(), "HTTP/1.1 200 OK\r\ncontent-length: 200\r\n\r\n{\"ke".to_owned()] {
        let refused = fetch_from(Script { head, zeros: 0, waits: true }).await.unwrap_err();
        assert!(matches!(refused, KeySetFetchFailure::TooSlow), "{refused}");
    }
}

#[tokio::test]
async fn an_issuer_that_is_away_is_not_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    let refused = fetch(&HttpClient::default(), &url).await.unwrap_err();
    assert!(matches!(refused, KeySetFetchFailure::Client(ClientFailure::Io(_))), "{refused}");
}

#[test]
fn a_url_is_https_or_of_this_machine() {
    let parse = |text: &str| text.parse::<KeySetUrl>();
    for good in [
        "https://issuer.example/.well-known/jwks.json",
        "https://10.0.0.1:8443/keys?a=b",
        "http://127.0.0.1:9/keys",
        "http://[::1]:9/",
        "http://localhost/",
    ] {
        assert_eq!(parse(good).unwrap().to_string(), good);
    }
    for other in [
        "http://issuer.example/",
        "http://10.0.0.1/",
        "http://localhost.evil.example/",
        "http://2130706433/",
    ] {
        assert_eq!(parse(other), Err(KeySetUrlError::NotTls), "{other}");
    }
    for other in [
        "",
        "issuer.example",
        "/keys",
        "ftp://issuer.example/",
        "file:///etc/passwd",
        "https://user:secret@issuer.example/",
        "https://issuer.example/#keys",
        "https://issuer.example:0/",
        "https://issuer.example:99999/",
        &format!("https://issuer.example/{}", "a".repeat(CLIENT_URL_BYTES_MAX)),
    ] {
        assert_eq!(parse(other), Err(KeySetUrlError::Malformed), "{other}");
    }
}
