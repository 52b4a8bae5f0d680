//! Atomic appends to several streams on a disk: after a crash or rot anywhere in the journal all of them exist, or
//! none.

use std::collections::BTreeSet;

use sennit_engine::{
    Command, Content, OpenStream, StreamAnswer, StreamAppend, StreamCommand, StreamNote,
    StreamRead, StreamRefusal, StreamSettings,
};
use sennit_journal::{BLOCK_BYTES, Disk, Frame, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, Message, Messages, Offset, PartitionId, PartitionIndex, ReadFrom, TopicConfig,
    TopicId, TopicKind,
};

use crate::broker::{Broker, MAILS, NOW, ORDERS, ORIGIN, SEGMENT_BYTES};

const THIRD: PartitionId = PartitionId { topic: TopicId(3), index: PartitionIndex(0) };
/// One that fills frames between the groups, and is in none.
const FILLER: PartitionId = PartitionId { topic: TopicId(4), index: PartitionIndex(0) };
const GROUPED: [PartitionId; 3] = [ORDERS, MAILS, THIRD];
const ROUNDS: u64 = 24;

fn with_streams() -> Broker {
    let mut broker = Broker::open(&MemoryDisk::default(), SEGMENT_BYTES);
    for id in GROUPED.into_iter().chain([FILLER]) {
        let group = (id != FILLER).then(|| "accounts".into());
        let settings = StreamSettings { group, is_verified: true, ..StreamSettings::of_topic() };
        let config = TopicConfig::of_kind(TopicKind::Stream);
        let open = OpenStream { config, settings, content: None, closes: false };
        broker.tell(Command::Stream(ORIGIN, id, StreamCommand::Open(Box::new(open))));
    }
    broker
}

fn append(round: u64, bytes: usize) -> StreamAppend {
    append_batches(round, &[bytes])
}

/// An append of a message of each of these lengths, each in a batch of its own.
fn append_batches(round: u64, bytes: &[usize]) -> StreamAppend {
    let batches = bytes.iter().map(|bytes| {
        let mut builder = BatchBuilder::new();
        builder.push(&Message::new(format!("{round:8}{}", "x".repeat(*bytes)))).unwrap();
        builder.take().unwrap()
    });
    let (content, content_type) = (Content::of(batches), None);
    StreamAppend { content, content_type, note: StreamNote::default() }
}

/// Groups of three appends, and others of all lengths between them, so that frames and segments end
/// everywhere.
fn rounds() -> Vec<Command> {
    let mut commands = Vec::new();
    for round in 0..ROUNDS {
        let filler = append(round, (round as usize * 2_711) % 15_000);
        let command = StreamCommand::Append(Box::new(filler));
        commands.push(Command::Stream(ORIGIN, FILLER, command));
        let bytes = [9_000, 700, 5_000].into_iter();
        let appends = GROUPED.into_iter().zip(bytes).map(|(id, bytes)| (id, append(round, bytes)));
        commands.push(Command::AppendTogether(ORIGIN, appends.collect()));
    }
    commands
}

/// A broker whose lane has not written these frames yet.
fn unwritten() -> (Broker, Vec<Frame>) {
    unwritten_of(rounds())
}

fn unwritten_of(mut commands: Vec<Command>) -> (Broker, Vec<Frame>) {
    let mut broker = with_streams();
    broker.parts.shard.handle(&mut commands, NOW);
    let frames = broker.take_frames();
    (broker, frames)
}

/// Which rounds a stream has, by reading all of it.
fn rounds_of(broker: &mut Broker, id: PartitionId) -> BTreeSet<u64> {
    messages_of(broker, id).into_iter().collect()
}

