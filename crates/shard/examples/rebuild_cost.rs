//! Measures how long the state of a replica takes to be made anew, while its log goes on on the same disk:
//! `cargo run --release -p sennit-shard --example rebuild_cost -- FOLDER [MIB]`. The folder must not exist.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "it measures, on a real disk"
)]

use std::{path::PathBuf, sync::mpsc, thread, time::Instant};

use sennit_engine::{
    Command, Credit, DeadLetters, DeliveryRun, Effect, GroupSetting, Origin, PartitionCommand,
    Publish, SessionId, Settle, Subscribe, Verdict,
};
use sennit_journal::{
    Disk, LaneConfig, Position,
    disk::{Access, MemoryDisk, RealDisk},
};
use sennit_model::{
    BatchBuilder, GroupConfig, GroupId, Message, PartitionId, PartitionIndex, ProducerStamp,
    StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{
    EntryBody, EntryContent, EntryId, EntrySize, Membership, PackLengths, ReceivedEntry, Recovered,
    Replica, Settings, Standing, TakeOver, recover,
};

const NOW: Timestamp = Timestamp(1_000);
const ORIGIN: Origin = Origin { session: SessionId(1), request: 1 };
const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
const GROUP: GroupId = GroupId(1);
/// Messages of 1 KiB in a batch.
const BATCH: u32 = 64;
/// Batches between two writes of the lane.
const BATCHES_A_WRITE: u32 = 16;
/// So long that no checkpoint is written.
const SEGMENT_BYTES: u64 = 1 << 30;

/// A replica; the leader's lane writes nothing.
struct Member<D: Disk> {
    parts: Recovered<D>,
    runs: Vec<DeliveryRun>,
}

impl<D: Disk> Member<D> {
    fn open(disk: &D, directory: PathBuf, id: u64) -> Self {
        let config =
            LaneConfig { directory, lane: 0, segment_bytes: SEGMENT_BYTES, incarnation: 42 };
        let settings = Settings {
            cache_bytes: 32 << 20,
            journal_segments: 8,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: Some(Replica { group: 4, id, is_alone: false }),
        };
        let mut parts = recover(disk, config, settings, NOW).unwrap();
        let members = Membership { voters: [1, 2, 3].into(), ..Membership::default() };
        parts.shard.join_group(&members, NOW);
        Self { parts, runs: Vec::new() }
    }

    fn last(&mut self) -> EntryId {
        self.parts.shard.labels().unwrap().last()
    }

    fn tell(&mut self, command: Command) {
        self.parts.shard.handle(&mut vec![command], NOW);
        self.hear();
    }

    fn hear(&mut self) {
        for effect in self.parts.shard.effects().drain(..) {
            if let Effect::Deliver(delivery) = &effect {
                self.runs.push(DeliveryRun {
                    first: delivery.first,
                    count: delivery.count,
                    attempt: delivery.attempt,
                    generation: delivery.generation,
                });
            }
        }
    }

    fn begin(&mut self) {
        let id = EntryId { term: 2, index: self.last().index + 1 };
        self.parts.shard.keep_vote(2, 1);
        self.parts.shard.append_made(id, None);
        self.parts.shard.commit_entries(id.index, NOW);
        self.parts.shard.stand(Standing::Leader { term: 2, may_give: true }, NOW);
        let (config, start) = (GroupConfig::default(), StartAt::Earliest);
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: vec![GroupSetting { id: GROUP, config, start }],
            dead_letters: DeadLetters::NotYet,
        };
        self.tell(Command::Partition(ORIGIN, ORDERS, open));
        let credit = Credit { messages: 100_000, bytes: 1 << 30 };
        let (origin, partition, group, subscription) = (ORIGIN, ORDERS, GROUP, 1);
        let subscribe = Subscribe { origin, subscription, partition, group, credit };
        self.tell(Command::Subscribe(subscribe));
    }

    /// Publishes a batch, acks half of what was delivered, and seals both as an entry.
    fn publish(&mut self) {
        let mut builder = BatchBuilder::new();
        for _ in 0..BATCH {
            builder.push(&Message::new(vec![b'x'; 1024])).unwrap();
        }
        let (origin, partition, producer) = (ORIGIN, ORDERS, ProducerStamp::default());
        let batch = builder.take().unwrap();
        self.tell(Command::Publish(Publish { origin, partition, producer, batch }));
        let runs: Vec<_> = self.runs.drain(..).collect();
        let (group, verdict, confirm) = (GROUP, Verdict::Ack, false);
        let runs = runs.into_iter().map(|run| DeliveryRun { count: run.count.div_ceil(2), ..run });
        let runs = runs.collect();
        let settle = Settle { origin, partition, group, verdict, runs, confirm };
        self.tell(Command::Settle(settle));
        self.parts.shard.take_frames(&mut Vec::new());
    }

    /// Sends what `to` has not.
    fn send<E: Disk>(&mut self, to: &mut Member<E>) {
        let labels = self.parts.shard.labels().unwrap().clone();
        for index in to.last().index + 1..=labels.last().index {
            let label = labels.get(index).unwrap();
            let id = EntryId { term: label.term, index };
            if label.content != EntryContent::Records {
                to.parts.shard.append_made(id, None);
                continue;
            }
            let Some(EntryBody::Here(bytes)) = self.parts.shard.entry_body(index) else {
                panic!("the leader has it in memory");
            };
            let (checksum, records) = (label.body.checksum, label.body.records);
            let size = EntrySize { bytes: label.body.bytes, checksum, records };
            to.parts.shard.receive(&ReceivedEntry::check(id, size, bytes).unwrap(), NOW).unwrap();
        }
    }

    fn commit(&mut self, index: u64) {
        self.parts.shard.commit_entries(index, NOW);
        self.hear();
    }

    fn write(&mut self) -> Option<Position> {
        let mut frames = Vec::new();
        self.parts.shard.take_frames(&mut frames);
        let Recovered { lane, slots, shard, .. } = &mut self.parts;
        while lane.fits(&frames) < frames.len() {
            lane.add_spare(slots.make().unwrap());
        }
        let end = (!frames.is_empty()).then(|| lane.append(&frames).unwrap());
        end.inspect(|end| shard.written(*end, NOW))
    }
}

