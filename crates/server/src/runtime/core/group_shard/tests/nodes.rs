//! Three nodes of a group in memory: their lanes, their links, which keep the order of what is sent to one node, and a
//! clock that a test moves.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::{
    Command, Credit, DeadLetters, Effect, Origin, PartitionCommand, Publish, Read, Refusal,
    SessionId,
};
use sennit_journal::{Frame, Lane, LaneConfig, Reader, SlotMaker, disk::MemoryDisk};
use sennit_model::{
    BatchBuilder, Message as Text, Messages, Offset, PartitionId, PartitionIndex, ProducerStamp,
    Timestamp, TopicConfig, TopicId, TopicKind, WhenSlow,
};
use sennit_replica::{Moment, OutgoingMessage, Replica, ReplicaSettings};
use sennit_replication::{Membership, TICK_MS};
use sennit_shard::{PackLengths, Recovered, Settings, recover};

use super::super::GroupShard;
use crate::runtime::{
    core::{
        core_session::CoreSession,
        peer_links::{Parcel, PeerLinks},
    },
    groups::{Groups, Leader},
    index::{CoreIndex, ShardIndex},
};

const ORDERS: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };

thread_local! {
    static NOW_MS: Cell<u64> = const { Cell::new(1_000_000) };
}

fn now() -> Moment {
    let ms = NOW_MS.get();
    Moment { time: Timestamp(ms), monotonic_ns: ms * 1_000_000 }
}

/// What travels from one node to another.
#[derive(Debug)]
enum Packet {
    Message(Box<OutgoingMessage>),
    Commands(Parcel),
    Effects(Parcel),
}

/// The links between all nodes.
#[derive(Debug, Default)]
struct Wires {
    /// By sender and receiver.
    packets: RefCell<BTreeMap<(u16, u16), VecDeque<Packet>>>,
    down: RefCell<BTreeSet<(u16, u16)>>,
    /// What is sent to these nodes and by them is lost, and nobody notices.
    silent: RefCell<BTreeSet<u16>>,
    /// What is sent to these nodes waits.
    held_back: RefCell<BTreeSet<u16>>,
}

/// The links of one node.
#[derive(Debug)]
struct NodeLinks {
    own: u16,
    wires: Rc<Wires>,
}

impl NodeLinks {
    fn send(&self, node: u16, packet: Packet) -> bool {
        let silent = self.wires.silent.borrow();
        if self.is_up(node) && !silent.contains(&node) && !silent.contains(&self.own) {
            let mut packets = self.wires.packets.borrow_mut();
            packets.entry((self.own, node)).or_default().push_back(packet);
        }
        self.is_up(node)
    }
}

impl PeerLinks for NodeLinks {
    fn is_up(&self, node: u16) -> bool {
        !self.wires.down.borrow().contains(&(self.own, node))
    }

    fn send_message(&self, node: u16, message: OutgoingMessage) -> bool {
        self.send(node, Packet::Message(Box::new(message)))
    }

    fn send_commands(&self, node: u16, commands: Parcel) -> bool {
        self.send(node, Packet::Commands(commands))
    }

    fn send_effects(&self, node: u16, effects: Parcel) -> bool {
        self.send(node, Packet::Effects(effects))
    }

    fn has_sent_all(&self) -> bool {
        true
    }

    fn end(&self, _: u16) {}
}

/// A node.
pub(super) struct Node {
    pub(super) group: GroupShard,
    lane: Lane<MemoryDisk>,
    slots: SlotMaker<MemoryDisk>,
    reader: Reader<MemoryDisk>,
    /// What its sessions were told.
    pub(super) told: Vec<Effect>,
}

impl Node {
    fn new(node: u16, wires: &Rc<Wires>) -> Self {
        let directory = PathBuf::from("data/lane-0");
        let incarnation = u64::from(node);
        let config = LaneConfig { directory, lane: 0, segment_bytes: 1 << 20, incarnation };
        let settings = Settings {
            cache_bytes: 1 << 20,
            journal_segments: 100,
            packs: PackLengths::default(),
            writes_superseded: true,
            replica: Some(sennit_shard::Replica { group: 1, id: node.into(), is_alone: false }),
        };
        let disk = MemoryDisk::default();
        let Recovered { shard, lane, reader, slots, .. } =
            recover(&disk, config, settings, now().time).unwrap();
        let settings = ReplicaSettings { first_members: Membership::of(1..=3) };
        let replica = Replica::new(shard, &settings, now()).unwrap();
        let groups = Arc::new(Groups::new(node, (1..=3).filter(|peer| *peer != node), 1, 1));
        let mut group = GroupShard::new(ShardIndex(0), replica, groups, Duration::from_secs(10));
        group.clock = now;
        group.set_peers(Some(Rc::new(NodeLinks { own: node, wires: wires.clone() })));
        Self { group, lane, slots, reader, told: Vec::new() }
    }

