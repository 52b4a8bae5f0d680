//! A scripted broker: it speaks the protocol's frames as the test says.

#![expect(clippy::unwrap_used, reason = "a script that does not run ends the test")]

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use sennit_client::{Client, Message, Publisher, TopicName};
use sennit_model::{
    Batch, BatchBuilder, Generation, Offset, OffsetRange, PartitionIndex, Timestamp,
};
use sennit_protocol::{
    Confirm, ConfirmHead, ConfirmRun, Deliver, DeliverHead, Durability, ErrorCode, FrameReader,
    Gap, GapReason, Preface, Publish, Reply, Request, Settle, Verdict, control,
    negotiated_frame_bytes_max,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

/// Longer than anything takes that is to happen.
pub const SOON: Duration = Duration::from_secs(10);

pub struct Broker {
    listener: TcpListener,
}

impl Broker {
    pub async fn listen() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    pub fn address(&self) -> String {
        self.listener.local_addr().unwrap().to_string()
    }

    /// A connection whose preface and hello have come.
    pub async fn greeted(&self) -> Peer {
        Self::greet(soon(self.accept()).await).await
    }

    /// A connection, whenever it comes.
    pub async fn accept(&self) -> TcpStream {
        self.listener.accept().await.unwrap().0
    }

    /// Reads preface and hello, and grants all that is asked for.
    pub async fn greet(stream: TcpStream) -> Peer {
        Self::greet_without(stream, "nothing").await
    }

    /// The same of a broker that does not know one of the features.
    pub async fn greet_without(stream: TcpStream, feature: &str) -> Peer {
        let mut peer = Peer {
            stream,
            frames: FrameReader::before_greeting(),
            input: BytesMut::new(),
            limits: control::Limits::new(sennit_model::limits::FRAME_BYTES_MAX),
            replaces: None,
        };
        while Preface::take(&mut peer.input).unwrap().is_none() {
            peer.read().await;
        }
        let (number, request) = peer.next().await;
        let Request::Hello(hello) = request else { panic!("{request:?}") };
        let frame_bytes_max = negotiated_frame_bytes_max(hello.frame_bytes_max);
        peer.limits = control::Limits::new(frame_bytes_max);
        peer.frames.set_limit(frame_bytes_max);
        let known =
            ["gaps", "readers", "cursors", "filters", "watches", "started", "publish-notes"];
        assert_eq!(hello.features, known);
        peer.replaces = hello.replaces;
        let ok = control::HelloOk {
            server_name: "script".into(),
            server_version: "1".into(),
            limits: Some(peer.limits),
            features: hello.features.into_iter().filter(|name| name != feature).collect(),
            session_token: hello.replaces.unwrap_or(70) + 7,
            reconnect_grace_ms: 60_000,
            ..Default::default()
        };
        peer.send(number, Reply::HelloOk(ok)).await;
        peer
    }

    /// A client and the other end of its connection.
    pub async fn client(&self) -> (Client, Peer) {
        let (client, peer) = both(Client::connect(self.address()), self.greeted()).await;
        (client.unwrap(), peer)
    }
}

/// The other end of a client's connection.
pub struct Peer {
    stream: TcpStream,
    frames: FrameReader,
    input: BytesMut,
    limits: control::Limits,
    /// The token of the session that it said it replaces.
    pub replaces: Option<u64>,
}

impl Peer {
    async fn read(&mut self) {
        let read = self.stream.read_buf(&mut self.input).await;
        assert_ne!(read.unwrap(), 0, "the client has left");
    }

    /// The next frame that is no ping; pings are answered.
    pub async fn next(&mut self) -> (u64, Request) {
        soon(self.next_in_time()).await
    }

    async fn next_in_time(&mut self) -> (u64, Request) {
        loop {
            if let Some((header, body)) = self.frames.next_frame(&mut self.input).unwrap() {
                match Request::decode(&header, body).unwrap() {
                    Request::Ping => self.send(header.request, Reply::Pong).await,
                    request => return (header.request, request),
                }
            } else {
                self.read().await;
            }
        }
    }

    /// Whether the client has closed the connection, after reading what it still sent.
    pub async fn leaves(mut self) -> bool {
        let mut rest = Vec::new();
        timeout(SOON, self.stream.read_to_end(&mut rest)).await.is_ok()
    }

    pub async fn send(&mut self, number: u64, reply: Reply) {
        let mut out = Vec::new();
        reply.encode(number, &mut out);
        self.send_bytes(&out).await;
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    /// Answers the opening of a topic.
    pub async fn open_topic(&mut self, partitions: u32) {
        self.open_incarnation(partitions, 9).await;
    }

    pub async fn open_incarnation(&mut self, partitions: u32, incarnation: u64) {
        let (number, request) = self.next().await;
        let Request::OpenTopic(_) = request else { panic!("{request:?}") };
        let limits = Some(self.limits);
        let opened = control::TopicOpened { topic_id: 1, incarnation, partitions, limits };
        self.send(number, Reply::TopicOpened(opened)).await;
    }

    pub async fn publish(&mut self) -> (u64, Publish) {
        let (number, request) = self.next().await;
        let Request::Publish(publish) = request else { panic!("{request:?}") };
        publish.check_batch().unwrap();
        (number, publish)
    }

    /// Confirms everything up to and with `publish`, which got `first_offset`.
    pub async fn confirm(&mut self, publish: &Publish, first_offset: u64) {
        self.confirm_as(publish, Some(first_offset), false).await;
    }

    pub async fn confirm_as(&mut self, publish: &Publish, offset: Option<u64>, duplicate: bool) {
        let stamp = publish.head.producer;
        let head = ConfirmHead {
            partition: publish.head.partition,
            producer: stamp.id,
            up_to_sequence: stamp.first_sequence + u64::from(publish.head.count),
            durability: Durability::Durable,
        };
        let run = ConfirmRun {
            first_sequence: stamp.first_sequence,
            first_offset: offset.map(Offset),
            count: publish.head.count,
            duplicate,
        };
        let confirm = Confirm { head, runs: [run].into_iter().collect() };
        self.send(0, Reply::Confirm(confirm)).await;
    }

    /// Refuses a request.
    pub async fn refuse(&mut self, number: u64, code: ErrorCode) {
        self.send(number, Reply::Error(control::Error::new(code, "as the script says"))).await;
    }

    /// Refuses a batch as the server does, which repeats what it was.
    pub async fn refuse_publish(
        &mut self,
        (number, publish): &(u64, Publish),
        code: ErrorCode,
        expected: Option<u64>,
    ) {
        let error = control::Error {
            topic_id: Some(publish.head.partition.topic.0),
            partition: Some(publish.head.partition.index.0),
            producer_id: Some(publish.head.producer.id.0),
            first_sequence: Some(publish.head.producer.first_sequence),
            count: Some(publish.head.count),
            expected_sequence: expected,
            ..control::Error::new(code, "as the script says")
        };
        self.send(*number, Reply::Error(error)).await;
    }

    /// Answers a subscribe, and says what it asked for.
    pub async fn subscribed(&mut self) -> control::Subscribe {
        self.subscribed_to(1).await
    }

    /// The same, for a topic of so many partitions.
    pub async fn subscribed_to(&mut self, partitions: u32) -> control::Subscribe {
        let (number, request) = self.next().await;
        let Request::Subscribe(subscribe) = request else { panic!("{request:?}") };
        self.send_subscribed(number, &subscribe, partitions).await;
        subscribe
    }

    /// Says that a subscription is made.
    pub async fn send_subscribed(
        &mut self,
        number: u64,
        subscribe: &control::Subscribe,
        partitions: u32,
    ) {
        let answer = control::Subscribed {
            subscription: subscribe.subscription,
            topic_id: 1,
            group_id: 2,
            partitions,
            lease_ms: 30_000,
            ranges: Vec::new(),
        };
        self.send(number, Reply::Subscribed(answer)).await;
    }

    pub async fn deliver(&mut self, subscription: u32, first: u64, payloads: &[&str]) {
        let batch = batch(payloads);
        let head = deliver_head(subscription, first, batch.count());
        self.send(0, Reply::Deliver(Deliver { head, messages: batch.bytes().clone() })).await;
    }

    pub async fn gap(&mut self, subscription: u32, first: u64, count: u64, reason: GapReason) {
        let offsets = OffsetRange::new(Offset(first), count);
        let gap = Gap { subscription, partition: PartitionIndex(0), offsets, reason };
        self.send(0, Reply::Gap(gap)).await;
    }

    /// The next frame, which settles or extends; what only says that work has begun is passed over.
    pub async fn settle(&mut self) -> (u64, Settle) {
        loop {
            let (number, request) = self.next().await;
            let Request::Settle(settle) = request else { panic!("{request:?}") };
            if settle.head.verdict != Verdict::Started {
                return (number, settle);
            }
        }
    }

    /// The offsets of which the next frames say that work has begun, until it is so many.
    pub async fn started(&mut self, count: usize) -> Vec<u64> {
        let mut offsets = Vec::new();
        while offsets.len() < count {
            let (_, request) = self.next().await;
            let Request::Settle(settle) = request else { panic!("{request:?}") };
            assert_eq!((&settle.head.verdict, settle.head.confirm), (&Verdict::Started, false));
            for run in settle.runs.iter() {
                offsets.extend(run.first.0..run.first.0 + u64::from(run.count));
            }
        }
        offsets.sort_unstable();
        offsets
    }
}

pub fn deliver_head(subscription: u32, first: u64, count: u32) -> DeliverHead {
    DeliverHead {
        subscription,
        partition: PartitionIndex(0),
        first: Offset(first),
        appended_at: Timestamp(1_000),
        attempt: 1,
        generation: Generation(3),
        count,
        durability: Durability::Durable,
    }
}

pub fn topic() -> TopicName {
    "orders".parse().unwrap()
}

pub fn message(payload: &str) -> Message {
    Message::new(Bytes::copy_from_slice(payload.as_bytes()))
}

pub fn batch(payloads: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new();
    payloads.iter().for_each(|payload| builder.push(&message(payload)).unwrap());
    builder.take().unwrap()
}

pub fn payloads(publish: &Publish) -> Vec<String> {
    let batch = publish.check_batch().unwrap();
    batch.messages().map(|m| String::from_utf8(m.payload().to_vec()).unwrap()).collect()
}

/// A publisher to a topic of `partitions`, its client and the other end.
pub async fn publisher(broker: &Broker, partitions: u32) -> (Publisher, Client, Peer) {
    let (client, mut peer) = broker.client().await;
    let name = topic();
    let (publisher, ()) = both(client.publisher(&name).open(), peer.open_topic(partitions)).await;
    (publisher.unwrap(), client, peer)
}

/// What both come to, at the same time; fails instead of hanging.
pub async fn both<A, B>(one: impl Future<Output = A>, other: impl Future<Output = B>) -> (A, B) {
    soon(async { tokio::join!(one, other) }).await
}

/// Fails instead of hanging.
pub async fn soon<T>(future: impl IntoFuture<Output = T>) -> T {
    timeout(SOON, future).await.expect("it happens soon")
}
