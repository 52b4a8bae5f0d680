//! Rot of any block of a shard's files: the loss is reported, no offset is given twice, and everything else exists.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    slice,
    time::Duration,
};

use sennit_engine::{Outcome, Record};
use sennit_journal::{BLOCK_BYTES, Container, Disk, disk::MemoryDisk, verify};
use sennit_model::{OffsetRange, PartitionId, TopicId};
use sennit_shard::{Repaired, find_references, repair};

use crate::broker::{Broker, COUNT, GROUP, MAILS, NOW, ORDERS, SEGMENT_BYTES, text, texts};

const LANE: &str = "data/lane-0";

/// A disk after some lives, and what lies there.
pub(crate) struct Story {
    pub(crate) disk: MemoryDisk,
    /// The messages of each partition.
    published: BTreeMap<PartitionId, BTreeMap<u64, String>>,
    acked: BTreeSet<u64>,
}

impl Story {
    /// Two queues, one with holes, in packs, old segments and the journal, with some checkpoints.
    pub(crate) fn told() -> Self {
        let mut broker = Broker::open(&MemoryDisk::default(), SEGMENT_BYTES);
        broker.create(ORDERS);
        broker.create(MAILS);
        let (mut published, mut acked) = (BTreeMap::<_, BTreeMap<_, _>>::new(), BTreeSet::new());
        let mut next = 0;
        for crash_count in 0..4 {
            // What the last move has freed is written over in the last life.
            for _ in 0..if crash_count < 3 { 12 } else { 20 } {
                broker.publish(ORDERS, &texts(next..next + COUNT));
                broker.publish(MAILS, &texts(next..next + COUNT));
                for partition in [ORDERS, MAILS] {
                    let messages = (next..next + COUNT).map(|n| (n, text(n)));
                    published.entry(partition).or_default().extend(messages);
                }
                next += COUNT;
            }
            if crash_count == 3 {
                // The last frame is not the last one: damage can be told from a write that was torn.
                broker.parts.shard.advance(NOW.plus(Duration::from_secs(1)));
                broker.settle_down();
                break;
            }
            broker.subscribe();
            let of_this_life = next - 12 * COUNT;
            let is_done = |n: u64| n >= of_this_life && (n / COUNT) % 3 != crash_count % 3;
            acked.extend((0..next).filter(|n| is_done(*n)));
            broker.ack(is_done);
            broker.move_all();
            broker.remove_packs();
            broker = broker.crashed();
        }
        Self { disk: broker.disk, published, acked }
    }

    pub(crate) fn files(&self) -> Vec<PathBuf> {
        files(&self.disk)
    }

    /// The slot of the newest segment.
    pub(crate) fn newest(&self) -> PathBuf {
        segments(&self.disk).into_iter().max().unwrap().1
    }

    /// The slots of the two newest segments.
    pub(crate) fn two_newest(&self) -> [PathBuf; 2] {
        let mut held = segments(&self.disk);
        held.sort();
        let [.., (_, last_but_one), (_, newest)] = &held[..] else { panic!("{held:?}") };
        [last_but_one.clone(), newest.clone()]
    }

    pub(crate) fn copy_of(&self, disk: &MemoryDisk) -> MemoryDisk {
        let copy = MemoryDisk::default();
        for path in files(disk) {
            copy.insert_file(&path, disk.bytes_of(&path).unwrap());
        }
        copy
    }

    /// The same disk, with one file other than it was; `None` if it is gone.
    fn with(&self, changed: &Path, bytes: Option<Vec<u8>>) -> MemoryDisk {
        let disk = MemoryDisk::default();
        for path in self.files() {
            let bytes = match path == changed {
                true => bytes.clone(),
                false => self.disk.bytes_of(&path),
            };
            if let Some(bytes) = bytes {
                disk.insert_file(&path, bytes);
            }
        }
        disk
    }

    /// Opens `disk` and takes everything there is: nothing is missing that was not told, or
    /// invented; returns how many messages were lost.
    fn take_all(&self, disk: &MemoryDisk, problem: &str) -> usize {
        self.take_all_with(disk, problem, &[]).0
    }