    /// Does what a core does in a turn.
    fn turn(&mut self) {
        let mut frames: Vec<Frame> = Vec::new();
        if self.group.shard().has_frames() {
            self.group.take_frames(&mut frames);
        }
        if !frames.is_empty() {
            while self.lane.spare_count() < frames.len() {
                self.lane.add_spare(self.slots.make().unwrap());
            }
            let end = self.lane.append(&frames).unwrap();
            self.group.written(end);
        }
        let mut fetches = Vec::new();
        self.group.take_fetches(&mut fetches);
        for fetch in fetches {
            let bytes = self.reader.read(fetch.position, fetch.length).ok();
            self.group.fetched(fetch, bytes);
        }
        self.group.send();
        self.group.take_effects(&mut self.told);
    }

    pub(super) fn confirmed(&self) -> Vec<u64> {
        let confirmed = self.told.iter().filter_map(|effect| match effect {
            Effect::Confirmed(confirmed) => Some(confirmed.origin.request),
            _ => None,
        });
        confirmed.collect()
    }

    pub(super) fn refused(&self) -> Vec<(u64, &Refusal)> {
        let refused = self.told.iter().filter_map(|effect| match effect {
            Effect::Refused { origin, refusal } => Some((origin.request, refusal)),
            _ => None,
        });
        refused.collect()
    }
}

/// The nodes, 1 to 3.
pub(super) struct Nodes {
    pub(super) nodes: BTreeMap<u16, Node>,
    wires: Rc<Wires>,
    random: u64,
    requests: u64,
}

impl Nodes {
    /// Nodes of which one leads, and a topic. Packets of different links overtake each other as the seed says.
    pub(super) fn with_leader(seed: u64) -> Self {
        let wires = Rc::new(Wires::default());
        let nodes = (1..=3).map(|node| (node, Node::new(node, &wires))).collect();
        let mut nodes = Self { nodes, wires, random: seed, requests: 0 };
        nodes.run_until("one leads", |nodes| nodes.leader().is_some());
        let leader = nodes.leader().unwrap();
        let open = PartitionCommand::Open {
            config: TopicConfig::of_kind(TopicKind::Queue),
            groups: Vec::new(),
            dead_letters: DeadLetters::NotYet,
        };
        let origin = nodes.origin(leader);
        nodes.ask(leader, Command::Partition(origin, ORDERS, open));
        nodes.run_until("all follow it", |nodes| {
            let follows = |(id, node): (&u16, &Node)| match node.group.lead {
                Leader::Here { .. } => *id == leader,
                Leader::Node { node, .. } => node == leader,
                Leader::Unknown => false,
            };
            nodes.nodes.iter().all(follows) && nodes.is_still()
        });
        nodes.nodes.values_mut().for_each(|node| node.told.clear());
        nodes
    }

    pub(super) fn node(&mut self, node: u16) -> &mut Node {
        self.nodes.get_mut(&node).unwrap()
    }

    /// The node that decides.
    pub(super) fn leader(&self) -> Option<u16> {
        self.nodes.iter().find(|(_, node)| node.group.takes()).map(|(node, _)| *node)
    }

    /// The nodes but one.
    pub(super) fn others(&self, than: u16) -> [u16; 2] {
        let others: Vec<_> = self.nodes.keys().copied().filter(|node| *node != than).collect();
        others.try_into().unwrap()
    }

    fn origin(&mut self, node: u16) -> Origin {
        self.requests += 1;
        let session = CoreSession::new(node, CoreIndex(0), 1);
        Origin { session: SessionId::from(session), request: self.requests }
    }

    pub(super) fn ask(&mut self, node: u16, command: Command) {
        self.node(node).group.ask(&mut vec![command]);
    }

    /// A session of a node publishes; returns the number of its request, which is the message too.
    pub(super) fn publish(&mut self, node: u16) -> u64 {
        let origin = self.origin(node);
        let mut builder = BatchBuilder::new();
        builder.push(&Text::new(origin.request.to_string())).unwrap();
        let batch = builder.take().unwrap();
        let producer = ProducerStamp::default();
        self.ask(node, Command::Publish(Publish { origin, partition: ORDERS, producer, batch }));
        origin.request
    }

    /// A session of the node reads everything.
    pub(super) fn read(&mut self, node: u16, credit: Credit) {
        let read = Read {
            origin: self.origin(node),
            subscription: 1,
            partition: ORDERS,
            at: Offset(0),
            credit,
            cursor: None,
            when_slow: WhenSlow::default(),
            filter: None,
        };
        self.ask(node, Command::Read(read));
    }

    /// A session of a node asks what the partition is like; returns the number of its request.
    pub(super) fn describe(&mut self, node: u16) -> u64 {
        let origin = self.origin(node);
        self.ask(node, Command::Partition(origin, ORDERS, PartitionCommand::Describe));
        origin.request
    }

