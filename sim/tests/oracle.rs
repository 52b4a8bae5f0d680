//! The oracle detects violations: handwritten histories with one broken promise, and one without.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::time::Duration;

use bytes::Bytes;
use sennit_engine::{
    Command, Confirmed, Credit, DeadLetters, Delivery, DeliveryRun, Effect, GroupSetting,
    OpenStream, Origin, PartitionCommand, PartitionDescription, Publish, Refusal, SessionId,
    Settle, StreamAnswer, StreamAppend, StreamAppended, StreamChunk, StreamCommand, StreamNote,
    StreamRead, StreamRefusal, StreamSettings, StreamStatus, Subscribe, Verdict,
};
use sennit_model::{
    Batch, BatchBuilder, Durability, Generation, GroupConfig, GroupId, Message, Offset,
    PartitionId, PartitionIndex, ProducerId, ProducerStamp, ReadFrom, StartAt, Timestamp,
    TopicConfig, TopicId, TopicKind,
};
use sennit_sim::oracle::{FoundStream, Oracle, Violation};

const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
const STREAM: PartitionId = PartitionId { topic: TopicId(8), ..ORDERS };
const OTHER: PartitionId = PartitionId { topic: TopicId(9), ..ORDERS };
const GROUP: GroupId = GroupId(1);
const ALICE: SessionId = SessionId(2);

/// A broker that the test imitates for the oracle.
struct History {
    oracle: Oracle,
    now: Timestamp,
    generation: Generation,
    request: u64,
}

fn batch(texts: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new();
    for text in texts {
        builder.push(&Message::new(Bytes::copy_from_slice(text.as_bytes()))).unwrap();
    }
    builder.take().unwrap()
}

impl History {
    /// A queue with one consumer that takes as many as `credit`.
    fn begin(credit: u32) -> Self {
        let mut history = Self {
            oracle: Oracle::default(),
            now: Timestamp(1_000),
            generation: Generation(1),
            request: 0,
        };
        history.oracle.check_recovered(history.generation, &[], history.now).unwrap();
        let groups = vec![GroupSetting {
            id: GROUP,
            config: GroupConfig::default(),
            start: StartAt::Earliest,
        }];
        let config = TopicConfig::of_kind(TopicKind::Queue);
        let dead_letters = DeadLetters::NotYet;
        let open = PartitionCommand::Open { config, groups, dead_letters };
        let origin = history.origin();
        let done = Effect::Done { origin, topic: ORDERS.topic, group: None, created: true };
        history.turn(Command::Partition(origin, ORDERS, open), &[]).unwrap();
        history.commit(&[done]).unwrap();
        let origin = history.origin();
        let credit = Credit { messages: credit, bytes: 1 << 20 };
        let (subscription, partition, group) = (1, ORDERS, GROUP);
        let subscribe = Subscribe { origin, subscription, partition, group, credit };
        history.turn(Command::Subscribe(subscribe), &[]).unwrap();
        history
    }

    fn origin(&mut self) -> Origin {
        self.request += 1;
        Origin { session: ALICE, request: self.request }
    }

    fn turn(&mut self, command: Command, effects: &[Effect]) -> Result<(), Violation> {
        self.oracle.check_turn(&[command], effects, self.now)
    }

    /// The lane commits everything, and these effects go out.
    fn commit(&mut self, effects: &[Effect]) -> Result<(), Violation> {
        self.oracle.committed(self.oracle.turn());
        self.oracle.check_turn(&[], effects, self.now)
    }

    /// Publishes as producer 7; returns the confirm that has to come.
    fn publish(&mut self, sequence: u64, texts: &[&str]) -> Confirmed {
        let origin = self.origin();
        let id = ProducerId(7);
        let producer = ProducerStamp { id, epoch: 0, first_sequence: sequence };
        let batch = batch(texts);
        self.turn(Command::Publish(Publish { origin, partition: ORDERS, producer, batch }), &[])
            .unwrap();
        Confirmed {
            origin,
            partition: ORDERS,
            producer: id,
            first_sequence: sequence,
            count: texts.len() as u32,
            first_offset: Some(Offset(sequence)),
            duplicate: false,
            durability: Durability::Durable,
            parts: Box::default(),
        }
    }