    /// The same, on a disk where `later` was published to orders since. Publishes another, and
    /// returns at which offset.
    pub(crate) fn take_all_with(
        &self,
        disk: &MemoryDisk,
        problem: &str,
        later: &[u64],
    ) -> (usize, u64) {
        let mut broker = match Broker::try_open(disk, SEGMENT_BYTES) {
            Ok(broker) => broker,
            Err(error) => panic!("{problem}: {error}"),
        };
        let is_reported = !broker.parts.report.damage.is_empty();
        let mut lost = 0;
        for (&partition, published) in &self.published {
            broker.delivered.clear();
            broker.gaps.clear();
            broker.tell(Broker::subscription(partition));
            let end = broker.parts.shard.engine().end_of(partition).unwrap_or_default().0;
            let before = published.len() as u64;
            assert!(
                end >= before,
                "{problem}: offsets of {partition:?} from {end} on are given again"
            );
            let mut taken = BTreeSet::new();
            for offset in later.iter().filter(|_| partition == ORDERS) {
                let is_there = broker.delivered.iter().any(|held| held.0 == *offset);
                assert!(is_there, "{problem}: what was published later at {offset} is gone");
            }
            for (offset, text) in &broker.delivered {
                if partition == ORDERS && later.contains(offset) {
                    assert_eq!(text, "later", "{problem}: at {offset}");
                    continue;
                }
                assert_eq!(published.get(offset), Some(text), "{problem}: invented at {offset}");
                assert!(taken.insert(*offset), "{problem}: {offset} twice");
            }
            for offset in published.keys() {
                let is_acked = partition == ORDERS && self.acked.contains(offset);
                let is_told =
                    broker.gaps.iter().any(|gap| gap.start.0 <= *offset && *offset < gap.end.0);
                match (taken.contains(offset), is_acked) {
                    (true, false) | (false, true) => {}
                    (true, true) => {
                        assert!(
                            is_reported,
                            "{problem}: {offset} was acked, and nothing is reported"
                        );
                    }
                    (false, false) => {
                        assert!(
                            is_told,
                            "{problem}: {offset} of {partition:?} is gone, and nobody is told"
                        );
                        lost += 1;
                    }
                }
            }
        }
        broker.delivered.clear();
        broker.tell(Broker::subscription(ORDERS));
        broker.publish(ORDERS, &["later".to_owned()]);
        let at = broker.delivered.last().unwrap().0;
        assert!(at >= self.published[&ORDERS].len() as u64, "{problem}: {at} was given before");
        (lost, at)
    }
}

fn files(disk: &MemoryDisk) -> Vec<PathBuf> {
    let names = disk.list(Path::new(LANE)).unwrap();
    names.iter().map(|name| Path::new(LANE).join(name)).collect()
}

/// The segments that lie in slots, old ones too.
pub(crate) fn segments(disk: &MemoryDisk) -> Vec<(u64, PathBuf)> {
    let slots = files(disk).into_iter().filter(|path| path.extension().unwrap() == "journal");
    let segment = |path: PathBuf| {
        let header = disk.bytes_of(&path).unwrap();
        (u64::from_le_bytes(header[16..24].try_into().unwrap()), path)
    };
    slots.map(segment).collect()
}

/// Where the frames lie that begin with a record of this kind.
fn frames_of(disk: &MemoryDisk, kind: u8) -> BTreeSet<(PathBuf, usize)> {
    let of_file = |path: PathBuf| {
        let bytes = disk.bytes_of(&path).unwrap();
        let blocks = (0..bytes.len()).step_by(BLOCK_BYTES);
        let frames = blocks.filter(|&block| {
            // The kind of its first record.
            bytes[block..].starts_with(b"SNFR") && bytes[block + 64 + 4] == kind
        });
        frames.map(|block| (path.clone(), block)).collect::<Vec<_>>()
    };
    files(disk).into_iter().flat_map(of_file).collect()
}

