//! The configuration of a broker at its start.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use sennit_journal::{SHARDS_MAX, disk::Access};
use sennit_tls::{ClientCertificates, TlsFault};

use crate::{
    cluster::settings::ClusterSettings,
    doors::{
        live::{backend::LiveBackend, relay::LiveRedis},
        streams::{
            PAGE_HEADERS, PublicOrigin, PublicUrl, StorageRules, StreamStorage, StreamStorageRule,
            StreamsSettings,
        },
    },
    http::{
        HostName, HttpOrigin,
        allowed_hosts::AllowedHosts,
        allowed_origins::AllowedOrigins,
        browser_guard::BrowserRules,
        limits::{CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX},
    },
    identity::{TokenConfig, token_config::TokenSettings},
    runtime::{
        error::ServeError,
        tls_reload::TlsReload,
        tls_settings::{BrokerCertificate, TlsSettings},
    },
};

/// What the broker is told when it starts. Checked by [`crate::serve`] before anything is opened.
#[derive(Clone, Debug)]
pub struct Config {
    /// The data directory; made if it is not there.
    pub data: PathBuf,
    /// Where the native protocol listens.
    pub listen: SocketAddr,
    /// Where HTTP listens.
    pub http: SocketAddr,
    /// HTTP connections that are served at once; more of them wait to be accepted.
    pub http_connections: usize,
    /// Of them, the connections of one address; of IPv6, of its first 64 bits. Those of 127.0.0.1 and ::1 are not counted.
    pub http_connections_per_address: usize,
    /// Hosts that HTTP requests may name, besides this machine, the address that the port listens on, and
    /// [`Config::streams_public_url`]. Where it listens beyond this machine, any address may be named.
    pub http_hosts: Vec<HostName>,
    /// Pages of browsers that may use HTTP streams, besides those of this machine where the port is
    /// asked for as such.
    pub http_origins: Vec<HttpOrigin>,
    /// The node to which a new data directory belongs, 1 to 4095: the first and only node of a new cluster. An existing
    /// directory says itself what it belongs to; it is refused if that is something else. Without it a new directory
    /// belongs to no cluster.
    pub node_id: Option<u16>,
    /// The other nodes of the cluster. Without it the broker has no links.
    pub cluster: Option<ClusterSettings>,
    /// How many shards a new data directory gets; by default one for each of `cores`, or of the
    /// machine's cores. An existing directory keeps its own number.
    pub shards: Option<u32>,
    /// How many cores, each with a thread, run the shards and serve the connections, 1 to 1024; by default one
    /// for each shard. Shards go round them: a core may run several, or none and serve connections only.
    pub cores: Option<u32>,
    /// How long a segment of a new data directory is, in bytes: a multiple of 4096, 20 MiB at least. By
    /// default 64 MiB, and less on a small disk.
    pub segment_bytes: Option<u64>,
    /// Bytes of the newest frames that each shard keeps in memory.
    pub cache_bytes: usize,
    /// Segments of each shard's journal beyond which the oldest is emptied: what is live in it moves
    /// to packs. More of them make a start take longer, fewer make the disk write more.
    pub journal_segments: usize,
    /// Bytes published and not yet committed, per shard, beyond which publishers are not read; no more than
    /// a segment's.
    pub ingest_bytes: u64,
    /// How long deliveries wait for a connection that was cut off.
    pub session_grace: Duration,
    /// How both ports speak TLS; without it they are plain.
    pub tls: Option<BrokerCertificate>,
    /// Whether clients show certificates; with `tls` only.
    pub tls_clients: ClientCertificates,
    /// The authorities that client certificates are from, in PEM.
    pub tls_client_ca: Option<PathBuf>,
    /// By which the certificates are read again on demand.
    pub tls_reload: TlsReload,
    /// Allows addresses other than the loopback, though nobody is asked who they are.
    pub insecure_no_auth: bool,
    /// Whose tokens are taken, besides API keys and passwords.
    pub tokens: TokenConfig,
    /// Creates an admin key at the start if nobody has credentials yet.
    pub init_admin: bool,
    /// How an HTTP stream is kept whose creator does not say.
    pub streams_storage: StreamStorage,
    /// Where others find the HTTP port, perhaps through a proxy: what the addresses begin with that the
    /// broker gives away. By default where whoever asks has found it.
    pub streams_public_url: Option<PublicUrl>,
    /// How HTTP streams are kept whose names begin alike, and whose creators do not say. The longest
    /// prefix counts; no two are the same.
    pub streams_storage_rules: Vec<StreamStorageRule>,
    /// How long a read of an HTTP stream waits for something to give.
    pub streams_long_poll_timeout: Duration,
    /// How long events of an HTTP stream are silent before a comment says that the connection still stands.
    pub streams_events_silence: Duration,
    /// How long a connection lasts on which they come: those between it and the reader may let several
    /// share one.
    pub streams_events_span: Duration,
    /// Live connections that are served at once; more of them are refused.
    pub live_connections: usize,
    /// How often the client of a live connection is asked whether it is there.
    pub live_ping_interval: Duration,
    /// How long the client of a live connection may take to say who it is.
    pub live_connect_timeout: Duration,
    /// Whether all subscribers of a topic that keeps presence are told who comes and goes, or only those who ask for it.
    pub live_tells_all: bool,
    /// How long channels that live connections create keep messages; without it as long as the broker runs.
    pub live_channels_keep: Option<Duration>,
    /// The application that is asked about live connections.
    pub live_backend: LiveBackend,
    /// The Redis by which brokers send one another the messages of live topics.
    pub live_redis: LiveRedis,
    /// Allows subscriptions to call webhooks of this machine, and without TLS: for development.
    pub streams_allow_private_webhooks: bool,
    /// How segments are written.
    pub access: Access,
    /// How long it may take to read everything at rest once and hold it against its checksums; `None`
    /// if nobody is to look.
    pub scrub_every: Option<Duration>,
    /// Gives memory that is free back to the system, where the allocator would keep it for later: called
    /// by the thread for which much has come free at once, and by one that has come to rest.
    pub give_back: fn(),
    /// Tells the admin key that a node of a cluster has created, some time after its start: nobody is told it again.
    pub tell_admin_key: fn(&str),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            data: PathBuf::from("data"),
            listen: SocketAddr::from(([127, 0, 0, 1], 4438)),
            http: SocketAddr::from(([127, 0, 0, 1], 4437)),
            http_connections: CONNECTIONS_MAX,
            http_connections_per_address: CONNECTIONS_PER_ADDRESS_MAX,
            http_hosts: Vec::new(),
            http_origins: Vec::new(),
            node_id: None,
            cluster: None,
            shards: None,
            cores: None,
            segment_bytes: None,
            cache_bytes: 32 << 20,
            journal_segments: 8,
            ingest_bytes: 64 << 20,
            session_grace: Duration::from_secs(5),
            tls: None,
            tls_clients: ClientCertificates::Off,
            tls_client_ca: None,
            tls_reload: TlsReload::default(),
            insecure_no_auth: false,
            tokens: TokenConfig::default(),
            init_admin: false,
            streams_storage: StreamStorage::default(),
            streams_public_url: None,
            streams_storage_rules: Vec::new(),
            streams_long_poll_timeout: Duration::from_secs(30),
            streams_events_silence: Duration::from_secs(15),
            streams_events_span: Duration::from_secs(60),
            live_connections: 60_000,
            live_ping_interval: Duration::from_secs(25),
            live_connect_timeout: Duration::from_secs(10),
            live_tells_all: false,
            live_channels_keep: None,
            live_backend: LiveBackend::default(),
            live_redis: LiveRedis::default(),
            streams_allow_private_webhooks: false,
            access: Access::Auto,
            scrub_every: Some(Duration::from_secs(7 * 86_400)),
            give_back: || {},
            tell_admin_key: |_| {},
        }
    }
}

