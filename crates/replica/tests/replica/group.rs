//! A group of replicas, each with a disk in memory and a lane that writes when a test lets it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::{Path, PathBuf},
};

use sennit_engine::{
    Command, Credit, DeadLetters, Effect, GroupSetting, Origin, PartitionCommand, Publish, Refusal,
    SessionId, Subscribe,
};
use sennit_journal::{Disk, DiskFile, Frame, LaneConfig, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, GroupConfig, GroupId, Message as Text, Messages, PartitionId, PartitionIndex,
    ProducerStamp, StartAt, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_replica::{HearError, Moment, OutgoingMessage, Replica, ReplicaSettings};
use sennit_replication::{Membership, Role, TICK_MS};
use sennit_shard::{PackLengths, Rebuild, Recovered, Settings, TakeOver, recover};

pub(crate) const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };
const GROUP: GroupId = GroupId(1);

/// A replica and its surroundings.
pub(crate) struct Node {
    pub(crate) disk: MemoryDisk,
    pub(crate) replica: Replica,
    parts: Parts,
    /// Frames that the lane has taken and not written.
    pub(crate) taken: VecDeque<Frame>,
    rebuild: Option<Rebuild<MemoryDisk>>,
    /// How often the state was made anew.
    pub(crate) rebuilds: usize,
    /// Whether a poisoned state is made anew.
    pub(crate) rebuilds_at_once: bool,
    /// Whether the lane takes frames.
    pub(crate) takes: bool,
    /// Whether the lane writes.
    pub(crate) writes: bool,
    pub(crate) effects: Vec<Effect>,
}

struct Parts {
    lane: sennit_journal::Lane<MemoryDisk>,
    slots: sennit_journal::SlotMaker<MemoryDisk>,
    reader: sennit_journal::Reader<MemoryDisk>,
}

impl Node {
    fn open(disk: &MemoryDisk, id: u64, group: (&Membership, u64), now: Moment) -> Self {
        let (members, segment_bytes) = group;
        let directory = PathBuf::from("data/lane-0");
        let config = LaneConfig { directory, lane: 0, segment_bytes, incarnation: id };
        let settings = Settings {
            cache_bytes: 0,
            journal_segments: 1000,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: Some(sennit_shard::Replica { group: 7, id, is_alone: false }),
        };
        let recovered = recover(disk, config, settings, now.time).unwrap();
        let Recovered { shard, lane, reader, slots, .. } = recovered;
        let settings = ReplicaSettings { first_members: members.clone() };
        let replica = Replica::new(shard, &settings, now).unwrap();
        let parts = Parts { lane, slots, reader };
        let (taken, effects, disk) = (VecDeque::new(), Vec::new(), disk.clone());
        let (rebuild, rebuilds, rebuilds_at_once) = (None, 0, true);
        Self {
            disk,
            replica,
            parts,
            taken,
            rebuild,
            rebuilds,
            rebuilds_at_once,
            takes: true,
            writes: true,
            effects,
        }
    }

    /// The lane writes what it has taken.
    pub(crate) fn write(&mut self, now: Moment) {
        let frames: Vec<Frame> = self.taken.drain(..).collect();
        if frames.is_empty() {
            return;
        }
        let Parts { lane, slots, .. } = &mut self.parts;
        while lane.spare_count() < frames.len() {
            lane.add_spare(slots.make().unwrap());
        }
        let end = lane.append(&frames).unwrap();
        self.replica.written(end, now);
    }

    /// A step of making a poisoned state anew.
    fn rebuild(&mut self, now: Moment) {
        let mut rebuild = match self.rebuild.take() {
            Some(rebuild) => rebuild,
            None => self.replica.begin_rebuild(self.parts.reader.duplicate(), now),
        };
        match rebuild.step() {
            Ok(false) => {}
            Ok(true) => {
                self.rebuild = Some(rebuild);
                return;
            }
            Err(error) => return self.replica.handle_failed_rebuild(&error, now),
        }
        match self.replica.take_over(rebuild, now).unwrap() {
            TakeOver::Done => self.rebuilds += 1,
            TakeOver::TooEarly(rebuild) => self.rebuild = Some(*rebuild),
        }
    }

