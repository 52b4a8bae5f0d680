//! A connection over a pipe in memory, and a clock that runs only while everybody waits.

use std::cell::RefCell;

use http_body_util::Empty;
use hyper::client::conn::http2::SendRequest;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
    sync::oneshot,
    task::{JoinHandle, LocalSet, spawn_local},
    time::{sleep, timeout},
};

use super::*;
use crate::{
    http::{
        handler::tests::ByFunction,
        limits::{
            ANSWER_BYTES_EXPECTED, ANSWERS_BYTES_MAX, ANSWERS_CORE_BYTES_MAX, BODIES_BYTES_MAX,
            HEAD_FREE_BYTES,
        },
    },
    runtime::metrics::CoreMetrics,
};

/// A test that waits for something that does not come fails then, which is at once.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// The client's end of a connection, and what its requests wait for.
struct World {
    client: DuplexStream,
    thread_state: Rc<HttpThreadState>,
    /// The paths that were begun, each with the way to answer it.
    begun: Rc<RefCell<Vec<Unanswered>>>,
}

/// A path, and the way to answer.
type Unanswered = (String, oneshot::Sender<Response>);

/// An answer that may not have come, and its body behind it.
type Coming = JoinHandle<http::Response<Incoming>>;

/// What a client lets come of an answer that it does not read.
const WINDOW_BYTES: u32 = 16 << 10;

/// Runs a test with a clock that jumps to what is next.
fn in_a_world<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    in_a_world_of(64 << 10, test);
}

/// The same with a pipe that takes so many bytes.
fn in_a_world_of<F: Future<Output = ()>>(pipe_bytes: usize, test: impl FnOnce(World) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let (client, mut stream) = duplex(pipe_bytes);
        let thread_state = Rc::new(HttpThreadState::new(
            std::sync::Arc::<CoreMetrics>::default(),
            None,
            <_>::default(),
        ));
        let begun: Rc<RefCell<Vec<_>>> = Rc::default();
        let handler = Rc::new(ByFunction({
            let begun = begun.clone();
            move |request: Rc<GatheredRequest>| {
                let (answer, answered) = oneshot::channel();
                begun.borrow_mut().push((request.path().to_owned(), answer));
                async move { answered.await.unwrap_or_else(|_| Response::new(Body::Empty)) }
            }
        }));
        spawn_local({
            let thread_state = thread_state.clone();
            async move {
                stream.read_exact(&mut [0; PREFACE.len()]).await.unwrap();
                serve(stream, thread_state, handler).await;
            }
        });
        timeout(DAY, test(World { client, thread_state, begun }))
            .await
            .expect("all that was to come comes");
    });
}

/// Lets everybody do what can be done now.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// A client that speaks.
struct Client {
    sender: SendRequest<Empty<Bytes>>,
    begun: Rc<RefCell<Vec<Unanswered>>>,
}

impl World {
    async fn greeted(self) -> (Client, Rc<HttpThreadState>) {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(LocalExecutor)
            .timer(TokioTimer::new())
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(1 << 20)
            .handshake(TokioIo::new(self.client))
            .await
            .unwrap();
        spawn_local(connection);
        settled().await;
        (Client { sender, begun: self.begun }, self.thread_state)
    }
}

impl Client {
    async fn ask(&self, target: &str) -> Coming {
        let request = Request::get(format!("http://x{target}")).body(Empty::new()).unwrap();
        let mut sender = self.sender.clone();
        let coming = spawn_local(async move { sender.send_request(request).await.unwrap() });
        settled().await;
        coming
    }

    fn count(&self) -> usize {
        self.begun.borrow().len()
    }

    /// Answers the request that was begun first.
    async fn answer(&self, body: Body) {
        let (_, answer) = self.begun.borrow_mut().remove(0);
        answer.send(Response::new(body)).unwrap();
        settled().await;
    }
}

fn long() -> Body {
    Body::Full(Bytes::from(vec![b'x'; ANSWER_BYTES_EXPECTED]))
}

/// Reads so much of a body, or all.
async fn read(body: &mut Incoming, bytes: usize) -> usize {
    let mut count = 0;
    while count < bytes {
        let frame = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await;
        match frame {
            Some(frame) => count += frame.unwrap().into_data().unwrap().len(),
            None => break,
        }
    }
    settled().await;
    count
}

