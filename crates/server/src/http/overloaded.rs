//! The answer to a connection beyond the limit, sent before anything is read. It knows no requests.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::limits::LINGER;
use crate::runtime::wire::Wire;

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

/// How long it may take to say it.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Most bytes that are read and dropped of what the client has sent meanwhile: a connection that is
/// closed over unread bytes takes the answer with it.
const DROPPED_BYTES_MAX: usize = 64 << 10;

/// Tells a client to come again, and closes its connection.
pub(crate) async fn turn_away(mut wire: Wire) {
    let said = async {
        wire.write_all(ANSWER.as_bytes()).await?;
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
    fn the_answer_is_as_long_as_it_says_and_a_problem() {
        let (head, body) = ANSWER.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())), "{}", body.len());
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&problem["status"], &problem["code"]), (&503.into(), &"limit_reached".into()));
    }
}