    fn step(&mut self, now: Moment) -> bool {
        if self.rebuilds_at_once && self.replica.is_poisoned() {
            self.rebuild(now);
        }
        let mut frames = Vec::new();
        if self.takes && self.replica.shard().has_frames() {
            self.replica.take_frames(&mut frames, now);
        }
        self.taken.extend(frames);
        let mut is_busy = false;
        let mut fetches = Vec::new();
        self.replica.take_fetches(&mut fetches);
        for fetch in fetches {
            is_busy = true;
            let bytes = self.parts.reader.read(fetch.position, fetch.length).ok();
            self.replica.handle_fetch(fetch, bytes, now);
        }
        if self.writes && !self.taken.is_empty() {
            is_busy = true;
            self.write(now);
        }
        let mut released = Vec::new();
        self.replica.shard_mut().take_released(&mut released);
        released.into_iter().for_each(|segment| self.parts.lane.release(segment));
        self.effects.append(self.replica.effects());
        is_busy
    }

    /// A copy of the disk as it is.
    pub(crate) fn copy_of_disk(&self) -> MemoryDisk {
        let copy = MemoryDisk::default();
        for slot in self.slot_paths() {
            copy.insert_file(&slot, self.disk.bytes_of(&slot).unwrap());
        }
        copy
    }

    fn slot_paths(&self) -> Vec<PathBuf> {
        let lane = Path::new("data/lane-0");
        self.disk.list(lane).unwrap().into_iter().map(|name| lane.join(name)).collect()
    }

    /// Flips a bit of the first place in each slot that holds these bytes; returns the number of places.
    pub(crate) fn flip_bit_of(&self, wanted: &str) -> usize {
        let mut count = 0;
        for slot in self.slot_paths() {
            let bytes = self.disk.bytes_of(&slot).unwrap();
            let found = bytes.windows(wanted.len()).position(|found| found == wanted.as_bytes());
            let Some(at) = found else { continue };
            let file = self.disk.open_to_write(&slot).unwrap();
            file.write_at(&[bytes[at] ^ 1], at as u64).unwrap();
            count += 1;
        }
        count
    }

    /// Flips a bit in each frame on the disk. The headers of segments stay whole.
    pub(crate) fn flip_bits(&self) {
        for slot in self.slot_paths() {
            let bytes = self.disk.bytes_of(&slot).unwrap();
            let file = self.disk.open_to_write(&slot).unwrap();
            for at in (4096 + 100..bytes.len()).step_by(4096) {
                file.write_at(&[bytes[at] ^ 1], at as u64).unwrap();
            }
        }
    }

    pub(crate) fn confirms(&self) -> usize {
        self.effects.iter().filter(|effect| matches!(effect, Effect::Confirmed(_))).count()
    }

    pub(crate) fn refusals(&self) -> Vec<&Refusal> {
        let refused = self.effects.iter().filter_map(|effect| match effect {
            Effect::Refused { refusal, .. } => Some(refusal),
            _ => None,
        });
        refused.collect()
    }

    pub(crate) fn delivered(&self) -> Vec<String> {
        let delivered = self.effects.iter().filter_map(|effect| match effect {
            Effect::Deliver(delivery) => Some(&delivery.messages),
            _ => None,
        });
        let texts = delivered.flat_map(|messages| Messages::of_checked(messages));
        texts.map(|message| String::from_utf8_lossy(message.payload()).into_owned()).collect()
    }
}

/// The group, and the links between its nodes.
pub(crate) struct Group {
    pub(crate) nodes: BTreeMap<u64, Node>,
    members: Membership,
    segment_bytes: u64,
    pub(crate) now: Moment,
    /// Messages on their way.
    links: VecDeque<OutgoingMessage>,
    /// Pairs that do not hear each other.
    pub(crate) cut: BTreeSet<(u64, u64)>,
    request: u64,
}

