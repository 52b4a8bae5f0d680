//! The parameters of a run of a cluster with shards, beside its weather.

use sennit_model::Durability;

use crate::{cluster::weather::Weather, random::Random};

/// The durabilities of which one is drawn, or none.
const EARLY: [Option<Durability>; 4] =
    [None, None, Some(Durability::Speculative), Some(Durability::Ephemeral)];

/// The parameters of nodes with shards and of their clients.
#[derive(Clone, Debug)]
pub struct ShardWeather {
    /// The length of a segment.
    pub segment_bytes: u64,
    /// Segments that may hold messages before the oldest is emptied.
    pub journal_segments: usize,
    /// How many of a thousand ticks and messages wake the mover.
    pub moves: u32,
    /// Bytes of the newest frames that are kept in memory.
    pub cache_bytes: usize,
    /// How many of a thousand ticks ask for a checkpoint.
    pub checkpoints: u32,
    /// How many of a thousand ticks find that the clock of the time of day has jumped.
    pub clock_jumps: u32,
    /// The longest jump in milliseconds.
    pub jump_ms_max: u64,
    /// How many of a thousand crashes keep all that was written.
    pub crash_keeps_all: u32,
    /// The number of partitions.
    pub partitions: usize,
    /// The durability of one more partition, whose messages are given before they are committed.
    pub early: Option<Durability>,
    /// The number of publishers.
    pub publishers: usize,
    /// The number of readers.
    pub readers: usize,
    /// The number of consumers of a group; without any there is no group.
    pub consumers: usize,
    /// Milliseconds for which a consumer has a message.
    pub lease_ms: u64,
    /// How many of a thousand messages expire, and the longest time until then in milliseconds.
    pub expiring: (u32, u64),
    /// The longest payload.
    pub payload_bytes_max: u64,
    /// The time after which a client does not wait for an answer any more.
    pub patience_us: u64,
}

impl ShardWeather {
    /// The parameters of a seed, the random source that goes on from there, and the weather with clients enough.
    pub fn of_seed(seed: u64) -> (Weather, Self, Random) {
        let (mut weather, random) = Weather::of_seed(seed);
        let mut draw = Random::new(seed ^ 0x5AAD_0C1A);
        weather.first_trouble_us = 1_500_000;
        weather.trouble_every_us = [100_000, 200_000, 300_000][draw.below(3) as usize];
        weather.trouble_us_max = [300_000, 1_000_000, 2_500_000][draw.below(3) as usize];
        weather.down_us_max = [30_000, 300_000, 1_000_000][draw.below(3) as usize];
        weather.aims = [300, 600, 900][draw.below(3) as usize];
        weather.isolations = [50, 150, 300][draw.below(3) as usize];
        weather.rots = [0, 0, 30][draw.below(3) as usize];
        weather.full_disks = [0, 0, 50][draw.below(3) as usize];
        weather.first_calm_us = 3_000_000;
        weather.calm_every_us = [2_000_000, 4_000_000][draw.below(2) as usize];
        weather.calm_ends_early = true;
        weather.proposes = weather.proposes.max(500);
        weather.propose_every_us = [20_000, 50_000, 150_000][draw.below(3) as usize];
        let mut shards = Self {
            segment_bytes: [64 << 10, 256 << 10, 1 << 20][draw.below(3) as usize],
            journal_segments: [usize::MAX, 3, 1][draw.below(3) as usize],
            moves: [100, 500][draw.below(2) as usize],
            cache_bytes: [0, 16 << 10, 1 << 20][draw.below(3) as usize],
            checkpoints: [0, 5, 15][draw.below(3) as usize],
            clock_jumps: [0, 0, 5][draw.below(3) as usize],
            jump_ms_max: [200, 3_000, 60_000][draw.below(3) as usize],
            crash_keeps_all: weather.crash_keeps_all,
            partitions: draw.between(1, 3) as usize,
            early: EARLY[draw.below(4) as usize],
            publishers: draw.between(2, 6) as usize,
            readers: draw.between(0, 3) as usize,
            consumers: [0, 0, 2, 4][draw.below(4) as usize],
            lease_ms: [1_000, 5_000, 30_000][draw.below(3) as usize],
            expiring: (0, [500, 5_000][draw.below(2) as usize]),
            payload_bytes_max: [20, 300, 4_000][draw.below(3) as usize],
            patience_us: [300_000, 1_500_000, 4_000_000][draw.below(3) as usize],
        };
        if shards.consumers > 0 {
            shards.expiring.0 = [0, 0, 300][draw.below(3) as usize];
        }
        weather.restarts = [0, 0, 0, 50][draw.below(4) as usize];
        if draw.chance(150) {
            shards.drain();
        }
        (weather, shards, random)
    }

    /// Consumers settle what fills the log: segments and packs come free all the time.
    fn drain(&mut self) {
        (self.segment_bytes, self.journal_segments, self.moves) = (64 << 10, 1, 500);
        (self.consumers, self.checkpoints, self.payload_bytes_max) = (4, 15, 4_000);
        self.publishers = self.publishers.max(4);
    }
}
