//! The parameters of a cluster's run, and the troubles that it draws. Each seed has its own mix, as in `swarm`.

use crate::{cluster::network::Behaviour, random::Random};

/// A trouble of a node, of a direction between two, or of the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The power of a node fails.
    Crash {
        /// The node.
        node: usize,
    },
    /// The process of a node dies.
    Kill {
        /// The node.
        node: usize,
    },
    /// The node hears nothing, or is not heard, or both.
    CutNode {
        /// The node.
        node: usize,
        /// Whether nothing reaches it.
        inward: bool,
        /// Whether nothing leaves it.
        outward: bool,
    },
    /// The same for so long that the others choose a leader.
    Isolate {
        /// The node.
        node: usize,
    },
    /// Two nodes do not hear each other.
    CutPair {
        /// A node.
        one: usize,
        /// The other.
        other: usize,
    },
    /// A node does not hear another.
    CutDirection {
        /// The node that is not heard.
        from: usize,
        /// The node that does not hear it.
        to: usize,
    },
    /// The leader and so many do not hear each other that these need only one voter more to choose another one, and one
    /// voter that hears it restarts, again and again.
    RestartVoter {
        /// The leader.
        leader: usize,
    },
    /// The connection of two nodes breaks, and is made again.
    Break {
        /// A node.
        one: usize,
        /// The other.
        other: usize,
    },
    /// All messages of one direction are late.
    Pause {
        /// The sending node.
        from: usize,
        /// The receiving node.
        to: usize,
    },
    /// The sync under way, or the next one, takes very long.
    StallLane {
        /// The node.
        node: usize,
    },
    /// All syncs take long for a while.
    SlowLane {
        /// The node.
        node: usize,
    },
    /// The next sync fails, and with it the process.
    FailSync {
        /// The node.
        node: usize,
    },
    /// The core does nothing for a while.
    StallCore {
        /// The node.
        node: usize,
    },
    /// The disk of a node has no room for a while.
    FillDisk {
        /// The node.
        node: usize,
    },
    /// The power of a node fails, and a bit of what it has synced flips.
    Rot {
        /// The node.
        node: usize,
    },
    /// The leader is asked to hand leadership over.
    Transfer {
        /// The node that is to lead.
        to: usize,
    },
}

/// The number of kinds of [`Trouble`].
const TROUBLES: usize = 12;

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Weather {
    /// The number of nodes.
    pub nodes: usize,
    /// Whether the network reorders and repeats, and clocks run at any speed.
    pub is_evil: bool,
    /// The network.
    pub network: Behaviour,
    /// The speed of each node's clock, in thousandths of the true one.
    pub clocks_per_mille: Vec<u64>,
    /// The shortest and the longest time of a usual sync.
    pub sync_us: (u64, u64),
    /// The longest time between two proposals.
    pub propose_every_us: u64,
    /// How many of a thousand times a client proposes, and does not only ask whether the leader leads.
    pub proposes: u32,
    /// The longest time until the first trouble.
    pub first_trouble_us: u64,
    /// The longest time between two troubles.
    pub trouble_every_us: u64,
    /// How many of a thousand troubles of a node or between two are of the one that leads.
    pub aims: u32,
    /// The longest time until a quorum is left alone for the first time.
    pub first_calm_us: u64,
    /// The longest time until that happens again.
    pub calm_every_us: u64,
    /// Whether it is over once the quorum has made progress.
    pub calm_ends_early: bool,
    /// The longest time that a trouble lasts.
    pub trouble_us_max: u64,
    /// The longest time that a node is down.
    pub down_us_max: u64,
    /// How many of a thousand cuts break their connections.
    pub cuts_break: u32,
    /// How many of a thousand syncs and crashes keep all that was written.
    pub crash_keeps_all: u32,
    /// How many of a thousand troubles are transfers, beside those by weight.
    transfers: u32,
    /// How many of a thousand troubles isolate a node, beside those by weight.
    pub isolations: u32,
    /// How many of a thousand troubles of a leader restart a voter, beside those by weight.
    pub restarts: u32,
    /// How many of a thousand troubles rot, beside those by weight. Only the first one does.
    pub rots: u32,
    /// How many of a thousand troubles fill a disk, beside those by weight.
    pub full_disks: u32,
    weights: [u32; TROUBLES],
}