/// The round of each message of a stream.
fn messages_of(broker: &mut Broker, id: PartitionId) -> Vec<u64> {
    let (mut at, mut found) = (0, Vec::new());
    loop {
        let read = StreamRead {
            at: ReadFrom::Offset(Offset(at)),
            before: None,
            bytes_max: 1 << 20,
            waits: false,
            one_append: false,
            for_fork: false,
        };
        broker.answers.clear();
        broker.tell(Command::Stream(ORIGIN, id, StreamCommand::Read(read)));
        match broker.answers.pop() {
            Some(StreamAnswer::Chunk(chunk)) => {
                for message in chunk.messages.iter().flat_map(|part| Messages::of_checked(part)) {
                    let text = String::from_utf8_lossy(message.payload());
                    found.push(text[..8].trim().parse().unwrap());
                }
                if chunk.is_up_to_date {
                    return found;
                }
                at = chunk.next.0;
            }
            Some(StreamAnswer::Refused(StreamRefusal::Damaged { next })) => at = next.0,
            Some(StreamAnswer::Refused(StreamRefusal::NotKept { start })) => at = start.0,
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn all_or_none(broker: &mut Broker, problem: &str) -> BTreeSet<u64> {
    let [one, other, third] = GROUPED.map(|id| rounds_of(broker, id));
    assert!(one == other && other == third, "{problem}: {one:?} {other:?} {third:?}");
    one
}

#[test]
fn a_crash_between_any_two_frames_leaves_all_of_an_atomic_append_or_nothing() {
    let (_, frames) = unwritten();
    assert!(frames.len() as u64 > ROUNDS / 4, "{} frames", frames.len());
    let mut seen = BTreeSet::new();
    for written in 0..=frames.len() {
        let (mut broker, frames) = unwritten();
        if written > 0 {
            broker.parts.lane.append(&frames[..written]).unwrap();
        }
        let mut after = broker.crashed();
        let found = all_or_none(&mut after, &format!("{written} frames written"));
        assert!(found.iter().copied().eq(0..found.len() as u64), "{found:?}");
        seen.insert(found.len());
    }
    assert!(seen.contains(&0) && seen.contains(&(ROUNDS as usize)), "{seen:?}");
}

#[test]
fn a_crash_between_any_two_frames_leaves_all_batches_of_an_append_or_none() {
    let commands = || {
        let append = |round: u64| {
            let long = (round as usize * 2_711) % 15_000;
            let append = append_batches(round, &[long, 9_000, 700]);
            Command::Stream(ORIGIN, FILLER, StreamCommand::Append(Box::new(append)))
        };
        (0..ROUNDS).map(append).collect()
    };
    let (_, frames) = unwritten_of(commands());
    let mut seen = BTreeSet::new();
    for written in 0..=frames.len() {
        let (mut broker, frames) = unwritten_of(commands());
        if written > 0 {
            broker.parts.lane.append(&frames[..written]).unwrap();
        }
        let found = messages_of(&mut broker.crashed(), FILLER);
        let whole = (0..ROUNDS).flat_map(|round| [round; 3]).take(found.len());
        assert!(
            found.len().is_multiple_of(3) && found.iter().copied().eq(whole),
            "{written}: {found:?}"
        );
        seen.insert(found.len());
    }
    assert!(seen.contains(&0) && seen.contains(&(3 * ROUNDS as usize)), "{seen:?}");
}

#[test]
fn rot_in_any_block_that_a_replay_needs_costs_whole_atomic_appends() {
    let (mut broker, frames) = unwritten();
    // Without the checkpoint, behind which rot costs the messages that lay there when they are read.
    broker.parts.lane.append(&frames[..frames.len() / 2]).unwrap();
    let disk = broker.disk.clone();
    let lane = std::path::Path::new("data/lane-0");
    let names = disk.list(lane).unwrap();
    let files: Vec<_> = names.iter().map(|name| lane.join(name)).collect();
    let (mut fewest, mut most) = (ROUNDS as usize, 0);
    for path in &files {
        let whole = disk.bytes_of(path).unwrap();
        for block in (0..whole.len()).step_by(BLOCK_BYTES) {
            let mut bytes = whole.clone();
            bytes[block + 100] ^= 4;
            let rotten = MemoryDisk::default();
            for other in &files {
                rotten.insert_file(other, disk.bytes_of(other).unwrap());
            }
            rotten.insert_file(path, bytes);
            let problem = format!("block {} of {path:?}", block / BLOCK_BYTES);
            let mut after = Broker::open(&rotten, SEGMENT_BYTES);
            let found = all_or_none(&mut after, &problem).len();
            (fewest, most) = (fewest.min(found), most.max(found));
        }
    }
    assert!(0 < fewest && fewest < most, "{fewest} to {most}");
}
