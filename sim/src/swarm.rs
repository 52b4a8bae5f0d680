//! The random parameters of a run. Each seed draws its own mix, because one world with a little of everything finds
//! less than many worlds with a lot of a few things.
//!
//! Source: Groce et al., "Swarm Testing", ISSTA 2012.

use std::time::Duration;

use sennit_journal::disk::FaultPlan;
use sennit_model::{
    Backoff, Dedup, DedupMode, GroupConfig, Retention, RetryDelays, RetryPolicy, TopicConfig,
    TopicKind, TopicLimit, WhenFull,
};

use sennit_shard::{PackLengths, Replica};

use crate::{fair_settings, random::Random};

/// The header by which topics look for duplicates.
pub const DEDUP_HEADER: &str = "value";

/// An operation of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Create a topic's partitions.
    Create,
    /// Give a topic other settings or other groups.
    Alter,
    /// Drop a topic's partitions.
    Drop,
    /// Publish a new batch.
    Publish,
    /// Send a batch again, or under a stale epoch.
    Resend,
    /// Start a subscription.
    Subscribe,
    /// Change a subscription's credit.
    Credit,
    /// End a subscription or a session.
    Leave,
    /// Settle a new or an old delivery.
    Settle,
    /// Let time pass.
    Time,
    /// Run steps of the lane, the slot maker, the reader and the mover.
    Disk,
    /// Change the faults of the disk.
    Faults,
    /// Stop and start again.
    Restart,
}

/// All operations, in the order of [`Swarm::weights`].
pub const OPERATIONS: [Operation; 13] = [
    Operation::Create,
    Operation::Alter,
    Operation::Drop,
    Operation::Publish,
    Operation::Resend,
    Operation::Subscribe,
    Operation::Credit,
    Operation::Leave,
    Operation::Settle,
    Operation::Time,
    Operation::Disk,
    Operation::Faults,
    Operation::Restart,
];

/// The parameters of a run.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// The probability of each of [`OPERATIONS`].
    pub weights: [u32; OPERATIONS.len()],
    /// The length of a segment in bytes.
    pub segment_bytes: u64,
    /// The budget of the tail cache, in bytes.
    pub cache_bytes: usize,
    /// The longest payload, in bytes.
    pub payload_bytes_max: u64,
    /// Most messages in a batch.
    pub batch_messages_max: u64,
    /// How often the lane runs after an operation, in parts of a thousand.
    pub lane_eagerness: u32,
    /// How often a read is answered after an operation, in parts of a thousand.
    pub read_eagerness: u32,
    /// How often the mover runs after an operation, in parts of a thousand.
    pub move_eagerness: u32,
    /// Segments of the journal beyond which the oldest is emptied.
    pub journal_segments: usize,
    /// The lengths of packs.
    pub packs: PackLengths,
    /// How often a turn of commands goes to the shard, in parts of a thousand.
    pub turn_eagerness: u32,
    /// How often due timers run, in parts of a thousand.
    pub clock_eagerness: u32,
    /// How many messages of a thousand are delayed, and how many have a time to live.
    pub timed: (u32, u32),
    /// How often a crash is armed at a call of the disk, in parts of a thousand.
    pub crash_chance: u32,
    /// The disk's decisions in a crash.
    pub crash_keeps: u32,
    /// The disk's decisions in a crash.
    pub crash_tears: u32,
    /// The disk's random faults.
    pub faults: FaultPlan,
    /// Whether the disk runs full at times.
    pub runs_full: bool,
    /// The longest lease of a group.
    pub lease_max: Duration,
    /// How often, in a thousand, consumers settle only held messages, mostly with acks.
    pub careful: u32,
    /// How many of a thousand topics keep the latest message of each key.
    pub latest_per_key: u32,
    /// Whether the shard is compared with a follower.
    pub is_followed: bool,
    /// Whether compaction leaves messages where they are, and records what went without a place.
    pub writes_superseded: bool,
    /// The replica that the shard is, alone in its group, if its lane is the log of one.
    pub replica: Option<Replica>,
    /// How often, in a thousand operations, the delay of a message is cancelled or changed.
    pub delay_changes: u32,
    /// How many appends of a thousand to streams have several batches.
    pub several_batches: u32,
    /// How many groups of a thousand have a retry policy.
    pub retry_policies: u32,
    /// How many messages of a thousand have a deduplication value, and how many queues replace by it.
    pub dedup_values: u32,
    /// How many queues of a thousand have a limit.
    pub limits: u32,
    /// How many topics of a thousand have fields; without any there are no fair groups either.
    pub fair: u32,
    /// How many groups of a thousand have an order.
    pub order: u32,
    /// How often, in a thousand operations, a user of the workbench does something.
    pub workbench: u32,
    /// How often, in a thousand operations, a worker makes an atomic step.
    pub atomic_steps: u32,
    /// Most starts of the shard.
    pub generations_max: u32,
    /// How many durable bits flip at the end, one after the other.
    pub rots: u64,
}