impl Weather {
    /// The parameters of a seed, and the random source that goes on from there.
    pub fn of_seed(seed: u64) -> (Self, Random) {
        let mut random = Random::new(seed ^ 0x0C1A_57E5);
        let is_evil = seed % 5 == 4;
        let nodes = if random.chance(600) { 3 } else { 5 };
        let (slowest, fastest) = if is_evil { (667, 1500) } else { (900, 1100) };
        let clocks_per_mille = (0..nodes).map(|_| random.between(slowest, fastest)).collect();
        let most_us = [200, 1_000, 5_000, 20_000][random.below(4) as usize];
        let network = Behaviour {
            delay_us: (50, most_us),
            slow: [0, 10, 100][random.below(3) as usize],
            reordered: if is_evil { [0, 20, 100][random.below(3) as usize] } else { 0 },
            repeated: if is_evil { [0, 20, 100][random.below(3) as usize] } else { 0 },
        };
        let sync_us = [(50, 200), (200, 2_000), (1_000, 20_000)][random.below(3) as usize];
        let weather = Self {
            nodes,
            is_evil,
            network,
            clocks_per_mille,
            sync_us,
            propose_every_us: [40_000, 150_000, 400_000][random.below(3) as usize],
            proposes: [30, 300, 1000][random.below(3) as usize],
            first_trouble_us: 2_000_000,
            aims: 0,
            first_calm_us: 4_000_000,
            calm_every_us: 8_000_000,
            calm_ends_early: false,
            trouble_every_us: [200_000, 500_000, 2_000_000][random.below(3) as usize],
            trouble_us_max: [300_000, 1_500_000, 5_000_000][random.below(3) as usize],
            down_us_max: [50_000, 500_000, 5_000_000][random.below(3) as usize],
            cuts_break: [0, 500, 1000][random.below(3) as usize],
            crash_keeps_all: [0, 300, 800][random.below(3) as usize],
            weights: std::array::from_fn(|_| [0, 1, 3, 10][random.below(4) as usize]),
            transfers: [0, 0, 30, 200][random.below(4) as usize],
            isolations: 0,
            // Its own source: the other parameters of a seed stay as they are.
            restarts: [0, 0, 0, 300][Random::new(seed ^ 0x4E57_A47E).below(4) as usize],
            rots: 0,
            full_disks: 0,
        };
        (weather, random)
    }

    /// The next trouble, if `leader` leads.
    pub fn trouble(&self, leader: Option<usize>, random: &mut Random) -> Trouble {
        let nodes = self.nodes as u64;
        let drawn = random.below(nodes) as usize;
        let one = leader.filter(|_| random.chance(self.aims)).unwrap_or(drawn);
        let other = (one + 1 + random.below(nodes - 1) as usize) % self.nodes;
        let way = random.below(3);
        let (node, from, to) = (one, one, other);
        if random.chance(self.transfers) {
            return Trouble::Transfer { to };
        }
        if random.chance(self.isolations) {
            return Trouble::Isolate { node };
        }
        if let Some(leader) = leader.filter(|_| random.chance(self.restarts)) {
            return Trouble::RestartVoter { leader };
        }
        if random.chance(self.rots) {
            return Trouble::Rot { node };
        }
        if random.chance(self.full_disks) {
            return Trouble::FillDisk { node };
        }
        // Without any weight all are as likely.
        let weights = if self.weights == [0; TROUBLES] { [1; TROUBLES] } else { self.weights };
        match random.weighted(&weights) {
            0 => Trouble::Crash { node },
            1 => Trouble::Kill { node },
            2 => Trouble::CutNode { node, inward: way != 0, outward: way != 1 },
            3 => Trouble::CutPair { one, other },
            4 => Trouble::CutDirection { from, to },
            5 => Trouble::Break { one, other },
            6 => Trouble::Pause { from, to },
            7 => Trouble::StallLane { node },
            8 => Trouble::SlowLane { node },
            9 => Trouble::FailSync { node },
            10 => Trouble::StallCore { node },
            _ => Trouble::Transfer { to },
        }
    }
}