    fn published(&mut self, sequence: u64, texts: &[&str]) {
        let confirmed = self.publish(sequence, texts);
        self.commit(&[Effect::Confirmed(confirmed)]).unwrap();
    }

    fn delivery(&self, first: u64, attempt: u32, texts: &[&str]) -> Delivery {
        Delivery {
            session: ALICE,
            subscription: 1,
            partition: ORDERS,
            first: Offset(first),
            count: texts.len() as u32,
            attempt,
            generation: self.generation,
            appended_at: self.now,
            durability: Durability::Durable,
            messages: batch(texts).bytes().clone(),
        }
    }

    fn deliver(&mut self, first: u64, attempt: u32, texts: &[&str]) -> Result<(), Violation> {
        let delivery = self.delivery(first, attempt, texts);
        self.commit(&[Effect::Deliver(delivery)])
    }

    /// Settles one message without an answer, so that it applies.
    fn settle(&mut self, offset: u64, attempt: u32, verdict: Verdict) {
        let origin = self.origin();
        let first = Offset(offset);
        let runs = vec![DeliveryRun { first, count: 1, attempt, generation: self.generation }];
        let (partition, group, confirm) = (ORDERS, GROUP, false);
        let settle = Settle { origin, partition, group, verdict, runs, confirm };
        self.turn(Command::Settle(settle), &[]).unwrap();
        self.commit(&[]).unwrap();
    }

    fn restart(&mut self, end: u64) -> Result<(), Violation> {
        self.oracle.crashed();
        self.generation.0 += 1;
        let groups = vec![sennit_engine::GroupDescription { group: GROUP, ..Default::default() }];
        let description =
            PartitionDescription { end: Offset(end), groups, ..PartitionDescription::default() };
        self.oracle.check_recovered(self.generation, &[(ORDERS, description)], self.now)
    }
}

fn rule(broken: Result<(), Violation>) -> &'static str {
    broken.unwrap_err().rule
}

#[test]
fn a_history_that_keeps_its_promises_passes() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    history.deliver(0, 1, &["a", "b"]).unwrap();
    history.settle(0, 1, Verdict::Ack);
    history.settle(1, 1, Verdict::Retry);
    history.deliver(1, 2, &["b"]).unwrap();
    history.settle(1, 2, Verdict::Ack);
    history.oracle.check_settled(history.now).unwrap();
    history.restart(2).unwrap();
    history.oracle.check_settled(history.now).unwrap();
}

#[test]
fn a_confirmed_message_that_is_gone_after_a_restart_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    assert_eq!(rule(history.restart(1)), "I1 durable messages exist after a restart");
}

#[test]
fn a_message_that_never_comes_out_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.settle(0, 1, Verdict::Ack);
    let outstanding = history.oracle.check_settled(history.now);
    assert_eq!(rule(outstanding), "I3 every unsettled message is delivered in the end");
}

#[test]
fn a_batch_that_is_appended_twice_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    let mut again = history.publish(0, &["a"]);
    again.first_offset = Some(Offset(1));
    let broken = history.commit(&[Effect::Confirmed(again)]);
    assert_eq!(rule(broken), "I1 a confirmed batch is present once, at its offset");
}

#[test]
fn two_messages_in_each_others_place_are_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    let broken = history.deliver(0, 1, &["b", "a"]);
    assert_eq!(rule(broken), "I1 each offset holds the bytes that were published there");
}

#[test]
fn first_deliveries_out_of_order_are_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    history.deliver(1, 1, &["b"]).unwrap();
    let broken = history.deliver(0, 1, &["a"]);
    assert_eq!(rule(broken), "I4 first deliveries follow the order of offsets");
}

#[test]
fn an_acked_message_that_is_delivered_again_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.settle(0, 1, Verdict::Ack);
    let broken = history.deliver(0, 2, &["a"]);
    assert_eq!(rule(broken), "I3 a settled message is not delivered again");
}