const BLOCK_BYTES: u64 = sennit_journal::BLOCK_BYTES as u64;

/// Derives the random source that says which shards have a follower.
const FOLLOWED: u64 = 0xF011_0E4D;

/// Derives the random source that says which shards are replicas.
const REPLICAS: u64 = 0x4E91_1CA5;

/// Derives the random source of the form of compaction, which changes no other draw.
const SUPERSEDED: u64 = 0x5075_E25E;

/// The longest payload: two of them fit a segment.
fn payload_max(segment_bytes: u64) -> u64 {
    (segment_bytes - 3 * BLOCK_BYTES) / 2 + 512
}

/// One of this number of seeds has a full disk, and segments so short that each step may need one.
const FULL_DISK_PART: u64 = 8;

/// The last digits of seeds whose groups may have retry policies. Planted bugs name seeds with other ones.
const RETRY_SEEDS: [u64; 2] = [3, 5];
/// The seeds, by their remainder when they are divided by [`FAIR_CYCLE`], whose topics may have fields and whose
/// groups may be fair.
const FAIR_SEEDS: [u64; 4] = [5, 15, 16, 18];
const FAIR_CYCLE: u64 = 20;

/// The last digit but one of seeds whose topics may look for duplicates.
const DEDUP_SEEDS: u64 = 3;

/// The last digit but one of seeds that cancel and change delays.
const DELAY_SEEDS: u64 = 7;

/// The last digit but one of seeds whose topics may have limits.
const LIMIT_SEEDS: u64 = 5;

/// The last digit but one of seeds whose groups may have an order; their topics may have fields.
const ORDER_SEEDS: u64 = 8;

/// The last two digits of seeds in which the workbench is used.
const WORKBENCH_SEEDS: std::ops::Range<u64> = 60..66;

/// The shortest segments of these seeds: a page of dead letters fits one.
const WORKBENCH_SEGMENT: u64 = 16 * BLOCK_BYTES;

/// The last two digits of seeds with atomic steps.
const ATOMIC_SEEDS: std::ops::Range<u64> = 93..100;

