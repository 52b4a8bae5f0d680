//! The work of a history: clients of all kinds at the addresses of one broker or of several, from the first publish until
//! all is consumed and read back, and the verdict over what they were told.

use std::{
    cell::Cell,
    panic::resume_unwind,
    rc::Rc,
    time::{Duration, Instant},
};

use sennit_client::{
    Client, Error, GroupConfig, GroupName, Reconnect, StartAt, TopicConfig, TopicKind, TopicName,
};
use sennit_history::{Counts, What, check};
use tokio::{
    task::{JoinHandle, spawn_local},
    time::{sleep, timeout},
};

use super::{
    consuming::consume,
    publishing::{append, publish},
    reading::{read, read_back},
    recorder::{Diary, Recorder},
};
use crate::{
    bounds::BOUND,
    torture::{Choices, LEASE},
};

/// Partitions of the topic.
pub const PARTITIONS: u32 = 3;

/// How long a client that waits for messages does not look whether they are still wanted.
pub const LOOKS_UP: Duration = Duration::from_millis(100);

const PUBLISHERS: u64 = 3;
const APPENDERS: u64 = 2;
const READERS: u64 = 2;
const GROUPS: usize = 2;
const CONSUMERS: u64 = 2;

/// Publishers wait for consumers beyond this, so that what is drained in the end is little.
const BACKLOG_MAX: u64 = 600;

/// A publisher waits up to so long between two batches.
const PAUSE_MS_MAX: u64 = 12;

/// How soon a client tries again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The state that all clients share.
pub struct World {
    pub recorder: Recorder,
    pub topic: TopicName,
    pub groups: Vec<GroupName>,
    /// Each reaches a broker.
    addresses: Vec<String>,
    /// The name of the history's file.
    name: String,
    publishing: Cell<bool>,
    consuming: Cell<bool>,
}

impl World {
    /// Whether more is to be published.
    pub fn is_publishing(&self) -> bool {
        self.publishing.get()
    }

    /// Whether more is to be consumed and read.
    pub fn is_consuming(&self) -> bool {
        self.consuming.get()
    }

    /// Ends the test with the history in a file.
    pub fn fail(&self, why: &str) -> ! {
        let path = self.recorder.write(&self.name);
        panic!("{why}; the history until then: {}", path.display());
    }

    /// A client that knows all addresses, and goes on at another when it loses one.
    pub async fn client(&self) -> Client {
        self.again("a client connects", async || connect(&self.addresses.join(",")).await).await
    }

    /// A client that knows the address of this number alone.
    pub async fn client_at(&self, address: usize) -> Client {
        let address = &self.addresses[address];
        self.again("a client connects", async || connect(address).await).await
    }

    /// Calls until no error comes that another attempt may not meet.
    pub async fn again<T>(&self, what: &str, mut call: impl AsyncFnMut() -> Result<T, Error>) -> T {
        let begun = Instant::now();
        loop {
            match call().await {
                Ok(answer) => return answer,
                Err(error) if error.is_retryable() && begun.elapsed() < BOUND => {
                    sleep(AGAIN_AFTER).await;
                }
                Err(error) => self.fail(&format!("{what}: {error}")),
            }
        }
    }

    /// Before each batch: a pause of any length, and a longer one where consumers are far behind.
    pub async fn pace(&self, choices: &mut Choices) {
        sleep(Duration::from_millis(choices.below(PAUSE_MS_MAX))).await;
        while self.recorder.backlog() > BACKLOG_MAX && self.is_publishing() {
            sleep(AGAIN_AFTER).await;
        }
    }

    /// Makes the topic and its groups.
    async fn prepare(&self) {
        let client = self.client().await;
        let config =
            TopicConfig { partitions: PARTITIONS, ..TopicConfig::of_kind(TopicKind::Stream) };
        self.again("the topic is made", async || {
            client.create_topic(&self.topic, config.clone()).await
        })
        .await;
        // No lease ends while a broker stands still, and no message leaves for the dead letters.
        let config = GroupConfig { attempts_max: u32::MAX, lease: LEASE, ..GroupConfig::default() };
        for group in &self.groups {
            self.again("a group is made", async || {
                let made =
                    client.create_group(&self.topic, group, config.clone(), StartAt::Earliest);
                made.await.map(drop)
            })
            .await;
        }
        client.close().await;
    }

