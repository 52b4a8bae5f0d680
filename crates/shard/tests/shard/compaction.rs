//! A topic that keeps the latest message of each key: after any publishes and crashes the latest messages exist,
//! and the disk holds little else.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use sennit_engine::{
    Command, Credit, DeadLetters, Delivery, Effect, GapReason, GroupSetting, Origin,
    PartitionCommand, Publish, Read, SessionId,
};
use sennit_journal::disk::MemoryDisk;
use sennit_model::{
    BatchBuilder, GroupConfig, Message, Messages, Offset, ProducerStamp, Retention, StartAt,
    Timestamp, TopicConfig, TopicKind, WhenSlow,
};
use sennit_shard::{CompactionStep, CompactionWork, PackLengths, PackSummary, Settings, recover};

use crate::broker::{Broker, GROUP, NOW, ORDERS};

const HOUR: Duration = Duration::from_secs(3600);

/// Latest message of each key with a tombstone age of an hour, and these limits.
fn latest(limits: Retention) -> TopicConfig {
    let retention = Retention { latest_per_key: Some(HOUR), ..limits };
    TopicConfig { retention, ..TopicConfig::of_kind(TopicKind::Stream) }
}

/// What a reader came by.
#[derive(Clone, Debug, PartialEq)]
enum Came {
    Message(u64, String, String),
    Gap(u64, u64, GapReason),
}

/// A shard with one such topic, and what it should say.
struct Keys {
    broker: Broker,
    segment_bytes: u64,
    /// Whether what stays of a batch stays where it lies.
    in_place: bool,
    now: Timestamp,
    /// Key to offset and payload of the latest.
    latest: BTreeMap<String, (u64, String)>,
    end: u64,
}

impl Keys {
    fn new(
        in_place: bool,
        segment_bytes: u64,
        config: TopicConfig,
        groups: Vec<GroupSetting>,
    ) -> Self {
        let settings = Self::settings(in_place);
        let broker = Broker::open_with(&MemoryDisk::default(), segment_bytes, settings).unwrap();
        let (now, latest, end) = (NOW, BTreeMap::new(), 0);
        let mut keys = Self { broker, segment_bytes, in_place, now, latest, end };
        keys.open(config, groups);
        keys
    }

    fn settings(in_place: bool) -> Settings {
        let packs = PackLengths::default();
        Settings {
            cache_bytes: 0,
            journal_segments: 1,
            packs,
            writes_superseded: in_place,
            replica: None,
        }
    }

    fn open(&mut self, config: TopicConfig, groups: Vec<GroupSetting>) {
        let dead_letters = DeadLetters::NotYet;
        let open = PartitionCommand::Open { config, groups, dead_letters };
        self.broker.tell(Command::Partition(crate::broker::ORIGIN, ORDERS, open));
    }

    fn batch(&mut self, pairs: &[(String, String)]) -> Command {
        let mut builder = BatchBuilder::new();
        for (key, payload) in pairs {
            let key = key.clone().into();
            builder.push(&Message { key, ..Message::new(payload.clone()) }).unwrap();
            self.latest.insert(key_of(pairs, &builder), (self.end, payload.clone()));
            self.end += 1;
        }
        let (origin, producer) = (crate::broker::ORIGIN, ProducerStamp::default());
        let batch = builder.take().unwrap();
        Command::Publish(Publish { origin, partition: ORDERS, producer, batch })
    }

    fn publish(&mut self, pairs: &[(String, String)]) {
        let publish = self.batch(pairs);
        self.broker.parts.shard.handle(&mut vec![publish], self.now);
        self.broker.settle_down();
    }

    /// Publishes `key=payload` by words.
    fn say(&mut self, words: &str) {
        let pairs: Vec<_> = words.split(' ').map(|word| word.split_once('=').unwrap()).collect();
        let pairs: Vec<_> = pairs.iter().map(|(k, p)| (k.to_string(), p.to_string())).collect();
        self.publish(&pairs);
    }

    fn pass_time(&mut self, span: Duration) {
        self.now = self.now.plus(span);
        self.broker.parts.shard.advance(self.now);
        self.broker.settle_down();
    }

    fn step(&mut self, step: &CompactionStep) {
        let done = self.broker.parts.mover.compact(step).unwrap();
        self.broker.parts.shard.handle_compaction(done, self.now);
        self.broker.settle_down();
    }

