//! Makes a connection to the HTTP port a WebSocket, on which the Centrifuge client protocol is spoken in Protobuf. It knows
//! no commands.

use bytes::BytesMut;
use hyper::{
    HeaderMap, StatusCode,
    header::{HeaderName, HeaderValue},
};
use sennit_centrifuge::Encoding;
use sennit_websocket::client::UpgradeRequest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    connect_options::CONNECT_TIMEOUT,
    exit::{Exit, Failure},
    http::{self, Stream, Unanswered},
    http_retry::Refused,
};

/// The path of live connections.
const TARGET: &str = "/connection/websocket";

/// The longest head of an answer, and the longest body of a refusal.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Most headers of an answer.
const HEADERS_MAX: usize = 64;

/// Upgrades a connection with the broker at `address`; returns what came behind the answer.
///
/// # Errors
/// The broker refuses, is none, or does not answer in time; if it refuses for a moment, it may be asked again.
pub async fn upgrade(
    stream: &mut Box<dyn Stream>,
    address: &str,
    authorization: Option<&str>,
    key: [u8; 16],
) -> Result<BytesMut, Unanswered> {
    let silent = || {
        let text =
            format!("the broker at {address} fell silent: nothing came for {CONNECT_TIMEOUT:?}");
        Failure::new(Exit::Unreachable, text)
    };
    let upgrading = upgrade_at_leisure(stream, address, authorization, key);
    timeout(CONNECT_TIMEOUT, upgrading).await.unwrap_or_else(|_| Err(silent().into()))
}

async fn upgrade_at_leisure(
    stream: &mut Box<dyn Stream>,
    address: &str,
    authorization: Option<&str>,
    key: [u8; 16],
) -> Result<BytesMut, Unanswered> {
    let broken = |why: &str| {
        let text = format!("the broker at {address} does not make it a live connection: {why}");
        Failure::new(Exit::Unreachable, text)
    };
    let headers = Vec::from_iter(authorization.map(|value| ("Authorization", value)));
    let request = UpgradeRequest {
        host: address,
        target: TARGET,
        key,
        subprotocols: &[Encoding::PROTOBUF_SUBPROTOCOL],
        offers_deflate: false,
        headers: &headers,
    };
    let mut asked = Vec::new();
    request.put(&mut asked);
    stream.write_all(&asked).await.map_err(|error| broken(&error.to_string()))?;
    let mut input = BytesMut::new();
    loop {
        let read = stream.read_buf(&mut input).await.map_err(|error| broken(&error.to_string()))?;
        let mut room = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut head = httparse::Response::new(&mut room);
        let parsed = head.parse(&input).map_err(|error| broken(&error.to_string()))?;
        let httparse::Status::Complete(length) = parsed else {
            if read == 0 || input.len() > ANSWER_BYTES_MAX {
                return Err(broken("its answer has no end").into());
            }
            continue;
        };
        let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or_else(|| broken("its answer has no status"))?;
        let named = head.headers.iter().map(|header| (header.name, header.value));
        if status != StatusCode::SWITCHING_PROTOCOLS {
            let is_length = |(name, _): &(&str, &[u8])| name.eq_ignore_ascii_case("content-length");
            let text = named.clone().find(is_length).map(|(_, value)| value.to_vec());
            let bytes = text.and_then(|text| String::from_utf8(text).ok()?.trim().parse().ok());
            let headers = headers_of(named);
            let mut body = input.split_off(length);
            let wanted = bytes.unwrap_or(0).min(ANSWER_BYTES_MAX);
            // A body that breaks off says less, and the status is known.
            while body.len() < wanted && stream.read_buf(&mut body).await.is_ok_and(|read| read > 0)
            {
            }
            // An upgrade changes nothing.
            let again_after = Refused::of(status, &headers, &body).again_after(true);
            return Err(Unanswered { failure: refused(status, &body), again_after });
        }
        request.check(status, named).map_err(|fault| broken(&fault.to_string()))?;
        return Ok(input.split_off(length));
    }
}

fn headers_of<'a>(named: impl Iterator<Item = (&'a str, &'a [u8])>) -> HeaderMap {
    let pair = |(name, value): (&str, &[u8])| {
        Some((HeaderName::try_from(name).ok()?, HeaderValue::try_from(value).ok()?))
    };
    named.filter_map(pair).collect()
}

fn refused(status: StatusCode, body: &[u8]) -> Failure {
    match status {
        StatusCode::NOT_FOUND => {
            let text =
                "the server has no live connections at that address: is it a broker's HTTP port?";
            Failure::new(Exit::NotFound, text)
        }
        status => http::refusal(status, body),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn answered(answer: &'static str) -> Unanswered {
        let (client, mut broker) = tokio::io::duplex(4096);
        broker.write_all(answer.as_bytes()).await.unwrap();
        let mut stream: Box<dyn Stream> = Box::new(client);
        upgrade(&mut stream, "broker:4437", None, [7; 16]).await.map(drop).unwrap_err()
    }

    #[tokio::test]
    async fn a_broker_that_refuses_for_a_moment_may_be_asked_again_and_another_refusal_is_final() {
        let head = "content-type: application/problem+json\r\nretry-after: 1\r\n";
        let body = r#"{"code":"not_ready","detail":"it has just started"}"#;
        let length = body.len();
        let said = format!(
            "HTTP/1.1 503 Service Unavailable\r\n{head}content-length: {length}\r\n\r\n{body}"
        );
        let refused = answered(said.leak()).await;
        assert_eq!(refused.again_after, Some(Duration::from_secs(1)));
        assert!(refused.failure.exit == Exit::Unreachable, "{}", refused.failure.exit as u8);
        let refused = answered("HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(refused.again_after, None);
    }
}
