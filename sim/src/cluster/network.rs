//! The network between the nodes: a queue for each direction and class. A connection keeps the order of each of its
//! queues; when it breaks, the tail of each queue is lost. A direction that is cut holds what was sent until it is
//! healed or the connection breaks. Only bytes travel.

use crate::{cluster::agenda::Agenda, random::Random};

/// The queue of a message: those of one class keep their order, and classes overtake each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Votes, heartbeats and acknowledgements.
    Votes,
    /// Appends with their bodies.
    Appends,
}

/// The number of classes.
const CLASSES: usize = 2;
/// Most time by which an evil network delays a message that is overtaken or repeated.
const EVIL_DELAY_MAX_US: u64 = 3_000_000;

/// How a network behaves, apart from cuts, pauses and breaks.
#[derive(Clone, Copy, Debug)]
pub struct Behaviour {
    /// The shortest and the longest time that a message is under way.
    pub delay_us: (u64, u64),
    /// How many messages of a thousand are under way five times as long.
    pub slow: u32,
    /// How many messages of a thousand are overtaken by later ones of their class. 0 but in evil seeds.
    pub reordered: u32,
    /// How many messages of a thousand arrive twice. 0 but in evil seeds.
    pub repeated: u32,
}

/// Bytes on their way to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parcel {
    /// The sending node.
    pub from: usize,
    /// The receiving node.
    pub to: usize,
    /// The queue.
    pub class: Class,
    /// The message.
    pub bytes: Vec<u8>,
    /// Whether it arrives although its connection breaks: the second one of a repeated message.
    is_repeated: bool,
}

/// One direction between two nodes.
#[derive(Debug, Default)]
struct Direction {
    is_cut: bool,
    /// When the last of its cuts ends.
    cut_until_us: u64,
    is_connected: bool,
    paused_until_us: u64,
    /// No later message of the class arrives before this time.
    last_at_us: [u64; CLASSES],
    /// What has reached the cut, with its number.
    held: Vec<(u64, Parcel)>,
}

/// The network of a cluster.
#[derive(Debug)]
pub struct Network {
    random: Random,
    behaviour: Behaviour,
    nodes: usize,
    directions: Vec<Direction>,
    under_way: Agenda<Parcel>,
}

impl Network {
    /// A network without connections. `seed` determines its delays.
    pub fn new(seed: u64, nodes: usize, behaviour: Behaviour) -> Self {
        let directions = (0..nodes * nodes).map(|_| Direction::default()).collect();
        let random = Random::new(seed);
        Self { random, behaviour, nodes, directions, under_way: Agenda::new() }
    }

    fn direction(&mut self, from: usize, to: usize) -> &mut Direction {
        &mut self.directions[from * self.nodes + to]
    }

    /// Whether the two nodes are connected.
    pub fn is_connected(&self, one: usize, other: usize) -> bool {
        self.directions[one * self.nodes + other].is_connected
    }

    /// Whether a direction between the two nodes is cut.
    pub fn is_cut(&self, one: usize, other: usize) -> bool {
        [(one, other), (other, one)]
            .into_iter()
            .any(|(from, to)| self.directions[from * self.nodes + to].is_cut)
    }

    /// From now on `to` hears nothing of `from`, until `until_us` at least.
    pub fn cut(&mut self, from: usize, to: usize, until_us: u64) {
        let direction = self.direction(from, to);
        direction.is_cut = true;
        direction.cut_until_us = direction.cut_until_us.max(until_us);
    }

    /// Ends a cut, unless another one lasts longer.
    pub fn end_cut(&mut self, from: usize, to: usize, now_us: u64) {
        if self.direction(from, to).cut_until_us <= now_us {
            self.heal(from, to, now_us);
        }
    }

    /// Ends all cuts and pauses of a direction. What they have held arrives now.
    pub fn heal(&mut self, from: usize, to: usize, now_us: u64) {
        let direction = self.direction(from, to);
        direction.cut_until_us = 0;
        direction.is_cut = false;
        if std::mem::take(&mut direction.paused_until_us) > now_us {
            direction.last_at_us = [now_us; CLASSES];
            self.under_way.bring_forward(now_us, |parcel| (parcel.from, parcel.to) == (from, to));
        }
        let direction = self.direction(from, to);
        for (number, parcel) in std::mem::take(&mut direction.held) {
            self.under_way.add_again(now_us, number, parcel);
        }
    }

