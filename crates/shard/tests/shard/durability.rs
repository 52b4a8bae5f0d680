//! Topics of every durability on one shard with a failing disk: each keeps its promise, and no offset whose message
//! was lost gets another message for those who have received it.

use std::{collections::BTreeMap, path::PathBuf};

use sennit_engine::{
    Command, Credit, DeadLetters, Effect, GapReason, GroupSetting, Origin, PartitionCommand,
    Publish, Read, SessionId, Subscribe,
};
use sennit_journal::{
    Disk, LaneConfig,
    disk::{FaultPlan, FaultyDisk, MemoryDisk},
};
use sennit_model::{
    BatchBuilder, Durability, GroupConfig, GroupId, Message, Messages, Offset, PartitionId,
    PartitionIndex, ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind, WhenSlow,
};
use sennit_shard::{PackLengths, RecoverError, Recovered, Settings, recover};

const ORIGIN: Origin = Origin { session: SessionId(1), request: 1 };
const NOW: Timestamp = Timestamp(1_000);
const GROUP: GroupId = GroupId(1);

fn partition_of(durability: Durability) -> PartitionId {
    PartitionId { topic: TopicId(durability.number().into()), index: PartitionIndex(0) }
}

fn durability_of(partition: PartitionId) -> Durability {
    Durability::ALL.into_iter().find(|&d| partition_of(d) == partition).unwrap()
}

/// What the world outside has been told, through any number of lives.
#[derive(Default)]
struct Told {
    /// Every message that was ever delivered, by where.
    given: BTreeMap<(PartitionId, u64), String>,
    /// Confirms that say durable, by where.
    durable: BTreeMap<(PartitionId, u64), String>,
    /// Confirms that say something else.
    early: BTreeMap<(PartitionId, u64), String>,
    /// Ranges that were said to be rolled back.
    rolled_back: Vec<(PartitionId, u64, u64)>,
}

impl Told {
    fn takes(&mut self, effect: Effect, published: &BTreeMap<u64, (String, u32)>) {
        match effect {
            Effect::Deliver(given) => {
                let texts = Messages::of_checked(&given.messages);
                let texts = texts.map(|m| String::from_utf8_lossy(m.payload()).into_owned());
                for (offset, text) in (given.first.0..).zip(texts) {
                    let place = (given.partition, offset);
                    let before = self.given.entry(place).or_insert_with(|| text.clone());
                    assert_eq!(*before, text, "{place:?} was given twice");
                }
            }
            Effect::Confirmed(held) => {
                let (text, count) = &published[&held.origin.request];
                let first = held.first_offset.unwrap().0;
                for number in 0..u64::from(*count) {
                    let place = (held.partition, first + number);
                    match held.durability {
                        Durability::Durable => {
                            self.durable.insert(place, format!("{text}.{number}"))
                        }
                        _ => self.early.insert(place, format!("{text}.{number}")),
                    };
                }
            }
            Effect::Gap { partition, range, reason: GapReason::RolledBack, .. } => {
                self.rolled_back.push((partition, range.start.0, range.end.0));
            }
            _ => {}
        }
    }
}

struct Life<D: Disk> {
    parts: Recovered<D>,
    told: Told,
    published: BTreeMap<u64, (String, u32)>,
    request: u64,
}

impl<D: Disk> Life<D> {
    fn open(disk: &D, told: Told, request: u64) -> Result<Self, RecoverError> {
        let directory = PathBuf::from("data/lane-0");
        let config = LaneConfig { directory, lane: 0, segment_bytes: 64 << 10, incarnation: 42 };
        let packs = PackLengths::default();
        let settings = Settings {
            cache_bytes: 1 << 20,
            journal_segments: 1000,
            packs,
            writes_superseded: false,
            replica: None,
        };
        let parts = recover(disk, config, settings, NOW)?;
        Ok(Self { parts, told, published: BTreeMap::new(), request })
    }

    fn hear(&mut self) {
        for effect in self.parts.shard.effects().drain(..) {
            self.told.takes(effect, &self.published);
        }
    }

    fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], NOW);
        self.hear();
    }

    /// Commits what has gathered; false once the disk has failed.
    fn commit(&mut self) -> bool {
        loop {
            let Recovered { shard, lane, slots, .. } = &mut self.parts;
            let mut frames = Vec::new();
            shard.take_frames(&mut frames);
            if frames.is_empty() {
                return true;
            }
            while lane.spare_count() < frames.len() {
                match slots.make() {
                    Ok(slot) => lane.add_spare(slot),
                    Err(_) => {
                        self.fail();
                        return false;
                    }
                }
            }
            match lane.append(&frames) {
                Ok(end) => shard.handle_commit(end, NOW),
                Err(_) => {
                    self.fail();
                    return false;
                }
            }
            self.hear();
        }
    }

    fn fail(&mut self) {
        self.parts.shard.fence();
        self.hear();
    }

    fn create(&mut self) {
        let setting =
            GroupSetting { id: GROUP, config: GroupConfig::default(), start: StartAt::Earliest };
        for durability in Durability::ALL {
            let open = PartitionCommand::Open {
                config: TopicConfig { durability, ..TopicConfig::of_kind(TopicKind::Stream) },
                groups: vec![setting.clone()],
                dead_letters: DeadLetters::NotYet,
            };
            self.tell(Command::Partition(ORIGIN, partition_of(durability), open));
        }
    }

    fn listen(&mut self) {
        let credit = Credit { messages: 100_000, bytes: 1 << 30 };
        for durability in Durability::ALL {
            let (origin, partition) = (ORIGIN, partition_of(durability));
            let (group, subscription) = (GROUP, 1);
            let subscribe = Subscribe { origin, subscription, partition, group, credit };
            self.tell(Command::Subscribe(subscribe));
            let (at, cursor, subscription) = (Offset(0), None, 2);
            let read = Read {
                origin,
                subscription,
                partition,
                at,
                credit,
                cursor,
                when_slow: WhenSlow::default(),
                filter: None,
            };
            self.tell(Command::Read(read));
        }
    }

    fn publish(&mut self, count: u32) {
        for durability in Durability::ALL {
            self.request += 1;
            let text = format!("{durability} {}", self.request);
            let mut builder = BatchBuilder::new();
            for number in 0..count {
                builder.push(&Message::new(format!("{text}.{number}"))).unwrap();
            }
            let origin = Origin { request: self.request, ..ORIGIN };
            let (partition, producer) = (partition_of(durability), ProducerStamp::default());
            let batch = builder.take().unwrap();
            self.published.insert(self.request, (text, count));
            self.tell(Command::Publish(Publish { origin, partition, producer, batch }));
        }
    }

    /// Publishes and commits by turns, until the disk fails or all is done; the last messages are not
    /// committed.
    fn work(&mut self) {
        self.create();
        if !self.commit() {
            return;
        }
        self.listen();
        for turn in 0..6 {
            self.publish(turn % 3 + 1);
            if turn % 2 == 1 && !self.commit() {
                return;
            }
        }
        self.publish(2);
    }

    /// Every message that is kept now, read back by a group that begins at the earliest.
    fn kept(mut self) -> (Told, BTreeMap<(PartitionId, u64), String>) {
        let before = std::mem::take(&mut self.told.given);
        assert!(self.commit());
        self.listen();
        loop {
            let mut fetches = Vec::new();
            self.parts.shard.take_fetches(&mut fetches);
            if fetches.is_empty() {
                break;
            }
            for fetch in fetches {
                let bytes = self.parts.reader.read(fetch.position, fetch.length).ok();
                self.parts.shard.handle_fetch(fetch, bytes, NOW);
            }
            self.hear();
        }
        let there = std::mem::replace(&mut self.told.given, before);
        for (place, text) in &there {
            let before = self.told.given.entry(*place).or_insert_with(|| text.clone());
            assert_eq!(before, text, "{place:?} was given twice");
        }
        (self.told, there)
    }
}

/// Holds what was told in earlier lives against what is kept now.
fn hold(told: &Told, there: &BTreeMap<(PartitionId, u64), String>) {
    for (place, text) in &told.durable {
        assert_eq!(there.get(place), Some(text), "{place:?} was confirmed as durable and is lost");
    }
    for place in told.early.keys() {
        let durability = durability_of(place.0);
        let may_be_lost = matches!(durability, Durability::Ephemeral | Durability::Memory);
        assert!(may_be_lost, "{durability} confirms after the commit");
    }
    let in_memory = partition_of(Durability::Memory);
    assert!(there.keys().all(|(partition, _)| *partition != in_memory));
}

