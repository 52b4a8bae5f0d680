//! The topic of one run of load: created before it, and deleted after it unless the user has named it.

use std::time::{Duration, Instant};

use anyhow::Result;
use sennit_client::{
    Client, GroupConfig, HookOnError, MessageFields, Retention, StartAt, TopicConfig, TopicKind,
};
use sennit_model::{Durability, GroupName, TopicName};
use serde::Serialize;

use crate::connect::connect;
use crate::{
    clock::now_ns,
    plan::{FairKeys, Plan, Role},
};

/// Time within which all acks are committed after the last delivery.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two checks of the commit.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The topic of a run and its broker.
#[derive(Clone, Copy, Debug)]
pub struct RunTopicConfig<'a> {
    /// The broker's address.
    pub server: &'a str,
    /// The topic's name; `None` for a new topic.
    pub name: Option<&'a str>,
    /// The workload, which is part of a new topic's name.
    pub workload: &'a str,
    /// The number of partitions.
    pub partitions: u32,
    /// Bytes that each partition of a stream without groups keeps; `None` for a queue.
    pub retain_bytes: Option<u64>,
    /// The durability of its messages.
    pub durability: Durability,
    /// The headers that the topic names; `None` for delivery by offset.
    pub fields: Option<&'a TopicFields>,
    /// The script of the topic's hook.
    pub script: Option<&'a str>,
    /// The fair keys of its messages.
    pub keys: Option<&'a FairKeys>,
}

/// The names of the headers that a topic schedules by.
#[derive(Clone, Debug, Serialize)]
pub struct TopicFields {
    /// The header with the fair key.
    pub fair_key: String,
    /// The header with the weight.
    pub weight: Option<String>,
}

impl TopicFields {
    /// As the settings of a topic have them.
    fn settings(&self) -> Result<MessageFields> {
        let fair_key = Some(self.fair_key.parse()?);
        let weight = self.weight.as_ref().map(|name| name.parse()).transpose()?;
        Ok(MessageFields { fair_key, weight, ..MessageFields::default() })
    }
}

/// A topic for one run, and its group if it is a queue.
pub struct RunTopic {
    server: String,
    partitions: u32,
    runtime: tokio::runtime::Runtime,
    client: Client,
    topic: TopicName,
    fresh: bool,
    keys: Option<FairKeys>,
}

impl RunTopic {
    /// Creates the topic.
    ///
    /// # Errors
    /// The broker cannot be reached, or has a topic of that name with other settings.
    pub fn prepare(wanted: RunTopicConfig<'_>) -> Result<Self> {
        let RunTopicConfig { server, name, workload, partitions, retain_bytes, durability, .. } =
            wanted;
        let fields = wanted.fields.map(TopicFields::settings).transpose()?;
        let fields = fields.and_then(MessageFields::if_any);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let fresh = name.is_none();
        let name = name.map_or_else(
            || format!("bench.{workload}.{}-{}", std::process::id(), now_ns()),
            str::to_owned,
        );
        let topic: TopicName = name.parse()?;
        let client = runtime.block_on(async {
            let client = connect(server).await?;
            match retain_bytes {
                Some(_) => {
                    let retention = Retention { bytes: retain_bytes, ..Retention::FOREVER };
                    let stream = TopicConfig::of_kind(TopicKind::Stream);
                    let config = TopicConfig { partitions, retention, durability, ..stream };
                    client.create_topic(&topic, config).await?;
                }
                None => {
                    let queue = TopicConfig::of_kind(TopicKind::Queue);
                    client
                        .create_topic(
                            &topic,
                            TopicConfig { partitions, durability, fields, ..queue },
                        )
                        .await?;
                    let (group, default) = (GroupName::default_group(), GroupConfig::default());
                    client.create_group(&topic, &group, default, StartAt::Earliest).await?;
                    if let Some(script) = wanted.script {
                        client.set_hook(&topic, script, HookOnError::Refuse, "").await?;
                    }
                }
            }
            Ok::<_, sennit_client::Error>(client)
        });
        let (server, keys) = (server.to_owned(), wanted.keys.cloned());
        Ok(Self { server, partitions, runtime, client: client?, topic, fresh, keys })
    }

    /// The plan of a worker of this run. `size` is the length of a payload in bytes.
    #[must_use]
    pub fn plan(&self, size: usize, role: Role) -> Plan {
        Plan {
            server: self.server.clone(),
            topic: self.topic.to_string(),
            partitions: self.partitions,
            group: GroupName::default_group().to_string(),
            size,
            keys: self.keys.clone(),
            role,
        }
    }

    /// Waits until all messages are settled, or the time is over. Returns the number of unsettled messages.
    ///
    /// # Errors
    /// The broker closes the connection.
    pub fn unsettled(&self) -> Result<u64> {
        let begun = Instant::now();
        loop {
            let group = GroupName::default_group();
            let description = self.client.describe_group(&self.topic, &group);
            let group = self.runtime.block_on(description)?;
            let unsettled = group.ready + group.leased + group.delayed;
            if unsettled == 0 || begun.elapsed() > SETTLE_TIMEOUT {
                return Ok(unsettled);
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

impl Drop for RunTopic {
    fn drop(&mut self) {
        if self.fresh {
            // A failed run leaves its topic in the broker's data, for an inspection.
            let _ = self.runtime.block_on(self.client.delete_topic(&self.topic));
        }
    }
}
