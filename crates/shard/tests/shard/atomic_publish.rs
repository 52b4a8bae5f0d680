//! Atomic publishes on a disk: after a crash between any two frames an input is acked exactly if its output exists.

use std::collections::BTreeSet;

use sennit_engine::{AtomicAck, Command, DeliveryRun, Publish, PublishAtomic};
use sennit_journal::{Frame, disk::MemoryDisk};
use sennit_model::{BatchBuilder, Message, PartitionId, PartitionIndex, ProducerStamp, TopicId};

use crate::broker::{Broker, GROUP, MAILS, NOW, ORDERS, ORIGIN, SEGMENT_BYTES, texts};

/// One that fills frames between the steps.
const FILLER: PartitionId = PartitionId { topic: TopicId(4), index: PartitionIndex(0) };
const ROUNDS: u64 = 24;

fn publish(partition: PartitionId, bytes: usize) -> Publish {
    let mut builder = BatchBuilder::new();
    builder.push(&Message::new("x".repeat(bytes))).unwrap();
    let (producer, batch) = (ProducerStamp::default(), builder.take().unwrap());
    Publish { origin: ORIGIN, partition, producer, batch }
}

/// Steps that take an order and make a mail of it, with publishes of all lengths between them, so that frames and
/// segments end everywhere.
fn rounds(runs: &[DeliveryRun]) -> Vec<Command> {
    let mut commands = Vec::new();
    for (round, run) in runs.iter().enumerate() {
        commands.push(Command::Publish(publish(FILLER, (round * 2_711) % 15_000)));
        let acks = vec![AtomicAck { partition: ORDERS, group: GROUP, runs: vec![*run] }];
        let parts = vec![publish(MAILS, 12_000)];
        commands.push(Command::PublishAtomic(PublishAtomic { origin: ORIGIN, parts, acks }));
    }
    commands
}

/// A broker whose lane has not written these frames yet.
fn unwritten() -> (Broker, Vec<Frame>) {
    let mut broker = Broker::open(&MemoryDisk::default(), SEGMENT_BYTES);
    [ORDERS, MAILS, FILLER].into_iter().for_each(|id| broker.create(id));
    broker.publish(ORDERS, &texts(0..ROUNDS));
    broker.subscribe();
    let runs = std::mem::take(&mut broker.runs);
    assert_eq!(runs.len() as u64, ROUNDS);
    broker.parts.shard.handle(&mut rounds(&runs), NOW);
    let frames = broker.take_frames();
    (broker, frames)
}

#[test]
fn a_crash_between_any_two_frames_leaves_output_and_ack_or_neither() {
    let (_, frames) = unwritten();
    assert!(frames.len() as u64 > ROUNDS / 4, "{} frames", frames.len());
    let mut seen = BTreeSet::new();
    for written in 0..=frames.len() {
        let (mut broker, frames) = unwritten();
        if written > 0 {
            broker.parts.lane.append(&frames[..written]).unwrap();
        }
        let mut after = broker.crashed();
        let outputs = after.parts.shard.engine().end_of(MAILS).unwrap().0;
        after.delivered.clear();
        after.subscribe();
        let left: Vec<u64> = after.delivered.iter().map(|(offset, _)| *offset).collect();
        assert!(left.iter().copied().eq(outputs..ROUNDS), "{written}: {outputs} and {left:?}");
        seen.insert(outputs);
    }
    assert!(seen.contains(&0) && seen.contains(&ROUNDS), "{seen:?}");
}