#[test]
fn every_durability_keeps_its_promise_whichever_call_of_the_disk_fails() {
    let calls = {
        let disk = FaultyDisk::new(1, FaultPlan::default());
        let mut crash_count = Life::open(&disk, Told::default(), 0).unwrap();
        crash_count.work();
        disk.calls()
    };
    let (mut given_early, mut rolled_back) = (0, 0);
    for nth in 1..=calls {
        let plan = FaultPlan { failing_call: nth, crash_keeps: 500, ..FaultPlan::default() };
        let disk = FaultyDisk::new(nth, plan);
        let (mut told, mut request) = (Told::default(), 0);
        for _ in 0..3 {
            match Life::open(&disk, std::mem::take(&mut told), request) {
                Ok(mut crash_count) => {
                    crash_count.work();
                    (told, request) = (crash_count.told, crash_count.request);
                }
                // The call that failed was one of the very first.
                Err(_) => assert_eq!(request, 0),
            }
            disk.set_plan(FaultPlan { crash_keeps: 500, ..FaultPlan::default() });
            disk.crash();
        }
        given_early += told.early.len();
        rolled_back += told.rolled_back.len();
        let (told, there) = Life::open(&disk, told, request).unwrap().kept();
        hold(&told, &there);
    }
    assert!(given_early > 0 && rolled_back > 0, "{given_early} {rolled_back}");
}

#[test]
fn a_batch_is_at_hand_before_its_frame_is_sealed_and_after_it_was_written() {
    let disk = MemoryDisk::default();
    let mut crash_count = Life::open(&disk, Told::default(), 0).unwrap();
    crash_count.work();
    assert!(crash_count.commit());
    let given = crash_count.told.given.len();
    crash_count.publish(3);
    // All but the durable one are given at once, to a consumer and a reader each.
    assert_eq!(crash_count.told.given.len(), given + 9);
    assert!(crash_count.parts.shard.is_awaited(), "the durable and the speculative confirm wait");
    assert!(crash_count.parts.shard.memory_bytes() > 0);
    assert!(crash_count.commit());
    assert!(!crash_count.parts.shard.is_awaited());
    assert_eq!(crash_count.told.given.len(), given + 12);
    // What is committed can be read from the journal: nothing is held for it any more.
    let (_, there) = Life::open(&disk, crash_count.told, crash_count.request).unwrap().kept();
    assert_eq!(there.len(), (given + 12) / 4 * 3);
}

#[test]
fn what_nobody_waits_for_asks_for_no_commit() {
    let mut crash_count = Life::open(&MemoryDisk::default(), Told::default(), 0).unwrap();
    crash_count.work();
    assert!(crash_count.commit());
    for durability in [Durability::Ephemeral, Durability::Memory] {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new("light")).unwrap();
        let (partition, producer) = (partition_of(durability), ProducerStamp::default());
        let batch = builder.take().unwrap();
        let early = crash_count.told.early.len();
        crash_count.published.insert(ORIGIN.request, ("light".into(), 1));
        crash_count.tell(Command::Publish(Publish { origin: ORIGIN, partition, producer, batch }));
        assert_eq!(crash_count.told.early.len(), early + 1);
        assert!(!crash_count.parts.shard.is_awaited());
        let is_written = durability != Durability::Memory;
        assert_eq!(crash_count.parts.shard.gathered_bytes() > 0, is_written);
        assert!(crash_count.commit());
    }
}

#[test]
fn a_clean_stop_leaves_no_hole() {
    let disk = MemoryDisk::default();
    let mut crash_count = Life::open(&disk, Told::default(), 0).unwrap();
    crash_count.work();
    crash_count.parts.shard.stop();
    assert!(crash_count.commit());
    let ends = |crash_count: &Life<MemoryDisk>| {
        let engine = crash_count.parts.shard.engine();
        Durability::ALL.map(|durability| engine.end_of(partition_of(durability)).unwrap())
    };
    let before = ends(&crash_count);
    let crash_count = Life::open(&disk, crash_count.told, crash_count.request).unwrap();
    assert_eq!(ends(&crash_count), before);
}
