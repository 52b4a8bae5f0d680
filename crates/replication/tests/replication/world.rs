//! A group in memory: members, their lanes, and a network that keeps the order of a link's messages. Time goes on in
//! milliseconds.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use sennit_replication::{
    Body, Content, EntryId, HearError, Label, Member, Membership, Message, Orders, Refusal, Role,
    Settings, Start, TICK_MS,
};

use crate::checkers::Checkers;
use crate::lane::Lane;
use crate::seed::Seed;

/// The group of all tests.
pub const GROUP: u64 = 7;
/// Nanoseconds of a step.
const STEP_NS: u64 = 1_000_000;

/// A group and all around it.
pub struct World {
    pub seed: Seed,
    pub now_ns: u64,
    pub replicas: BTreeMap<u64, Replica>,
    pub checkers: Checkers,
    links: BTreeMap<(u64, u64), VecDeque<(u64, Message)>>,
    /// Messages from and to these go nowhere.
    pub isolated: BTreeSet<u64>,
    /// Messages that this says are lost.
    pub loses: fn(&Message) -> bool,
    /// All that was ordered, as text, if anybody asks.
    pub trace: Option<Vec<String>>,
    first_members: Membership,
    next_records: u32,
    /// Longest delay of a message and of a sync.
    pub delay_ms_max: u64,
    /// Fewest replicas that have synced what is committed.
    pub quorum: usize,
}

/// A replica.
pub struct Replica {
    pub member: Option<Member>,
    pub lane: Lane,
    /// All orders since this was emptied.
    pub orders: Vec<Orders>,
    told: u64,
    next_tick_ns: u64,
}

impl World {
    /// A new group of so many voters.
    pub fn new(seed: u64, count: u64) -> Self {
        let members = Membership::of(1..=count);
        let start = Start::of_new_group(members);
        Self::with_starts(seed, (1..=count).map(|replica| (replica, start.clone())))
    }

    /// A group whose replicas have this in their lanes.
    pub fn with_starts(seed: u64, starts: impl IntoIterator<Item = (u64, Start)>) -> Self {
        let mut seed = Seed(seed);
        let mut first_members = Membership::default();
        let replicas = starts.into_iter().map(|(number, start)| {
            first_members = start.membership.clone();
            let next_tick_ns = seed.below(TICK_MS) * STEP_NS;
            let lane = Lane::new(start);
            (number, Replica { member: None, lane, orders: Vec::new(), told: 1, next_tick_ns })
        });
        let replicas: BTreeMap<_, _> = replicas.collect();
        let mut world = Self {
            seed,
            now_ns: 0,
            replicas,
            checkers: Checkers::default(),
            links: BTreeMap::new(),
            isolated: BTreeSet::new(),
            loses: |_| false,
            trace: None,
            first_members,
            next_records: 1,
            delay_ms_max: 3,
            quorum: 0,
        };
        world.quorum = world.first_members.voters.len() / 2 + 1;
        for number in world.numbers() {
            world.start(number);
        }
        world
    }

    /// The numbers of all replicas.
    pub fn numbers(&self) -> Vec<u64> {
        self.replicas.keys().copied().collect()
    }

    /// A replica.
    pub fn replica(&mut self, number: u64) -> &mut Replica {
        self.replicas.get_mut(&number).expect("a replica of the group")
    }

    /// A running member.
    pub fn member(&mut self, number: u64) -> &mut Member {
        self.replica(number).member.as_mut().expect("a running member")
    }

    /// Starts a replica from its lane.
    pub fn start(&mut self, number: u64) {
        let start = self.replicas[&number].lane.start(&self.first_members);
        let settings = Settings { group: GROUP, replica: number };
        let replica = self.replica(number);
        replica.told = start.commit;
        replica.member = Some(Member::new(settings, start).expect("a start that can be"));
    }

    /// A replica's process ends: what is not synced may be lost, and so is what is on its way from and to it.
    pub fn crash(&mut self, number: u64) {
        let mut seed = self.seed.clone();
        let replica = self.replica(number);
        replica.member = None;
        replica.lane.crash(&mut seed);
        self.seed = seed;
        self.links.retain(|(from, to), _| ![*from, *to].contains(&number));
        self.lose_links_of(number);
    }

    /// Cuts a replica off: what is on its way is lost.
    pub fn isolate(&mut self, number: u64) {
        self.isolated.insert(number);
        self.links.retain(|(from, to), _| ![*from, *to].contains(&number));
        self.lose_links_of(number);
    }

    fn lose_links_of(&mut self, number: u64) {
        for other in self.replicas.values_mut() {
            if let Some(member) = &mut other.member {
                member.link_lost(number);
            }
        }
    }

    /// So many milliseconds pass.
    pub fn run_ms(&mut self, count: u64) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Runs until something is so.
    pub fn run_until(&mut self, what: &str, holds: impl Fn(&mut Self) -> bool) {
        for _ in 0..20_000 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("within 20 s it is never so: {what}");
    }

