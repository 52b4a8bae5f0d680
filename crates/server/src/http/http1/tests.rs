//! A connection over a pipe in memory, and a clock that runs only while everybody waits.

mod bodies;
mod times;

use std::{
    cell::{Cell, RefCell},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::{
    io::{AsyncWriteExt as _, DuplexStream, duplex},
    sync::{mpsc, oneshot},
    task::{LocalSet, spawn_local},
    time::{Instant, sleep, timeout},
};

use super::*;
use crate::{
    http::{
        body::{Body, EventSource, PageSource, Pieces},
        handler::tests::ByFunction,
        limits::{
            ANSWERS_CORE_BYTES_MAX, BODIES_BYTES_MAX, BODY_TIMEOUT, HALF_CLOSED, HEAD_FREE_BYTES,
            HEAD_TIMEOUT, IDLE_TIMEOUT, WRITE_TIMEOUT,
        },
    },
    runtime::metrics::CoreMetrics,
};

/// A test that waits for something that does not come fails then, which is at once.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A client of a connection, and what its requests wait for.
struct World {
    client: DuplexStream,
    thread_state: Rc<HttpThreadState>,
    /// The paths that were begun, each with the way to answer it.
    begun: Rc<RefCell<Vec<Unanswered>>>,
}

/// A path, and the way to answer.
type Unanswered = (String, oneshot::Sender<Response>);

/// Runs a test with a clock that jumps to what is next.
fn in_a_world<F: Future<Output = ()>>(pipe_bytes: usize, test: impl FnOnce(World) -> F) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    LocalSet::new().block_on(&runtime.unwrap(), async {
        let (client, stream) = duplex(pipe_bytes);
        let thread_state = Rc::new(HttpThreadState::new(
            std::sync::Arc::<CoreMetrics>::default(),
            None,
            <_>::default(),
        ));
        let begun: Rc<RefCell<Vec<_>>> = Rc::default();
        let handler = Rc::new(ByFunction({
            let begun = begun.clone();
            move |request: Rc<Request>| {
                let (answer, answered) = oneshot::channel();
                begun.borrow_mut().push((request.path().to_owned(), answer));
                async move { answered.await.unwrap_or_else(|_| Response::new(Body::Empty)) }
            }
        }));
        spawn_local({
            let thread_state = thread_state.clone();
            async move { serve(stream, b"", 0, thread_state, handler).await }
        });
        timeout(DAY, test(World { client, thread_state, begun }))
            .await
            .expect("all that was to come comes");
    });
}

impl World {
    async fn say(&mut self, text: &str) {
        self.client.write_all(text.as_bytes()).await.unwrap();
        settled().await;
    }

    /// Asks for paths, all at once.
    async fn ask(&mut self, paths: &[&str]) {
        let requests: String =
            paths.iter().map(|path| format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")).collect();
        self.say(&requests).await;
    }

    /// Answers the first request of this path that was begun.
    async fn answer(&self, path: &str, body: Body) {
        let at = self.begun.borrow().iter().position(|(begun, _)| begun == path).unwrap();
        let (_, answer) = self.begun.borrow_mut().remove(at);
        answer.send(Response::new(body)).unwrap();
        settled().await;
    }

    fn paths(&self) -> Vec<String> {
        self.begun.borrow().iter().map(|(path, _)| path.clone()).collect()
    }

    /// Everything that has come, without its dates.
    async fn hear(&mut self) -> String {
        let mut bytes = BytesMut::new();
        loop {
            let read = poll_fn(|context| {
                let read = pin!(self.client.read_buf(&mut bytes)).poll(context);
                Poll::Ready(match read {
                    Poll::Ready(count) => count.unwrap(),
                    Poll::Pending => 0,
                })
            });
            if read.await == 0 {
                break;
            }
            settled().await;
        }
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        let lines = text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: "));
        lines.collect()
    }

    /// Hears everything up to the end of the connection.
    async fn hear_the_end(&mut self) -> String {
        let mut bytes = Vec::new();
        self.client.read_to_end(&mut bytes).await.unwrap();
        String::from_utf8(bytes).unwrap()
    }
}

/// Whatever can be done without time has been done.
async fn settled() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

fn text(text: &'static str) -> Body {
    Body::Full(Bytes::from_static(text.as_bytes()))
}

#[test]
fn requests_that_came_together_are_begun_together_and_answered_in_their_order() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/a", "/b", "/c"]).await;
        assert_eq!(world.paths(), ["/a", "/b", "/c"]);
        world.answer("/c", text("third")).await;
        world.answer("/b", text("second")).await;
        assert_eq!(world.hear().await, "");
        world.answer("/a", text("first")).await;
        let one =
            |body: &str| format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let all = [one("first"), one("second"), one("third")].concat();
        assert_eq!(world.hear().await, all);
    });
}

