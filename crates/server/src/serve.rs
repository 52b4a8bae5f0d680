//! Starting and stopping: the directory is locked, each shard is recovered on the core that will run it, then the
//! doors open. Stopping goes the other way round.

use std::{
    net::SocketAddr,
    pin::pin,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::Duration,
};

use sennit_engine::Throttles;
use sennit_identity::Zeroizing;
use sennit_journal::{DataDirectory, DirectorySettings, LaneConfig, NodeIdentity};
use sennit_tls::Fingerprint;
use tokio::{
    sync::{mpsc as async_mpsc, oneshot},
    task::{LocalSet, spawn_local},
};

use crate::{
    access::{first_admin_key, first_admin_key_of_cluster},
    broker::{backup::Backups, control::Control, recovered_state::Found},
    cluster::{
        peer_listener,
        peer_state::{ClusterState, Identity},
        settings::ClusterSettings,
    },
    config::Config,
    core_thread::CoreThread,
    doors::{http_router::HttpRouter, native::port, status::Status},
    http::{
        port::{HttpThread, Port},
        thread_state::HttpThreadState,
    },
    identity::{authority::Authority, token_issuer::TokenIssuer},
    reload::Running,
    runtime::{
        clock,
        core::Cores,
        disk_need::{Sizes, sizes_for},
        disk_reserve::DiskReserve,
        drain,
        error::ServeError,
        file_descriptors::FileDescriptors,
        groups::Groups,
        inbox::{self, Message},
        index::{CoreIndex, IndexVec, ShardIndex},
        listener::{Listener, listen},
        move_permit::MovePermit,
        own_topic::OwnTopic,
        placement::Placement,
        publish_gauge::PublishGauge,
        random_id::random_id,
        shard_files::ShardFiles,
        tls_port::{Handshakes, TlsPort},
        tls_reload::{self, TlsPorts},
        tls_settings::TlsSource,
    },
};

/// How long the cores' threads may take to end once they were told to. They end at once as a rule; a broker whose
/// threads still write must not let go of its directory.
const END: Duration = Duration::from_secs(10);

/// Shards of a new data directory for whose number nobody asked, at most.
const SHARDS_UNASKED_MAX: u32 = 256;

/// Where the broker listens, once it does.
#[derive(Clone, Debug)]
pub struct Addresses {
    /// The native protocol.
    pub listen: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
    /// For other nodes, if it has links.
    pub cluster: Option<SocketAddr>,
    /// How many shards there are.
    pub shards: u32,
    /// How many cores run them.
    pub cores: u32,
    /// How clients know the broker, if it speaks TLS.
    pub tls: Option<TlsAddress>,
}

/// How clients know a broker that speaks TLS.
#[derive(Clone, Debug)]
pub struct TlsAddress {
    /// The fingerprint to pin: of the certificate, or of the broker's own authority.
    pub fingerprint: Fingerprint,
    /// Whether the certificate is of the broker's own authority, which nobody else knows.
    pub is_own: bool,
}

/// What a broker says of itself once it serves.
#[derive(Clone, Debug)]
pub struct Started {
    /// Where it listens.
    pub addresses: Addresses,
    /// The first admin key, if it was created at this start: it is told once.
    pub admin_key: Option<Arc<Zeroizing<String>>>,
    /// Whether callers are asked for credentials.
    pub asks: bool,
}

/// Runs a broker until `stop` is done, or a journal fails. `ready` is called once it serves.
///
/// # Errors
/// A [`ServeError`]: it could not start, or a journal failed.
pub fn serve(
    config: Config,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(Started),
) -> Result<(), ServeError> {
    let (_, reloads) = async_mpsc::unbounded_channel();
    serve_and_reload(config, stop, reloads, ready)
}

/// As [`serve`]. Of each configuration that `reloads` brings, it puts in force what can change while it runs.
///
/// # Errors
/// As those of [`serve`].
pub fn serve_and_reload(
    config: Config,
    stop: impl Future<Output = ()>,
    reloads: async_mpsc::UnboundedReceiver<Config>,
    ready: impl FnOnce(Started),
) -> Result<(), ServeError> {
    config.check()?;
    let native = listen(config.listen)?;
    let http = listen(config.http)?;
    let peers = config.cluster.as_ref().map(|cluster| listen(cluster.listen)).transpose()?;
    let directory = open_directory(&config)?;
    let (ended, end) = mpsc::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::system("start a runtime"))?;
    let broker = Broker { config, native, http, peers, directory: &directory, ended };
    let outcome = LocalSet::new().block_on(&runtime, broker.run(stop, reloads, ready));
    // The directory is let go when nobody writes to it any more.
    if end.recv_timeout(END) == Err(RecvTimeoutError::Timeout) {
        tracing::warn!("a thread did not end in time");
    }
    outcome
}

