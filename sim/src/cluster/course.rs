//! The course of a cluster's run: one thread, one seed. It carries messages, ticks and syncs to the nodes, and draws
//! troubles. At times a quorum is left alone, and has to make progress; at the end all troubles are over.

mod calm;
mod troubles;

use calm::Calm;

use crate::{
    cluster::{
        agenda::Agenda,
        clock::Clock,
        judge::{Instant, Judge},
        network::{Network, Parcel},
        node::{Node, Stop},
        weather::Weather,
    },
    oracle::Violation,
    random::Random,
    trace::Trace,
};

/// Time of a node's own clock between two ticks.
const TICK_US: u64 = sennit_replication::TICK_MS * 1000;
/// A node that is late makes so many ticks at once.
const TICKS_AT_ONCE: u64 = 2;
/// Time without clients at the end, in which all nodes get everything.
const REST_US: u64 = 60_000_000;
/// Time between two looks at whether they have.
const REST_STEP_US: u64 = 500_000;
/// Time between two attempts to connect two nodes.
const CONNECT_US: u64 = 100_000;
/// Time for which a sync under way stalls.
const STALL_US: (u64, u64) = (200_000, 5_000_000);

/// Something that happens at its time.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// A tick of a node, in one of its lives.
    Tick { node: usize, life: u64 },
    /// A sync of a node's lane ends, in one of its lives.
    SyncEnds { node: usize, life: u64, sync: u64 },
    /// A node starts.
    Start { node: usize, life: u64 },
    /// The process of a node dies and starts again at once.
    Restart { node: usize },
    /// A stalled core goes on.
    CoreResumes { node: usize, life: u64 },
    /// The disk of a node has room again.
    DiskHasRoom { node: usize },
    /// Two nodes connect.
    Connect { one: usize, other: usize },
    /// A connection breaks, unless what cut it is over.
    CutBreaks { one: usize, other: usize },
    /// The end of a cut.
    Heal { from: usize, to: usize },
    /// A client does something.
    Serve,
    /// The next trouble.
    Trouble,
    /// A quorum is left alone from here.
    CalmBegins,
    /// It has been left alone long enough.
    CalmEnds,
}

/// What is around a node.
#[derive(Debug)]
struct Surroundings {
    clock: Clock,
    life: u64,
    /// The time of its clock at which it made its last tick.
    ticked_us: u64,
    /// The number of the sync under way.
    syncing: Option<u64>,
    syncs: u64,
    fails_sync: bool,
    stalls_sync: bool,
    slow_until_us: u64,
    stalled_until_us: u64,
    /// What has arrived and happened while the core stalls.
    inbox: Vec<Parcel>,
    late: Vec<Event>,
}

/// A cluster under way.
pub struct Course<N, J> {
    weather: Weather,
    random: Random,
    network: Network,
    agenda: Agenda<Event>,
    now_us: u64,
    around: Vec<Surroundings>,
    calm: Option<Calm>,
    has_rotted: bool,
    troubles_are_over: bool,
    clients_rest: bool,
    instant: Instant,
    trace: Trace,
    /// The nodes.
    pub nodes: Vec<N>,
    /// What holds them against the promises.
    pub judge: J,
}

impl<N: Node, J: Judge<N>> Course<N, J> {
    /// A cluster whose nodes are about to start.
    pub fn new(
        weather: Weather,
        mut random: Random,
        nodes: Vec<N>,
        judge: J,
        trace: Trace,
    ) -> Self {
        let network = Network::new(random.number(), weather.nodes, weather.network);
        let around = |per_mille: &u64| Surroundings {
            clock: Clock::new(*per_mille),
            life: 0,
            ticked_us: 0,
            syncing: None,
            syncs: 0,
            fails_sync: false,
            stalls_sync: false,
            slow_until_us: 0,
            stalled_until_us: 0,
            inbox: Vec::new(),
            late: Vec::new(),
        };
        let around = weather.clocks_per_mille.iter().map(around).collect();
        let mut course = Self {
            weather,
            random,
            network,
            agenda: Agenda::new(),
            now_us: 1_000_000,
            around,
            calm: None,
            has_rotted: false,
            troubles_are_over: false,
            clients_rest: false,
            instant: Instant::default(),
            trace,
            nodes,
            judge,
        };
        for node in 0..course.weather.nodes {
            course.start_within(node, 100_000);
        }
        course.after(100_000, Event::Serve);
        course.after(course.weather.first_trouble_us, Event::Trouble);
        course.after(course.weather.first_calm_us, Event::CalmBegins);
        course
    }