/// A history in which a message of a dead-letter topic was parked.
fn parked() -> History {
    let mut history = History::begin(9);
    let (origin, start) = (history.origin(), StartAt::Earliest);
    let groups = vec![GroupSetting { id: GROUP, config: GroupConfig::default(), start }];
    let config = TopicConfig::of_kind(TopicKind::Queue);
    let open = PartitionCommand::Open { config, groups, dead_letters: DeadLetters::Stay };
    let done = Effect::Done { origin, topic: ORDERS.topic, group: None, created: false };
    history.turn(Command::Partition(origin, ORDERS, open), &[]).unwrap();
    history.commit(&[done]).unwrap();
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.settle(0, 1, Verdict::DeadLetter { reason: "no".into() });
    history
}

#[test]
fn a_parked_message_that_is_delivered_without_a_retry_command_is_reported() {
    let violation = parked().deliver(0, 2, &["a"]).unwrap_err();
    assert_eq!(violation.rule, "I7 a parked message is delivered only after a retry command");
    let mut history = parked();
    let origin = history.origin();
    let retry = PartitionCommand::RetryParked(GROUP, None);
    history.turn(Command::Partition(origin, ORDERS, retry), &[]).unwrap();
    history.deliver(0, 2, &["a"]).unwrap();
}

#[test]
fn a_message_that_nobody_sent_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    let broken = history.deliver(1, 1, &["b"]);
    assert_eq!(rule(broken), "I2 nothing appears that was never sent");
}

#[test]
fn a_second_lease_on_a_held_message_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    let broken = history.deliver(0, 2, &["a"]);
    assert_eq!(rule(broken), "I5 a message has one lease at a time");
}

#[test]
fn an_attempt_that_does_not_rise_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.settle(0, 1, Verdict::Retry);
    assert_eq!(rule(history.deliver(0, 1, &["a"])), "I5 attempt numbers rise");
}

#[test]
fn an_attempt_that_goes_on_from_more_than_can_have_failed_after_a_restart_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.deliver(1, 1, &["b"]).unwrap();
    history.settle(0, 1, Verdict::Retry);
    history.restart(2).unwrap();
    let origin = history.origin();
    let credit = Credit { messages: 10, bytes: 1 << 20 };
    let (subscription, partition, group) = (1, ORDERS, GROUP);
    let subscribe = Subscribe { origin, subscription, partition, group, credit };
    history.turn(Command::Subscribe(subscribe), &[]).unwrap();
    assert_eq!(rule(history.deliver(0, 1, &["a"])), "I5 attempt numbers rise");
    history.deliver(0, 2, &["a"]).unwrap();
    assert_eq!(rule(history.deliver(1, 3, &["b"])), "I5 attempt numbers rise");
}

#[test]
fn a_prefetched_message_that_is_freed_without_failed_attempts_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a", "b"]);
    for attempt in 1..=20 {
        let appended_at = Timestamp(1_000);
        let delivery = Delivery { appended_at, ..history.delivery(0, attempt, &["a", "b"]) };
        history.commit(&[Effect::Deliver(delivery)]).unwrap();
        history.now = history.now.plus(Duration::from_secs(31));
    }
    // The first may be dead by now, the second is not.
    let mut freed_to = |start| {
        let (start, end) = (Offset(start), Offset(2));
        let description = PartitionDescription { start, end, ..PartitionDescription::default() };
        history.oracle.check_described(ORDERS, &description, history.now)
    };
    freed_to(1).unwrap();
    assert_eq!(rule(freed_to(2)), "I1 a message is freed only when retention allows it");
}

#[test]
fn a_message_that_is_tried_again_too_early_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.settle(0, 1, Verdict::RetryAfter(Duration::from_secs(5)));
    assert_eq!(
        rule(history.deliver(0, 2, &["a"])),
        "I7 a retry is not delivered before its delay ends"
    );
}

#[test]
fn a_confirm_and_a_delivery_before_their_commit_are_reported() {
    let mut history = History::begin(10);
    let confirmed = history.publish(0, &["a"]);
    let delivery = history.delivery(0, 1, &["a"]);
    for effect in [Effect::Confirmed(confirmed), Effect::Deliver(delivery)] {
        let broken = history.oracle.check_turn(&[], &[effect], history.now);
        assert_eq!(rule(broken), "I6 no effect is released before its commit");
    }
}

