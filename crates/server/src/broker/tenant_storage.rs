//! Measures the bytes that tenants store which have a quota of them: the first core knows the names of topics, and asks
//! each core what their partitions store, off the way of messages. Nothing is kept: a start measures anew.

use std::{pin::Pin, rc::Rc, sync::Arc, time::Duration};

use sennit_engine::Stored;
use sennit_identity::{StoredBytes, TenantName};
use sennit_model::{Offset, PartitionId, PartitionIndex, TopicId, TopicName};
use tokio::{
    sync::{Mutex, oneshot},
    task::spawn_local,
    time::sleep,
};

use super::topic_listener::TopicListener;
use crate::{
    identity::authority::Authority,
    runtime::{
        core::CoreHandle,
        inbox::Message,
        index::{CoreIndex, IndexVec, ShardIndex},
    },
};

/// How long after a measurement the next begins.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// Topics that are asked about at once, before others have their turn.
const TOPICS_AT_ONCE: usize = 250;

/// The time between two of these.
const PAUSE: Duration = Duration::from_millis(10);

/// Partitions, each with its shard.
type Partitions = Vec<(ShardIndex, PartitionId)>;

/// Adds up what partitions of a core store: a service that each core has.
#[derive(Debug)]
pub(crate) struct StoredSums(pub(crate) CoreHandle);

impl StoredSums {
    /// Has the shards take what was published before now: here, and what is on its way elsewhere.
    fn carry(&self) {
        self.0.with(|core| {
            core.handle();
            core.carry_commands();
        });
    }

    fn sum(&self, partitions: &[(ShardIndex, PartitionId)]) -> Stored {
        self.0.look(|core| {
            let each = partitions.iter().map(|(shard, partition)| core.stored(*shard, *partition));
            each.fold(Stored::default(), Stored::and)
        })
    }
}

/// The measurement of what tenants store, on the first core.
#[derive(Debug)]
pub(crate) struct TenantStorage {
    core: CoreHandle,
    authority: Authority,
    /// One measurement after the other.
    turn: Mutex<()>,
}

impl TopicListener for TenantStorage {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            // Nobody is served yet, and nobody waits for a turn.
            self.measure_all(Duration::ZERO).await;
            spawn_local(async move {
                loop {
                    sleep(MEASURE_EVERY).await;
                    self.measure_all(PAUSE).await;
                }
            });
        })
    }

    fn appeared(self: Rc<Self>, _name: &TopicName, _topic: TopicId, _from: Offset) {}

    fn gone(self: Rc<Self>, _name: &TopicName, _topic: TopicId) {}
}

impl TenantStorage {
    /// Nothing is measured before the start.
    pub(crate) fn new(core: CoreHandle, authority: Authority) -> Rc<Self> {
        Rc::new(Self { core, authority, turn: Mutex::new(()) })
    }

    async fn measure_all(&self, pause: Duration) {
        let Some(directory) = self.authority.directory() else { return };
        for (tenant, entry) in directory.tenants() {
            if entry.quotas.stored_bytes.is_some() {
                self.measure_with(tenant, pause).await;
            }
        }
    }

    /// Measures what one tenant stores, so that its quota counts from now on.
    pub(crate) async fn measure(&self, tenant: &TenantName) {
        self.measure_with(tenant, PAUSE).await;
    }

    async fn measure_with(&self, tenant: &TenantName, pause: Duration) {
        let _turn = self.turn.lock().await;
        let Some(meter) = self.authority.meter(tenant) else { return };
        meter.begin_measurement();
        let mut all = Stored::default();
        let carried = self.ask_each(|sums, _| sums.carry(), |_| true).await;
        if carried.is_none() {
            return;
        }
        for separator in ['.', '/'] {
            let prefix = format!("{tenant}{separator}");
            let mut after = Some(prefix.clone());
            while let Some(name) = after.take() {
                let (partitions, next) = self.partitions_behind(&name, &prefix);
                let partitions = Arc::new(partitions);
                let of_core = partitions.clone();
                let sums = self
                    .ask_each(
                        move |sums, core| sums.sum(&of_core[core]),
                        |core| !partitions[core].is_empty(),
                    )
                    .await;
                // Without an answer the broker stops.
                let Some(sums) = sums else { return };
                all = sums.into_iter().fold(all, Stored::and);
                after = next;
                if after.is_some() && !pause.is_zero() {
                    sleep(pause).await;
                }
            }
        }
        let Stored { bytes, too_old_at, until_settled } = all;
        meter.end_measurement(StoredBytes { bytes, too_old_at, until_settled });
    }

    /// The partitions of some topics behind a name, by core, and the name behind which others follow.
    fn partitions_behind(
        &self,
        after: &str,
        prefix: &str,
    ) -> (IndexVec<CoreIndex, Partitions>, Option<String>) {
        let placement = &self.core.cores.placement;
        let mut partitions = IndexVec::of(placement.cores(), |_| Vec::new());
        let last = self.core.look(|core| {
            let behind = core.catalogue().topics_after_name(after);
            let own = behind.take_while(|topic| topic.created.name.as_str().starts_with(prefix));
            let mut last = None;
            for (count, topic) in own.take(TOPICS_AT_ONCE).enumerate() {
                for index in (0..topic.config().partitions).map(PartitionIndex) {
                    let shard = placement.shard_of(topic.created.home, index);
                    let partition = PartitionId { topic: topic.id(), index };
                    partitions[placement.core_of(shard)].push((shard, partition));
                }
                last = Some(topic.created.name.to_string()).filter(|_| count + 1 == TOPICS_AT_ONCE);
            }
            last
        });
        (partitions, last)
    }

    /// Asks cores; `None` if one does not answer.
    async fn ask_each<T: Send + 'static>(
        &self,
        act: impl Fn(&StoredSums, CoreIndex) -> T + Clone + Send + 'static,
        is_asked: impl Fn(CoreIndex) -> bool,
    ) -> Option<Vec<T>> {
        let inboxes = &self.core.cores.inboxes;
        let asked = inboxes.iter_indexed().filter(|(core, _)| is_asked(*core));
        let answers: Vec<_> = asked
            .map(|(core, inbox)| {
                let (sender, answer) = oneshot::channel();
                let act = act.clone();
                let _ = inbox.send(Message::call(move |sums: &Rc<StoredSums>| {
                    let _ = sender.send(act(sums, core));
                }));
                answer
            })
            .collect();
        let mut all = Vec::with_capacity(answers.len());
        for answer in answers {
            all.push(answer.await.ok()?);
        }
        Some(all)
    }
}