/// What is there before anything runs.
struct Broker<'a> {
    config: Config,
    native: std::net::TcpListener,
    http: std::net::TcpListener,
    peers: Option<std::net::TcpListener>,
    directory: &'a DataDirectory,
    ended: mpsc::Sender<()>,
}

impl Broker<'_> {
    async fn run(
        self,
        stop: impl Future<Output = ()>,
        mut reloads: async_mpsc::UnboundedReceiver<Config>,
        ready: impl FnOnce(Started),
    ) -> Result<(), ServeError> {
        let Self { config, native, http, peers, directory, ended } = self;
        let settings = *directory.settings();
        let shards = settings.shards as usize;
        let placement = Placement::round_robin(settings.shards, config.cores(settings.shards));
        let address_of = |socket: &std::net::TcpListener| {
            socket.local_addr().map_err(ServeError::system("ask for an address"))
        };
        let cluster = cluster_state(&config, &settings, &placement)?;
        let addresses = Addresses {
            listen: address_of(&native)?,
            http: address_of(&http)?,
            cluster: peers.as_ref().map(address_of).transpose()?,
            shards: settings.shards,
            cores: placement.cores() as u32,
            tls: None,
        };
        let (tls_ports, tls) = open_tls(&config, &addresses)?;
        let addresses = Addresses { tls, ..addresses };
        let descriptors = FileDescriptors::raise(shards);
        let native = Listener::new(
            native,
            descriptors,
            tls_ports.as_ref().map(|ports| ports.native.clone()),
        )?;
        let http =
            Listener::new(http, descriptors, tls_ports.as_ref().map(|ports| ports.http.clone()))?;

        let (inboxes, receivers): (Vec<_>, Vec<_>) =
            (0..placement.cores()).map(|_| async_mpsc::unbounded_channel()).unzip();
        let groups = groups(&config, &settings);
        let cores = cores(&config, &settings, (placement, groups), inboxes);
        let shard_files = Arc::new(ShardFiles::closed(shards));
        let backups =
            Backups::new(settings, config.data.clone(), shard_files.clone(), ended.clone());
        let (of_shards, of_cores) = (cores.shard_metrics.clone(), cores.metrics.clone());
        let data = config.data.clone();
        let of_cluster = cluster.clone().zip(cores.groups.clone());
        let authority = Authority::before_start();
        let status =
            Status::recovering(of_shards, of_cores, backups, data, of_cluster, authority.clone());
        let status = Arc::new(status);
        if let Some(tokens) = config.token_settings()? {
            let issuer = TokenIssuer::new(&tokens);
            authority.set_issuer(issuer.clone());
            spawn_local(async move { issuer.keep_fetching(clock::now).await });
        }
        let rules = config.browser_rules(addresses.http.ip());
        let outside_cores = || {
            let thread_state = Rc::new(HttpThreadState::new(
                cores.metrics[CoreIndex::FIRST].clone(),
                None,
                rules.clone(),
            ));
            let handlers = Rc::new(HttpRouter::new(
                thread_state.clone(),
                status.clone(),
                (None, None),
                (None, None),
                authority.clone(),
                cores.inboxes[CoreIndex::FIRST].clone(),
            ));
            HttpThread { thread_state, handlers, cores: cores.clone() }
        };
        let (early, late) = (outside_cores(), outside_cores());
        let mut running = Running {
            cores: cores.clone(),
            shard_files: shard_files.clone(),
            http: addresses.http.ip(),
            outside_cores: [early.thread_state.clone(), late.thread_state.clone()],
            segment_bytes: settings.segment_bytes,
            tls_reload: config.tls_reload.clone(),
            scrub: None,
            scrub_every: None,
        };
        let are_serving = {
            let status = status.clone();
            move || status.is_serving()
        };
        let per_address = config.http_connections_per_address.min(descriptors.half());
        let most = (config.http_connections, per_address);
        let port = Port::new(http, most, are_serving, early, late);
        let early = port.early();
        spawn_local(port.serve());

        let (failed, mut failures) = async_mpsc::unbounded_channel();
        let (recovered, recoveries) = async_mpsc::unbounded_channel();
        for (index, receiver) in cores.inboxes.indices().zip(receivers) {
            let lane = |shard: ShardIndex| LaneConfig {
                directory: directory.lane_directory(shard.0),
                lane: shard.0,
                segment_bytes: settings.segment_bytes,
                incarnation: settings.incarnation,
            };
            let shards = cores.placement.shards_of(index);
            let thread = CoreThread {
                index,
                lanes: shards.map(|shard| (shard, lane(shard))).collect(),
                config: config.clone(),
                cores: cores.clone(),
                node: settings.node,
                cluster: cluster.clone(),
                shard_files: shard_files.clone(),
                status: status.clone(),
                authority: authority.clone(),
                rules: rules.clone(),
                receiver,
                recovered: recovered.clone(),
                failed: failed.clone(),
                ended: ended.clone(),
            };
            thread.start()?;
        }
        drop((recovered, failed, ended));
        let mut stop = pin!(stop);
        let recovered = tokio::select! {
            recovered = recover(&cores, recoveries) => Some(recovered),
            () = &mut stop => None,
        };
        // Nothing was served yet, so nothing is to be finished.
        if !matches!(recovered, Some(Ok(()))) {
            cores.inboxes.iter().for_each(|inbox| drop(inbox.send(Message::End)));
            return recovered.unwrap_or(Ok(()));
        }
        let admin_key = match config.init_admin && cores.groups.is_none() {
            true => first_admin_key(&cores, &authority).await.map_err(|refusal| {
                ServeError::system("create the first admin key")(std::io::Error::other(
                    refusal.to_string(),
                ))
            }),
            false => Ok(None),
        };
        let checked = admin_key.and_then(|key| {
            config.check_identity(authority.asks())?;
            Ok(key)
        });
        let admin_key = match checked {
            Ok(key) => key.map(Arc::new),
            Err(error) => {
                status.draining.store(true, Relaxed);
                drain::all(&cores).await;
                return Err(error);
            }
        };
        let accepting = spawn_local(port::accept(native, cores.clone()));
        if let Some((peers, cluster)) = peers.zip(cluster) {
            let peers = Listener::new(peers, descriptors, None)?;
            spawn_local(peer_listener::accept(peers, cluster, cores.inboxes.clone()));
        }
        status.recovering.store(false, Relaxed);
        early.closing.begin();
        running.set_scrub(&config)?;
        ready(Started { addresses, admin_key, asks: authority.asks() });
        if config.init_admin && cores.groups.is_some() {
            spawn_local(first_admin_key_of_cluster(cores.clone(), config.tell_admin_key));
        }
        let outcome = loop {
            tokio::select! {
                () = &mut stop => break Ok(()),
                Some((shard, fault)) = failures.recv() => break Err(ServeError::Fenced { shard, fault }),
                Some(config) = reloads.recv() => {
                    if let Err(error) = running.apply(&config) {
                        tracing::error!(%error, "a reload could not apply all settings");
                    }
                }
            }
        };
        status.draining.store(true, Relaxed);
        status.fenced.store(outcome.is_err(), Relaxed);
        accepting.abort();
        drain::all(&cores).await;
        outcome
    }
}

