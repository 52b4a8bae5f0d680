//! Nodes of this process have links over real sockets.

use std::{rc::Weak, time::Duration};

use bytes::Bytes;
use sennit_protocol::peer::{Class, Content, PIECE_BYTES_MAX, Pieces};
use tokio::{
    net::TcpStream,
    sync::mpsc,
    task::{JoinHandle, LocalSet, spawn_local, yield_now},
    time::timeout,
};

use super::*;
use crate::{
    cluster::{
        dialler::keep_link, greeting::introduce, peer_listener::accept, peer_state::Identity,
        settings::PeerAddress,
    },
    runtime::{
        file_descriptors::FileDescriptors,
        inbox::Message,
        listener::{Listener, listen},
        services::Services,
        wire::tests::connected,
    },
};

/// Longer than anything takes that a test waits for.
const BOUND: Duration = Duration::from_secs(120);

#[derive(Debug, PartialEq)]
enum Event {
    Frame(u16, PeerFrame),
    Link(u16, bool),
}

/// Passes all that it is told on to the test.
struct Told(mpsc::UnboundedSender<Event>);

impl LinkListener for Told {
    fn on_frame(&self, peer: u16, frame: PeerFrame) {
        self.0.send(Event::Frame(peer, frame)).unwrap();
    }

    fn on_link(&self, peer: u16, is_up: bool) {
        self.0.send(Event::Link(peer, is_up)).unwrap();
    }
}

/// A node with one core.
struct Node {
    links: Rc<Links>,
    state: Arc<ClusterState>,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Node {
    fn new(own: Identity, peer: u16, address: &str) -> Self {
        let peer = PeerAddress { node: peer, address: address.to_owned() };
        let state = Arc::new(ClusterState::new(own, &[peer]));
        let (sender, events) = mpsc::unbounded_channel();
        let links = Rc::new(Links::new(CoreIndex::FIRST, state.clone(), Rc::new(Told(sender))));
        Self { links, state, events }
    }

    /// Node 2, which listens, and its address.
    async fn listening() -> (Self, String) {
        let node = Self::new(identity(2, 1), 1, "127.0.0.1:1");
        let socket = listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let listener = Listener::new(socket, FileDescriptors::raise(1), None).unwrap();
        let (inbox, mut messages) = mpsc::unbounded_channel();
        spawn_local(accept(listener, node.state.clone(), [inbox].into_iter().collect()));
        let services = Services::default();
        services.add(node.links.clone());
        spawn_local(async move {
            while let Some(message) = messages.recv().await {
                let Message::Call(call) = message else { panic!("a call: {message:?}") };
                call.run(&services);
            }
        });
        (node, address)
    }

    fn dial(&self) -> JoinHandle<()> {
        spawn_local(keep_link(self.links.clone(), 2))
    }

    async fn event(&mut self) -> Event {
        self.events.recv().await.unwrap()
    }

    /// Waits until its peer refuses the link, or it the peer's.
    async fn refusal(&self) -> String {
        loop {
            if let Some(refusal) = self.state.describe()["peers"][0]["refusal"].as_str() {
                return refusal.to_owned();
            }
            yield_now().await;
        }
    }
}

fn identity(node: u16, start_epoch: u64) -> Identity {
    Identity { cluster: 7, node, incarnation: u64::from(node), start_epoch, cores: 1, shards: 1 }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = LocalSet::new().block_on(&runtime, async { timeout(BOUND, test).await });
    done.expect("it is done in time");
}

fn commands(number: u64, length: usize) -> PeerFrame {
    let content = Content::Commands { count: 1, body: Bytes::from(vec![5; length]) };
    PeerFrame { class: Class::Ordinary, group: 1, number, content }
}

#[test]
fn frames_reach_the_peer_in_their_order_in_both_directions() {
    run(async {
        let (mut two, address) = Node::listening().await;
        let mut one = Node::new(identity(1, 1), 2, &address);
        assert_eq!(one.links.send(2, commands(0, 0)), Err(NotSent::Unreachable));
        one.dial();
        assert_eq!(two.event().await, Event::Link(1, true));
        assert_eq!(one.event().await, Event::Link(2, true));
        assert!(one.state.peers[0].is_heard() && two.state.peers[0].is_heard());
        let frames = [0, 100, 3 * PIECE_BYTES_MAX, 5, 20_000, 2 * PIECE_BYTES_MAX, 1];
        let frames: Vec<_> =
            (0..).zip(frames).map(|(number, length)| commands(number, length)).collect();
        for frame in &frames {
            one.links.send(2, frame.clone()).unwrap();
            two.links.send(1, frame.clone()).unwrap();
        }
        for frame in frames {
            assert_eq!(two.event().await, Event::Frame(1, frame.clone()));
            assert_eq!(one.event().await, Event::Frame(2, frame));
        }
    });
}

#[test]
fn a_link_that_ends_is_told_and_dialled_again() {
    run(async {
        let (mut two, address) = Node::listening().await;
        let mut one = Node::new(identity(1, 1), 2, &address);
        let dialling = one.dial();
        assert_eq!(two.event().await, Event::Link(1, true));
        assert_eq!(one.event().await, Event::Link(2, true));
        dialling.abort();
        assert_eq!(two.event().await, Event::Link(1, false));
        assert!(!two.state.peers[0].is_heard());
        assert_eq!(two.links.send(1, commands(0, 0)), Err(NotSent::Unreachable));
        let one = Node::new(identity(1, 2), 2, &address);
        one.dial();
        assert_eq!(two.event().await, Event::Link(1, true));
    });
}

#[test]
fn a_later_start_takes_the_link_and_the_earlier_one_is_refused() {
    run(async {
        let (mut two, address) = Node::listening().await;
        let (earlier, later) =
            (Node::new(identity(1, 1), 2, &address), Node::new(identity(1, 2), 2, &address));
        earlier.dial();
        assert_eq!(two.event().await, Event::Link(1, true));
        later.dial();
        assert_eq!(two.event().await, Event::Link(1, false));
        assert_eq!(two.event().await, Event::Link(1, true));
        let refusal = earlier.refusal().await;
        assert!(refusal.contains("has been started again since"), "{refusal}");
        assert!(two.state.peers[0].is_heard() && later.state.peers[0].is_heard());
    });
}

/// Ends the link with the first frame that comes on it, as one does that takes its place.
struct EndsAtOnce {
    links: Weak<Links>,
    taken: RefCell<Vec<u64>>,
}

impl LinkListener for EndsAtOnce {
    fn on_frame(&self, peer: u16, frame: PeerFrame) {
        self.taken.borrow_mut().push(frame.number);
        self.links.upgrade().unwrap().end(peer);
    }

