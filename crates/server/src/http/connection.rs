//! One connection of the HTTP port: its first bytes say which HTTP it speaks. It knows what to listen
//! for, and no requests.

use std::rc::Rc;

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    time::timeout,
};

use super::{
    door::Door,
    http1,
    http2::{self, PREFACE},
    limits::IDLE_TIMEOUT,
    parking::{Back, Left},
    request::Request,
};

/// Serves a connection that has moved so often until it ends, or leaves its task.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    mut stream: S,
    moves: u32,
    door: Rc<Door>,
) -> Option<(S, Left)> {
    let mut first = [0; PREFACE.len()];
    let mut count = 0;
    while moves == 0 && count < first.len() && first[..count] == PREFACE[..count] {
        let closing = door.hall().closing.begun();
        let read = tokio::select! {
            biased;
            read = timeout(IDLE_TIMEOUT, stream.read(&mut first[count..])) => read,
            () = closing => return None,
        };
        match read {
            Ok(Ok(more @ 1..)) => count += more,
            _ => return None,
        }
    }
    let hall = door.hall().clone();
    if first == *PREFACE {
        let service = async move |request: &Request| door.answer(request).await;
        http2::serve(stream, hall, service).await;
        return None;
    }
    let service = |asked| {
        let door = door.clone();
        async move { door.answer_asked(asked).await }
    };
    http1::serve(stream, &first[..count], moves, hall, service).await
}

/// Serves a connection that comes back from the lot.
pub(super) async fn go_on<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    stream: S,
    back: Back,
    door: Rc<Door>,
) -> Option<(S, Left)> {
    let service = |asked| {
        let door = door.clone();
        async move { door.answer_asked(asked).await }
    };
    http1::go_on(stream, back, door.hall().clone(), service).await
}
