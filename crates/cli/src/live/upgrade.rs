//! Makes a connection to the HTTP port a WebSocket, on which the Centrifuge client protocol is spoken in Protobuf. It knows
//! no commands.

use bytes::BytesMut;
use hyper::StatusCode;
use sennit_centrifuge::Encoding;
use sennit_websocket::client::UpgradeRequest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::{
    connect_options::CONNECT_TIMEOUT,
    exit::{Exit, Failure},
    http::{self, Stream},
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
/// The broker refuses, is none, or does not answer in time.
pub async fn upgrade(
    stream: &mut Box<dyn Stream>,
    address: &str,
    authorization: Option<&str>,
    key: [u8; 16],
) -> Result<BytesMut, Failure> {
    let silent = || {
        let text =
            format!("the broker at {address} fell silent: nothing came for {CONNECT_TIMEOUT:?}");
        Failure::new(Exit::Unreachable, text)
    };
    let upgrading = upgrade_at_leisure(stream, address, authorization, key);
    timeout(CONNECT_TIMEOUT, upgrading).await.unwrap_or_else(|_| Err(silent()))
}

async fn upgrade_at_leisure(
    stream: &mut Box<dyn Stream>,
    address: &str,
    authorization: Option<&str>,
    key: [u8; 16],
) -> Result<BytesMut, Failure> {
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
                return Err(broken("its answer has no end"));
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
            let mut body = input.split_off(length);
            let wanted = bytes.unwrap_or(0).min(ANSWER_BYTES_MAX);
            // A body that breaks off says less, and the status is known.
            while body.len() < wanted && stream.read_buf(&mut body).await.is_ok_and(|read| read > 0)
            {
            }
            return Err(refused(status, &body));
        }
        request.check(status, named).map_err(|fault| broken(&fault.to_string()))?;
        return Ok(input.split_off(length));
    }
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