/// Damages these frames; returns how many they are.
fn lose<'a>(disk: &MemoryDisk, frames: impl IntoIterator<Item = &'a (PathBuf, usize)>) -> usize {
    let mut lost = 0;
    for (path, block) in frames {
        let mut bytes = disk.bytes_of(path).unwrap();
        bytes[*block] = 0;
        disk.insert_file(path, bytes);
        lost += 1;
    }
    lost
}

/// Damages every frame that begins with a record of this kind; returns how many these are.
fn lose_frames(disk: &MemoryDisk, kind: u8) -> usize {
    lose(disk, &frames_of(disk, kind))
}

#[test]
fn any_block_that_rots_costs_what_lay_in_it_and_nothing_else() {
    let story = Story::told();
    assert_eq!(story.take_all(&story.with(Path::new(""), None), "nothing"), 0);
    let mut lost_most = 0;
    let mut free = 0;
    for path in story.files() {
        let whole = story.disk.bytes_of(&path).unwrap();
        for block in (0..whole.len()).step_by(BLOCK_BYTES) {
            for flip in [true, false] {
                let mut bytes = whole.clone();
                match flip {
                    true => bytes[block + 100] ^= 4,
                    false => bytes[block..block + BLOCK_BYTES].fill(0),
                }
                if bytes == whole {
                    continue;
                }
                let how = if flip { "a bit flipped" } else { "zeros" };
                let problem = format!("{how} in block {} of {path:?}", block / BLOCK_BYTES);
                let disk = story.with(&path, Some(bytes.clone()));
                let (lost, first) = story.take_all_with(&disk, &problem, &[]);
                // What the next life reads is the same.
                let again = format!("{problem}, once more");
                let (still_lost, second) = story.take_all_with(&disk, &again, &[first]);
                assert_eq!(still_lost, lost, "{problem}");
                // And if the block can be read again after all, nothing is given twice.
                if let Some(mut now) = disk.bytes_of(&path)
                    && now[block..block + BLOCK_BYTES] == bytes[block..block + BLOCK_BYTES]
                {
                    now[block..block + BLOCK_BYTES]
                        .copy_from_slice(&whole[block..block + BLOCK_BYTES]);
                    disk.insert_file(&path, now);
                    story.take_all_with(&disk, &format!("{problem}, healed"), &[first, second]);
                }
                lost_most = lost_most.max(lost);
                free += usize::from(lost == 0);
            }
        }
    }
    assert!(lost_most > 0 && free > 0, "{lost_most} lost at most, {free} times nothing");
}

#[test]
fn a_file_that_is_cut_off_or_gone_costs_what_lay_in_it_and_nothing_else() {
    let story = Story::told();
    for path in story.files() {
        let whole = story.disk.bytes_of(&path).unwrap();
        let blocks = whole.len() / BLOCK_BYTES;
        let lengths = (1..blocks).map(|blocks| Some(blocks * BLOCK_BYTES));
        // That there was a newest segment only its own file says.
        let gone = [Some(0), Some(100), None].into_iter().filter(|_| path != story.newest());
        for length in lengths.chain(gone) {
            let problem = format!("{path:?} cut to {length:?} bytes");
            let disk = story.with(&path, length.map(|length| whole[..length].to_vec()));
            let (lost, first) = story.take_all_with(&disk, &problem, &[]);
            let again = format!("{problem}, once more");
            assert_eq!(story.take_all_with(&disk, &again, &[first]).0, lost, "{problem}");
        }
    }
}

