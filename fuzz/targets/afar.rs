//! Any bytes as a command (behind an even byte) and as an effect (behind an odd one) of another node: refused with a
//! reason, or decoded to what is sent as the same again. A command is then given to an engine, whose peers are trusted
//! with no more than doors are. Knows no link.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_engine::{
    Command, DeadLetters, Effect, Encoded, Engine, GroupSetting, Journal, Origin, Outbox,
    PartitionCommand, Payloads, Place, Record,
};
use sennit_model::{
    Batch, Generation, GroupConfig, GroupId, PartitionId, PartitionIndex, StartAt, Timestamp,
    TopicConfig, TopicId, TopicKind,
};

const NOW: Timestamp = Timestamp(1_000_000);

#[derive(Default)]
struct Positions(u64);

impl Journal for Positions {
    fn append(&mut self, record: &Record) -> u64 {
        let mut head = Vec::new();
        record.encode_head(&mut head);
        self.0 += 1;
        self.0
    }

    fn keep(&mut self, _: &Batch) -> u64 {
        self.0 += 1;
        1 << 62 | self.0
    }
}

/// Nothing can be read.
struct Nothing;

impl Payloads for Nothing {
    fn batch(&mut self, _: PartitionId, _: Place) -> Option<Bytes> {
        None
    }
}

fn handle(command: Command) {
    let mut engine = Engine::new(Generation(1), NOW);
    let (mut journal, mut out) = (Positions::default(), Outbox::default());
    for (topic, kind) in [(1, TopicKind::Queue), (2, TopicKind::Stream)] {
        let id = PartitionId { topic: TopicId(topic), index: PartitionIndex(0) };
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
        let open = Command::Partition(Origin::default(), id, open);
        engine.handle(open, NOW, &mut journal, &mut out);
    }
    engine.handle(command, NOW, &mut journal, &mut out);
    engine.end_turn(&mut journal);
    engine.committed(journal.0 + 1);
    engine.deliver(NOW, &mut journal, &mut Nothing, &mut out);
    engine.check();
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