/// Most cores: as many as shards, at most, may be.
const CORES_MAX: u32 = SHARDS_MAX;

/// Shortest segment: twice the longest batch, so that every record finds a place.
const SEGMENT_BYTES_MIN: u64 = 20 << 20;

impl Config {
    /// What pages in browsers may, of a port that listens there.
    pub(crate) fn browser_rules(&self, bound: IpAddr) -> BrowserRules {
        let own = self.streams_public_url.as_ref().map(PublicUrl::as_str);
        BrowserRules {
            hosts: AllowedHosts::new(bound, self.http_hosts.clone()),
            origins: AllowedOrigins::new(&self.http_origins, own),
            page_headers: &PAGE_HEADERS,
        }
    }

    /// What is decided for all streams.
    pub(crate) fn streams_settings(&self) -> StreamsSettings {
        StreamsSettings {
            storage: StorageRules::new(self.streams_storage, &self.streams_storage_rules),
            public_origin: match self.streams_public_url.clone() {
                Some(url) => PublicOrigin::Url(url),
                None => PublicOrigin::Host { is_tls: self.tls.is_some() },
            },
            long_poll_timeout: self.streams_long_poll_timeout,
            events_silence: self.streams_events_silence,
            events_span: self.streams_events_span,
        }
    }

    /// How many published bytes of a shard may wait for their commit. Publishes that were accepted before the disk
    /// was known to be full need room in the segment begun then, and in the slots that are held for it.
    pub(crate) fn ingest_bytes(&self, segment_bytes: u64) -> u64 {
        self.ingest_bytes.min(segment_bytes / 2)
    }

