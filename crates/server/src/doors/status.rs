//! The broker's state over HTTP: alive, ready, metrics; and its backup. It knows no sockets, and answers on any
//! thread.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{HeaderValue, StatusCode, header};
use prometheus_client::registry::Registry;

use crate::http::{
    answer::{coded_problem, full, problem},
    body::{Body, PageSource, Pieces},
    response::Response,
};
use crate::{
    broker::backup::{Archive, Backups, NoBackup},
    cluster::{
        peer_metrics::PeerCollector, peer_state::ClusterState, replica_metrics::ReplicaCollector,
    },
    identity::authority::Authority,
    runtime::{
        disk_need::free_bytes,
        groups::Groups,
        index::{CoreIndex, IndexVec, ShardIndex},
        metrics::{self, CoreMetrics, ShardMetrics},
    },
};

/// What the port tells.
#[derive(Debug)]
pub(crate) struct Status {
    /// Whether the journals are still read.
    pub(crate) recovering: AtomicBool,
    /// Whether the broker is about to stop.
    pub(crate) draining: AtomicBool,
    /// Whether a journal has failed.
    pub(crate) fenced: AtomicBool,
    /// What is counted, for people and for [`Status::ready`].
    registry: Registry,
    /// Where the data lies.
    data: PathBuf,
    shards: IndexVec<ShardIndex, Arc<ShardMetrics>>,
    backups: Arc<Backups>,
    /// The peers and the groups, if the broker is a node of a cluster.
    cluster: Option<(Arc<ClusterState>, Arc<Groups>)>,
    authority: Authority,
}

impl Status {
    /// Of a broker that has just started.
    pub(crate) fn recovering(
        shards: IndexVec<ShardIndex, Arc<ShardMetrics>>,
        cores: IndexVec<CoreIndex, Arc<CoreMetrics>>,
        backups: Arc<Backups>,
        data: PathBuf,
        cluster: Option<(Arc<ClusterState>, Arc<Groups>)>,
        authority: Authority,
    ) -> Self {
        let mut registry = metrics::registry(shards.clone(), cores);
        if let Some((cluster, groups)) = cluster.clone() {
            registry.register_collector(Box::new(PeerCollector(cluster)));
            registry.register_collector(Box::new(ReplicaCollector(groups)));
        }
        Self {
            recovering: AtomicBool::new(true),
            draining: AtomicBool::new(false),
            fenced: AtomicBool::new(false),
            registry,
            data,
            shards,
            backups,
            cluster,
            authority,
        }
    }

    /// Whether the cores serve: the shards are recovered, and the broker is not about to stop.
    pub(crate) fn is_serving(&self) -> bool {
        ![&self.recovering, &self.draining, &self.fenced].iter().any(|flag| flag.load(Relaxed))
    }

    /// Whether the broker serves, and what of it is damaged.
    pub(crate) fn ready(&self) -> Response {
        let reasons = [
            (&self.recovering, "recovering"),
            (&self.draining, "draining"),
            (&self.fenced, "journal failed"),
        ];
        let groups = self.cluster.as_ref().map(|(_, groups)| groups);
        let is_alone = groups.is_some_and(|groups| !groups.are_led());
        let knows_nobody = groups.is_some_and(|groups| groups.knows_nobody());
        // A node that has just started has this from the others.
        let lets_nobody_in =
            groups.is_some() && !knows_nobody && self.authority.directory().is_none();
        let reasons: Vec<&str> = reasons
            .into_iter()
            .filter_map(|(flag, reason)| flag.load(Relaxed).then_some(reason))
            .chain(is_alone.then_some("a group has no leader that this node can reach"))
            .chain(knows_nobody.then_some("the replica of the catalogue is in quarantine"))
            .chain(
                lets_nobody_in.then_some("this node cannot tell yet which credentials are valid"),
            )
            .collect();
        let ready = reasons.is_empty();
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        let mut body = serde_json::json!({ "ready": ready, "reasons": reasons });
        // The rest is served; that something is not has to be seen all the same.
        type Of = fn(&ShardMetrics) -> u64;
        let quarantined: [(&str, Of); 5] = [
            ("batches", |shard| shard.counts.damaged_batches.value()),
            ("journal_places", |shard| shard.counts.journal_damage.value()),
            ("doubtful_partitions", |shard| shard.counts.doubtful_partitions.value()),
            ("scrubbed_places", |shard| shard.counts.scrub_damage.value()),
            ("lost_files", |shard| shard.counts.lost_files.value()),
        ];
        for (name, of) in quarantined {
            let sum: u64 = self.shards.iter().map(|shard| of(shard)).sum();
            if sum > 0 {
                body["quarantined"][name] = sum.into();
            }
        }
        self.describe_storage(&mut body);
        full(status, "application/json", (body.to_string() + "\n").into())
    }