    /// Compacts and moves until there is nothing to do; returns the works that were done.
    fn compact(&mut self) -> Vec<CompactionWork> {
        let mut works = Vec::new();
        for _ in 0..10_000 {
            if let Some(container) = self.broker.parts.shard.next_move(self.now) {
                self.broker.empty(container);
            } else if let Some(step) = self.broker.parts.shard.next_compaction(self.now) {
                works.push(step.work);
                self.step(&step);
            } else {
                self.broker.remove_packs();
                return works;
            }
        }
        panic!("compaction does not come to its end");
    }

    fn crash(mut self) -> Self {
        let settings = Self::settings(self.in_place);
        let config = Broker::config(self.segment_bytes);
        self.broker.parts = recover(&self.broker.disk, config, settings, self.now).unwrap();
        self.broker.settle_down();
        self
    }

    fn read(&mut self, from: u64) -> Vec<Came> {
        let credit = Credit { messages: 1_000_000, bytes: 1 << 30 };
        let origin = Origin { session: SessionId(9), request: 7 };
        let (subscription, partition, at, cursor) = (3, ORDERS, Offset(from), None);
        let (when_slow, filter) = (WhenSlow::Wait, None);
        let read = Read { origin, subscription, partition, at, credit, cursor, when_slow, filter };
        let shard = &mut self.broker.parts.shard;
        shard.handle(&mut vec![Command::Read(read)], self.now);
        let mut came = Vec::new();
        loop {
            let fetches = {
                take_came(&mut came, self.broker.parts.shard.effects());
                self.broker.commit_quietly(self.now);
                take_came(&mut came, self.broker.parts.shard.effects());
                self.broker.take_fetches()
            };
            if fetches.is_empty() {
                break;
            }
            for fetch in fetches {
                let bytes = self.broker.parts.reader.read(fetch.position, fetch.length);
                self.broker.parts.shard.handle_fetch(fetch, bytes.ok(), self.now);
            }
        }
        let end = Command::EndSession { session: SessionId(9), grace: Duration::ZERO };
        self.broker.parts.shard.handle(&mut vec![end], self.now);
        came
    }

    /// What a reader from the start comes by, by key in the end; tombstones end theirs.
    fn held(&mut self) -> BTreeMap<String, (u64, String)> {
        let mut held = BTreeMap::new();
        for came in self.read(0) {
            if let Came::Message(offset, key, payload) = came {
                held.insert(key, (offset, payload));
            }
        }
        held.retain(|_, (_, payload)| !payload.is_empty());
        held
    }

    fn expected(&self) -> BTreeMap<String, (u64, String)> {
        let mut expected = self.latest.clone();
        expected.retain(|_, (_, payload)| !payload.is_empty());
        expected
    }

    fn offsets(&mut self) -> Vec<u64> {
        let offset = |came: &Came| match came {
            Came::Message(offset, _, _) => Some(*offset),
            Came::Gap(..) => None,
        };
        self.read(0).iter().filter_map(offset).collect()
    }

    fn kept_messages(&self) -> u64 {
        self.broker.parts.shard.engine().batches().map(|kept| u64::from(kept.count)).sum()
    }
}

/// The key of the message that was pushed last.
fn key_of(pairs: &[(String, String)], builder: &BatchBuilder) -> String {
    pairs[builder.count() as usize - 1].0.clone()
}

fn take_came(came: &mut Vec<Came>, effects: &mut Vec<Effect>) {
    for effect in effects.drain(..) {
        match effect {
            Effect::Deliver(Delivery { first, messages, subscription: 3, .. }) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                came.extend((first.0..).zip(Messages::of_checked(&messages)).map(
                    |(offset, message)| {
                        Came::Message(offset, text(message.key()), text(message.payload()))
                    },
                ));
            }
            Effect::Gap { range, reason, .. } => {
                came.push(Came::Gap(range.start.0, range.end.0, reason));
            }
            _ => {}
        }
    }
}

fn message(offset: u64, key: &str, payload: &str) -> Came {
    Came::Message(offset, key.to_owned(), payload.to_owned())
}

fn pair(key: u64, payload: u64) -> (String, String) {
    (format!("key {key}"), format!("payload {payload}"))
}

