//! One HTTP/2 connection, by hyper: bodies of requests are gathered, answers are sent as they come. It does not
//! know what requests mean.

use std::{
    convert::Infallible,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, StatusCode, header, request::Parts};
use hyper::{
    body::{Body as HttpBody, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, interval, timeout},
};

use super::{
    answer_weight,
    bad_request::Refused,
    body::Body,
    handler::{Handler, Patience},
    http1_head::too_long,
    http2_answers::{ConnectionActivity, End, Held, OutgoingBody, UnderWay},
    limits::{
        BODY_BYTES_MAX, BODY_TIMEOUT, HEAD_BYTES_MAX, IDLE_TIMEOUT, STREAMS_MAX, WRITE_TIMEOUT,
    },
    request::{Request as GatheredRequest, weight_of_head},
    response::Response,
    thread_state::{BodyAccount, HttpThreadState},
};

/// How an HTTP/2 connection begins (RFC 9113, 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of bodies that a client may have on their way, for a request and for all of a connection.
const STREAM_WINDOW_BYTES: u32 = 256 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;

/// Bytes of an answer that wait for the connection.
const SEND_BYTES_MAX: usize = 256 << 10;

/// How often a silent client is asked whether it is there, and how long it may take to answer.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How often it is looked whether a connection is at rest, or stuck.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Serves a connection whose preface has been read, until it ends. Its requests are answered by `handler`.
pub(crate) async fn serve<S>(stream: S, thread_state: Rc<HttpThreadState>, handler: Rc<dyn Handler>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let _open_connection = thread_state.enter();
    let activity = ConnectionActivity::new(thread_state.answers.clone());
    let answers = Rc::new(RequestAnswers {
        thread_state: thread_state.clone(),
        activity: activity.clone(),
        handler,
    });
    let service = service_fn(|request: Request<Incoming>| {
        let (answers, under_way) = (answers.clone(), UnderWay::new(activity.clone()));
        async move { Ok::<_, Infallible>(answers.answer(request, under_way).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(LocalExecutor)
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX as u32)
        .max_send_buf_size(SEND_BYTES_MAX)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT)
        .serve_connection(TokioIo::new(Begun { preface: PREFACE, stream }), service);
    let mut served = pin!(served);
    let mut closing = pin!(thread_state.closing.begun());
    let mut looks = interval(LOOK_EVERY);
    let mut is_ending = false;
    loop {
        tokio::select! {
            biased;
            ended = &mut served => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "an HTTP/2 connection ended early");
                }
                return;
            }
            () = &mut closing, if !is_ending => {
                is_ending = true;
                activity.moved_at.set(Instant::now());
                served.as_mut().graceful_shutdown();
            }
            _ = looks.tick() => {
                if is_stuck(&activity, is_ending) {
                    return;
                }
                if is_idle(&activity) && !is_ending {
                    is_ending = true;
                    activity.moved_at.set(Instant::now());
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Whether the client has not taken an answer for [`WRITE_TIMEOUT`], or has not let a connection end for as long.
fn is_stuck(activity: &ConnectionActivity, is_ending: bool) -> bool {
    let is_ending = is_ending && activity.under_way.get() == 0;
    let waits_for_client = activity.has_something_to_give() || is_ending;
    waits_for_client && activity.moved_at.get().elapsed() > WRITE_TIMEOUT
}

/// Whether the connection has had no request for [`IDLE_TIMEOUT`].
fn is_idle(activity: &ConnectionActivity) -> bool {
    activity.under_way.get() == 0 && activity.moved_at.get().elapsed() > IDLE_TIMEOUT
}

/// Where the requests of a connection are answered.
struct RequestAnswers {
    thread_state: Rc<HttpThreadState>,
    activity: Rc<ConnectionActivity>,
    handler: Rc<dyn Handler>,
}

impl RequestAnswers {
    /// Gathers the body of a request, and answers it.
    async fn answer(
        &self,
        request: Request<Incoming>,
        under_way: UnderWay,
    ) -> http::Response<OutgoingBody> {
        let is_head = request.method() == Method::HEAD;
        let (answer, held) = match whole(request, &self.thread_state).await {
            Ok((request, _account)) => self.ask(Rc::new(request.into())).await,
            Err(refused) => (refused.answer(), self.activity.hold()),
        };
        self.thread_state.count(answer.status());
        let Response { status, headers, mut body, upgrade: _ } = answer;
        let mut header_map = HeaderMap::with_capacity(16);
        header_map.extend(headers.iter().cloned());
        if is_head {
            if let Some(bytes @ 1..) = body.bytes() {
                header_map.entry(header::CONTENT_LENGTH).or_insert(bytes.into());
            }
            body = Body::Empty;
        }
        let closing = matches!(body, Body::Events(_)).then(|| {
            let thread_state = self.thread_state.clone();
            Box::pin(async move { thread_state.closing.begun().await }) as End
        });
        let mut answer = http::Response::new(OutgoingBody::new(body, held, closing, under_way));
        (*answer.status_mut(), *answer.headers_mut()) = (status, header_map);
        answer
    }

    /// The answer to a request, and what it holds until its client has taken it. A read is not begun before
    /// there is room for what it may bring.
    async fn ask(&self, request: Rc<GatheredRequest>) -> (Response, Held) {
        let handler = &self.handler;
        let expected = handler.answer_bytes_expected(&request);
        let patience = if expected > 0 { handler.patience(&request) } else { Patience::None };
        if expected == 0 || patience != Patience::None {
            // Who waits for a stream holds nothing, and all of them may wait at once.
            let answer = handler.clone().answer(request.clone()).await;
            let weight = answer_weight::of(&answer.body);
            // What has come is there when it is asked for again, unless it was asked for as what is new.
            if self.activity.has_room(weight) || patience != Patience::ForMore {
                let mut held = self.activity.hold();
                held.set_to(&answer.body);
                return (answer, held);
            }
        }
        let mut held = self.activity.room_for(expected).await;
        let answer = handler.clone().answer(request).await;
        held.set_to(&answer.body);
        (answer, held)
    }
}

/// The request with all of its body, and what both hold until it is answered.
async fn whole(
    request: Request<Incoming>,
    thread_state: &Rc<HttpThreadState>,
) -> Result<(Request<Bytes>, BodyAccount), Refused> {
    if request.method() == Method::CONNECT {
        return Err(Refused::with(StatusCode::NOT_IMPLEMENTED, "this is no proxy"));
    }
    let (parts, mut incoming) = request.into_parts();
    let parts = with_host_header(parts)?;
    if incoming.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    let mut body = Bytes::new();
    let mut gathered = BytesMut::new();
    let mut account = thread_state.account();
    let lines = parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len());
    let of_head = weight_of_head(parts.uri.path().len() + lines.sum::<usize>());
    account.set(of_head)?;
    loop {
        let next = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_frame(context));
        let late = "nothing more of the body came for BODY_TIMEOUT, 10 s";
        let Some(frame) = timeout(BODY_TIMEOUT, next)
            .await
            .map_err(|_| Refused::with(StatusCode::REQUEST_TIMEOUT, late))?
        else {
            break;
        };
        let frame = frame.map_err(|_| Refused::bad("the body broke off"))?;
        // Trailers are of no use here.
        let Ok(data) = frame.into_data() else { continue };
        if gathered.len() + body.len() + data.len() > BODY_BYTES_MAX {
            return Err(too_long());
        }
        account.set(of_head + gathered.len() + body.len() + data.len())?;
        if body.is_empty() && gathered.is_empty() {
            body = data;
        } else {
            gathered.extend_from_slice(&std::mem::take(&mut body));
            gathered.extend_from_slice(&data);
        }
    }
    if !gathered.is_empty() {
        body = gathered.freeze();
    }
    Ok((Request::from_parts(parts, body), account))
}

/// Moves the host of the target into the `Host` header, as HTTP/1 has it: the target becomes a path.
fn with_host_header(mut parts: Parts) -> Result<Parts, Refused> {
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = authority.as_str().parse()
    {
        parts.headers.insert(header::HOST, host);
    }
    let mut path = parts.uri.into_parts();
    (path.scheme, path.authority) = (None, None);
    parts.uri = http::Uri::from_parts(path).map_err(|_| Refused::bad("the target has no path"))?;
    Ok(parts)
}

/// Runs what a connection starts on the thread it is on.
#[derive(Clone, Copy)]
struct LocalExecutor;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

/// A connection of which the preface has been read.
struct Begun<S> {
    preface: &'static [u8],
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Begun<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        read: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.preface.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, read);
        }
        let (now, later) = self.preface.split_at(self.preface.len().min(read.remaining()));
        read.put_slice(now);
        self.preface = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Begun<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
