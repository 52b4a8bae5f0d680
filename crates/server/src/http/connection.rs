//! One connection of the HTTP port: its first bytes show which HTTP it speaks. It knows no requests.

use std::rc::Rc;

use sennit_tls::{ALERT_NOT_TLS, begins_tls};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time::{Instant, timeout, timeout_at},
};

use super::{
    handler::Handler,
    http1,
    http2::{self, PREFACE},
    limits::{HEAD_TIMEOUT, IDLE_TIMEOUT},
    parking::Left,
    thread_state::HttpThreadState,
};
use crate::runtime::handshake::note_unexpected_tls;

/// Serves a connection that has moved so often until it ends, or leaves its task.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    mut stream: S,
    moves: u32,
    thread_state: Rc<HttpThreadState>,
    handler: Rc<dyn Handler>,
) -> Option<(S, Left)> {
    let mut first = [0; PREFACE.len()];
    let count = match moves {
        0 => tokio::select! {
            biased;
            count = listen(&mut stream, &mut first) => count?,
            () = thread_state.closing.begun() => return None,
        },
        _ => 0,
    };
    if begins_tls(&first[..count]) == Some(true) {
        note_unexpected_tls("http");
        let told = async {
            stream.write_all(&ALERT_NOT_TLS).await?;
            stream.shutdown().await
        };
        let _ = timeout(HEAD_TIMEOUT, told).await;
        return None;
    }
    if first == *PREFACE {
        http2::serve(stream, thread_state, handler).await;
        return None;
    }
    http1::serve(stream, &first[..count], moves, thread_state, handler).await
}

/// Reads until it is clear which HTTP a connection speaks; says how much that was. `None` if it ends, or
/// takes too long.
async fn listen<S: AsyncRead + Unpin>(
    stream: &mut S,
    first: &mut [u8; PREFACE.len()],
) -> Option<usize> {
    let mut count = 0;
    let mut due = Instant::now() + IDLE_TIMEOUT;
    while count < first.len() && first[..count] == PREFACE[..count] {
        match timeout_at(due, stream.read(&mut first[count..])).await {
            Ok(Ok(more @ 1..)) if count == 0 => {
                due = Instant::now() + HEAD_TIMEOUT;
                count = more;
            }
            Ok(Ok(more @ 1..)) => count += more,
            _ => return None,
        }
    }
    Some(count)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::{
        io::{AsyncWriteExt as _, duplex},
        time::sleep,
    };

    use super::*;

    /// Listens to who says `said` after a while, a byte a second; says what is known of it then, and how
    /// long it took from the first byte.
    async fn heard(said: &[u8], silence: Duration) -> (Option<usize>, Duration) {
        let (mut client, mut stream) = duplex(64);
        let begin = Instant::now() + silence;
        let speaking = async {
            sleep(silence).await;
            for byte in said {
                client.write_all(&[*byte]).await.unwrap();
                sleep(Duration::from_secs(1)).await;
            }
            std::future::pending().await
        };
        let mut first = [0; PREFACE.len()];
        let count = tokio::select! {
            count = listen(&mut stream, &mut first) => count,
            () = speaking => unreachable!("it goes on"),
        };
        (count, begin.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_bytes_have_as_long_as_any_head() {
        let (count, took) = heard(PREFACE, IDLE_TIMEOUT / 2).await;
        assert_eq!(count, None);
        assert!(took >= HEAD_TIMEOUT && took < HEAD_TIMEOUT + Duration::from_secs(1), "{took:?}");
        let (count, _) = heard(&PREFACE[..5], Duration::ZERO).await;
        assert_eq!(count, None);
        let (count, _) = heard(b"PRETTY", IDLE_TIMEOUT / 2).await;
        assert_eq!(count, Some(3), "it is no preface");
    }
}
