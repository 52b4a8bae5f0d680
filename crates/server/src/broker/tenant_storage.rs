//! Measures the bytes that tenants store which have a quota of them: the first core knows the names of topics, and asks
//! each core what their partitions store, off the way of messages. In a cluster each node measures for itself what its meters go by, and
//! asks the leader of each shard. Nothing is kept: a start measures anew.

use std::{
    collections::{BTreeMap, BTreeSet},
    pin::Pin,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use sennit_engine::Stored;
use sennit_identity::{StoredBytes, TenantName};
use sennit_model::{Offset, PartitionId, PartitionIndex, Timestamp, TopicId, TopicName};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Mutex, oneshot},
    task::spawn_local,
    time::{sleep, timeout},
};

use super::{
    control_peers::{ControlPeers, PeerRequests, PeerTopic, PendingAnswer},
    leader_requests::LEADER_PATIENCE,
    topic_listener::TopicListener,
};
use crate::{
    identity::{authority::Authority, tenant_meter::TenantMeter},
    runtime::{
        core::CoreHandle,
        groups::Leader,
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
    peers: Option<Rc<ControlPeers>>,
    /// One measurement after the other.
    turn: Mutex<()>,
}

/// What a tenant stores in some shards: those that the node leads that says so.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Share {
    shards: Vec<u32>,
    bytes: u64,
    too_old_at_ms: Option<u64>,
    until_settled: bool,
}

impl Share {
    fn stored(&self) -> Stored {
        let Self { bytes, too_old_at_ms, until_settled, .. } = *self;
        Stored { bytes, too_old_at: too_old_at_ms.map(Timestamp), until_settled }
    }
}

impl TopicListener for TenantStorage {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            if self.peers.is_none() {
                // The broker serves no client yet: none waits for a turn.
                self.measure_all(Duration::ZERO, |_| true).await;
            } else {
                spawn_local(self.clone().measure_new_quotas());
            }
            spawn_local(async move {
                loop {
                    sleep(MEASURE_EVERY).await;
                    self.measure_all(PAUSE, |_| true).await;
                }
            });
        })
    }

    fn appeared(self: Rc<Self>, _name: &TopicName, _topic: TopicId, _from: Offset) {}

    fn gone(self: Rc<Self>, _name: &TopicName, _topic: TopicId) {}
}

impl PeerRequests for TenantStorage {
    fn answer_node(self: Rc<Self>, body: Bytes) -> PendingAnswer {
        Box::pin(async move {
            let tenant = str::from_utf8(&body).ok().and_then(|name| name.parse().ok());
            let share = match &tenant {
                Some(tenant) => self.own_share(tenant, PAUSE).await,
                None => None,
            };
            let share = share.and_then(|share| serde_json::to_vec(&share).ok());
            share.unwrap_or_default().into()
        })
    }
}

impl TenantStorage {
    /// Nothing is measured before the start. A node of a cluster lets nothing be stored before it has measured.
    pub(crate) fn new(
        core: CoreHandle,
        authority: Authority,
        peers: Option<Rc<ControlPeers>>,
    ) -> Rc<Self> {
        if peers.is_some() {
            authority.wait_for_measurements();
        }
        Rc::new(Self { core, authority, peers, turn: Mutex::new(()) })
    }

    /// Measures tenants whose quota is a new one here as soon as it is in force.
    async fn measure_new_quotas(self: Rc<Self>) {
        let mut changes = self.authority.changes();
        while changes.changed().await.is_ok() {
            self.measure_all(PAUSE, TenantMeter::is_unmeasured).await;
        }
    }

    async fn measure_all(&self, pause: Duration, is_meant: impl Fn(&TenantMeter) -> bool) {
        let Some(directory) = self.authority.directory() else { return };
        for (tenant, entry) in directory.tenants() {
            let meter = self.authority.meter(tenant).filter(|meter| is_meant(meter));
            if entry.quotas.stored_bytes.is_some() && meter.is_some() {
                self.measure_with(tenant, pause).await;
            }
        }
    }

    /// Measures what one tenant stores, so that its quota counts from now on.
    pub(crate) async fn measure(&self, tenant: &TenantName) {
        self.measure_with(tenant, PAUSE).await;
    }