#[test]
fn no_more_requests_are_begun_than_may_wait_and_the_others_follow() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/a"; PIPELINED_MAX + 3]).await;
        assert_eq!(world.paths().len(), PIPELINED_MAX);
        world.answer("/a", text("")).await;
        assert_eq!(world.paths().len(), PIPELINED_MAX);
        for _ in 0..PIPELINED_MAX + 2 {
            world.answer("/a", text("")).await;
        }
        assert_eq!(world.hear().await.matches("200 OK").count(), PIPELINED_MAX + 3);
    });
}

/// Requests of these methods for one stream.
fn of_one_stream(methods: &[&str]) -> String {
    let one = |method: &&str| format!("{method} /v1/stream/a HTTP/1.1\r\nHost: x\r\n\r\n");
    methods.iter().map(one).collect()
}

#[test]
fn a_request_that_changes_something_is_worked_on_alone() {
    in_a_world(1 << 20, async |mut world| {
        let methods = ["PUT", "POST", "POST", "GET", "HEAD", "DELETE", "PUT", "GET"];
        world.say(&of_one_stream(&methods)).await;
        for together in [1, 2, 2, 1, 1, 1] {
            for left in (0..together).rev() {
                assert_eq!(world.paths().len(), left + 1);
                world.answer("/v1/stream/a", text("")).await;
            }
        }
        assert_eq!(world.hear().await.matches("200 OK").count(), methods.len());
        world.ask(&["/b"]).await;
        assert_eq!(world.paths(), ["/b"]);
    });
}

#[test]
fn what_waits_for_its_turn_is_answered_though_its_client_sends_no_more() {
    in_a_world(1 << 20, async |mut world| {
        world.say(&of_one_stream(&["PUT", "POST", "GET"])).await;
        world.client.shutdown().await.unwrap();
        settled().await;
        for _ in 0..3 {
            assert_eq!(world.paths().len(), 1);
            world.answer("/v1/stream/a", text("x")).await;
        }
        assert_eq!(world.hear_the_end().await.matches("200 OK").count(), 3);
    });
}

#[test]
fn what_waits_for_its_turn_is_answered_though_connections_are_to_end() {
    in_a_world(1 << 20, async |mut world| {
        world.say(&of_one_stream(&["PUT", "POST"])).await;
        world.thread_state.closing.begin();
        settled().await;
        world.answer("/v1/stream/a", text("a")).await;
        world.answer("/v1/stream/a", text("b")).await;
        let heard = world.hear_the_end().await;
        assert_eq!(heard.matches("connection: close").count(), 1);
        assert!(heard.ends_with("connection: close\r\n\r\nb"));
    });
}

#[test]
fn nothing_behind_the_last_answer_is_begun() {
    in_a_world(1 << 20, async |mut world| {
        world.say("GET /a HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n\r\n").await;
        world.say(&of_one_stream(&["DELETE"])).await;
        let (sender, _, body) = events();
        world.answer("/a", body).await;
        drop(sender);
        settled().await;
        assert!(world.hear_the_end().await.contains("connection: close"));
        assert_eq!(world.paths(), [""; 0]);
    });
}

#[test]
fn no_more_reads_are_begun_than_there_is_room_for_answers() {
    in_a_world(1000, async |mut world| {
        let together = ANSWERS_BYTES_MAX / ANSWER_BYTES_EXPECTED;
        world.say(&of_one_stream(&["GET"; PIPELINED_MAX])).await;
        let path = "/v1/stream/a";
        assert_eq!(world.paths().len(), together);
        for _ in 0..together {
            world.answer(path, text("short")).await;
            assert_eq!(world.paths().len(), together, "what is short makes room for others");
        }
        let long = Bytes::from(vec![b'x'; ANSWER_BYTES_EXPECTED]);
        for left in (0..together).rev() {
            world.answer(path, Body::Full(long.clone())).await;
            assert_eq!(world.paths().len(), left, "what its client does not take keeps its room");
        }
        assert_eq!(world.hear().await.matches("200 OK").count(), 2 * together);
        assert_eq!(world.paths().len(), together, "it has taken it");
    });
}