#[test]
fn no_more_reads_are_begun_than_there_is_room_for_answers() {
    in_a_world(async |world| {
        let (client, thread_state) = world.greeted().await;
        let together = ANSWERS_BYTES_MAX / ANSWER_BYTES_EXPECTED;
        let mut coming = Vec::new();
        for _ in 0..3 * together {
            coming.push(client.ask("/v1/stream/a").await);
        }
        assert_eq!(client.count(), together);
        for _ in 0..together {
            client.answer(Body::Full(Bytes::from_static(b"short"))).await;
            assert_eq!(client.count(), together, "what is short makes room for others");
        }
        for left in (0..together).rev() {
            client.answer(long()).await;
            assert_eq!(client.count(), left, "what its client does not take keeps its room");
        }
        let other = client.ask("/healthz").await;
        assert_eq!(client.count(), 1, "what is no read is not held up");
        client.answer(Body::Empty).await;
        assert!(other.is_finished());
        let mut first = coming.remove(together).await.unwrap().into_body();
        assert_eq!(read(&mut first, usize::MAX).await, ANSWER_BYTES_EXPECTED);
        assert_eq!(client.count(), 1, "it has taken one");
        coming.truncate(together);
        settled().await;
        assert_eq!(client.count(), together, "nobody wants the others");
        assert!(!thread_state.is_empty());
    });
}

#[test]
fn all_may_wait_at_once_and_are_answered_as_there_is_room() {
    in_a_world(async |world| {
        let (client, _hall) = world.greeted().await;
        let together = ANSWERS_BYTES_MAX / ANSWER_BYTES_EXPECTED;
        let mut coming = Vec::new();
        for _ in 0..100 {
            coming.push(client.ask("/v1/stream/a?live=long-poll&offset=-1").await);
        }
        assert_eq!(client.count(), 100);
        for _ in 0..100 {
            client.answer(long()).await;
        }
        assert_eq!(client.count(), 0);
        let answered = || coming.iter().filter(|coming| coming.is_finished()).count();
        assert_eq!(answered(), together);
        let mut first = coming.remove(0).await.unwrap().into_body();
        assert_eq!(read(&mut first, usize::MAX).await, ANSWER_BYTES_EXPECTED);
        assert_eq!(client.count(), 1, "it is asked again");
        client.answer(long()).await;
        let answered = coming.iter().filter(|coming| coming.is_finished()).count();
        assert_eq!(answered, together);
    });
}

#[test]
fn reads_of_a_connection_go_one_by_one_while_others_hold_all_that_a_core_has_room_for() {
    in_a_world(async |world| {
        let (client, thread_state) = world.greeted().await;
        let mut others = thread_state.answers.account();
        others.set(ANSWERS_CORE_BYTES_MAX + 1);
        let mut coming = Vec::new();
        for _ in 0..4 {
            coming.push(client.ask("/v1/stream/a").await);
        }
        assert_eq!(client.count(), 1);
        client.answer(long()).await;
        assert_eq!(client.count(), 0, "one is not taken yet");
        let mut first = coming.remove(0).await.unwrap().into_body();
        assert_eq!(read(&mut first, usize::MAX).await, ANSWER_BYTES_EXPECTED);
        assert_eq!(client.count(), 1, "who reads goes on");
        client.answer(long()).await;
        others.set(0);
        settled().await;
        assert_eq!(client.count(), 2, "there is room for all");
        let all = ANSWERS_CORE_BYTES_MAX as u64;
        assert!(thread_state.answers.page(all).bytes() < all, "what it has not taken counts");
        for gone in coming {
            gone.abort();
        }
        settled().await;
        assert_eq!(thread_state.answers.page(all).bytes(), all, "nobody wants the others");
    });
}

#[test]
fn what_is_asked_for_as_new_is_not_asked_for_again() {
    in_a_world(async |world| {
        let (client, _hall) = world.greeted().await;
        let mut coming = Vec::new();
        for _ in 0..20 {
            coming.push(client.ask("/v1/stream/a?live=long-poll&offset=now").await);
        }
        for _ in 0..20 {
            client.answer(long()).await;
        }
        assert!(coming.iter().all(JoinHandle::is_finished));
    });
}

#[test]
fn a_client_that_takes_a_little_now_and_then_gets_all_of_it() {
    in_a_world(async |world| {
        let (client, _hall) = world.greeted().await;
        let coming = client.ask("/v1/stream/a").await;
        let (most, last) =
            (vec![b'x'; 39 * WINDOW_BYTES as usize], vec![b'x'; WINDOW_BYTES as usize]);
        client.answer(Body::Parts([most, last].map(Bytes::from).to_vec())).await;
        let mut body = coming.await.unwrap().into_body();
        let mut count = 0;
        for _ in 0..40 {
            sleep(WRITE_TIMEOUT - 2 * LOOK_EVERY).await;
            count += read(&mut body, WINDOW_BYTES as usize).await;
        }
        assert_eq!(count, 40 * WINDOW_BYTES as usize);
    });
}

#[test]
fn a_client_that_takes_nothing_is_closed() {
    in_a_world(async |world| {
        let (client, thread_state) = world.greeted().await;
        let _coming = client.ask("/v1/stream/a").await;
        client.answer(long()).await;
        sleep(WRITE_TIMEOUT - 2 * LOOK_EVERY).await;
        assert!(!thread_state.is_empty());
        sleep(4 * LOOK_EVERY).await;
        assert!(thread_state.is_empty());
    });
}