    /// Nothing of `from` arrives at `to` before `until_us`.
    pub fn pause(&mut self, from: usize, to: usize, until_us: u64) {
        let direction = self.direction(from, to);
        direction.paused_until_us = direction.paused_until_us.max(until_us);
    }

    /// Connects two nodes, in both directions.
    pub fn connect(&mut self, one: usize, other: usize) {
        self.direction(one, other).is_connected = true;
        self.direction(other, one).is_connected = true;
    }

    /// Breaks the connection of two nodes. Of each queue a tail of any length is lost, and the rest still arrives.
    /// Returns whether there was a connection.
    pub fn disconnect(&mut self, one: usize, other: usize) -> bool {
        let was_connected = self.is_connected(one, other);
        for (from, to) in [(one, other), (other, one)] {
            let direction = self.direction(from, to);
            direction.is_connected = false;
            direction.held.clear();
            for class in [Class::Votes, Class::Appends] {
                self.lose_tail(from, to, class);
            }
        }
        was_connected
    }

    fn lose_tail(&mut self, from: usize, to: usize, class: Class) {
        let is_of_queue =
            |parcel: &Parcel| (parcel.from, parcel.to, parcel.class) == (from, to, class);
        let sent = self.under_way.count(is_of_queue) as u64;
        let mut kept = self.random.below(sent + 1);
        self.under_way.retain(|parcel| {
            if !is_of_queue(parcel) || parcel.is_repeated {
                return true;
            }
            let is_kept = kept > 0;
            kept -= u64::from(is_kept);
            is_kept
        });
    }

    /// A node has stopped: its connections break, and nothing that was under way to it arrives.
    pub fn lose_node(&mut self, node: usize) {
        for other in (0..self.nodes).filter(|other| *other != node) {
            self.disconnect(node, other);
        }
        self.under_way.retain(|parcel| parcel.to != node || parcel.is_repeated);
    }

    /// Sends a message. It is lost where there is no connection.
    pub fn send(&mut self, from: usize, to: usize, class: Class, bytes: Vec<u8>, now_us: u64) {
        if !self.is_connected(from, to) {
            return;
        }
        let parcel = Parcel { from, to, class, bytes, is_repeated: false };
        if self.random.chance(self.behaviour.repeated) {
            let second = Parcel { is_repeated: true, ..parcel.clone() };
            self.under_way.add(now_us + self.random.below(EVIL_DELAY_MAX_US), second);
        }
        if self.random.chance(self.behaviour.reordered) {
            self.under_way.add(now_us + self.random.below(EVIL_DELAY_MAX_US), parcel);
        } else {
            self.put(parcel, now_us);
        }
    }

    /// Puts a message behind the earlier ones of its queue.
    fn put(&mut self, parcel: Parcel, now_us: u64) {
        let (least, most) = self.behaviour.delay_us;
        let times = if self.random.chance(self.behaviour.slow) { 5 } else { 1 };
        let at_us = now_us + times * self.random.between(least, most);
        let direction = self.direction(parcel.from, parcel.to);
        let last_at_us = &mut direction.last_at_us[parcel.class as usize];
        *last_at_us = at_us.max(*last_at_us);
        let at_us = *last_at_us;
        self.under_way.add(at_us, parcel);
    }

    /// The time at which the next message arrives, or reaches a cut or a pause.
    pub fn next_at_us(&self) -> Option<u64> {
        self.under_way.next_at_us()
    }