    /// The requests of sessions of a node that were told what the partition is like.
    pub(super) fn described(&self, node: u16) -> Vec<u64> {
        let described = self.nodes[&node].told.iter().filter_map(|effect| match effect {
            Effect::Described { origin, .. } => Some(origin.request),
            _ => None,
        });
        described.collect()
    }

    /// The messages that sessions of a node were given.
    pub(super) fn delivered(&self, node: u16) -> Vec<u64> {
        let delivered = self.nodes[&node].told.iter().filter_map(|effect| match effect {
            Effect::Deliver(delivery) => Some(&delivery.messages),
            _ => None,
        });
        let texts = delivered.flat_map(|messages| Messages::of_checked(messages));
        texts.map(|text| String::from_utf8_lossy(text.payload()).parse().unwrap()).collect()
    }

    fn draw(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) as usize % below
    }

    /// Each node has a turn, and so many packets arrive, those of each link in order.
    pub(super) fn carry(&mut self, packets: usize) {
        for _ in 0..packets {
            self.nodes.values_mut().for_each(Node::turn);
            let links: Vec<_> = {
                let packets = self.wires.packets.borrow();
                let held_back = self.wires.held_back.borrow();
                let goes = |(link, waiting): &(&(u16, u16), &VecDeque<Packet>)| {
                    !waiting.is_empty() && !held_back.contains(&link.1)
                };
                packets.iter().filter(goes).map(|(link, _)| *link).collect()
            };
            if links.is_empty() {
                return;
            }
            let (from, to) = links[self.draw(links.len())];
            let packet = self.wires.packets.borrow_mut().get_mut(&(from, to)).unwrap().pop_front();
            let group = &mut self.nodes.get_mut(&to).unwrap().group;
            match packet.unwrap() {
                Packet::Message(outgoing) => group.hear(&outgoing.message, outgoing.body),
                Packet::Commands(parcel) => {
                    group.take_from(from, parcel.term, all(parcel.body, Command::decode));
                }
                Packet::Effects(parcel) => {
                    group.hear_effects(from, parcel.term, all(parcel.body, Effect::decode));
                }
            }
        }
    }

    pub(super) fn is_still(&self) -> bool {
        self.wires.packets.borrow().values().all(VecDeque::is_empty)
    }

    /// A tick passes at all nodes.
    pub(super) fn tick(&mut self) {
        NOW_MS.set(NOW_MS.get() + TICK_MS);
        self.nodes.values_mut().for_each(|node| node.group.tick());
        self.carry(1);
    }

    /// Ticks, and all that travels arrives, until something holds.
    pub(super) fn run_until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) {
        for _ in 0..200 {
            self.tick();
            self.carry(10_000);
            if holds(self) {
                return;
            }
        }
        panic!("it never comes to this: {what}");
    }

    /// The links of a node break, and what travels on them is lost; or they are there again.
    pub(super) fn set_down(&mut self, node: u16, is_down: bool) {
        for other in self.others(node) {
            for (from, to) in [(node, other), (other, node)] {
                self.wires.packets.borrow_mut().remove(&(from, to));
                match is_down {
                    true => _ = self.wires.down.borrow_mut().insert((from, to)),
                    false => _ = self.wires.down.borrow_mut().remove(&(from, to)),
                }
                let start_epoch = Some(1).filter(|_| !is_down);
                self.node(from).group.link_changed(to, start_epoch);
            }
        }
    }

    /// Another link takes the place of that between two nodes, of which what travels is lost.
    pub(super) fn replace_link(&mut self, one: u16, other: u16) {
        for (from, to) in [(one, other), (other, one)] {
            self.wires.packets.borrow_mut().remove(&(from, to));
            self.node(from).group.link_changed(to, None);
            self.node(from).group.link_changed(to, Some(1));
        }
    }

    /// Nothing that a node sends arrives, and nothing that is sent to it: the links are there, and silent.
    pub(super) fn silence(&mut self, node: u16) {
        self.wires.silent.borrow_mut().insert(node);
        let mut packets = self.wires.packets.borrow_mut();
        packets.retain(|(from, to), _| *from != node && *to != node);
    }

    /// What is sent to a node waits from now on, or arrives again.
    pub(super) fn hold_back(&mut self, node: u16, is_held_back: bool) {
        let mut held_back = self.wires.held_back.borrow_mut();
        match is_held_back {
            true => _ = held_back.insert(node),
            false => _ = held_back.remove(&node),
        }
    }
}

fn all<T, E>(mut body: Bytes, decode: impl Fn(&mut Bytes) -> Result<T, E>) -> Vec<T> {
    let mut all = Vec::new();
    while !body.is_empty() {
        all.extend(decode(&mut body).ok());
    }
    all
}