    /// Runs `troubled_us` with troubles and `quiet_us` without.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn run(&mut self, troubled_us: u64, quiet_us: u64) -> Result<(), Violation> {
        self.run_until(self.now_us + troubled_us)?;
        self.trace.step(format_args!("{} all troubles are over", self.now_us));
        self.troubles_are_over = true;
        self.calm_down((0..self.weather.nodes).collect(), quiet_us)?;
        self.be_quiet(quiet_us)?;
        self.check_progress()?;
        self.clients_rest = true;
        let rest_ends_us = self.now_us + REST_US;
        loop {
            self.run_until(self.now_us + REST_STEP_US)?;
            let ended = self.judged(|judge, nodes, at| judge.end(nodes, at));
            self.carry_all()?;
            if ended.is_ok() || self.now_us >= rest_ends_us {
                return ended;
            }
        }
    }

    /// A time without troubles, or as much of it as it takes to make progress, where that is enough.
    fn be_quiet(&mut self, quiet_us: u64) -> Result<(), Violation> {
        let end_us = self.now_us + quiet_us;
        if self.weather.calm_ends_early {
            while self.now_us + REST_STEP_US < end_us && !self.has_made_progress() {
                self.run_until(self.now_us + REST_STEP_US)?;
            }
            return match self.has_made_progress() {
                true => Ok(()),
                false => self.run_until(end_us),
            };
        }
        self.run_until(end_us)
    }

    fn after(&mut self, most_us: u64, event: Event) {
        let delay_us = self.random.below(most_us) + 1;
        self.agenda.add(self.now_us + delay_us, event);
    }

    fn run_until(&mut self, end_us: u64) -> Result<(), Violation> {
        loop {
            let arrival = self.network.next_at_us().unwrap_or(u64::MAX);
            let event = self.agenda.next_at_us().unwrap_or(u64::MAX);
            let next_us = arrival.min(event);
            if next_us > end_us {
                self.now_us = end_us;
                return Ok(());
            }
            self.now_us = self.now_us.max(next_us);
            if arrival <= event {
                while let Some(parcel) = self.network.take_due(self.now_us) {
                    self.arrive(parcel)?;
                }
            } else if let Some((_, event)) = self.agenda.take_due(self.now_us) {
                self.happen(event)?;
            }
            self.judged(|judge, nodes, at| judge.look(nodes, at))?;
        }
    }

    /// Has the judge do something, and tells it what time it is.
    fn judged<T>(&mut self, judges: impl FnOnce(&mut J, &mut [N], &Instant) -> T) -> T {
        let mut at = std::mem::take(&mut self.instant);
        at.true_us = self.now_us;
        at.read_us.clear();
        at.read_us.extend(self.around.iter().map(|around| around.clock.read_us(self.now_us)));
        at.awake.clear();
        let is_awake = |node: usize| self.nodes[node].is_up() && !self.is_stalled(node);
        at.awake.extend((0..self.nodes.len()).map(is_awake));
        let judged = judges(&mut self.judge, &mut self.nodes, &at);
        self.instant = at;
        judged
    }

    fn read_us(&self, node: usize) -> u64 {
        self.around[node].clock.read_us(self.now_us)
    }

    fn is_stalled(&self, node: usize) -> bool {
        self.around[node].stalled_until_us > self.now_us
    }

    fn arrive(&mut self, parcel: Parcel) -> Result<(), Violation> {
        let node = parcel.to;
        if !self.nodes[node].is_up() {
            return Ok(());
        }
        if self.is_stalled(node) {
            self.around[node].inbox.push(parcel);
            return Ok(());
        }
        let read_us = self.read_us(node);
        let bytes = &parcel.bytes;
        self.nodes[node].hear(parcel.from, bytes, read_us)?;
        self.carry(node)
    }

    fn carry_all(&mut self) -> Result<(), Violation> {
        (0..self.weather.nodes).try_for_each(|node| self.carry(node))
    }

    /// Carries away what a node has to send and to write.
    fn carry(&mut self, node: usize) -> Result<(), Violation> {
        let begins_sync = self.around[node].syncing.is_none() && self.nodes[node].begin_sync();
        // Messages leave before the sync that they do not wait for.
        for outgoing in self.nodes[node].take_outgoing()? {
            let (to, class) = (outgoing.to, outgoing.class);
            self.network.send(node, to, class, outgoing.bytes, self.now_us);
        }
        if !begins_sync {
            return Ok(());
        }
        let (least, most) = self.weather.sync_us;
        let mut sync_us = self.random.between(least, most);
        let of = &mut self.around[node];
        if of.slow_until_us > self.now_us {
            sync_us *= 30;
        }
        if std::mem::take(&mut of.stalls_sync) {
            sync_us += self.random.between(STALL_US.0, STALL_US.1);
        }
        of.syncs += 1;
        of.syncing = Some(of.syncs);
        let (life, sync) = (of.life, of.syncs);
        self.agenda.add(self.now_us + sync_us, Event::SyncEnds { node, life, sync });
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Tick { node, life }
            | Event::SyncEnds { node, life, .. }
            | Event::Start { node, life }
            | Event::CoreResumes { node, life } => {
                if self.around[node].life != life {
                    return Ok(());
                }
                if self.is_stalled(node) {
                    self.around[node].late.push(event);
                    return Ok(());
                }
                self.happen_to(node, event)
            }
            Event::Restart { node } => self.restart(node),
            Event::DiskHasRoom { node } => {
                self.nodes[node].set_full(false);
                Ok(())
            }
            Event::Connect { one, other } => {
                self.connect(one, other);
                Ok(())
            }
            Event::CutBreaks { one, other } => match self.network.is_cut(one, other) {
                true => self.disconnect(one, other),
                false => Ok(()),
            },
            Event::Heal { from, to } => {
                self.network.end_cut(from, to, self.now_us);
                Ok(())
            }
            Event::Serve if self.clients_rest => Ok(()),
            Event::Serve => self.serve(),
            Event::Trouble if self.troubles_are_over => Ok(()),
            Event::Trouble => self.draw_trouble(),
            Event::CalmBegins | Event::CalmEnds if self.troubles_are_over => Ok(()),
            Event::CalmBegins => self.begin_calm(),
            Event::CalmEnds => self.look_at_calm(),
        }
    }

    fn happen_to(&mut self, node: usize, event: Event) -> Result<(), Violation> {
        let read_us = self.read_us(node);
        match event {
            Event::Start { .. } => return self.start(node),
            Event::Tick { life, .. } => {
                let ticked_us = self.around[node].ticked_us;
                let due = ((read_us - ticked_us) / TICK_US).min(TICKS_AT_ONCE);
                for _ in 0..due {
                    self.nodes[node].tick(read_us)?;
                }
                // What it is late beyond these ticks is forgotten.
                let ticked_us = (ticked_us + due * TICK_US).max(read_us.saturating_sub(TICK_US));
                self.around[node].ticked_us = ticked_us;
                let next_us = self.around[node].clock.true_us(ticked_us + TICK_US);
                self.agenda.add(next_us.max(self.now_us + 1), Event::Tick { node, life });
            }
            Event::SyncEnds { sync, .. } => {
                if self.around[node].syncing != Some(sync) {
                    return Ok(());
                }
                self.around[node].syncing = None;
                if std::mem::take(&mut self.around[node].fails_sync) {
                    self.trace.step(format_args!("{} a sync of {node} fails", self.now_us));
                    self.nodes[node].fail_sync(&mut self.random);
                    return self.stop(node, Stop::Kill);
                }
                self.nodes[node].end_sync(read_us)?;
            }
            Event::CoreResumes { .. } => {
                let late = std::mem::take(&mut self.around[node].late);
                let inbox = std::mem::take(&mut self.around[node].inbox);
                late.into_iter().try_for_each(|event| self.happen(event))?;
                inbox.into_iter().try_for_each(|parcel| self.arrive(parcel))?;
            }
            _ => {}
        }
        self.carry(node)
    }

    fn start_within(&mut self, node: usize, most_us: u64) {
        let life = self.around[node].life;
        self.after(most_us, Event::Start { node, life });
    }

    fn start(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].is_up() {
            return Ok(());
        }
        let read_us = self.read_us(node);
        let of = &mut self.around[node];
        of.life += 1;
        of.ticked_us = read_us;
        let life = of.life;
        self.trace.step(format_args!("{} node {node} starts", self.now_us));
        self.nodes[node].start(read_us)?;
        self.after(TICK_US, Event::Tick { node, life });
        for other in (0..self.weather.nodes).filter(|other| *other != node) {
            self.after(CONNECT_US, Event::Connect { one: node, other });
        }
        self.carry(node)
    }

    fn stop(&mut self, node: usize, how: Stop) -> Result<(), Violation> {
        if !self.nodes[node].is_up() {
            return Ok(());
        }
        self.nodes[node].stop(how, &mut self.random);
        let of = &mut self.around[node];
        of.life += 1;
        of.syncing = None;
        (of.fails_sync, of.stalls_sync) = (false, false);
        of.stalled_until_us = 0;
        of.inbox.clear();
        of.late.clear();
        let connected: Vec<usize> = (0..self.weather.nodes)
            .filter(|other| *other != node && self.network.is_connected(node, *other))
            .collect();
        self.network.lose_node(node);
        for peer in connected {
            self.lose_link(peer, node)?;
        }
        self.start_within(node, self.weather.down_us_max);
        Ok(())
    }

    fn lose_link(&mut self, node: usize, peer: usize) -> Result<(), Violation> {
        if self.nodes[node].is_up() {
            let read_us = self.read_us(node);
            self.nodes[node].lose_link(peer, read_us)?;
            self.carry(node)?;
        }
        Ok(())
    }

    fn connect(&mut self, one: usize, other: usize) {
        let are_up = self.nodes[one].is_up() && self.nodes[other].is_up();
        if self.network.is_connected(one, other) || !are_up {
            return;
        }
        if self.network.is_cut(one, other) {
            self.agenda.add(self.now_us + CONNECT_US, Event::Connect { one, other });
        } else {
            self.network.connect(one, other);
        }
    }

    fn disconnect(&mut self, one: usize, other: usize) -> Result<(), Violation> {
        if self.network.disconnect(one, other) {
            self.after(5 * CONNECT_US, Event::Connect { one, other });
            self.lose_link(one, other)?;
            self.lose_link(other, one)?;
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<(), Violation> {
        self.after(self.weather.propose_every_us, Event::Serve);
        let nodes = self.weather.nodes as u64;
        let leaders: Vec<usize> = (0..self.weather.nodes)
            .filter(|node| self.nodes[*node].leads() && !self.is_stalled(*node))
            .collect();
        // A client mostly finds who leads, and at times asks anybody.
        let node = match self.random.pick(&leaders) {
            Some(leader) if self.random.chance(900) => *leader,
            _ => self.random.below(nodes) as usize,
        };
        if self.nodes[node].is_up() && !self.is_stalled(node) {
            let read_us = self.read_us(node);
            if self.random.chance(500) {
                self.nodes[node].ask(read_us)?;
            }
            // A quorum that is left alone shows that it makes progress.
            if self.calm.is_some() || self.random.chance(self.weather.proposes) {
                let mut random = self.random.clone();
                self.judged(|judge, nodes, at| judge.serve(nodes, node, at, &mut random))?;
                self.random = random;
            }
            self.carry_all()?;
        }
        Ok(())
    }
}