/// Publishes so many batches, which both have, the follower writes, and are committed.
fn go_on<D: Disk>(leader: &mut Member<MemoryDisk>, follower: &mut Member<D>, batches: u32) {
    for _ in 0..batches {
        leader.publish();
    }
    leader.send(follower);
    follower.write();
    let index = leader.last().index;
    follower.commit(index);
    leader.commit(index);
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("a folder"));
    let mib: u32 = arguments.next().map_or(256, |mib| mib.parse().unwrap());
    std::fs::create_dir(&folder).expect("a new folder");
    let disk = RealDisk::new(Access::Auto);
    let mut leader = Member::open(&MemoryDisk::default(), "lane-0".into(), 1);
    let mut follower = Member::open(&disk, folder.join("lane-0"), 2);
    leader.begin();
    for _ in 0..mib * 16 / BATCHES_A_WRITE {
        go_on(&mut leader, &mut follower, BATCHES_A_WRITE);
    }
    // One entry more, and it is cut.
    leader.publish();
    leader.send(&mut follower);
    follower.write();
    let last = follower.last().index;
    follower.parts.shard.cut_from(last, NOW);

    let begun = Instant::now();
    let begin = follower.parts.shard.end();
    let reader = follower.parts.reader.duplicate();
    let mut rebuild = follower.parts.shard.begin_rebuild(reader, NOW);
    let (mut rounds, mut commits, mut processor) = (0, 0, 0.0);
    loop {
        let (done, rebuilt) = mpsc::channel();
        let thread = thread::spawn(move || {
            while rebuild.step().unwrap() {}
            done.send(()).unwrap();
            (rebuild, processor_seconds())
        });
        rounds += 1;
        while rebuilt.try_recv().is_err() {
            go_on(&mut leader, &mut follower, 4);
            commits += 1;
        }
        let (back, of_round) = thread.join().unwrap();
        processor += of_round;
        let read = back.bytes();
        let taking = Instant::now();
        match follower.parts.shard.take_over(back, NOW).unwrap() {
            TakeOver::Done => {
                let (seconds, took) = (begun.elapsed().as_secs_f64(), taking.elapsed());
                let since = follower.parts.shard.end().0 - begin.0;
                println!(
                    "{:.0} MiB read in {rounds} rounds, {:.0} MiB appended and {commits} commits meanwhile: \
                     {seconds:.3} s, {processor:.3} s of it on a processor; the shard took {:.1} ms",
                    read as f64 / f64::from(1 << 20),
                    since as f64 / f64::from(1 << 20),
                    took.as_secs_f64() * 1e3,
                );
                break;
            }
            TakeOver::TooEarly(more) => {
                assert!(rounds < 100, "it never catches up");
                rebuild = *more;
            }
        }
    }
}

/// The time that this thread was on a processor, as the scheduler counts it.
fn processor_seconds() -> f64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    counted.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).unwrap() / 1e9
}
