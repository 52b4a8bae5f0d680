//! A broker on free ports over a folder of its own, and a peer that speaks frames. They know no
//! test.

use std::{
    collections::VecDeque,
    io::{Read, Write},
    net::SocketAddr,
    path::Path,
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use sennit_model::{
    BatchBuilder, GroupId, Message, PartitionId, PartitionIndex, ProducerId, ProducerStamp, TopicId,
};
use sennit_protocol::{
    Confirm, Deliver, ErrorCode, FrameReader, Gap, Preface, Publish, Reply, Request, Settle,
    SettleHead, SettleRun, Settled, Verdict, control,
};
use sennit_server::{Addresses, BrokerCertificate, Config, ServeError, Started, serve};
use tempfile::TempDir;
use tokio::sync::oneshot;

use crate::stream::{Dialing, Stream};

/// Longer than anything takes that is to happen.
pub const SOON: Duration = Duration::from_secs(20);

/// Longer than a broker takes to stop or to move what it has, on a machine that does other work.
pub const LONG: Duration = Duration::from_secs(60);

/// How soon a test looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// A broker that runs.
pub struct Broker {
    pub addresses: Addresses,
    /// The admin key, if it was made at this start.
    pub admin_key: Option<String>,
    /// How clients connect that are told nothing else.
    pub dialing: Dialing,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<(), ServeError>>,
}

/// The settings of a broker over `data`.
pub fn config(data: &Path) -> Config {
    Config {
        data: data.to_owned(),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        http: SocketAddr::from(([127, 0, 0, 1], 0)),
        shards: Some(2),
        segment_bytes: Some(20 << 20),
        ..Config::default()
    }
}

impl Broker {
    pub fn start(config: Config) -> Self {
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = mpsc::channel();
        let own = config.tls.as_ref() == Some(&BrokerCertificate::Own);
        let ca = own.then(|| config.data.join("tls/ca.pem"));
        let thread = std::thread::spawn(move || {
            let stop = async {
                let _ = stopped.await;
            };
            serve(config, stop, |addresses| ready.send(addresses).unwrap())
        });
        match is_ready.recv_timeout(SOON) {
            Ok(Started { addresses, admin_key, .. }) => {
                let admin_key = admin_key.map(|key| key.to_string());
                let dialing = ca.map(|ca| Dialing::secure(&ca, None)).unwrap_or_default();
                Self { addresses, admin_key, dialing, stop, thread }
            }
            Err(_) if thread.is_finished() => panic!("it does not start: {:?}", thread.join()),
            Err(_) => panic!("the broker does not start"),
        }
    }

    /// A broker over a fresh folder.
    pub fn fresh() -> (Self, TempDir) {
        let folder = TempDir::new().unwrap();
        (Self::start(config(folder.path())), folder)
    }

    pub fn connect(&self) -> Peer {
        self.connect_by(&self.dialing)
    }

    pub fn connect_by(&self, dialing: &Dialing) -> Peer {
        Peer::over(dialing.dial(self.addresses.listen))
    }

    /// A connection that has said Hello.
    pub fn greeted(&self) -> Peer {
        self.connect().greeted(0)
    }

    /// Asks it to stop; it is still at it when this returns.
    pub fn begin_to_stop(self) -> JoinHandle<Result<(), ServeError>> {
        let _ = self.stop.send(());
        self.thread
    }

    pub fn stop(self) {
        ended(self.begin_to_stop());
    }
}

/// Waits until a broker that was asked to stop has ended as it should.
pub fn ended(thread: JoinHandle<Result<(), ServeError>>) {
    until("the broker has not stopped", || thread.is_finished());
    thread.join().unwrap().unwrap();
}

/// Looks until something is so; `what` says what is wrong otherwise.
pub fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what} after {LONG:?}");
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// One end of a connection.
pub struct Peer {
    stream: Stream,
    input: BytesMut,
    frames: FrameReader,
    asked: u64,
    /// Deliveries that came before an answer that was waited for.
    passed_over: VecDeque<Deliver>,
    /// Gaps that have come.
    pub gaps: Vec<Gap>,
}

