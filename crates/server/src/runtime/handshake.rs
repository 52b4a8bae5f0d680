//! The handshake of a connection that begins on a port with TLS, on the core that serves it. A client that speaks no
//! TLS is told so in its own protocol. On a plain wire there is nothing to do. It knows no protocols.

use std::{io, time::Duration};

use sennit_tls::{Codec, TlsFault, begins_tls};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::{Instant, timeout, timeout_at},
};

use super::{
    clock::now,
    metrics::CoreMetrics,
    tls_port::{HandshakeDue, LogRate},
    wire::Wire,
};

/// How long a client may take from its connection to the end of the handshake.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it may take to tell a client why there is no connection, and how long the client may take to hear it.
const SAID_WITHIN: Duration = Duration::from_secs(1);

/// Most bytes that are read and dropped of what such a client has sent meanwhile: a connection that is closed over
/// unread bytes takes the answer with it.
const DROPPED_BYTES_MAX: usize = 64 << 10;

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the handshake was not done within {HANDSHAKE_TIMEOUT:?}")]
    Late,
    #[error("the client speaks no TLS")]
    Plain,
    #[error("the client has left")]
    Left,
    #[error("{}", reason(.0))]
    Broken(#[from] io::Error),
}

fn reason(error: &io::Error) -> String {
    let fault = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsFault>());
    fault.map_or_else(|| error.to_string(), TlsFault::seen_by_broker)
}

/// The wire once it is secure; at once if it is plain and may be. A client that speaks no TLS on a port with TLS is
/// sent `answer`. `None` if there is no connection.
pub(crate) async fn secured(
    wire: Wire,
    metrics: &CoreMetrics,
    answer: impl FnOnce() -> Vec<u8>,
) -> Option<Wire> {
    match wire.due().cloned() {
        None => Some(wire),
        // In a place of its own: tasks of plain connections need no room for it.
        Some(due) => Box::pin(shaken(wire, &due, metrics, answer)).await,
    }
}

async fn shaken(
    mut wire: Wire,
    due: &HandshakeDue,
    metrics: &CoreMetrics,
    answer: impl FnOnce() -> Vec<u8>,
) -> Option<Wire> {
    let address = wire.peer_address();
    let until = Instant::now() + HANDSHAKE_TIMEOUT;
    let shaking = async {
        // A client that says nothing takes no place from those that do.
        let mut first = [0; 2];
        let spoken = wire.peek(&mut first).await?;
        if spoken == 0 {
            return Err(Failure::Left);
        }
        if begins_tls(&first[..spoken]) == Some(false) {
            return Err(Failure::Plain);
        }
        let _place = due.handshakes.places.acquire().await.map_err(io::Error::other)?;
        wire.begin_tls(Codec::server(due.settings.clone()).map_err(io::Error::other)?);
        wire.shake_hands().await?;
        Ok(())
    };
    let failure = match timeout_at(until, shaking).await {
        Ok(Ok(())) => {
            metrics.tls_handshakes.add(1);
            return Some(wire);
        }
        Ok(Err(Failure::Left)) => return None,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::Late,
    };
    metrics.tls_handshakes_failed.add(1);
    if let Some(unlogged) = due.handshakes.failures.may_log(now().0 / 1000) {
        let client = address.map_or_else(|| "unknown".to_owned(), |address| address.to_string());
        tracing::warn!(client, unlogged, "no TLS connection: {failure}");
    }
    wire.stay_plain();
    match failure {
        Failure::Plain => turn_away(wire, &answer()).await,
        // The alert has gone out, and would be lost if bytes were left unread.
        Failure::Broken(_) => turn_away(wire, &[]).await,
        Failure::Late | Failure::Left => {}
    }
    None
}

/// Notes that a client has begun a handshake on a port without TLS.
pub(crate) fn note_unexpected_tls(port: &str) {
    static UNEXPECTED: LogRate = LogRate::new();
    if let Some(unlogged) = UNEXPECTED.may_log(now().0 / 1000) {
        tracing::warn!(
            port,
            unlogged,
            "a client began a TLS handshake, and this broker speaks none: start it with --tls, or leave TLS out at the client"
        );
    }
}

/// Sends the answer to a client that gets no connection, and waits a moment until it has it.
async fn turn_away(mut wire: Wire, answer: &[u8]) {
    let said = async {
        wire.write_all(answer).await?;
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
    let _ = timeout(SAID_WITHIN, dropped).await;
}