#[test]
fn many_who_take_nothing_hold_no_more_together_than_their_core_has_room_for() {
    in_a_world(1000, async |world| {
        let (thread_state, begun) = (world.thread_state.clone(), Rc::new(Cell::new(0)));
        let long = Bytes::from(vec![b'x'; ANSWER_BYTES_EXPECTED]);
        let together = ANSWERS_BYTES_MAX / ANSWER_BYTES_EXPECTED;
        // Somebody who asks for as much as a connection may hold, and how many of that were begun.
        let connect = async || {
            let (mut client, stream) = duplex(1000);
            let (thread_state, count, long) = (thread_state.clone(), begun.clone(), long.clone());
            let handler = Rc::new(ByFunction(move |_| {
                count.set(count.get() + 1);
                std::future::ready(Response::new(Body::Full(long.clone())))
            }));
            spawn_local(serve(stream, b"", 0, thread_state, handler));
            let before = begun.get();
            client.write_all(of_one_stream(&vec!["GET"; together]).as_bytes()).await.unwrap();
            settled().await;
            (client, begun.get() - before)
        };
        let many = ANSWERS_CORE_BYTES_MAX / ANSWERS_BYTES_MAX;
        let mut deaf = Vec::new();
        for number in 0..3 * many {
            let (client, begun) = connect().await;
            deaf.push(client);
            assert_eq!(begun, if number <= many { together } else { 1 }, "{number}");
        }
        let (mut reads, _) = connect().await;
        let mut bytes = vec![0; together * ANSWER_BYTES_EXPECTED];
        reads.read_exact(&mut bytes).await.unwrap();
        settled().await;
        assert!(bytes.ends_with(b"xxx"), "who reads goes on");
        drop(deaf);
        settled().await;
        assert_eq!(connect().await.1, together, "there is room again");
        drop(reads);
        sleep(WRITE_TIMEOUT + Duration::from_secs(1)).await;
        let all = ANSWERS_CORE_BYTES_MAX as u64;
        assert_eq!(thread_state.answers.page(all).bytes(), all, "they are gone");
    });
}

#[test]
fn pages_that_wait_behind_another_answer_are_counted_by_themselves_alone() {
    in_a_world(1000, async |mut world| {
        world.ask(&["/a", "/b", "/c"]).await;
        let none = PageSource::unfold((), async |()| None);
        world.answer("/c", Body::Pages(none)).await;
        let all = ANSWERS_CORE_BYTES_MAX as u64;
        assert_eq!(world.thread_state.answers.page(all).bytes(), all);
        world.answer("/b", text("x")).await;
        assert!(world.thread_state.answers.page(all).bytes() < all, "others are counted");
    });
}

#[test]
fn an_answer_in_parts_has_their_length_together() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/"]).await;
        let parts = [vec![b'a'; 3], Vec::new(), vec![b'b'; 20_000], vec![b'c'; 2]];
        let whole = String::from_utf8(parts.concat()).unwrap();
        world.answer("/", Body::Parts(parts.into_iter().map(Bytes::from).collect())).await;
        let head = "HTTP/1.1 200 OK\r\ncontent-length: 20005\r\n\r\n";
        assert_eq!(world.hear().await, format!("{head}{whole}"));
    });
}

#[test]
fn what_the_socket_does_not_take_at_once_follows_without_a_gap() {
    in_a_world(1000, async |mut world| {
        world.ask(&["/a", "/b"]).await;
        let long: Vec<u8> = (0..100_000u32).map(|n| b'a' + (n % 26) as u8).collect();
        world.answer("/a", Body::Full(long.clone().into())).await;
        world.answer("/b", text("end")).await;
        let heard = world.hear().await;
        assert!(heard.contains(str::from_utf8(&long).unwrap()));
        assert!(heard.ends_with("content-length: 3\r\n\r\nend"));
    });
}