    /// Says that publishes to some shard are refused for want of room. That is no reason not to be ready: who
    /// consumes and deletes makes room, and has to get through.
    fn describe_storage(&self, body: &mut serde_json::Value) {
        let of_full = self.shards.iter().filter(|shard| shard.counts.storage_full.value() > 0);
        let (shards, needed) = of_full.fold((0, 0), |(shards, needed), shard| {
            (shards + 1, needed + shard.counts.storage_needed_bytes.value())
        });
        if shards > 0 {
            body["storage"] = serde_json::json!({
                "full": true,
                "detail": "publishes are refused; deliveries, acks and deletes go on",
                "shards": shards,
                "needed_bytes": needed,
            });
            if let Some(free) = free_bytes(&self.data) {
                body["storage"]["free_bytes"] = free.into();
            }
        }
    }

    /// What is counted.
    pub(crate) fn metrics(&self) -> Response {
        if let Some(free) = free_bytes(&self.data) {
            self.shards.iter().for_each(|shard| shard.counts.storage_free_bytes.set(free));
        }
        let mut text = String::new();
        match prometheus_client::encoding::text::encode(&mut text, &self.registry) {
            Ok(()) => {
                let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
                full(StatusCode::OK, kind, text.into())
            }
            Err(error) => problem(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string(), []),
        }
    }

    /// The state of its peers and its groups, as the node knows it.
    pub(crate) fn cluster(&self) -> Response {
        match &self.cluster {
            Some((cluster, groups)) => {
                let mut said = cluster.describe();
                said["groups"] = groups.describe();
                full(StatusCode::OK, "application/json", format!("{said}\n").into())
            }
            None => coded_problem(StatusCode::NOT_FOUND, "no_cluster", "the broker has no peers"),
        }
    }

    /// That the process lives.
    pub(crate) fn alive(&self) -> Response {
        full(StatusCode::OK, "application/json", ALIVE.into())
    }

    /// The archive of a backup.
    pub(crate) async fn backup(&self) -> Response {
        match self.begin_backup().await {
            Ok(archive) => archive_answer(archive),
            Err(error) => problem(status_of(&error), &error.to_string(), []),
        }
    }

    async fn begin_backup(&self) -> Result<Archive, NoBackup> {
        if !self.is_serving() {
            return Err(NoBackup::NotServing);
        }
        self.backups.clone().begin().await
    }
}

const ALIVE: &str = "{\"alive\":true}\n";

/// An archive as the body of an answer.
struct ArchivePieces(Archive);

impl Pieces<io::Result<Bytes>> for ArchivePieces {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        self.0.poll_piece(context)
    }
}

fn archive_answer(archive: Archive) -> Response {
    let left = archive.bytes();
    let source = PageSource::new(ArchivePieces(archive));
    let mut response = Response::new(Body::Measured { source, left });
    let kind = HeaderValue::from_static("application/x-tar");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn status_of(no_backup: &NoBackup) -> StatusCode {
    match no_backup {
        NoBackup::UnderWay => StatusCode::CONFLICT,
        NoBackup::NotServing => StatusCode::SERVICE_UNAVAILABLE,
        NoBackup::StorageFull => StatusCode::INSUFFICIENT_STORAGE,
        NoBackup::Disk(_) | NoBackup::Keys(_) | NoBackup::System(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}