impl Group {
    pub(crate) fn new(count: u64) -> Self {
        Self::with_segments(count, 64 << 10)
    }

    /// One whose segments have so many bytes.
    pub(crate) fn with_segments(count: u64, segment_bytes: u64) -> Self {
        let members = Membership::of(1..=count);
        let now = Moment { time: Timestamp(1_000_000), monotonic_ns: 1_000_000_000 };
        let nodes = (1..=count)
            .map(|id| {
                let disk = MemoryDisk::default();
                (id, Node::open(&disk, id, (&members, segment_bytes), now))
            })
            .collect();
        let (links, cut) = (VecDeque::new(), BTreeSet::new());
        Self { nodes, members, segment_bytes, now, links, cut, request: 0 }
    }

    /// One with a leader, a topic, and all of it everywhere.
    pub(crate) fn with_leader(count: u64) -> (Self, u64) {
        let mut group = Self::new(count);
        let leader = group.begin();
        (group, leader)
    }

    /// Elects a leader and opens a topic; returns the leader.
    pub(crate) fn begin(&mut self) -> u64 {
        let leader = self.elect();
        self.open_orders(leader);
        self.tick();
        self.tick();
        leader
    }

    /// The nodes but one.
    pub(crate) fn others(&self, than: u64) -> Vec<u64> {
        self.nodes.keys().copied().filter(|id| *id != than).collect()
    }

    pub(crate) fn node(&mut self, id: u64) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    /// Lets all do what they can until nothing more happens.
    pub(crate) fn run(&mut self) {
        while self.work() | self.deliver(usize::MAX) {}
    }

    /// Each node does what it can; its messages are on their way then.
    pub(crate) fn work(&mut self) -> bool {
        let mut is_busy = false;
        for node in self.nodes.values_mut() {
            is_busy |= node.step(self.now);
            let mut messages = Vec::new();
            node.replica.take_messages(&mut messages);
            self.links.extend(messages);
        }
        is_busy
    }

    /// So many messages arrive, those of each link in order.
    pub(crate) fn deliver(&mut self, count: usize) -> bool {
        let mut is_busy = false;
        for _ in 0..count {
            let Some(OutgoingMessage { message, body }) = self.links.pop_front() else { break };
            is_busy = true;
            let is_cut = self.cut.contains(&(message.from, message.to));
            let Some(node) = self.nodes.get_mut(&message.to).filter(|_| !is_cut) else { continue };
            match node.replica.hear(&message, body, self.now) {
                // An answer to a question of an earlier life, say.
                Ok(()) | Err(HearError::Group(_)) => {}
                Err(error) => panic!("{error}: {message:?}"),
            }
        }
        is_busy
    }

    /// The link from one to the other breaks: what is on its way is lost.
    pub(crate) fn break_link(&mut self, from: u64, to: u64) {
        self.links.retain(|outgoing| (outgoing.message.from, outgoing.message.to) != (from, to));
        let now = self.now;
        self.node(from).replica.link_lost(to, now);
    }

    pub(crate) fn tick(&mut self) {
        self.tick_clocks();
        self.run();
    }

    /// Time passes, and nothing arrives.
    pub(crate) fn tick_clocks(&mut self) {
        self.now.time = Timestamp(self.now.time.0 + TICK_MS);
        self.now.monotonic_ns += TICK_MS * 1_000_000;
        for node in self.nodes.values_mut() {
            node.replica.tick(self.now);
            node.replica.advance(self.now);
        }
    }

    /// Whether poisoned states are made anew.
    pub(crate) fn set_rebuilds(&mut self, at_once: bool) {
        self.nodes.values_mut().for_each(|node| node.rebuilds_at_once = at_once);
    }