    /// Waits until a group says that nothing is left in it.
    async fn drain(&self, group: usize) {
        let process = self.recorder.number();
        let client = self.client().await;
        let (mut least, mut since) = (u64::MAX, Instant::now());
        loop {
            let begun_ns = self.recorder.now_ns();
            let describe = async || client.describe_group(&self.topic, &self.groups[group]).await;
            let left = self.again("a group is described", describe).await;
            let count = left.ready + left.leased + left.delayed + left.dying;
            if count < least {
                (least, since) = (count, Instant::now());
            }
            if count == 0 {
                let group = u32::try_from(group).unwrap();
                self.recorder.add(process, begun_ns, What::Drained { group });
                break;
            }
            if since.elapsed() > BOUND {
                self.fail(&format!("group {group} is not drained any further: {left:?}"));
            }
            sleep(AGAIN_AFTER).await;
        }
        client.close().await;
    }

    /// Waits until tasks have ended.
    async fn join(&self, what: &str, tasks: Vec<JoinHandle<()>>) {
        for task in tasks {
            match timeout(BOUND, task).await {
                Ok(Ok(())) => {}
                Ok(Err(ended)) => resume_unwind(ended.into_panic()),
                Err(_elapsed) => self.fail(&format!("{what} do not end")),
            }
        }
    }

    /// Judges what was recorded.
    fn judge(&self) -> Counts {
        let verdict = check(&self.recorder.history());
        if verdict.violations.is_empty() {
            return verdict.counts;
        }
        let shown: Vec<_> = verdict.violations.iter().take(8).map(ToString::to_string).collect();
        let (path, count) = (self.recorder.write(&self.name), verdict.violations.len());
        panic!("{count} violations, in the history {}: {shown:#?}", path.display());
    }
}

/// A client at any of these addresses.
async fn connect(addresses: &str) -> Result<Client, Error> {
    let reconnect = Reconnect {
        delay_min: Duration::from_millis(10),
        delay_max: Duration::from_millis(200),
        attempt_timeout: Duration::from_secs(1),
        ..Reconnect::default()
    };
    Client::builder(addresses).reconnect(reconnect).connect().await
}

/// Clients work at these addresses until `faults` is over, which began with this diary; then all has to come. Judges
/// what they were told. `name` is that of the history: `seed` is what its clients' choices come from.
pub async fn work(
    name: &str,
    seed: u64,
    addresses: Vec<String>,
    diary: Diary,
    faults: impl Future<Output = ()>,
) -> Counts {
    let world = Rc::new(World {
        recorder: Recorder::new(diary),
        topic: name.parse().unwrap(),
        groups: (0..GROUPS).map(|group| format!("group-{group}").parse().unwrap()).collect(),
        addresses,
        name: name.to_owned(),
        publishing: Cell::new(true),
        consuming: Cell::new(true),
    });
    world.prepare().await;
    let mut choices = Choices::new(seed);
    let mut with = || (Rc::clone(&world), Choices::new(choices.below(u64::MAX)));
    let mut publishers = Vec::new();
    for _ in 0..PUBLISHERS {
        let (world, choices) = with();
        publishers.push(spawn_local(publish(world, choices)));
    }
    for _ in 0..APPENDERS {
        let (world, choices) = with();
        publishers.push(spawn_local(append(world, choices)));
    }
    let mut consumers = Vec::new();
    for group in (0..GROUPS).cycle().take(GROUPS * CONSUMERS as usize) {
        let (world, choices) = with();
        consumers.push(spawn_local(consume(world, group, choices)));
    }
    for _ in 0..READERS {
        let (world, choices) = with();
        consumers.push(spawn_local(read(world, choices)));
    }

    faults.await;
    world.publishing.set(false);
    world.join("publishers", publishers).await;
    for group in 0..GROUPS {
        world.drain(group).await;
    }
    world.consuming.set(false);
    world.join("consumers", consumers).await;
    for address in 0..world.addresses.len() {
        read_back(&world, address).await;
    }
    world.judge()
}