    fn on_link(&self, _: u16, _: bool) {}
}

/// The bytes of frames on a link.
fn bytes_of(frames: impl IntoIterator<Item = PeerFrame>) -> BytesMut {
    let mut bytes = BytesMut::new();
    for frame in frames {
        let mut head = BytesMut::new();
        let body = Pieces::new(frame).next_piece(&mut head);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&body);
    }
    bytes
}

#[test]
fn a_link_that_has_ended_passes_nothing_on_of_what_it_has_read() {
    run(async {
        let peer = PeerAddress { node: 1, address: "127.0.0.1:1".to_owned() };
        let state = Arc::new(ClusterState::new(identity(2, 1), &[peer]));
        let mut listener = None;
        let links = Rc::new_cyclic(|links| {
            let ends = EndsAtOnce { links: links.clone(), taken: RefCell::default() };
            let ends = listener.insert(Rc::new(ends)).clone();
            Links::new(CoreIndex::FIRST, state, ends)
        });
        let (_client, _hold, wire) = connected();
        let mut reader = PeerReader::before_greeting();
        reader.set_greeted();
        let unread = bytes_of((1..=3).map(|number| commands(number, 10)));
        let theirs = introduce(&identity(1, 1), 0, 0);
        links.serve(wire.register().unwrap(), (reader, unread), &theirs, None).await;
        assert_eq!(*listener.unwrap().taken.borrow(), [1]);
        assert!(!links.is_up(1));
    });
}

#[test]
fn a_node_of_another_cluster_is_refused_and_both_know_why() {
    run(async {
        let (two, address) = Node::listening().await;
        let one = Node::new(Identity { cluster: 8, ..identity(1, 1) }, 2, &address);
        one.dial();
        let reason = "node 1 belongs to cluster 8, node 2 to cluster 7";
        assert_eq!(one.refusal().await, reason);
        assert_eq!(two.refusal().await, reason);
        assert!(!one.state.peers[0].is_heard() && !two.state.peers[0].is_heard());
    });
}

#[test]
fn bytes_that_are_no_greeting_end_the_connection_and_others_are_accepted() {
    run(async {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (mut two, address) = Node::listening().await;
        let mut stranger = TcpStream::connect(&address).await.unwrap();
        stranger.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        // Closed, or reset as bytes were left unread.
        let _ = stranger.read_to_end(&mut answer).await;
        assert_eq!(answer, b"");
        let one = Node::new(identity(1, 1), 2, &address);
        one.dial();
        assert_eq!(two.event().await, Event::Link(1, true));
    });
}