#[test]
fn an_answer_to_head_has_the_length_that_the_service_says_and_no_body() {
    in_a_world(1 << 20, async |mut world| {
        world.say("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        world.answer("/", text("four")).await;
        assert_eq!(world.hear().await, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n");
        world.say("HEAD /b HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let (_, answer) = world.begun.borrow_mut().pop().unwrap();
        let mut response = Response::new(Body::Empty);
        response.headers_mut().insert(header::CONTENT_LENGTH, 77.into());
        answer.send(response).unwrap();
        settled().await;
        assert_eq!(world.hear().await, "HTTP/1.1 200 OK\r\ncontent-length: 77\r\n\r\n");
    });
}

#[test]
fn an_answer_without_content_has_neither_body_nor_length() {
    in_a_world(1 << 20, async |mut world| {
        for (status, line) in [(204, "204 No Content"), (304, "304 Not Modified")] {
            world.ask(&["/"]).await;
            let (_, answer) = world.begun.borrow_mut().pop().unwrap();
            let mut response = Response::new(Body::Empty);
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert(header::ETAG, HeaderValue::from_static("x"));
            answer.send(response).unwrap();
            settled().await;
            assert_eq!(world.hear().await, format!("HTTP/1.1 {line}\r\netag: x\r\n\r\n"));
        }
    });
}

#[test]
fn a_client_that_goes_gives_up_what_it_waited_for() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/wait"]).await;
        let (_, answer) = world.begun.borrow_mut().pop().unwrap();
        drop(world.client);
        sleep(HALF_CLOSED + Duration::from_millis(10)).await;
        assert!(answer.is_closed());
        assert!(world.thread_state.is_empty());
    });
}

#[test]
fn a_client_that_only_says_no_more_hears_its_answer() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/"]).await;
        world.client.shutdown().await.unwrap();
        settled().await;
        world.answer("/", text("still")).await;
        assert!(world.hear_the_end().await.ends_with("still"));
    });
}

#[test]
fn a_client_that_sends_no_more_hears_all_of_an_answer_however_slowly() {
    in_a_world(100, async |mut world| {
        world.ask(&["/"]).await;
        world.client.shutdown().await.unwrap();
        settled().await;
        world.answer("/", Body::Full(vec![b'x'; 1000].into())).await;
        let mut heard = String::new();
        while !world.thread_state.is_empty() {
            sleep(2 * HALF_CLOSED).await;
            let mut bytes = [0; 100];
            let count = world.client.read(&mut bytes).await.unwrap();
            heard.push_str(str::from_utf8(&bytes[..count]).unwrap());
        }
        heard.push_str(&world.hear_the_end().await);
        assert!(heard.ends_with(&"x".repeat(1000)), "{heard}");
    });
}

#[test]
fn events_that_go_on_are_not_gone_on_with_for_a_client_that_sends_no_more() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/"]).await;
        let (sender, _, body) = events();
        world.answer("/", body).await;
        world.client.shutdown().await.unwrap();
        for _ in 0..4 {
            let _ = sender.send(Bytes::from_static(b"event"));
            sleep(HALF_CLOSED / 3).await;
        }
        assert!(sender.is_closed());
        assert!(world.thread_state.is_empty());
    });
}

/// Gives what is sent to it, and counts how often it was asked.
struct Sent {
    pieces: mpsc::UnboundedReceiver<Bytes>,
    given: Rc<RefCell<usize>>,
}

impl Pieces<Bytes> for Sent {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let piece = ready!(self.pieces.poll_recv(context));
        *self.given.borrow_mut() += usize::from(piece.is_some());
        Poll::Ready(piece)
    }
}

fn events() -> (mpsc::UnboundedSender<Bytes>, Rc<RefCell<usize>>, Body) {
    let (sender, pieces) = mpsc::unbounded_channel();
    let given: Rc<RefCell<usize>> = Rc::default();
    let source = EventSource::new(Sent { pieces, given: given.clone() });
    (sender, given, Body::Events(source))
}

#[test]
fn events_go_out_as_they_come_and_the_next_request_follows_their_end() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/events", "/next"]).await;
        let (sender, _, body) = events();
        world.answer("/events", body).await;
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(world.hear().await, head);
        sender.send(Bytes::from_static(b"one")).unwrap();
        settled().await;
        assert_eq!(world.hear().await, "3\r\none\r\n");
        world.answer("/next", text("next")).await;
        sender.send(Bytes::from(vec![b'x'; 20_000])).unwrap();
        drop(sender);
        settled().await;
        let heard = world.hear().await;
        assert!(heard.starts_with("4e20\r\nxxx"));
        assert!(heard.ends_with("x\r\n0\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnext"));
    });
}