#[test]
fn an_ack_that_rots_shows_nobody_what_lies_in_a_later_pack() {
    // More than a segment of orders, and so many mails of the same lengths that the checkpoint lies in
    // the middle of a segment: the next is far.
    let mut broker = Broker::with_backlog(20);
    broker.create(MAILS);
    let mails = |n: u64| text(n).replace("message", "another");
    for batch in 0..69 {
        let of_batch: Vec<_> = (batch * COUNT..(batch + 1) * COUNT).map(mails).collect();
        broker.publish(MAILS, &of_batch);
    }
    broker.parts.shard.checkpoint_soon();
    broker.settle_down();
    let checkpoints = broker.parts.shard.counters().checkpoints;
    let (container, _) = broker.begin_move();
    broker.empty(container);
    broker.subscribe();
    broker.ack(|_| true);
    assert_eq!(broker.remove_packs().len(), 1);
    assert_eq!(broker.parts.shard.counters().checkpoints, checkpoints, "the ack is replayed");
    let mut broker = broker.crashed();
    let (container, _) = broker.begin_move();
    broker.empty(container);
    assert_eq!(broker.live_packs().len(), 1);
    assert_eq!(broker.parts.shard.counters().checkpoints, 0, "the ack is replayed");
    let acked = Record::Settled {
        partition: ORDERS,
        group: GROUP,
        outcome: Outcome::Acked,
        ranges: Vec::new(),
    };
    assert!(lose_frames(&broker.disk, acked.kind()) > 0);
    let mut broker = broker.crashed();
    broker.subscribe();
    assert!(broker.delivered.iter().all(|(offset, held)| *held == text(*offset)));
    assert!(!broker.gaps.is_empty(), "what lay in packs that are gone is told");
}

#[test]
fn checkpoints_and_an_ack_that_rot_show_nobody_what_lies_in_a_later_pack() {
    let mut broker = Broker::open(&MemoryDisk::default(), SEGMENT_BYTES);
    broker.create(ORDERS);
    broker.create(MAILS);
    // Of the same lengths, each in segments of its own.
    for (partition, word) in [(ORDERS, "message"), (MAILS, "another")] {
        for batch in 0..15 {
            let numbers = batch * COUNT..(batch + 1) * COUNT;
            let of_batch: Vec<_> = numbers.map(|n| text(n).replace("message", word)).collect();
            broker.publish(partition, &of_batch);
        }
        broker.parts.shard.start_segment();
        broker.settle_down();
    }
    let checkpoint = |broker: &mut Broker| {
        broker.parts.shard.checkpoint_soon();
        broker.settle_down();
        broker.parts.shard.start_segment();
        broker.settle_down();
    };
    let (container, _) = broker.begin_move();
    broker.empty(container);
    let packs = broker.live_packs();
    checkpoint(&mut broker);
    let began = Record::CheckpointBegan { next_topic: 0, next_group: 0 };
    let before = frames_of(&broker.disk, began.kind());
    broker.subscribe();
    broker.ack(|_| true);
    assert_eq!(BTreeSet::from_iter(broker.remove_packs()), packs);
    checkpoint(&mut broker);
    // What this life reads knows of no pack.
    let mut broker = broker.crashed();
    let (container, _) = broker.begin_move();
    broker.empty(container);
    assert_eq!(broker.live_packs().len(), 1);

    let acked = Record::Settled {
        partition: ORDERS,
        group: GROUP,
        outcome: Outcome::Acked,
        ranges: Vec::new(),
    };
    assert!(lose_frames(&broker.disk, acked.kind()) > 0);
    let checkpoints = frames_of(&broker.disk, began.kind());
    assert!(lose(&broker.disk, checkpoints.difference(&before)) > 0);
    let mut broker = broker.crashed();
    broker.subscribe();
    assert!(broker.delivered.iter().all(|(offset, held)| *held == text(*offset)));
    let is_told = |gap: &OffsetRange| gap.start.0 == 0;
    assert!(broker.gaps.iter().any(is_told), "what lay in the pack that is gone is told");
}

