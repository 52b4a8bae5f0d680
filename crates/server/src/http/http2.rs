//! One HTTP/2 connection, by hyper: requests with their bodies gathered, answers as they come. It knows
//! requests and answers, and not what they mean.

use std::{
    cell::Cell,
    convert::Infallible,
    io,
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use hyper::{
    body::{Body as HttpBody, Frame, Incoming, SizeHint},
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, interval, timeout},
};

use super::{
    body::Body,
    door::Door,
    hall::{BodyAccount, Hall},
    http1_head::too_long,
    limits::{
        BODY_BYTES_MAX, BODY_TIMEOUT, HEAD_BYTES_MAX, IDLE_TIMEOUT, STREAMS_MAX, WRITE_TIMEOUT,
    },
    refused::Refused,
};

/// How an HTTP/2 connection begins (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

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

/// What goes on on a connection.
#[derive(Debug)]
struct Doings {
    /// Requests whose answers are not out.
    under_way: Cell<usize>,
    /// Pieces of answers that the client's windows have no room for.
    stuck: Cell<usize>,
    /// When it was last otherwise.
    moved_at: Cell<Instant>,
}

/// Serves a connection whose preface has been read, until it ends.
pub(super) async fn serve<S>(stream: S, hall: Rc<Hall>, door: Rc<Door>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let _guest = hall.enter();
    let doings = Rc::new(Doings {
        under_way: Cell::new(0),
        stuck: Cell::new(0),
        moved_at: Cell::new(Instant::now()),
    });
    let service = service_fn(|request: Request<Incoming>| {
        let (door, under_way) = (door.clone(), UnderWay::new(doings.clone()));
        async move { Ok::<_, Infallible>(answer(request, &door, under_way).await) }
    });
    let served = hyper::server::conn::http2::Builder::new(Here)
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
    let mut closing = pin!(hall.closing.begun());
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
                served.as_mut().graceful_shutdown();
            }
            _ = looks.tick() => {
                let since = doings.moved_at.get().elapsed();
                if doings.stuck.get() > 0 && since > WRITE_TIMEOUT {
                    return;
                }
                if doings.under_way.get() == 0 && since > IDLE_TIMEOUT && !is_ending {
                    is_ending = true;
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// Gathers the body of a request, and answers it.
async fn answer(
    request: Request<Incoming>,
    door: &Rc<Door>,
    under_way: UnderWay,
) -> Response<OnItsWay> {
    let is_head = request.method() == Method::HEAD;
    let answer = match whole(request, door.hall()).await {
        Ok((request, _account)) => door.answer(&request.into()).await,
        Err(refused) => refused.answer(),
    };
    door.hall().count(answer.status());
    let super::response::Response { status, headers, mut body } = answer;
    let mut told = HeaderMap::with_capacity(16);
    told.extend(headers.iter().cloned());
    if is_head {
        if let Some(bytes @ 1..) = body.bytes() {
            told.entry(header::CONTENT_LENGTH).or_insert(bytes.into());
        }
        body = Body::Empty;
    }
    let closing = matches!(body, Body::Events(_)).then(|| {
        let hall = door.hall().clone();
        Box::pin(async move { hall.closing.begun().await }) as Pin<Box<dyn Future<Output = ()>>>
    });
    let mut body = OnItsWay { body, at: 0, is_given: false, closing, under_way };
    // Until it is asked for, too, the client has no room.
    body.set_given(true);
    let mut answer = Response::new(body);
    (*answer.status_mut(), *answer.headers_mut()) = (status, told);
    answer
}

/// The request with all of its body, and what that holds until it is answered.
async fn whole(
    request: Request<Incoming>,
    hall: &Rc<Hall>,
) -> Result<(Request<Bytes>, BodyAccount), Refused> {
    if request.method() == Method::CONNECT {
        return Err(Refused::with(StatusCode::NOT_IMPLEMENTED, "this is no proxy"));
    }
    let (mut parts, mut incoming) = request.into_parts();
    // As with HTTP/1, the host is in the header and the target is a path.
    if let Some(authority) = parts.uri.authority()
        && let Ok(host) = authority.as_str().parse()
    {
        parts.headers.insert(header::HOST, host);
    }
    let mut path = parts.uri.into_parts();
    (path.scheme, path.authority) = (None, None);
    parts.uri = http::Uri::from_parts(path).map_err(|_| Refused::bad("the target has no path"))?;
    if incoming.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_long());
    }
    let mut body = Bytes::new();
    let mut gathered = BytesMut::new();
    let mut account = hall.account();
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
        account.set(gathered.len() + body.len() + data.len())?;
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

/// Counts a request as under way until it is dropped.
#[derive(Debug)]
struct UnderWay(Rc<Doings>);

impl UnderWay {
    fn new(doings: Rc<Doings>) -> Self {
        doings.under_way.set(doings.under_way.get() + 1);
        doings.moved_at.set(Instant::now());
        Self(doings)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.moved_at.set(Instant::now());
    }
}

/// The body of an answer on its way out.
struct OnItsWay {
    body: Body,
    /// Parts that were given.
    at: usize,
    /// Whether a piece was given and no more was asked for yet.
    is_given: bool,
    /// Ends what has no end when the connection is to.
    closing: Option<Pin<Box<dyn Future<Output = ()>>>>,
    under_way: UnderWay,
}

impl OnItsWay {
    /// Notes whether the client takes what it is given.
    fn set_given(&mut self, is_given: bool) {
        let doings = &self.under_way.0;
        let stuck = doings.stuck.get() - usize::from(self.is_given) + usize::from(is_given);
        doings.stuck.set(stuck);
        doings.moved_at.set(Instant::now());
        self.is_given = is_given;
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        Poll::Ready(match &mut self.body {
            Body::Empty => None,
            Body::Full(bytes) => {
                Some(std::mem::take(bytes)).filter(|bytes| !bytes.is_empty()).map(Ok)
            }
            Body::Parts(parts) => {
                let part = parts.get_mut(self.at).map(std::mem::take);
                self.at += 1;
                part.map(Ok)
            }
            Body::Archive(archive) => {
                let frame = ready!(Pin::new(archive).poll_frame(context));
                frame.map(|frame| frame.map(|frame| frame.into_data().unwrap_or_default()))
            }
            Body::Events(source) => {
                if let Some(closing) = &mut self.closing
                    && closing.as_mut().poll(context).is_ready()
                {
                    self.body = Body::Empty;
                    return Poll::Ready(None);
                }
                ready!(source.poll_next(context)).map(Ok)
            }
            Body::Pages(source) => ready!(source.poll_next(context)),
        })
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.set_given(false);
    }
}

impl HttpBody for OnItsWay {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        this.set_given(false);
        let piece = ready!(this.poll_piece(context));
        this.set_given(piece.is_some());
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            Body::Empty => true,
            Body::Full(bytes) => bytes.is_empty(),
            Body::Parts(parts) => self.at >= parts.len(),
            Body::Archive(_) | Body::Events(_) | Body::Pages(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.bytes().map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Runs what a connection starts on the thread it is on.
#[derive(Clone, Copy)]
struct Here;

impl<F: Future<Output: 'static> + 'static> hyper::rt::Executor<F> for Here {
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