#[test]
fn the_next_event_is_asked_for_when_the_socket_has_taken_the_last() {
    in_a_world(100, async |mut world| {
        world.ask(&["/"]).await;
        let (sender, given, body) = events();
        for _ in 0..10 {
            sender.send(Bytes::from(vec![b'x'; 1000])).unwrap();
        }
        world.answer("/", body).await;
        // The head of the answer fills the pipe.
        assert!(*given.borrow() <= 1);
        world.hear().await;
        assert_eq!(*given.borrow(), 10);
    });
}

#[test]
fn events_end_with_their_connection_where_no_chunks_are_known() {
    in_a_world(1 << 20, async |mut world| {
        world.say("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n").await;
        let (sender, _, body) = events();
        world.answer("/", body).await;
        sender.send(Bytes::from_static(b"one")).unwrap();
        drop(sender);
        settled().await;
        assert!(world.hear_the_end().await.ends_with("connection: close\r\n\r\none"));
    });
}

#[test]
fn events_are_dropped_when_the_client_goes() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/"]).await;
        let (sender, _, body) = events();
        world.answer("/", body).await;
        drop(world.client);
        sleep(HALF_CLOSED + Duration::from_millis(10)).await;
        assert!(sender.is_closed());
    });
}

#[test]
fn pieces_made_one_after_the_other_are_all_sent() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/"]).await;
        let source = EventSource::unfold(0, async |n| {
            sleep(Duration::from_secs(20)).await;
            (n < 3).then(|| (Bytes::from(format!("n{n}")), n + 1))
        });
        world.answer("/", Body::Events(source)).await;
        sleep(Duration::from_secs(90)).await;
        let chunks = "2\r\nn0\r\n2\r\nn1\r\n2\r\nn2\r\n0\r\n\r\n";
        assert!(world.hear().await.ends_with(chunks));
    });
}

#[test]
fn a_client_that_waits_for_it_is_told_to_send_the_body_behind_earlier_answers() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/a"]).await;
        let head =
            "POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        world.say(head).await;
        // However long they take: the body comes only then.
        sleep(2 * BODY_TIMEOUT).await;
        assert_eq!(world.hear().await, "");
        world.answer("/a", text("")).await;
        assert!(world.hear().await.ends_with("\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n"));
        world.say("xy").await;
        world.answer("/b", text("b")).await;
        assert!(world.hear().await.ends_with("\r\n\r\nb"));
    });
}

#[test]
fn connections_that_are_to_end_finish_what_they_were_asked() {
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/a", "/b"]).await;
        world.thread_state.closing.begin();
        settled().await;
        assert!(!world.thread_state.is_empty());
        world.answer("/a", text("a")).await;
        world.answer("/b", text("b")).await;
        assert!(world.thread_state.is_empty());
        let heard = world.hear_the_end().await;
        assert_eq!(heard.matches("connection: close").count(), 1);
        assert!(heard.ends_with("connection: close\r\n\r\nb"));
    });
}

#[test]
fn a_connection_at_rest_and_one_with_events_end_when_all_are_to() {
    in_a_world(1 << 20, async |world| {
        world.thread_state.closing.begin();
        settled().await;
        assert!(world.thread_state.is_empty());
    });
    in_a_world(1 << 20, async |mut world| {
        world.ask(&["/"]).await;
        let (_sender, _, body) = events();
        world.answer("/", body).await;
        world.thread_state.closing.begin();
        settled().await;
        assert!(world.thread_state.is_empty());
        assert!(world.hear_the_end().await.ends_with("0\r\n\r\n"));
    });
}

#[test]
fn what_comes_behind_the_last_answer_does_not_take_it_away() {
    in_a_world(1 << 20, async |mut world| {
        world.say("GET / HTTP/1.1\r\n\r\n").await;
        world.say(&"x".repeat(300_000)).await;
        assert!(world.hear_the_end().await.starts_with("HTTP/1.1 400 "));
    });
}

#[test]
fn an_answer_that_breaks_off_at_once_leaves_nothing_for_the_next_connection() {
    in_a_world(4096, |mut world| async move {
        world.ask(&["/a"]).await;
        let broken = async |()| Some((Err(io::Error::other("the copy failed")), ()));
        world.answer("/a", Body::Pages(PageSource::unfold((), broken))).await;
        assert_eq!(world.thread_state.write.borrow().len(), 0);
        assert_eq!(world.hear_the_end().await, "");
    });
}