#[test]
fn of_a_million_updates_of_a_thousand_keys_about_a_thousand_messages_stay() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 8 << 20, latest(Retention::FOREVER), Vec::new());
        let mut key = 0;
        for batch in 0..1000 {
            let pairs: Vec<_> = (0..1000)
                .map(|n| {
                    key = (key * 1_103_515_245 + 12_345) % (1 << 31);
                    pair(key / 65_536 % 1000, batch * 1000 + n)
                })
                .collect();
            keys.publish(&pairs);
            if batch % 50 == 0 {
                keys.compact();
            }
        }
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        assert_eq!(keys.held(), keys.expected());
        let kept = keys.kept_messages();
        assert!((1000..=1250).contains(&kept), "{kept} messages are kept");
        keys.pass_time(Duration::from_secs(10));
        let mut keys = keys.crash();
        keys.compact();
        let PackSummary { count: packs, bytes, live_bytes: live } =
            keys.broker.parts.shard.pack_summary();
        assert!(bytes < 1 << 20 && live < 100_000, "{packs} packs of {bytes} bytes, {live} live");
        assert_eq!(keys.held(), keys.expected());
    }
}

#[test]
fn offsets_stay_and_what_is_missing_is_told_as_compacted_and_not_as_lost() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
        keys.say("a=1 b=1 a=2 c=1");
        keys.say("a=3 d=1");
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        let expected = [
            Came::Gap(0, 1, GapReason::Compacted),
            message(1, "b", "1"),
            Came::Gap(2, 3, GapReason::Compacted),
            message(3, "c", "1"),
            message(4, "a", "3"),
            message(5, "d", "1"),
        ];
        assert_eq!(keys.read(0), expected);
        assert_eq!(keys.read(2), expected[2..]);
        let mut keys = keys.crash();
        assert_eq!(keys.read(0), expected);
        keys.say("b=2");
        assert_eq!(keys.read(6), [message(6, "b", "2")]);
    }
}

#[test]
fn what_was_freed_as_the_oldest_is_told_as_retention_though_the_rest_was_compacted() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
        for words in ["a=1", "a=2", "b=1", "a=3", "c=1"] {
            keys.say(words);
        }
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        let compacted = Came::Gap(0, 2, GapReason::Compacted);
        assert_eq!(keys.read(0)[..2], [compacted, message(2, "b", "1")]);
        let trim = PartitionCommand::Trim(Offset(3));
        keys.broker.tell(Command::Partition(crate::broker::ORIGIN, ORDERS, trim));
        let freed = Came::Gap(0, 3, GapReason::Retention);
        assert_eq!(keys.read(0)[..2], [freed.clone(), message(3, "a", "3")]);
        keys.say("a=4");
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        let gap = Came::Gap(3, 4, GapReason::Compacted);
        let expected = [freed, gap, message(4, "c", "1"), message(5, "a", "4")];
        assert_eq!(keys.read(0), expected);
        assert_eq!(keys.crash().read(0), expected);
    }
}

#[test]
fn a_tombstone_goes_its_age_after_what_it_ended() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
        keys.say("a=1 b=1 c=1");
        keys.say("a=");
        // However old it is when what it ended goes: somebody may just have read that.
        keys.now = keys.now.plus(5 * HOUR);
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        assert_eq!(keys.offsets(), [1, 2, 3]);
        keys.pass_time(HOUR / 2);
        assert_eq!(keys.compact(), []);
        // One that comes later waits for the next round.
        keys.say("b=");
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        assert_eq!(keys.offsets(), [2, 3, 4]);
        let mut keys = keys.crash();
        keys.pass_time(HOUR / 2);
        keys.compact();
        assert_eq!(keys.offsets(), [2, 4]);
        let mut keys = keys.crash();
        keys.pass_time(HOUR);
        keys.compact();
        assert_eq!(keys.offsets(), [2]);
        assert_eq!(keys.held(), keys.expected());
        keys.pass_time(HOUR);
        assert_eq!(keys.compact(), [], "there is nothing to do any more");
        assert_eq!(keys.crash().offsets(), [2]);
    }
}

#[test]
fn groups_are_through_with_what_is_compacted_away_and_get_the_rest() {
    for in_place in [false, true] {
        let setting =
            GroupSetting { id: GROUP, config: GroupConfig::default(), start: StartAt::Earliest };
        let mut keys =
            Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), vec![setting.clone()]);
        keys.say("a=1 b=1 a=2 c=1 a=3");
        keys.broker.subscribe();
        assert_eq!(keys.broker.delivered.len(), 5);
        // One of those that go is settled, the others are held.
        keys.broker.ack(|offset| offset == 0 || offset == 4);
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        keys.broker.ack(|_| true);
        let mut keys = keys.crash();
        keys.broker.delivered.clear();
        keys.broker.subscribe();
        assert_eq!(keys.broker.delivered, []);
        keys.say("b=2 a=4");
        let offsets: Vec<_> = keys.broker.delivered.iter().map(|(offset, _)| *offset).collect();
        assert_eq!(offsets, [5, 6]);
        let new = GroupSetting { id: sennit_model::GroupId(9), ..setting.clone() };
        keys.open(latest(Retention::FOREVER), vec![setting, new]);
    }
}