#[test]
fn a_batch_is_found_in_its_pack_though_the_record_of_its_move_is_gone() {
    let mut broker = Broker::with_backlog(100);
    // Behind one of a large state the next is far.
    for topic in 10..1_500 {
        broker.create(PartitionId { topic: TopicId(topic), ..ORDERS });
    }
    broker.parts.shard.checkpoint_soon();
    broker.settle_down();
    let checkpoints = broker.parts.shard.counters().checkpoints;
    let (container, moved) = broker.copy();
    let Container::Segment(emptied) = container else { panic!("{container:?} is emptied first") };
    broker.parts.lane.take_surplus(0);
    broker.parts.shard.handle_move(moved, NOW);
    broker.settle_down();
    assert!(broker.freed.contains(&emptied));
    // The next segment is written over the one that came free.
    let mut next = 100;
    while segments(&broker.disk).iter().any(|(segment, _)| *segment == emptied) {
        broker.publish(ORDERS, &texts(next * COUNT..(next + 1) * COUNT));
        next += 1;
    }
    assert_eq!(broker.parts.shard.counters().checkpoints, checkpoints, "the move is replayed");
    let moved = Record::Moved { partition: ORDERS, moves: Vec::new() }.kind();
    assert!(lose_frames(&broker.disk, moved) > 0);
    let seen = find_references(&broker.disk, Broker::config(SEGMENT_BYTES), NOW).unwrap();
    assert!(!seen.segments.contains(&emptied) && !seen.packs.is_empty(), "{seen:?}");
    let mut broker = broker.crashed();
    assert!(!broker.parts.report.damage.is_empty());
    assert_eq!(broker.parts.report.lost_segments, [0u64; 0]);
    broker.gets(0..next * COUNT);
}

/// One with orders in an old segment whose header has rotted since, which segment, its slot, and what its
/// first blocks were: the header and a frame.
pub(crate) fn headless_segment(topics: u32) -> (Broker, u64, PathBuf, Vec<u8>) {
    let mut broker = Broker::with_backlog(60);
    for topic in 10..10 + topics {
        broker.create(PartitionId { topic: TopicId(topic), ..ORDERS });
    }
    for _ in 0..2 {
        broker.parts.shard.checkpoint_soon();
        broker.settle_down();
        broker.parts.shard.start_segment();
        broker.settle_down();
    }
    broker.parts.shard.forget_fallback();
    broker.settle_down();
    for spare in broker.parts.lane.take_surplus(0) {
        broker.parts.slots.remove(&spare).unwrap();
    }
    let disk = broker.disk.clone();
    let lost = *find_references(&disk, Broker::config(SEGMENT_BYTES), NOW)
        .unwrap()
        .segments
        .first()
        .unwrap();
    let (_, slot) = segments(&disk).into_iter().find(|(segment, _)| *segment == lost).unwrap();
    let mut bytes = disk.bytes_of(&slot).unwrap();
    let front = bytes[..2 * BLOCK_BYTES].to_vec();
    bytes[..BLOCK_BYTES].fill(0);
    disk.insert_file(&slot, bytes);
    (broker, lost, slot, front)
}

/// The same, and the slot looks as if the next segment was begun there and torn: nobody can say then what
/// else it holds.
fn segment_that_looks_torn(topics: u32) -> (Broker, u64, PathBuf, Vec<u8>) {
    let (broker, lost, slot, front) = headless_segment(topics);
    let next = MemoryDisk::default();
    for path in files(&broker.disk) {
        next.insert_file(&path, broker.disk.bytes_of(&path).unwrap());
    }
    Broker::open(&next, SEGMENT_BYTES).publish(ORDERS, &texts(0..1));
    let (_, begun) = segments(&next).into_iter().max().unwrap();
    let frame = next.bytes_of(&begun).unwrap()[BLOCK_BYTES..2 * BLOCK_BYTES].to_vec();
    let mut bytes = broker.disk.bytes_of(&slot).unwrap();
    bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&frame);
    broker.disk.insert_file(&slot, bytes);
    (broker, lost, slot, front)
}

#[test]
fn a_slot_in_which_a_lost_segment_may_lie_is_not_written_over_and_others_are() {
    let (mut broker, lost, slot, front) = segment_that_looks_torn(0);
    let rotten = broker.disk.bytes_of(&slot).unwrap();
    let mut next = 60;
    let mut slots = Vec::new();
    for crash_count in 0..6 {
        broker = broker.crashed();
        // Once another slot holds the segment that looked torn here, the rest says what this one is.
        let is_lost = crash_count == 0;
        assert_eq!(broker.parts.report.lost_segments == [lost], is_lost, "life {crash_count}");
        broker.publish(ORDERS, &texts(next * COUNT..(next + 1) * COUNT));
        next += 1;
        // As who writes a lane does: two are ready at any time.
        while broker.parts.lane.spare_count() < 2 {
            let spare = broker.parts.slots.make().unwrap();
            broker.parts.lane.add_spare(spare);
        }
        slots.push(broker.slot_files());
    }
    assert!(slots.iter().all(|count| *count <= slots[0] + 4), "each start makes slots: {slots:?}");
    assert!(broker.disk.bytes_of(&slot).unwrap() == rotten, "it was written over");
    let mut mended = rotten;
    mended[..front.len()].copy_from_slice(&front);
    broker.disk.insert_file(&slot, mended);
    let mut broker = broker.crashed();
    assert_eq!(broker.parts.report.lost_segments, [0u64; 0]);
    broker.gets(0..next * COUNT);
}

