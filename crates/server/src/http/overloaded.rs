//! The answers to connections on which no request is read: to one beyond a limit, and to one without TLS on a port
//! with TLS. It knows no requests.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::limits::LINGER;
use crate::runtime::wire::Wire;

/// Why a connection is turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overload {
    /// There is no place for it.
    OfPort,
    /// Its address has as many as it may.
    OfAddress,
}

impl Overload {
    fn answer(self) -> &'static str {
        match self {
            Self::OfPort => ANSWER,
            Self::OfAddress => ANSWER_TO_ADDRESS,
        }
    }
}

/// What one is told whose address has as many as it may.
const ANSWER_TO_ADDRESS: &str = "HTTP/1.1 429 Too Many Requests\r\n\
    content-type: application/problem+json\r\n\
    cache-control: no-store\r\n\
    x-content-type-options: nosniff\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 156\r\n\r\n\
    {\"code\":\"limit_reached\",\"detail\":\"CONNECTIONS_PER_ADDRESS_MAX is reached;\
    \u{20}--http-connections-per-address sets it\",\"status\":429,\"title\":\"Too Many Requests\"}\n";

/// What it is told. The body is a problem as others are, and says how long it is.
const ANSWER: &str = "HTTP/1.1 503 Service Unavailable\r\n\
    content-type: application/problem+json\r\n\
    cache-control: no-store\r\n\
    x-content-type-options: nosniff\r\n\
    retry-after: 1\r\n\
    connection: close\r\n\
    content-length: 134\r\n\r\n\
    {\"code\":\"limit_reached\",\"detail\":\"CONNECTIONS_MAX is reached; --http-connections sets it\",\
    \"status\":503,\"title\":\"Service Unavailable\"}\n";

/// What a client without TLS is told on a port with TLS, in plain HTTP.
const TLS_REQUIRED: &str = "HTTP/1.1 400 Bad Request\r\n\
    content-type: application/problem+json\r\n\
    cache-control: no-store\r\n\
    x-content-type-options: nosniff\r\n\
    connection: close\r\n\
    content-length: 157\r\n\r\n\
    {\"code\":\"tls_required\",\"detail\":\"this port speaks TLS: write https:// instead of http://, or give\
    \u{20}sennit the flag --tls\",\"status\":400,\"title\":\"Bad Request\"}\n";

/// The answer to a client without TLS on a port with TLS.
pub(crate) fn tls_required() -> Vec<u8> {
    TLS_REQUIRED.as_bytes().to_vec()
}

/// How long it may take to say it.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Most bytes that are read and dropped of what the client has sent meanwhile: a connection that is
/// closed over unread bytes takes the answer with it.
const DROPPED_BYTES_MAX: usize = 64 << 10;

/// Tells a client to come again, and closes its connection.
pub(crate) async fn turn_away(mut wire: Wire, overload: Overload) {
    let said = async {
        wire.write_all(overload.answer().as_bytes()).await?;
        wire.shutdown().await
    };
    if !matches!(timeout(SAID_WITHIN, said).await, Ok(Ok(()))) {
        return;
    }
    let dropped = async {
        let (mut bytes, mut left) = ([0; 4096], DROPPED_BYTES_MAX);
        while let Ok(count @ 1..) = wire.read(&mut bytes).await {
            left = left.saturating_sub(count);
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(LINGER, dropped).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_to_a_client_without_tls_says_what_to_type() {
        let (head, body) = TLS_REQUIRED.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert!(problem["detail"].as_str().unwrap().contains("https://"), "{problem}");
    }

    #[test]
    fn the_answer_is_as_long_as_it_says_and_a_problem() {
        for (overload, status) in [(Overload::OfPort, 503), (Overload::OfAddress, 429)] {
            let (head, body) = overload.answer().split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            let problem: serde_json::Value = serde_json::from_str(body).unwrap();
            let told = (&problem["status"], &problem["code"]);
            assert_eq!(told, (&status.into(), &"limit_reached".into()));
        }
    }
}