#[test]
fn a_message_without_a_key_is_refused_and_those_that_were_there_before_stay() {
    for in_place in [false, true] {
        let config = TopicConfig::of_kind(TopicKind::Stream);
        let mut keys = Keys::new(in_place, 64 << 10, config.clone(), Vec::new());
        keys.say("a=1 =none a=2 =none");
        keys.open(latest(Retention::FOREVER), Vec::new());
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        assert_eq!(keys.offsets(), [1, 2, 3]);
        let publish = keys.batch(&[("a".into(), "3".into()), (String::new(), "none".into())]);
        let shard = &mut keys.broker.parts.shard;
        shard.handle(&mut vec![publish], NOW);
        let refused = shard.effects().drain(..).find_map(|effect| match effect {
            Effect::Refused { refusal, .. } => Some(refusal),
            _ => None,
        });
        assert_eq!(refused, Some(sennit_engine::Refusal::KeyMissing));
        assert_eq!(keys.offsets(), [1, 2, 3]);
        // What was asked for is undone: everything stays again.
        keys.open(config, Vec::new());
        keys.say("a=4 a=5");
        keys.pass_time(Duration::from_secs(10));
        assert_eq!(keys.compact(), []);
    }
}

#[test]
fn more_keys_than_the_table_holds_take_several_passes() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
        keys.broker.parts.mover.set_compaction_keys(50);
        for round in 0..4 {
            for key in 0..40 {
                keys.publish(&[
                    pair(5 * key, round),
                    pair(5 * key + 1, round),
                    pair(5 * key + 2, round),
                ]);
            }
        }
        assert_eq!(keys.kept_messages(), 480);
        keys.pass_time(Duration::from_secs(10));
        let works = keys.compact();
        let passes = works.iter().filter(|work| **work == CompactionWork::LookUp).count();
        assert!(passes > 3, "{passes} passes");
        assert_eq!(keys.held(), keys.expected());
        assert!(keys.kept_messages() <= 150, "{} messages are kept", keys.kept_messages());
    }
}

#[test]
fn what_is_not_committed_supersedes_nothing() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
        keys.say("a=1 b=1 b=2");
        keys.pass_time(Duration::from_secs(10));
        let publish = keys.batch(&[("a".into(), "2".into())]);
        keys.broker.parts.shard.handle(&mut vec![publish], keys.now);
        // The lane does not get it: a crash takes it back.
        let look_up = keys.broker.parts.shard.next_compaction(keys.now).unwrap();
        assert_eq!(look_up.batches.len(), 1);
        let done = keys.broker.parts.mover.compact(&look_up).unwrap();
        keys.broker.parts.shard.handle_compaction(done, keys.now);
        let keep = keys.broker.parts.shard.next_compaction(keys.now).unwrap();
        let done = keys.broker.parts.mover.compact(&keep).unwrap();
        assert_eq!(done.batches.len() + done.superseded.len(), 1);
        let mut keys = keys.crash();
        assert_eq!(keys.offsets(), [0, 1, 2]);
    }
}

#[test]
fn what_cannot_be_read_is_looked_through_again_before_a_tombstone_goes() {
    for in_place in [false, true] {
        let mut keys = Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
        keys.say("a=1");
        keys.say("a= b=1");
        keys.pass_time(Duration::from_secs(10));
        let lies_at = keys.broker.parts.shard.engine().places().next().unwrap();
        let mut damaged = keys.broker.parts.shard.next_compaction(keys.now).unwrap();
        assert_eq!(damaged.batches[0].0.place, lies_at);
        damaged.batches[0].0.place.position += 1;
        let done = keys.broker.parts.mover.compact(&damaged).unwrap();
        assert_eq!(done.unreadable, 1);
        keys.broker.parts.shard.handle_compaction(done, keys.now);
        let mut keep = keys.broker.parts.shard.next_compaction(keys.now).unwrap();
        keep.batches[0].0.place.position += 1;
        keys.step(&keep);
        assert_eq!(keys.offsets(), [0, 1, 2]);
        keys.pass_time(2 * HOUR);
        assert_eq!(keys.compact(), [], "what it ended is there still");
        // It can be read again: the next pass looks through everything, and only then the tombstone's
        // time begins.
        let mut keys = keys.crash();
        keys.say("c=1");
        keys.pass_time(Duration::from_secs(10));
        keys.compact();
        assert_eq!(keys.offsets(), [1, 2, 3]);
        keys.pass_time(HOUR);
        keys.compact();
        assert_eq!(keys.offsets(), [2, 3]);
    }
}