#[test]
fn a_repair_sets_aside_the_slot_of_a_lost_segment_and_writes_over_nothing_damaged() {
    // With a state whose checkpoint takes some segments.
    let (broker, lost, slot, _) = segment_that_looks_torn(1_500);
    let rotten = broker.disk.bytes_of(&slot).unwrap();
    let config = Broker::config(SEGMENT_BYTES);
    let repaired = repair(&broker.disk, &config, NOW).unwrap();
    assert!(repaired.lost_messages > 0);
    assert_eq!(repaired.to_quarantine, slice::from_ref(&slot), "segment {lost}");
    assert!(broker.disk.bytes_of(&slot).unwrap() == rotten, "it was written over");
    broker.disk.remove(&slot).unwrap();
    let mut broker = broker.crashed();
    assert_eq!(broker.parts.report.damage, []);
    broker.subscribe();
    let got = broker.delivered.len() as u64;
    assert_eq!(got + repaired.lost_messages, 60 * COUNT);
}

#[test]
fn a_repair_does_not_write_into_a_damaged_slot_that_came_free_meanwhile() {
    let (broker, lost, slot, front) = headless_segment(1_500);
    // Its header is whole again, and a batch in it is not.
    let mut bytes = broker.disk.bytes_of(&slot).unwrap();
    bytes[..front.len()].copy_from_slice(&front);
    bytes[3 * BLOCK_BYTES + 1_000] ^= 4;
    broker.disk.insert_file(&slot, bytes.clone());
    let config = Broker::config(SEGMENT_BYTES);
    let repaired = repair(&broker.disk, &config, NOW).unwrap();
    assert_eq!(repaired.lost_messages, COUNT, "the batch that is not whole, and no other");
    assert_eq!(repaired.to_quarantine, slice::from_ref(&slot), "segment {lost}");
    assert!(broker.disk.bytes_of(&slot).unwrap() == bytes, "it was written over");
    broker.disk.remove(&slot).unwrap();
    let mut broker = broker.crashed();
    assert_eq!(broker.parts.report.damage, []);
    broker.subscribe();
    assert_eq!(broker.delivered.len() as u64 + repaired.lost_messages, 60 * COUNT);
}

#[test]
fn a_repair_gives_up_what_is_lost_and_leaves_nothing_damaged_behind() {
    let story = Story::told();
    for path in story.files() {
        let whole = story.disk.bytes_of(&path).unwrap();
        for block in (0..whole.len()).step_by(BLOCK_BYTES) {
            let mut bytes = whole.clone();
            bytes[block..block + BLOCK_BYTES].fill(0);
            if bytes == whole {
                continue;
            }
            let problem = format!("block {} of {path:?}", block / BLOCK_BYTES);
            let disk = story.with(&path, Some(bytes));
            let lost = story.take_all(&story.copy_of(&disk), &problem);
            let config = Broker::config(SEGMENT_BYTES);
            let repaired = repair(&disk, &config, NOW).unwrap();
            for path in &repaired.to_quarantine {
                disk.remove(path).unwrap();
            }
            let verdict = verify(&disk, &config).unwrap();
            assert_eq!(verdict.damage, [], "{problem}: {repaired:?}");
            assert_eq!(repair(&disk, &config, NOW).unwrap(), Repaired::default(), "{problem}");
            let again = story.take_all(&disk, &format!("{problem}, repaired"));
            assert_eq!(again, lost, "{problem}");
        }
    }
}
