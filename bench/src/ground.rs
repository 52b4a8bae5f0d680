//! A topic for one run of load: made before it, gone after it unless it was named.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sennit_client::{Client, GroupConfig, Retention, StartAt, TopicConfig, TopicKind};
use sennit_model::{GroupName, TopicName};

use crate::{
    clock::now_ns,
    load::{Bench, Load},
    plan::{Plan, Role},
};

/// How long the acks of a run may take to be committed once everything was delivered.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// How often it is asked whether they are.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A topic for one run, and its group if it is a queue.
pub struct Ground {
    runtime: tokio::runtime::Runtime,
    client: Client,
    topic: TopicName,
    fresh: bool,
}

impl Ground {
    /// Makes the topic that `load` wants.
    ///
    /// # Errors
    /// The broker cannot be reached, or has a topic of that name with other settings.
    pub fn prepare(bench: &Bench<'_>, load: &Load) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let fresh = bench.topic.is_none();
        let name = bench.topic.clone().unwrap_or_else(|| {
            format!("bench.{}.{}-{}", bench.workload, std::process::id(), now_ns())
        });
        let topic: TopicName = name.parse()?;
        let server = &bench.broker.server;
        let partitions = load.partitions;
        let client = runtime.block_on(async {
            let client = Client::connect(server.clone()).await?;
            match load.retain_bytes {
                Some(_) => {
                    let retention = Retention { bytes: load.retain_bytes, ..Retention::FOREVER };
                    let stream = TopicConfig::of_kind(TopicKind::Stream);
                    let config = TopicConfig { partitions, retention, ..stream };
                    client.create_topic(&topic, config).await?;
                }
                None => {
                    let queue = TopicConfig::of_kind(TopicKind::Queue);
                    client.create_topic(&topic, TopicConfig { partitions, ..queue }).await?;
                    let (group, default) = (GroupName::default_group(), GroupConfig::default());
                    client.create_group(&topic, &group, default, StartAt::Earliest).await?;
                }
            }
            Ok::<_, sennit_client::Error>(client)
        });
        let client = client.with_context(|| format!("the broker at {server}"))?;
        Ok(Self { runtime, client, topic, fresh })
    }

    /// What a worker of this run is told.
    #[must_use]
    pub fn plan(&self, bench: &Bench<'_>, load: &Load, role: Role) -> Plan {
        Plan {
            server: bench.broker.server.clone(),
            topic: self.topic.to_string(),
            partitions: load.partitions,
            group: GroupName::default_group().to_string(),
            size: load.size,
            role,
        }
    }

    /// How many messages are not settled, once that no longer changes or is none.
    ///
    /// # Errors
    /// The broker has gone.
    pub fn unsettled(&self) -> Result<u64> {
        let begun = Instant::now();
        loop {
            let group = GroupName::default_group();
            let asked = self.client.describe_group(&self.topic, &group);
            let group = self.runtime.block_on(asked)?;
            let unsettled = group.ready + group.leased + group.delayed;
            if unsettled == 0 || begun.elapsed() > SETTLE_TIMEOUT {
                return Ok(unsettled);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        if self.fresh {
            // What is left behind of a broken run is in the broker's data, to be looked at.
            let _ = self.runtime.block_on(self.client.delete_topic(&self.topic));
        }
    }
}