    /// Takes the next message that has arrived.
    pub fn take_due(&mut self, now_us: u64) -> Option<Parcel> {
        while let Some((number, parcel)) = self.under_way.take_due(now_us) {
            let direction = self.direction(parcel.from, parcel.to);
            let resumes_at_us = direction.paused_until_us;
            if direction.is_cut {
                if direction.is_connected {
                    direction.held.push((number, parcel));
                }
            } else if resumes_at_us > now_us {
                let last_at_us = &mut direction.last_at_us[parcel.class as usize];
                *last_at_us = resumes_at_us.max(*last_at_us);
                self.under_way.add_again(resumes_at_us, number, parcel);
            } else {
                return Some(parcel);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No number of either class.
    const NOTHING: [Vec<u8>; 2] = [Vec::new(), Vec::new()];

    const CALM: Behaviour = Behaviour { delay_us: (10, 500), slow: 100, reordered: 0, repeated: 0 };

    /// A network of two nodes with numbered messages of both classes under way from 0 to 1.
    fn with_messages(seed: u64, behaviour: Behaviour, count: u8) -> Network {
        let mut network = Network::new(seed, 2, behaviour);
        network.connect(0, 1);
        for number in 0..count {
            network.send(0, 1, Class::Votes, vec![number], u64::from(number));
            network.send(0, 1, Class::Appends, vec![number], u64::from(number));
        }
        network
    }

    /// What arrives of a class by `now_us`.
    fn arrived(network: &mut Network, now_us: u64) -> [Vec<u8>; CLASSES] {
        let mut arrived = [Vec::new(), Vec::new()];
        while let Some(parcel) = network.take_due(now_us) {
            arrived[parcel.class as usize].extend(parcel.bytes);
        }
        arrived
    }

    #[test]
    fn each_class_arrives_in_its_order() {
        for seed in 0..50 {
            let mut network = with_messages(seed, CALM, 40);
            let sent: Vec<u8> = (0..40).collect();
            assert_eq!(arrived(&mut network, 1_000_000), [sent.clone(), sent]);
        }
    }

    #[test]
    fn a_cut_holds_what_was_sent_and_healing_lets_it_arrive_in_order() {
        let mut network = with_messages(1, CALM, 20);
        network.cut(0, 1, 900_000);
        assert_eq!(arrived(&mut network, 1_000_000), NOTHING);
        network.send(0, 1, Class::Votes, vec![20], 1_000_000);
        network.heal(0, 1, 1_000_000);
        let [votes, appends] = arrived(&mut network, 2_000_000);
        assert_eq!(votes, (0..=20).collect::<Vec<u8>>());
        assert_eq!(appends, (0..20).collect::<Vec<u8>>());
    }

    #[test]
    fn a_direction_is_cut_until_the_last_of_its_cuts_ends() {
        let mut network = with_messages(1, CALM, 3);
        network.cut(0, 1, 900_000);
        network.cut(0, 1, 100_000);
        network.end_cut(0, 1, 100_000);
        assert_eq!(arrived(&mut network, 899_999), NOTHING);
        network.end_cut(0, 1, 900_000);
        assert_eq!(arrived(&mut network, 900_000), [vec![0, 1, 2], vec![0, 1, 2]]);
    }

    #[test]
    fn what_a_pause_has_delayed_arrives_once_the_direction_is_healed() {
        let mut network = with_messages(3, CALM, 20);
        network.pause(0, 1, 10_000);
        assert_eq!(arrived(&mut network, 5_000), NOTHING);
        network.heal(0, 1, 5_000);
        let all: Vec<u8> = (0..20).collect();
        assert_eq!(arrived(&mut network, 5_000), [all.clone(), all]);
    }

    #[test]
    fn a_pause_delays_all_and_keeps_the_order() {
        let mut network = with_messages(2, CALM, 20);
        network.pause(0, 1, 10_000);
        assert_eq!(arrived(&mut network, 9_999), NOTHING);
        network.send(0, 1, Class::Votes, vec![20], 9_999);
        let [votes, _] = arrived(&mut network, 1_000_000);
        assert_eq!(votes, (0..=20).collect::<Vec<u8>>());
    }

    #[test]
    fn a_break_loses_a_tail_of_each_queue_and_nothing_else() {
        let mut lengths = Vec::new();
        for seed in 0..50 {
            let mut network = with_messages(seed, CALM, 20);
            assert!(network.disconnect(0, 1));
            network.send(0, 1, Class::Votes, vec![99], 30);
            for kept in arrived(&mut network, 1_000_000) {
                assert_eq!(kept, (0..kept.len() as u8).collect::<Vec<u8>>());
                lengths.push(kept.len());
            }
        }
        assert!(lengths.contains(&0) && lengths.contains(&20) && lengths.contains(&7));
    }

    #[test]
    fn nothing_that_was_under_way_reaches_a_node_that_has_stopped() {
        let mut network = with_messages(3, CALM, 20);
        network.lose_node(1);
        network.connect(0, 1);
        assert_eq!(arrived(&mut network, 1_000_000), NOTHING);
    }

    #[test]
    fn an_evil_network_reorders_and_repeats() {
        let evil = Behaviour { reordered: 300, repeated: 300, ..CALM };
        let mut network = with_messages(4, evil, 40);
        let [votes, _] = arrived(&mut network, 10_000_000);
        assert!(votes.len() > 40, "{votes:?}");
        assert!(!votes.is_sorted(), "{votes:?}");
    }
}