    /// Measures what a tenant stores. Where that cannot be said, what was measured before and what has come since count on.
    async fn measure_with(&self, tenant: &TenantName, pause: Duration) {
        let _turn = self.turn.lock().await;
        let Some(meter) = self.authority.meter(tenant) else { return };
        meter.begin_measurement();
        let stored = match &self.peers {
            None => self.own_share(tenant, pause).await.map(|share| share.stored()),
            Some(peers) => self.of_all_nodes(peers, tenant, pause).await,
        };
        if let Some(Stored { bytes, too_old_at, until_settled }) = stored {
            meter.end_measurement(StoredBytes { bytes, too_old_at, until_settled });
        }
    }

    /// What a tenant stores in all shards, each as its leader has it: a replica may be behind. `None` if that cannot be said.
    async fn of_all_nodes(
        &self,
        peers: &ControlPeers,
        tenant: &TenantName,
        pause: Duration,
    ) -> Option<Stored> {
        let shards = || self.core.cores.placement.all_shards();
        let leaders: BTreeSet<_> = shards()
            .filter_map(|shard| match peers.groups.leader_of(shard) {
                Leader::Node { node, .. } => Some(node),
                Leader::Here { .. } | Leader::Unknown => None,
            })
            .collect();
        let own = self.own_share(tenant, pause).await?;
        let (mut measured, mut all) = (own.shards.clone(), own.stored());
        for node in leaders {
            let body = Bytes::copy_from_slice(tenant.as_str().as_bytes());
            let asked = timeout(LEADER_PATIENCE, peers.ask(node, PeerTopic::Storage, body));
            let share: Share = serde_json::from_slice(&asked.await.ok()?.ok()?).ok()?;
            all = all.and(share.stored());
            measured.extend(share.shards);
        }
        // Each once: two nodes may believe for a moment that they lead.
        measured.sort_unstable();
        shards().map(|shard| shard.0).eq(measured).then_some(all)
    }

    /// What a tenant stores in the shards that this node leads; `None` if that cannot be said.
    async fn own_share(&self, tenant: &TenantName, pause: Duration) -> Option<Share> {
        let led = self.led_shards();
        self.ask_each(|sums, _| sums.carry(), |_| true).await?;
        let mut all = Stored::default();
        for separator in ['.', '/'] {
            let prefix = format!("{tenant}{separator}");
            let mut after = Some(prefix.clone());
            while let Some(name) = after.take() {
                let (partitions, next) = self.partitions_behind(&name, &prefix, &led);
                let partitions = Arc::new(partitions);
                let of_core = partitions.clone();
                let sums = self.ask_each(
                    move |sums, core| sums.sum(&of_core[core]),
                    |core| !partitions[core].is_empty(),
                );
                // Without an answer the broker stops.
                all = sums.await?.into_iter().fold(all, Stored::and);
                after = next;
                if after.is_some() && !pause.is_zero() {
                    sleep(pause).await;
                }
            }
        }
        let shards = led.keys().map(|shard| shard.0).collect();
        let Stored { bytes, too_old_at, until_settled } = all;
        let too_old_at_ms = too_old_at.map(|at| at.0);
        // A new leader alone says what it has.
        let share = Share { shards, bytes, too_old_at_ms, until_settled };
        (self.led_shards() == led).then_some(share)
    }

    /// The shards that this node leads, each with the term: all of a broker alone.
    fn led_shards(&self) -> BTreeMap<ShardIndex, u64> {
        let shards = self.core.cores.placement.all_shards();
        let term = |shard| match &self.peers {
            None => Some(0),
            Some(peers) => match peers.groups.leader_of(shard) {
                Leader::Here { term } => Some(term),
                Leader::Node { .. } | Leader::Unknown => None,
            },
        };
        shards.filter_map(|shard| Some((shard, term(shard)?))).collect()
    }

    /// The partitions of some topics behind a name in these shards, by core, and the name behind which others follow.
    fn partitions_behind(
        &self,
        after: &str,
        prefix: &str,
        shards: &BTreeMap<ShardIndex, u64>,
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
                    if shards.contains_key(&shard) {
                        partitions[placement.core_of(shard)].push((shard, partition));
                    }
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