impl Swarm {
    /// The mix of a seed, and the random source of the rest of its run.
    #[must_use]
    pub fn of_seed(seed: u64) -> (Self, Random) {
        let mut random = Random::new(seed);
        let mut swarm = Self::draw(&mut random);
        if seed % FULL_DISK_PART == FULL_DISK_PART - 1 {
            swarm.runs_full = true;
            swarm.segment_bytes = BLOCK_BYTES * [4, 4, 5, 8][random.below(4) as usize];
            let most = payload_max(swarm.segment_bytes);
            swarm.payload_bytes_max = swarm.payload_bytes_max.min(most);
        }
        swarm.is_followed = Random::new(seed ^ FOLLOWED).chance(300);
        swarm.writes_superseded = Random::new(seed ^ SUPERSEDED).chance(500);
        let is_replica = Random::new(seed ^ REPLICAS).chance(333);
        swarm.replica = is_replica.then_some(Replica { group: 7, id: 3, is_alone: true });
        if RETRY_SEEDS.contains(&(seed % 10)) {
            swarm.retry_policies = [300, 1000][random.below(2) as usize];
        }
        if seed % 100 / 10 == LIMIT_SEEDS {
            swarm.limits = [500, 1000][random.below(2) as usize];
        }
        if seed % 100 / 10 == DELAY_SEEDS {
            swarm.delay_changes = [50, 200][random.below(2) as usize];
            swarm.timed.0 = 500;
        }
        if seed % 100 / 10 == DEDUP_SEEDS {
            swarm.dedup_values = [300, 800][random.below(2) as usize];
        }
        if FAIR_SEEDS.contains(&(seed % FAIR_CYCLE)) {
            swarm.fair = [500, 1000][random.below(2) as usize];
            swarm.weights[1] *= 4;
        }
        if seed % 100 / 10 == ORDER_SEEDS {
            swarm.order = [500, 1000][random.below(2) as usize];
            swarm.fair = swarm.fair.max([300, 700][random.below(2) as usize]);
        }
        if WORKBENCH_SEEDS.contains(&(seed % 100)) {
            swarm.workbench = [200, 600][random.below(2) as usize];
            swarm.segment_bytes = swarm.segment_bytes.max(WORKBENCH_SEGMENT);
        }
        if ATOMIC_SEEDS.contains(&(seed % 100)) {
            swarm.workbench = [100, 300][random.below(2) as usize];
            swarm.segment_bytes = swarm.segment_bytes.max(8 * BLOCK_BYTES);
            swarm.atomic_steps = [100, 400][random.below(2) as usize];
        }
        (swarm, random)
    }

    fn draw(random: &mut Random) -> Self {
        let mut weights = [8, 6, 2, 60, 12, 14, 8, 8, 50, 20, 40, 3, 3];
        for weight in &mut weights[3..11] {
            *weight = *weight * [1, 2, 4, 8, 16][random.below(5) as usize] / 4;
        }
        if random.chance(300) {
            weights[2] = 0;
        }
        let some = |random: &mut Random, per_mille: u32, values: [u32; 3]| {
            if random.chance(per_mille) { values[random.below(3) as usize] } else { 0 }
        };
        let segment_bytes = BLOCK_BYTES * [4, 5, 8, 16, 32, 64][random.below(6) as usize];
        let payload_max = payload_max(segment_bytes);
        let eagerness = |random: &mut Random| [60, 250, 600, 950][random.below(4) as usize];
        Self {
            weights,
            segment_bytes,
            cache_bytes: [0, 8 << 10, 64 << 10, 1 << 20][random.below(4) as usize],
            payload_bytes_max: [24, 200, 2000, payload_max][random.below(4) as usize]
                .min(payload_max),
            batch_messages_max: [1, 4, 20][random.below(3) as usize],
            lane_eagerness: eagerness(random),
            read_eagerness: eagerness(random),
            move_eagerness: eagerness(random),
            journal_segments: random.between(1, 4) as usize,
            packs: PackLengths {
                finished: [12 << 10, 64 << 10, 64 << 20][random.below(3) as usize],
                own: [1, 4 << 10, 32 << 10, 8 << 20][random.below(4) as usize],
            },
            turn_eagerness: [300, 800, 1000][random.below(3) as usize],
            clock_eagerness: eagerness(random),
            timed: (some(random, 500, [20, 200, 500]), some(random, 400, [20, 200, 500])),
            crash_chance: some(random, 800, [2, 5, 20]),
            crash_keeps: [0, 200, 500, 900][random.below(4) as usize],
            crash_tears: [0, 200, 700][random.below(3) as usize],
            faults: FaultPlan {
                sync_fails: some(random, 300, [1, 5, 20]),
                write_fails: some(random, 250, [1, 5, 20]),
                read_fails: some(random, 300, [5, 50, 300]),
                ..FaultPlan::default()
            },
            runs_full: random.chance(300),
            lease_max: Duration::from_millis([500, 5_000, 600_000][random.below(3) as usize]),
            careful: [300, 800, 980][random.below(3) as usize],
            // These draw from clones, so that they do not change the other draws.
            latest_per_key: some(&mut random.clone(), 350, [200, 600, 1000]),
            several_batches: some(&mut Random::new(random.clone().number()), 300, [50, 200, 500]),
            is_followed: true,
            writes_superseded: false,
            replica: None,
            delay_changes: 0,
            retry_policies: 0,
            limits: 0,
            dedup_values: 0,
            fair: 0,
            order: 0,
            workbench: 0,
            atomic_steps: 0,
            generations_max: random.between(1, 5) as u32,
            rots: if random.chance(250) { random.between(1, 3) } else { 0 },
        }
    }