#[test]
fn more_than_the_window_allows_is_reported() {
    let mut history = History::begin(1);
    history.published(0, &["a", "b"]);
    assert_eq!(rule(history.deliver(0, 1, &["a", "b"])), "I8 credit is never exceeded");
}

#[test]
fn a_generation_that_is_used_twice_is_reported() {
    let mut history = History::begin(10);
    history.published(0, &["a"]);
    history.deliver(0, 1, &["a"]).unwrap();
    history.generation.0 -= 1;
    assert_eq!(rule(history.restart(1)), "I5 generations rise");
}

/// A stream, committed, that may end by itself.
fn with_stream(time_to_live: Option<u64>) -> (History, StreamSettings) {
    let mut history = History::begin(0);
    let settings = StreamSettings { time_to_live, ..StreamSettings::of_topic() };
    open(&mut history, STREAM, &settings);
    history.commit(&[]).unwrap();
    (history, settings)
}

fn open(history: &mut History, id: PartitionId, settings: &StreamSettings) {
    let (config, settings) = (TopicConfig::of_kind(TopicKind::Stream), settings.clone());
    let open = OpenStream { config, settings, content: None, closes: false };
    let command = Command::Stream(history.origin(), id, StreamCommand::Open(Box::new(open)));
    history.turn(command, &[]).unwrap();
}

fn found(id: PartitionId, settings: &StreamSettings, end: u64) -> FoundStream {
    let status = StreamStatus {
        settings: settings.clone().into(),
        start: Offset(0),
        next: Offset(end),
        is_closed: false,
        is_opened: true,
        durability: Durability::Durable,
    };
    (id, status, false, Default::default())
}

/// Publishes to the stream; returns the refusal that is to come.
fn refused(history: &mut History, refusal: Refusal, effects: usize) -> Result<Effect, Violation> {
    let (origin, producer) = (history.origin(), ProducerStamp::default());
    let publish = Publish { origin, partition: STREAM, producer, batch: batch(&["a"]) };
    let refused = Effect::Refused { origin, refusal };
    let at_once = vec![refused.clone(); effects];
    history.turn(Command::Publish(publish), &at_once)?;
    Ok(refused)
}

#[test]
fn a_refusal_for_what_is_not_committed_is_reported() {
    let (mut history, _) = with_stream(None);
    let note = StreamNote { closes: true, ..StreamNote::default() };
    let append = StreamAppend { content: None, content_type: None, note };
    let command = StreamCommand::Append(Box::new(append));
    let command = Command::Stream(history.origin(), STREAM, command);
    history.turn(command, &[]).unwrap();
    let waits = refused(&mut history, Refusal::StreamClosed, 0).unwrap();
    let broken = refused(&mut history, Refusal::StreamClosed, 1).map(|_| ());
    assert_eq!(rule(broken), "I6 no effect is released before its commit");
    history.commit(&[waits]).unwrap();
}

#[test]
fn a_stream_that_exists_again_after_a_refused_publish_is_reported() {
    for is_reported in [false, true] {
        let (mut history, settings) = with_stream(Some(10));
        history.now = history.now.plus(Duration::from_secs(11));
        let waits = refused(&mut history, Refusal::UnknownTopic, 0).unwrap();
        if is_reported {
            history.commit(&[waits]).unwrap();
        }
        history.oracle.crashed();
        let is_back = [found(STREAM, &settings, 0)];
        let recovered = history.oracle.check_streams_recovered(&is_back, history.now);
        assert_eq!(recovered.is_err(), is_reported);
    }
}

#[test]
fn a_publisher_without_its_refusal_after_a_lane_failure_is_reported() {
    let (mut history, _) = with_stream(None);
    open(&mut history, OTHER, &StreamSettings::of_topic());
    let (origin, producer) = (history.origin(), ProducerStamp::default());
    let publish = Publish { origin, partition: STREAM, producer, batch: batch(&["a"]) };
    history.turn(Command::PublishAt(publish, Offset(3)), &[]).unwrap();
    history.oracle.fenced();
    let broken = history.oracle.check_turn(&[], &[], history.now);
    assert_eq!(rule(broken), "every command is answered");
}