    /// Ticks until one leads that hears a majority; returns it.
    pub(crate) fn elect(&mut self) -> u64 {
        for _ in 0..100 {
            self.tick();
            if let Some(leader) = self.leader() {
                return leader;
            }
        }
        panic!("nobody is elected");
    }

    /// The one that decides.
    pub(crate) fn leader(&self) -> Option<u64> {
        let leads = |node: &&Node| node.replica.shard().standing().decides();
        let mut leaders: Vec<_> = self.nodes.values().filter(leads).collect();
        leaders.sort_by_key(|node| node.replica.term());
        let of = leaders.pop()?;
        assert_eq!(of.replica.role(), Role::Leader);
        self.nodes.iter().find(|(_, node)| std::ptr::eq(*node, of)).map(|(id, _)| *id)
    }

    /// Cuts a node off from all others, or links it again.
    pub(crate) fn isolate(&mut self, id: u64, is_cut: bool) {
        for other in self.members.voters.clone() {
            for pair in [(id, other), (other, id)] {
                match is_cut {
                    true => _ = self.cut.insert(pair),
                    false => _ = self.cut.remove(&pair),
                }
            }
        }
    }

    /// A crash: what the lane has not written is gone.
    pub(crate) fn restart(&mut self, id: u64) {
        let disk = self.node(id).disk.clone();
        self.restart_on(id, &disk);
    }

    /// A start on another disk.
    pub(crate) fn restart_on(&mut self, id: u64, disk: &MemoryDisk) {
        let members = self.members.clone();
        let node = Node::open(disk, id, (&members, self.segment_bytes), self.now);
        self.nodes.insert(id, node);
    }

    pub(crate) fn origin(&mut self) -> Origin {
        self.request += 1;
        Origin { session: SessionId(1), request: self.request }
    }

    /// Tells a node a command, and lets nothing else happen.
    pub(crate) fn tell(&mut self, id: u64, command: Command) {
        let now = self.now;
        self.node(id).replica.handle(&mut vec![command], now);
    }

    fn open_orders(&mut self, id: u64) {
        let setting =
            GroupSetting { id: GROUP, config: GroupConfig::default(), start: StartAt::Earliest };
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: vec![setting],
            dead_letters: DeadLetters::NotYet,
        };
        let origin = self.origin();
        self.tell(id, Command::Partition(origin, ORDERS, open));
        self.run();
    }

    /// Publishes a message at a node, and lets nothing else happen. Returns the number of the request.
    pub(crate) fn publish(&mut self, id: u64, text: &str) -> u64 {
        let mut builder = BatchBuilder::new();
        builder.push(&Text::new(text.to_owned())).unwrap();
        let (origin, producer) = (self.origin(), ProducerStamp::default());
        let batch = builder.take().unwrap();
        self.tell(id, Command::Publish(Publish { origin, partition: ORDERS, producer, batch }));
        origin.request
    }

    pub(crate) fn subscribe(&mut self, id: u64) {
        let credit = Credit { messages: 100_000, bytes: 1 << 30 };
        let (origin, partition, group) = (self.origin(), ORDERS, GROUP);
        let subscribe = Subscribe { origin, subscription: 1, partition, group, credit };
        self.tell(id, Command::Subscribe(subscribe));
    }

    /// All nodes have the same state, places apart.
    #[track_caller]
    pub(crate) fn check_same_state(&self) {
        self.check_same_state_but(&BTreeSet::new());
    }

    /// All nodes but some have the same state, places apart.
    #[track_caller]
    pub(crate) fn check_same_state_but(&self, others: &BTreeSet<u64>) {
        let far = Timestamp(1 << 50);
        let nodes = self.nodes.iter().filter(|(id, _)| !others.contains(id));
        let states: Vec<_> =
            nodes.map(|(_, node)| node.replica.shard().engine().replicated_state(far)).collect();
        for pair in states.windows(2) {
            assert_eq!(pair[0].difference(&pair[1]), None);
        }
    }
}