    /// How the ports speak TLS, if they do.
    pub(crate) fn tls_settings(&self) -> Result<Option<TlsSettings>, TlsFault> {
        let Self { tls, tls_clients, tls_client_ca, .. } = self.clone();
        let asks_clients = tls_clients != ClientCertificates::Off || tls_client_ca.is_some();
        match tls {
            None if asks_clients => Err(TlsFault::Settings(
                "--tls-client and --tls-client-ca are of no use without --tls",
            )),
            None => Ok(None),
            Some(certificate) => {
                let (clients, client_ca) = (tls_clients, tls_client_ca);
                Ok(Some(TlsSettings { certificate, clients, client_ca }))
            }
        }
    }

    /// The names of a certificate that the broker makes for itself: this machine's, and those that clients may use.
    pub(crate) fn own_names(&self, bound: [IpAddr; 2]) -> Vec<String> {
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
        let specified = bound.into_iter().filter(|address| !address.is_unspecified());
        names.extend(specified.map(|address| address.to_string()));
        names.extend(self.http_hosts.iter().map(ToString::to_string));
        let mut seen = HashSet::new();
        names.retain(|name| !name.is_empty() && seen.insert(name.clone()));
        names
    }

    /// How many cores a broker with so many shards has.
    pub(crate) fn cores(&self, shards: u32) -> u32 {
        self.cores.unwrap_or(shards)
    }

    /// The demands on tokens, and the keys that check them.
    pub(crate) fn token_settings(&self) -> Result<Option<TokenSettings>, ServeError> {
        self.tokens.settings().map_err(|error| ServeError::Tokens(error.to_string().into()))
    }

    /// Refuses to listen beyond this machine if nobody is asked for credentials.
    pub(crate) fn check_identity(&self, asks: bool) -> Result<(), ServeError> {
        let addresses =
            [("native.listen", "--listen", self.listen), ("http.listen", "--http", self.http)];
        match addresses.iter().find(|(_, _, address)| !address.ip().is_loopback()) {
            Some(&(setting, flag, address)) if !(asks || self.insecure_no_auth) => {
                Err(ServeError::NotLoopback { setting, flag, address })
            }
            _ => Ok(()),
        }
    }

    /// Checks what can be checked before anything is opened.
    ///
    /// # Errors
    /// The first setting that cannot be.
    pub fn check(&self) -> Result<(), ServeError> {
        // A directory that is there may have keys; it is asked again once they are read.
        let takes_tokens = self.token_settings()?.is_some();
        let may_ask = self.init_admin || takes_tokens || self.data.join("FORMAT").exists();
        self.check_identity(may_ask)?;
        if let Some(cluster) = &self.cluster {
            cluster.check(self.node_id, self.insecure_no_auth)?;
            if self.live_redis.url.is_some() {
                return Err(ServeError::RelayOfNode);
            }
        }
        for (setting, flag, count) in [
            ("http.connections", "--http-connections", self.http_connections),
            (
                "http.connections_per_address",
                "--http-connections-per-address",
                self.http_connections_per_address,
            ),
            ("journal.segments", "--journal-segments", self.journal_segments),
        ] {
            if count == 0 {
                return Err(ServeError::Zero { setting, flag });
            }
        }
        if let Some(given) = self.cores
            && !(1..=CORES_MAX).contains(&given)
        {
            return Err(ServeError::Cores { requested: given, most: CORES_MAX });
        }
        let rules = &self.streams_storage_rules;
        for (at, rule) in rules.iter().enumerate() {
            if rules[..at].iter().any(|other| other.prefix == rule.prefix) {
                return Err(ServeError::StorageRules { prefix: rule.prefix.clone() });
            }
        }
        if let Some(given) = self.segment_bytes
            && (given < SEGMENT_BYTES_MIN || !given.is_multiple_of(4096))
        {
            return Err(ServeError::SegmentBytes { requested: given, least: SEGMENT_BYTES_MIN });
        }
        Ok(())
    }
}
