//! Any bytes as a command (behind an even byte) and as an effect (behind an odd one) of another node: refused with a
//! reason, or decoded to what is sent as the same again. A command is then given to an engine with some messages, whose
//! peers are trusted with no more than doors are. Knows no link.
#![no_main]

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_engine::{
    Command, Credit, DeadLetters, Effect, Encoded, Engine, GroupSetting, Journal, Origin, Outbox,
    PartitionCommand, Payloads, Place, Publish, Record, SessionId, Subscribe,
};
use sennit_model::{
    Batch, BatchBuilder, Generation, GroupConfig, GroupId, Message, PartitionId, PartitionIndex,
    ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};

const NOW: Timestamp = Timestamp(1_000_000);

/// A journal in memory, with the batches that it holds.
#[derive(Default)]
struct Memory {
    end: u64,
    batches: BTreeMap<u64, Bytes>,
}

impl Memory {
    fn hold(&mut self, batch: &Batch, position: u64) {
        self.batches.insert(position, batch.bytes().clone());
    }
}

impl Journal for Memory {
    fn append(&mut self, record: &Record) -> u64 {
        let mut head = Vec::new();
        record.encode_head(&mut head);
        let position = self.end + head.len() as u64;
        self.end = position + 1;
        if let Some(batch) = record.batch() {
            self.hold(batch, position);
            self.end += batch.bytes().len() as u64;
        }
        position
    }

    fn keep(&mut self, batch: &Batch) -> u64 {
        self.end += 1;
        let position = 1 << 62 | self.end;
        self.hold(batch, position);
        position
    }
}

impl Payloads for Memory {
    fn batch(&mut self, _: PartitionId, place: Place) -> Option<Bytes> {
        let (begin, batch) = self.batches.range(..=place.position).next_back()?;
        let at = usize::try_from(place.position - begin).ok()?;
        batch.get(at..at.checked_add(place.bytes as usize)?).map(|found| batch.slice_ref(found))
    }
}

/// An engine, its journal, and what a delivery reads of that.
struct World {
    engine: Engine,
    journal: Memory,
    batches: Memory,
}

impl World {
    fn handle(&mut self, command: Command, now: Timestamp) {
        let mut out = Outbox::default();
        self.engine.handle(command, now, &mut self.journal, &mut out);
        self.finish(now, &mut out);
    }

    fn finish(&mut self, now: Timestamp, out: &mut Outbox) {
        self.engine.end_turn(&mut self.journal);
        self.engine.committed(self.journal.end + 1);
        self.batches.batches.clone_from(&self.journal.batches);
        self.engine.deliver(now, &mut self.journal, &mut self.batches, out);
        self.engine.check();
    }
}

fn id(topic: u32) -> PartitionId {
    PartitionId { topic: TopicId(topic), index: PartitionIndex(0) }
}

/// Three messages of two keys, of which one is delayed.
fn messages() -> Batch {
    let mut builder = BatchBuilder::new();
    for (key, delay) in [("a", None), ("b", Some(Duration::from_secs(1))), ("a", None)] {
        let message = Message { key: Bytes::from(key), delay, ..Message::new("text") };
        builder.push(&message).expect("within the limits");
    }
    builder.take().expect("not empty")
}

/// A queue whose only consumer has the first of its messages, and a stream.
fn world() -> World {
    let (engine, journal) = (Engine::new(Generation(1), NOW), Memory::default());
    let mut world = World { engine, journal, batches: Memory::default() };
    for (topic, kind) in [(1, TopicKind::Queue), (2, TopicKind::Stream)] {
        let setting = GroupSetting {
            id: GroupId(0),
            config: GroupConfig::default(),
            start: StartAt::Earliest,
        };
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(kind),
            groups: vec![setting],
            dead_letters: DeadLetters::Stay,
        };
        world.handle(Command::Partition(Origin::default(), id(topic), open), NOW);
        let (origin, producer) = (Origin::default(), ProducerStamp::default());
        let publish = Publish { origin, partition: id(topic), producer, batch: messages() };
        world.handle(Command::Publish(publish), NOW);
    }
    let credit = Credit { messages: 1, bytes: 1 << 20 };
    let origin = Origin { session: SessionId(1), request: 1 };
    let (subscription, partition, group) = (1, id(1), GroupId(0));
    let subscribe = Subscribe { origin, subscription, partition, group, credit };
    world.handle(Command::Subscribe(subscribe), NOW);
    world
}

fn handle(command: Command) {
    let mut world = world();
    world.handle(command, NOW);
    // An hour later leases and delays are over.
    let later = Timestamp(NOW.0 + 3_600_000);
    world.engine.advance(later, &mut world.journal);
    world.finish(later, &mut Outbox::default());
}

fuzz_target!(|data: &[u8]| {
    let Some((&which, bytes)) = data.split_first() else { return };
    let (mut bytes, mut encoded) = (Bytes::copy_from_slice(bytes), Encoded::default());
    if which % 2 == 0 {
        match Command::decode(&mut bytes) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(command) => {
                command.encode(&mut encoded).expect("what was decoded can be sent");
                assert_eq!(Command::decode(&mut encoded.to_bytes()).as_ref(), Ok(&command));
                handle(command);
            }
        }
    } else {
        match Effect::decode(&mut bytes) {
            Err(error) => assert!(!error.to_string().is_empty()),
            Ok(effect) => {
                effect.encode(&mut encoded).expect("what was decoded can be sent");
                assert_eq!(Effect::decode(&mut encoded.to_bytes()).as_ref(), Ok(&effect));
            }
        }
    }
});