#[test]
fn a_long_head_is_refused_when_requests_hold_too_much_and_a_usual_one_is_not() {
    in_a_world(async |world| {
        let (client, thread_state) = world.greeted().await;
        let mut others = thread_state.account();
        others.set(BODIES_BYTES_MAX).unwrap();
        let coming = client.ask(&format!("/{}", "x".repeat(HEAD_FREE_BYTES))).await;
        assert!(coming.is_finished() && client.count() == 0);
        assert_eq!(coming.await.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
        let _coming = client.ask("/healthz").await;
        assert_eq!(client.count(), 1);
    });
}

#[test]
fn a_connection_at_rest_ends_after_a_while_and_a_busy_one_does_not() {
    in_a_world(async |world| {
        let (client, thread_state) = world.greeted().await;
        let coming = client.ask("/wait").await;
        sleep(2 * IDLE_TIMEOUT).await;
        client.answer(Body::Empty).await;
        assert!(coming.is_finished());
        sleep(IDLE_TIMEOUT - 2 * LOOK_EVERY).await;
        assert!(!thread_state.is_empty());
        sleep(4 * LOOK_EVERY).await;
        assert!(thread_state.is_empty());
    });
}

/// So many pieces of a body of which nobody says how long it is.
struct Pieces(usize);

const PIECE: &[u8] = &[b'x'; 64 << 10];

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, Infallible>>> {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or_default();
        Poll::Ready(left.map(|_| Ok(hyper::body::Frame::data(Bytes::from_static(PIECE)))))
    }
}

#[test]
fn a_body_is_refused_that_is_too_long_though_nobody_has_said_so() {
    for (more, is_refused) in [(0, false), (1, true)] {
        in_a_world(async |world| {
            let (mut sender, connection) = hyper::client::conn::http2::Builder::new(LocalExecutor)
                .handshake(TokioIo::new(world.client))
                .await
                .unwrap();
            spawn_local(connection);
            let pieces = Pieces(BODY_BYTES_MAX / PIECE.len() + more);
            let request = Request::post("http://x/v1/stream/a").body(pieces).unwrap();
            let coming = spawn_local(async move { sender.send_request(request).await.unwrap() });
            while world.begun.borrow().is_empty() && !coming.is_finished() {
                tokio::task::yield_now().await;
            }
            assert_eq!(coming.is_finished(), is_refused);
            if is_refused {
                assert_eq!(coming.await.unwrap().status(), StatusCode::PAYLOAD_TOO_LARGE);
            }
        });
    }
}

/// A frame of HTTP/2 for the first request.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, 1], payload].concat()
}

#[test]
fn a_body_of_which_nothing_comes_but_empty_frames_has_come_to_a_standstill() {
    in_a_world(async |mut world| {
        // POST http://x/, of which a body follows, in the static table's words (RFC 7541, appendix A).
        let head = frame(1, 4, &[0x83, 0x86, 0x84, 0x41, 1, b'x']);
        world.client.write_all(&[greeting(), head].concat()).await.unwrap();
        let (mut client, mut written) = tokio::io::split(world.client);
        let reading = spawn_local(async move {
            let mut said = Vec::new();
            // A head for the first request: it is answered.
            while !said.windows(9).any(|at| at[3] == 1 && at[5..] == [0, 0, 0, 1]) {
                assert!(client.read_buf(&mut said).await.unwrap() > 0);
            }
        });
        for wait in 0..4 {
            assert!(!reading.is_finished(), "it was given up too early, in {wait}");
            written.write_all(&frame(0, 0, b"")).await.unwrap();
            sleep(BODY_TIMEOUT / 4).await;
        }
        settled().await;
        assert!(reading.is_finished());
        assert!(world.begun.borrow().is_empty());
    });
}

/// What a client begins with that has no settings.
fn greeting() -> Vec<u8> {
    [&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat()
}

#[test]
fn a_client_that_does_not_hear_of_the_end_is_closed() {
    in_a_world(async |mut world| {
        world.client.write_all(&greeting()).await.unwrap();
        settled().await;
        world.thread_state.closing.begin();
        sleep(WRITE_TIMEOUT - 2 * LOOK_EVERY).await;
        assert!(!world.thread_state.is_empty());
        sleep(4 * LOOK_EVERY).await;
        assert!(world.thread_state.is_empty());
    });
}

#[test]
fn a_client_that_lets_nothing_be_written_is_closed() {
    in_a_world_of(8, async |mut world| {
        let _said = spawn_local(async move { world.client.write_all(&greeting()).await });
        settled().await;
        assert!(!world.thread_state.is_empty());
        sleep(PING_EVERY + PING_TIMEOUT + IDLE_TIMEOUT + WRITE_TIMEOUT + 4 * LOOK_EVERY).await;
        assert!(world.thread_state.is_empty());
    });
}