/// This node and its peers, if it has links.
fn cluster_state(
    config: &Config,
    settings: &DirectorySettings,
    placement: &Placement,
) -> Result<Option<Arc<ClusterState>>, ServeError> {
    let Some(ClusterSettings { peers, .. }) = &config.cluster else { return Ok(None) };
    let NodeIdentity { cluster, id, start_epoch, .. } = settings.node.ok_or(ServeError::NoNode)?;
    let (incarnation, cores) = (settings.incarnation, placement.cores() as u32);
    let shards = settings.shards;
    let own = Identity { cluster, node: id, incarnation, start_epoch, cores, shards };
    Ok(Some(Arc::new(ClusterState::new(own, peers))))
}

/// The groups of the shards, if the node has peers.
pub(crate) fn groups(config: &Config, settings: &DirectorySettings) -> Option<Arc<Groups>> {
    let (cluster, node) = config.cluster.as_ref().zip(settings.node)?;
    let peers = cluster.peers.iter().map(|peer| peer.node);
    Some(Arc::new(Groups::new(node.id, peers, settings.shards as usize, node.start_epoch)))
}

/// The TLS of the ports, whose certificates are read again from now on, and how clients know the broker by it.
fn open_tls(
    config: &Config,
    addresses: &Addresses,
) -> Result<(Option<TlsPorts>, Option<TlsAddress>), ServeError> {
    let Some(settings) = config.tls_settings()? else { return Ok((None, None)) };
    let source = TlsSource::new(
        settings,
        &config.data,
        config.own_names([addresses.listen.ip(), addresses.http.ip()]),
    );
    let stamps = source.stamps();
    let loaded = source.load()?;
    let handshakes = Arc::new(Handshakes::new());
    let port = |settings| Rc::new(TlsPort::new(settings, handshakes.clone()));
    let (native, http) = (port(loaded.native), port(loaded.http));
    let known = TlsAddress { fingerprint: loaded.fingerprint, is_own: source.is_own() };
    let ports = TlsPorts { native: native.clone(), http: http.clone() };
    spawn_local(tls_reload::run(source, stamps, ports, config.tls_reload.clone()));
    Ok((Some(TlsPorts { native, http }), Some(known)))
}