    /// The established leader of the newest term, if it runs.
    pub fn leader(&mut self) -> Option<u64> {
        let known = self
            .replicas
            .iter()
            .filter_map(|(number, replica)| Some((replica.member.as_ref()?.leadership(), *number)));
        let leaders = known.filter(|(leadership, _)| leadership.role == Role::Leader);
        let (leadership, number) = leaders.max_by_key(|(leadership, _)| leadership.term)?;
        leadership.established.then_some(number)
    }

    /// Runs until there is a leader.
    pub fn elect(&mut self) -> u64 {
        self.run_until("there is a leader", |world| world.leader().is_some());
        self.leader().expect("a leader")
    }

    /// Proposes new records.
    pub fn propose(&mut self, number: u64) -> Result<EntryId, Refusal> {
        let records = self.next_records;
        let member = self.member(number);
        let id = member.next_entry()?;
        let body = Body { length: 100 + records, checksum: records.wrapping_mul(77), records };
        member.propose(&Label { id, content: Content::Records(body) })?;
        self.next_records += 1;
        self.obey(number);
        Ok(id)
    }

    /// Runs until all running replicas that are not cut off know an entry to be committed.
    pub fn settle(&mut self, index: u64) {
        self.run_until("all know the entry to be committed", |world| {
            let isolated = world.isolated.clone();
            world
                .replicas
                .iter()
                .filter(|(number, _)| !isolated.contains(number))
                .all(|(_, replica)| replica.member.is_none() || replica.told >= index)
        });
    }

    /// A millisecond: what has arrived is heard, what is due is synced and ticks.
    pub fn step(&mut self) {
        self.now_ns += STEP_NS;
        let now_ns = self.now_ns;
        for number in self.numbers() {
            let replica = self.replica(number);
            let synced = replica.lane.sync(now_ns);
            let ticks = now_ns >= replica.next_tick_ns;
            if ticks {
                replica.next_tick_ns += TICK_MS * STEP_NS;
            }
            let Some(member) = &mut replica.member else {
                continue;
            };
            if let Some(mark) = synced {
                member.synced(mark);
            }
            if ticks {
                member.tick();
            }
            self.hear_all(number);
            self.obey(number);
        }
    }

    fn hear_all(&mut self, number: u64) {
        let mut arrived = Vec::new();
        for ((_, to), link) in &mut self.links {
            while *to == number
                && let Some((_, message)) = link.pop_front_if(|(at, _)| *at <= self.now_ns)
            {
                arrived.push(message);
            }
        }
        for message in arrived {
            let heard = self.member(number).hear(&message);
            // The last words of a replica that was a member until now.
            let left = matches!(heard, Err(HearError::UnknownReplica { .. }));
            assert!(heard.is_ok() || left, "{message:?}: {heard:?}");
        }
    }

    /// Carries out what a member orders.
    pub fn obey(&mut self, number: u64) {
        let (now_ns, done_ns) = (self.now_ns, self.arrival_ns());
        let replica = self.replica(number);
        let Some(member) = &mut replica.member else {
            return;
        };
        let orders = member.orders(now_ns);
        replica.lane.write(&orders, done_ns);
        let told = std::mem::replace(&mut replica.told, orders.committed);
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now_ns} {number} {orders:?}"));
        }
        self.checkers.ordered(number, &orders);
        self.check_committed(number, told);
        for message in &orders.messages {
            self.checkers.sent(message, &self.replicas[&number].lane);
            self.send(message.clone());
        }
        self.replica(number).orders.push(orders);
    }

    fn check_committed(&mut self, number: u64, told: u64) {
        let replica = &self.replicas[&number];
        let member = replica.member.as_ref().expect("a running member");
        for index in told + 1..=replica.told {
            let label = member.label(index).expect("a committed entry has a label");
            let lanes = self.replicas.values().map(|replica| &replica.lane);
            self.checkers.committed(label, lanes, self.quorum);
        }
    }

    fn send(&mut self, message: Message) {
        assert_eq!(Message::decode(&message.encode()), Ok(message.clone()));
        let ends = (message.from, message.to);
        let gone = [ends.0, ends.1].iter().any(|end| self.isolated.contains(end));
        let runs = self.replicas.get(&ends.1).is_some_and(|to| to.member.is_some());
        if gone || !runs || (self.loses)(&message) {
            return;
        }
        let at = self.arrival_ns();
        let link = self.links.entry(ends).or_default();
        let at = link.back().map_or(at, |(last, _)| at.max(*last));
        link.push_back((at, message));
    }

    fn arrival_ns(&mut self) -> u64 {
        self.now_ns + (1 + self.seed.below(self.delay_ms_max)) * STEP_NS
    }
}