impl Peer {
    /// Says nothing yet over this stream.
    pub fn over(stream: Stream) -> Self {
        let mut frames = FrameReader::before_greeting();
        frames.set_limit(sennit_model::limits::FRAME_BYTES_MAX);
        Self {
            stream,
            input: BytesMut::new(),
            frames,
            asked: 0,
            passed_over: VecDeque::new(),
            gaps: Vec::new(),
        }
    }

    /// The stream under it.
    pub fn stream(&mut self) -> &mut Stream {
        &mut self.stream
    }

    /// Says preface and Hello, and hears HelloOk.
    pub fn greeted(self, frame_bytes_max: u32) -> Self {
        let hello =
            control::Hello { client_name: "test".into(), frame_bytes_max, ..<_>::default() };
        self.greeted_with(hello).0
    }

    /// As [`Self::greeted`], with the words given.
    pub fn greeted_with(mut self, hello: control::Hello) -> (Self, control::HelloOk) {
        self.send_bytes(&Preface::BYTES);
        match self.ask(&Request::Hello(hello)) {
            Reply::HelloOk(ok) => (self, ok),
            other => panic!("{other:?}"),
        }
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends as much of `bytes` as the broker takes before it hangs up.
    pub fn offer_bytes(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Sends a request and returns its number.
    pub fn send(&mut self, request: &Request) -> u64 {
        self.send_together(std::slice::from_ref(request))[0]
    }

    /// Sends requests at once, so that the broker reads them in one go, and returns their numbers.
    pub fn send_together(&mut self, requests: &[Request]) -> Vec<u64> {
        let mut bytes = Vec::new();
        let mut number = |request: &Request| {
            self.asked += 1;
            request.encode(self.asked, &mut bytes);
            self.asked
        };
        let numbers = requests.iter().map(&mut number).collect();
        self.send_bytes(&bytes);
        numbers
    }

    /// The next frame; `None` once the broker has closed the connection.
    pub fn next(&mut self) -> Option<(u64, Reply)> {
        loop {
            if let Some((header, body)) = self.frames.next_frame(&mut self.input).unwrap() {
                let reply = Reply::decode(&header, body).unwrap();
                if let Reply::Gap(gap) = reply {
                    self.gaps.push(gap);
                }
                return Some((header.request, reply));
            }
            let mut bytes = vec![0; 64 << 10];
            match self.stream.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => self.input.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("nothing comes: {error}"),
            }
        }
    }

    /// Sends a request and returns the frame that answers it. Deliveries that come before it are
    /// kept for [`Peer::delivery`], anything else is passed over.
    pub fn ask(&mut self, request: &Request) -> Reply {
        let number = self.send(request);
        self.answer_to(number)
    }

    pub fn answer_to(&mut self, number: u64) -> Reply {
        loop {
            let (of, reply) = self.next().expect("an answer");
            match reply {
                Reply::Deliver(deliver) => self.passed_over.push_back(deliver),
                reply if of == number => return reply,
                _ => {}
            }
        }
    }

    /// The next frame, which is an error.
    pub fn error(&mut self) -> control::Error {
        loop {
            match self.next() {
                Some((_, Reply::Error(error))) => return error,
                Some(_) => {}
                None => panic!("no error came"),
            }
        }
    }

    /// Hears an error of this code, and then nothing but the end.
    pub fn hears_the_end_with(mut self, code: ErrorCode) {
        let error = self.error();
        assert_eq!(error.error_code(), Some(code), "{error:?}");
        assert!(error.closes_connection, "{error:?}");
        assert!(!error.hint.is_empty());
        assert_eq!(self.next(), None);
    }

    pub fn create_topic(&mut self, name: &str, partitions: u32) -> TopicId {
        let config = control::TopicConfig { partitions: Some(partitions), ..<_>::default() };
        let create = control::CreateTopic { name: name.into(), config: Some(config), beside: None };
        match self.ask(&Request::CreateTopic(create)) {
            Reply::Done(done) => TopicId(done.topic_id),
            other => panic!("{other:?}"),
        }
    }

    /// Subscribes to the group `workers`, which is made if it is not there.
    pub fn subscribe(&mut self, topic: &str, number: u32, credit: u32) -> GroupId {
        let subscribe = control::Subscribe {
            subscription: number,
            topic: topic.into(),
            group: "workers".into(),
            create_group_if_missing: true,
            credit_messages: credit,
            credit_bytes: 64 << 20,
        };
        match self.ask(&Request::Subscribe(subscribe)) {
            Reply::Subscribed(subscribed) => GroupId(subscribed.group_id),
            other => panic!("{other:?}"),
        }
    }

    /// The next delivery; confirms and answers that come before are passed over.
    pub fn delivery(&mut self) -> Deliver {
        if let Some(deliver) = self.passed_over.pop_front() {
            return deliver;
        }
        loop {
            match self.next() {
                Some((_, Reply::Deliver(deliver))) => return deliver,
                Some((_, Reply::Error(error))) => panic!("{error:?}"),
                Some(_) => {}
                None => panic!("the broker hung up"),
            }
        }
    }

    /// Waits until `count` messages have come, and returns them as text with their deliveries.
    pub fn deliveries(&mut self, count: usize) -> (Vec<String>, Vec<Deliver>) {
        let (mut texts, mut deliveries) = (Vec::new(), Vec::new());
        while texts.len() < count {
            let deliver = self.delivery();
            texts.extend(texts_of(&deliver));
            deliveries.push(deliver);
        }
        (texts, deliveries)
    }

    /// The next confirm.
    pub fn confirm(&mut self) -> Confirm {
        loop {
            match self.next() {
                Some((_, Reply::Confirm(confirm))) => return confirm,
                Some((_, Reply::Error(error))) => panic!("{error:?}"),
                Some(_) => {}
                None => panic!("the broker hung up"),
            }
        }
    }

    /// Waits until everything before `sequence` is confirmed.
    pub fn confirmed_up_to(&mut self, sequence: u64) {
        while self.confirm().head.up_to_sequence < sequence {}
    }

    /// Settles deliveries, and waits for the answer.
    pub fn settle(
        &mut self,
        of: (TopicId, GroupId),
        deliveries: &[Deliver],
        verdict: Verdict,
    ) -> Settled {
        match self.ask(&settlement(of, deliveries, verdict)) {
            Reply::Settled(settled) => settled,
            other => panic!("{other:?}"),
        }
    }
}

/// A settle of deliveries that asks for an answer.
pub fn settlement(
    (topic, group): (TopicId, GroupId),
    deliveries: &[Deliver],
    verdict: Verdict,
) -> Request {
    let runs = deliveries.iter().map(|deliver| SettleRun {
        partition: deliver.head.partition,
        first: deliver.head.first,
        count: deliver.head.count,
        attempt: deliver.head.attempt,
        generation: deliver.head.generation,
    });
    let head = SettleHead { topic, group, verdict, confirm: true };
    Request::Settle(Settle { head, runs: runs.collect() })
}

/// A publish of `texts` to a partition, by producer 7.
pub fn publish(topic: TopicId, partition: u32, first_sequence: u64, texts: &[&str]) -> Publish {
    let mut batch = BatchBuilder::new();
    for text in texts {
        batch.push(&Message::new(text.as_bytes().to_vec())).unwrap();
    }
    let partition = PartitionId { topic, index: PartitionIndex(partition) };
    let producer = ProducerStamp { id: ProducerId(7), epoch: 0, first_sequence };
    Publish::new(partition, producer, &batch.take().unwrap())
}

/// The payloads of a delivery.
pub fn texts_of(deliver: &Deliver) -> Vec<String> {
    let batch = deliver.check_messages().unwrap();
    let payloads = batch.messages().map(|message| message.payload().to_vec());
    payloads.map(|payload| String::from_utf8(payload).unwrap()).collect()
}
