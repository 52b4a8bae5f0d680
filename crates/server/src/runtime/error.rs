//! The reasons why the broker does not start, or stopped.

use std::{io, net::SocketAddr, path::PathBuf};

use sennit_journal::Fault;
use sennit_replica::StartError;
use sennit_shard::{RecoverError, RepairError};

/// Why the broker does not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Nobody is asked who they are, so strangers must not reach the broker.
    #[error(
        "{setting} ({flag}): {address} can be reached from other machines, and nobody is asked for credentials: give --init-admin, which creates a first API key and shows it once; or listen on 127.0.0.1; or give --insecure-no-auth if anybody may do anything"
    )]
    NotLoopback {
        /// The setting, as `section.field`.
        setting: &'static str,
        /// Its flag.
        flag: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// A segment must hold the longest batch.
    #[error(
        "journal.segment_size (--segment-size): a segment of {requested} bytes is not possible: at least {least}, and a multiple of 4096"
    )]
    SegmentBytes {
        /// The requested length.
        requested: u64,
        /// The least that is possible.
        least: u64,
    },
    /// There are no such cores.
    #[error("server.cores (--cores): {requested} is not possible: 1 to {most} are")]
    Cores {
        /// The requested number.
        requested: u32,
        /// The most that are possible.
        most: u32,
    },
    /// Nothing would go on.
    #[error("{setting} ({flag}) is 0; at least 1 is possible")]
    Zero {
        /// The setting, as `section.field`.
        setting: &'static str,
        /// Its flag.
        flag: &'static str,
    },
    /// Two peers have the same id, or one has this node's.
    #[error("--peers: node {node} is named twice, or is this node")]
    Peers {
        /// The id.
        node: u16,
    },
    /// Each node would publish what comes from other brokers once more.
    #[error(
        "--live-redis is for brokers that are not one cluster: with --peers, nodes have each other's messages anyway"
    )]
    RelayOfNode,
    /// Links between nodes are neither encrypted nor asked for credentials yet.
    #[error(
        "{address} can be reached from other machines, or names one, and links between nodes have no TLS yet: use addresses of this machine, or give --insecure-no-auth if anybody who reaches the links may do anything"
    )]
    OpenLinks {
        /// The address.
        address: String,
    },
    /// A node without an id has no peers.
    #[error("the data directory belongs to no node of a cluster: peers need --node-id")]
    NoNode,
    /// Two rules say how the same streams are kept.
    #[error(
        "streams.storage_rules (--streams-storage-rule): two rules are for names that begin with {prefix}"
    )]
    StorageRules {
        /// What the names begin with.
        prefix: Box<str>,
    },
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] sennit_tls::TlsFault),
    /// Tokens cannot be taken as it was said.
    #[error("{0}")]
    Tokens(Box<str>),
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The data directory cannot be used.
    #[error(transparent)]
    Directory(#[from] Fault),
    /// The disk has no room for a new data directory.
    #[error(
        "{path} has no room for a new data directory: {} MiB are free, and {shards} shards with segments of {} MiB need {} MiB; free space, choose another disk, or give a smaller --shards or --segment-size if you gave one",
        free >> 20, segment_bytes >> 20, needed.div_ceil(1 << 20), path = .path.display()
    )]
    SmallDisk {
        /// The data directory.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed.
        needed: u64,
        /// How many shards it would have.
        shards: u32,
        /// How long its segments would be, in bytes.
        segment_bytes: u64,
    },
    /// The disk has no room for a shard to go on where it stopped.
    #[error(
        "shard {shard} cannot start in {path}: {} MiB are free, and a start needs {} MiB; free space on that disk or make it larger",
        free >> 20, needed.div_ceil(1 << 20), path = .path.display()
    )]
    NoRoomToStart {
        /// Which shard.
        shard: u32,
        /// Where its journal lies.
        path: PathBuf,
        /// Bytes that are free.
        free: u64,
        /// Bytes that are needed beside the slots that are spare.
        needed: u64,
    },
    /// A shard cannot go on where it stopped.
    #[error("shard {shard} cannot be recovered: {error}")]
    Recover {
        /// Which shard.
        shard: u32,
        /// Why not.
        #[source]
        error: RecoverError,
    },
    /// A shard is no replica that can go on in its group.
    #[error("shard {shard} cannot join its group: {error}")]
    Replica {
        /// Which shard.
        shard: u32,
        /// Why not.
        #[source]
        error: StartError,
    },
    /// A shard cannot be repaired.
    #[error("shard {shard} cannot be repaired: {error}")]
    Repair {
        /// Which shard.
        shard: u32,
        /// Why not.
        #[source]
        error: RepairError,
    },
    /// Messages that a node has given up would be kept by the other nodes.
    #[error(
        "{path} belongs to a node of a cluster and cannot be repaired; restore a backup into a new directory, or start it as it is",
        path = .path.display()
    )]
    RepairOfNode {
        /// The data directory.
        path: PathBuf,
    },
    /// The journal of a shard has failed while the broker ran. What was confirmed is safe.
    #[error(
        "the journal of shard {shard} failed: {fault}; start the broker again once the disk is well"
    )]
    Fenced {
        /// Which shard.
        shard: u32,
        /// What failed.
        fault: Fault,
    },
    /// The system has no threads, random numbers or sockets left.
    #[error("cannot {action}: {error}")]
    System {
        /// What was tried.
        action: &'static str,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
}

impl ServeError {
    /// Whether what was asked for cannot be, wherever and whenever it is asked; if not, something around
    /// the broker is in its way.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        match self {
            Self::NotLoopback { .. }
            | Self::SegmentBytes { .. }
            | Self::Cores { .. }
            | Self::Zero { .. }
            | Self::StorageRules { .. }
            | Self::Peers { .. }
            | Self::OpenLinks { .. }
            | Self::RelayOfNode
            | Self::NoNode
            | Self::Tls(_)
            | Self::Tokens(_)
            | Self::Directory(Fault::Impossible { .. }) => true,
            Self::Listen { .. }
            | Self::Directory(_)
            | Self::SmallDisk { .. }
            | Self::NoRoomToStart { .. }
            | Self::Recover { .. }
            | Self::Replica { .. }
            | Self::Repair { .. }
            | Self::RepairOfNode { .. }
            | Self::Fenced { .. }
            | Self::System { .. } => false,
        }
    }

    /// The setting that cannot be, as `section.field`, where one alone is the reason.
    #[must_use]
    pub fn setting(&self) -> Option<&'static str> {
        match self {
            Self::NotLoopback { setting, .. } | Self::Zero { setting, .. } => Some(setting),
            Self::SegmentBytes { .. } => Some("journal.segment_size"),
            Self::Cores { .. } => Some("server.cores"),
            Self::StorageRules { .. } => Some("streams.storage_rules"),
            Self::Tokens(_) => Some("auth.token_issuer"),
            Self::RelayOfNode => Some("live.redis"),
            _ => None,
        }
    }

    /// For `map_err`: the cause of a failed `action`.
    pub(crate) fn system(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::System { action, error }
    }
}