    /// Settings for a topic.
    pub fn topic(&self, random: &mut Random) -> TopicConfig {
        let mut config = TopicConfig::of_kind(TopicKind::Queue);
        if self.latest_per_key > 0 && random.chance(self.latest_per_key) {
            let tombstone_age = Duration::from_millis(random.between(1_000, 600_000));
            config.retention = Retention {
                latest_per_key: Some(tombstone_age),
                age: random.chance(100).then(|| Duration::from_millis(random.between(1, 600_000))),
                bytes: random.chance(100).then(|| random.between(1, 2 * self.segment_bytes)),
                ..Retention::FOREVER
            };
        } else if random.chance(450) {
            config.retention = Retention {
                until_settled: random.chance(200),
                age: random.chance(300).then(|| Duration::from_millis(random.between(1, 600_000))),
                bytes: random.chance(300).then(|| random.between(1, 2 * self.segment_bytes)),
                count: None,
                latest_per_key: None,
            };
        }
        if config.retention == Retention::UNTIL_SETTLED && random.chance(self.limits) {
            config.limit = TopicLimit {
                messages: Some(random.between(1, 30)),
                bytes: None,
                when_full: [WhenFull::Refuse, WhenFull::DropOldest][random.below(2) as usize],
            };
        }
        if config.retention == Retention::UNTIL_SETTLED && random.chance(self.dedup_values) {
            config.dedup = DEDUP_HEADER.parse().ok().map(|header| Dedup {
                header,
                window: Duration::from_millis(random.between(1, 600_000)),
                mode: DedupMode::Replace,
            });
        }
        if random.chance(self.timed.1) {
            config.time_to_live = Some(Duration::from_millis(random.between(1, 7_200_000)));
        }
        fair_settings::topic(random, self.fair, &mut config);
        config
    }

    /// Settings for a group.
    pub fn group(&self, random: &mut Random) -> GroupConfig {
        let lease = random.between(100, self.lease_max.as_millis() as u64);
        let mut config = GroupConfig {
            lease: Duration::from_millis(lease),
            attempts_max: [1, 2, 5, 20][random.below(4) as usize],
            retry: self.retry_policy(random),
            ..GroupConfig::default()
        };
        fair_settings::group(random, self.fair, &mut config);
        if self.order > 0 {
            config.order = fair_settings::order(random, self.order);
        }
        config
    }

    fn retry_policy(&self, random: &mut Random) -> RetryPolicy {
        if !random.chance(self.retry_policies) {
            return RetryPolicy::default();
        }
        let backoff = match random.below(3) {
            0 => Backoff::None,
            1 => {
                let first = self.span(random);
                Backoff::Exponential { first, max: first + self.span(random) }
            }
            _ => {
                let count = random.between(1, 4);
                let delays: Vec<_> = (0..count).map(|_| self.span(random)).collect();
                RetryDelays::new(&delays).map_or(Backoff::None, Backoff::List)
            }
        };
        RetryPolicy {
            backoff,
            jitter_percent: [0, 0, 20, 100][random.below(4) as usize],
            age_max: random.chance(400).then(|| self.span(random)),
        }
    }

    /// A span of time: mostly short, at times hours.
    pub fn span(&self, random: &mut Random) -> Duration {
        let longest = [20, 200, 2_000, 30_000, 7_200_000][random.weighted(&[30, 30, 25, 10, 5])];
        Duration::from_millis(random.between(1, longest))
    }
}