/// A stream with one message, of which its writer was told, and one more on its way to the disk.
fn with_one_and_one_on_its_way() -> (History, StreamSettings) {
    let (mut history, settings) = with_stream(None);
    for is_committed in [true, false] {
        let append = StreamAppend {
            content: Some(batch(&["a"]).into()),
            content_type: None,
            note: StreamNote::default(),
        };
        let origin = history.origin();
        let command = StreamCommand::Append(Box::new(append));
        history.turn(Command::Stream(origin, STREAM, command), &[]).unwrap();
        if is_committed {
            let (next, is_closed) = (Offset(1), false);
            let appended = StreamAppended { next, is_closed, is_duplicate: false, sequence: None };
            let answer = Effect::Stream(origin, Box::new(StreamAnswer::Appended(appended)));
            history.commit(&[answer]).unwrap();
        }
    }
    (history, settings)
}

/// Asks for what lies at offset 3 of the stream, and answers.
fn read_beyond(history: &mut History, answer: StreamAnswer) -> Result<(), Violation> {
    let origin = history.origin();
    let read = StreamRead {
        at: ReadFrom::Offset(Offset(3)),
        before: None,
        bytes_max: 1 << 10,
        waits: false,
        one_append: false,
        for_fork: false,
    };
    let command = Command::Stream(origin, STREAM, StreamCommand::Read(read));
    history.turn(command, &[Effect::Stream(origin, Box::new(answer))])
}

#[test]
fn a_read_beyond_the_end_learns_the_committed_end_and_no_other() {
    for next in 0..5 {
        let (mut history, _) = with_one_and_one_on_its_way();
        let refusal = StreamRefusal::BeyondEnd { next: Offset(next) };
        let broken = read_beyond(&mut history, StreamAnswer::Refused(refusal));
        match next {
            1 => broken.unwrap(),
            _ => assert_eq!(rule(broken), "I1 a stream's answer matches its state", "{next}"),
        }
    }
}

#[test]
fn a_read_beyond_the_end_that_returns_the_end_is_reported() {
    let (mut history, settings) = with_one_and_one_on_its_way();
    let chunk = StreamChunk {
        topic: STREAM.topic,
        first: Offset(1),
        next: Offset(1),
        is_up_to_date: true,
        is_closed: false,
        rest: None,
        messages: Vec::new(),
        settings: settings.into(),
    };
    let broken = read_beyond(&mut history, StreamAnswer::Chunk(chunk));
    assert_eq!(rule(broken), "I1 a stream read returns the appended messages, once and in order");
}

/// Two streams of a group, to which a message each is appended at once; then a crash, and a start that finds
/// them ending there.
fn appended_together_and_found(ends: [u64; 2]) -> Result<(), Violation> {
    let mut history = History::begin(0);
    let settings = StreamSettings { group: Some("accounts".into()), ..StreamSettings::of_topic() };
    let ids = [STREAM, OTHER];
    ids.into_iter().for_each(|id| open(&mut history, id, &settings));
    history.commit(&[]).unwrap();
    let append = StreamAppend {
        content: Some(batch(&["a"]).into()),
        content_type: None,
        note: StreamNote::default(),
    };
    let origin = history.origin();
    let appends = ids.map(|id| (id, append.clone())).into();
    history.turn(Command::AppendTogether(origin, appends), &[]).unwrap();
    history.oracle.crashed();
    let found: Vec<_> = ids.iter().zip(ends).map(|(&id, end)| found(id, &settings, end)).collect();
    history.oracle.check_streams_recovered(&found, history.now)
}

#[test]
fn appends_to_several_streams_of_which_a_crash_leaves_some_are_reported() {
    for ends in [[0, 0], [1, 1]] {
        assert_eq!(appended_together_and_found(ends), Ok(()));
    }
    for ends in [[0, 1], [1, 0]] {
        let rule = rule(appended_together_and_found(ends));
        assert_eq!(rule, "I1 an atomic append is in all streams or in none");
    }
}