/// The state that all cores share.
pub(crate) fn cores(
    config: &Config,
    settings: &DirectorySettings,
    (placement, groups): (Placement, Option<Arc<Groups>>),
    inboxes: Vec<inbox::Sender>,
) -> Arc<Cores> {
    let (shards, segment_bytes) = (settings.shards as usize, settings.segment_bytes);
    let ingest_bytes = config.ingest_bytes(segment_bytes);
    let reserve = Arc::new(DiskReserve::new(shards, inboxes.clone(), segment_bytes));
    Arc::new(Cores {
        inboxes: inboxes.into_iter().collect(),
        gauges: IndexVec::of(shards, |_| PublishGauge::new(ingest_bytes)),
        metrics: IndexVec::of(placement.cores(), |_| Arc::default()),
        shard_metrics: IndexVec::of(shards, |_| Arc::default()),
        placement,
        session_grace: config.session_grace,
        move_permit: Arc::new(MovePermit::new(config.give_back)),
        throttles: Arc::new(Throttles::without_rules_yet()),
        reserve,
        claims: AtomicU64::new(1),
        topic_changes: AtomicU64::new(0),
        own_topic: OwnTopic::default(),
        groups,
    })
}

/// Waits until all cores have recovered their shards, and these are as the catalogue says.
async fn recover(
    cores: &Cores,
    mut recoveries: async_mpsc::UnboundedReceiver<Result<Found, ServeError>>,
) -> Result<(), ServeError> {
    let mut found = Found::default();
    for _ in 0..cores.placement.cores() {
        let of_core = recoveries.recv().await;
        found.append(of_core.unwrap_or_else(|| Ok(Found::default()))?);
    }
    // Each shard's are in order: this joins a few runs.
    found.partitions.sort_by_key(|found| found.id);
    let (sender, reconciled) = oneshot::channel();
    let reconcile = Message::call(move |control: &Rc<Control>| {
        spawn_local(control.clone().begin(found, sender));
    });
    let _ = cores.inboxes[CoreIndex::FIRST].send(reconcile);
    let _ = reconciled.await;
    Ok(())
}

/// The data directory, opened for a start.
pub(crate) fn open_directory(config: &Config) -> Result<DataDirectory, ServeError> {
    let machine = || thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let cores = || config.cores.unwrap_or_else(machine);
    let incarnation = random_id()?;
    let Config { data, shards, segment_bytes, node_id, cluster, .. } = config;
    let cluster_id = cluster.as_ref().and_then(|cluster| cluster.cluster_id);
    let identity = |id| {
        let cluster = cluster_id.map_or_else(random_id, Ok);
        cluster.map(|cluster| NodeIdentity { cluster, id, start_epoch: 0, peers: 0 })
    };
    let node = node_id.map(identity).transpose()?;
    // A directory that is there has its own, which stand; and what is none is refused for that.
    let Sizes { shards, segment_bytes } = match data.join("FORMAT").exists() {
        true => Sizes { shards: 1, segment_bytes: 0 },
        false => sizes_for(data, *shards, *segment_bytes, cores().min(SHARDS_UNASKED_MAX))?,
    };
    let wanted = DirectorySettings { shards, segment_bytes, incarnation, node };
    let mut directory = DataDirectory::open(&config.data, wanted)?;
    let peers = cluster.as_ref().map_or(0, |cluster| cluster.peers.len());
    directory.begin_start(u16::try_from(peers).unwrap_or(u16::MAX))?;
    if let Some(NodeIdentity { cluster, id, start_epoch, .. }) = directory.settings().node {
        tracing::info!(cluster, node = id, start_epoch, "the data directory belongs to a cluster");
    }
    let held = directory.settings().shards;
    if config.shards.is_some_and(|shards| shards != held) {
        tracing::warn!(
            shards = held,
            "the data directory has its own number of shards, which stands"
        );
    }
    Ok(directory)
}