#[test]
fn a_pass_is_over_once_all_is_kept_again_even_if_that_is_switched_back() {
    for in_place in [false, true] {
        let all = TopicConfig::of_kind(TopicKind::Stream);
        let ten = Duration::from_secs(10);
        // What is kept goes to the journal, or to a pack.
        for payload in ["1".to_owned(), "1".repeat(10 << 10)] {
            for (steps, is_back) in [(0, false), (0, true), (1, false), (1, true)] {
                let mut keys =
                    Keys::new(in_place, 64 << 10, latest(Retention::FOREVER), Vec::new());
                keys.publish(&["a", "b", "a"].map(|key| (key.to_owned(), payload.clone())));
                keys.pass_time(ten);
                let mut step =
                    keys.broker.parts.shard.next_compaction(keys.now).expect("it is due");
                for _ in 0..steps {
                    keys.step(&step);
                    step = keys.broker.parts.shard.next_compaction(keys.now).expect("it goes on");
                }
                keys.open(all.clone(), Vec::new());
                if is_back {
                    keys.open(latest(Retention::FOREVER), Vec::new());
                }
                keys.step(&step);
                keys.compact();
                assert_eq!(keys.offsets(), [0, 1, 2], "{steps} {is_back}");
                assert_eq!(keys.broker.pack_files(), 0, "{steps} {is_back}");
                keys.pass_time(ten);
                keys.compact();
                let expected: &[u64] = if is_back { &[1, 2] } else { &[0, 1, 2] };
                assert_eq!(keys.offsets(), expected, "{steps} {is_back}");
                assert_eq!(keys.crash().offsets(), expected, "{steps} {is_back}");
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Publish(Vec<(u8, bool)>),
    Pass(u16),
    Compact(u8),
    /// A step is done on disk, and the shard does not hear of it, or not durably.
    Halfway(bool),
    Crash,
    Trim(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => prop::collection::vec((0..12u8, prop::bool::weighted(0.8)), 1..8).prop_map(Step::Publish),
        3 => any::<u16>().prop_map(Step::Pass),
        5 => (1..5u8).prop_map(Step::Compact),
        2 => any::<bool>().prop_map(Step::Halfway),
        2 => Just(Step::Crash),
        1 => any::<u8>().prop_map(Step::Trim),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_latest_of_each_key_stays(
        steps in prop::collection::vec(any_step(), 1..60),
        table in 1..20usize,
        in_place in any::<bool>(),
    ) {
        let mut keys = Keys::new(in_place, 16 << 10, latest(Retention::FOREVER), Vec::new());
        let mut trimmed = 0;
        for step in steps {
            keys.broker.parts.mover.set_compaction_keys(table);
            match step {
                Step::Publish(of) => {
                    let payload = |(key, full): (u8, bool)| {
                        let text = if full { format!("p{} {}", key, "x".repeat(150)) } else { String::new() };
                        (key.to_string(), text)
                    };
                    keys.publish(&of.into_iter().map(payload).collect::<Vec<_>>());
                }
                Step::Pass(seconds) => keys.pass_time(Duration::from_secs(seconds.into())),
                Step::Compact(steps) => for _ in 0..steps {
                    if let Some(container) = keys.broker.parts.shard.next_move(keys.now) {
                        keys.broker.empty(container);
                    } else if let Some(step) = keys.broker.parts.shard.next_compaction(keys.now) {
                        keys.step(&step);
                    }
                },
                Step::Halfway(told) => if let Some(step) = keys.broker.parts.shard.next_compaction(keys.now) {
                    let done = keys.broker.parts.mover.compact(&step).unwrap();
                    if told {
                        keys.broker.parts.shard.handle_compaction(done, keys.now);
                    }
                    keys = keys.crash();
                },
                Step::Crash => keys = keys.crash(),
                Step::Trim(share) => {
                    let before = keys.end * u64::from(share) / 512;
                    let trim = PartitionCommand::Trim(Offset(before));
                    keys.broker.tell(Command::Partition(crate::broker::ORIGIN, ORDERS, trim));
                    trimmed = trimmed.max(before);
                }
            }
            keys.broker.remove_packs();
            let mut held = keys.held();
            let mut expected = keys.expected();
            // A trim frees whole batches.
            held.retain(|_, (offset, _)| *offset >= trimmed);
            expected.retain(|_, (offset, _)| *offset >= trimmed);
            prop_assert_eq!(held, expected);
        }
    }
}
