//! The thread of a core: it recovers its shards, starts their helpers, and serves its inbox until the broker stops.

mod shard_start;

use std::{
    rc::Rc,
    sync::{Arc, mpsc},
    thread,
};

use sennit_journal::{Fault, LaneConfig, NodeIdentity};
use tokio::{
    sync::mpsc as async_mpsc,
    task::{LocalSet, spawn_local},
};

use self::shard_start::RecoveredShard;
use crate::{
    access::AccessControl,
    broker::{
        audit::Audit,
        audit_stream::AuditStream,
        catalogue_needs::Needs,
        cluster_secrets::ClusterSecrets,
        configuration::{Configuration, CurrentConfiguration},
        control::Control,
        control_peers::{ControlLinks, ControlPeers, PeerRequests, PeerTopic},
        key_use_store::KeyUseStore,
        recovered_state::{Found, PartitionsHere},
        schedules::Schedules,
        session_replacement::SessionReplacement,
        streams::Streams,
        tenant_storage::{StoredSums, TenantStorage},
        topic_listener::TopicListener,
    },
    cluster::{dialler::keep_link, group_links::GroupLinks, peer_state::ClusterState},
    config::Config,
    doors::{
        api::ApiDoor,
        http_router::HttpRouter,
        live::{
            connections::{LiveConnections, LiveRules},
            emulation::LiveDoor,
            relay::{Relay, RelayNews},
        },
        native::{
            arrival::Arrival,
            connection::{self, NativeDoor},
            native_wire::WebSocketLayer,
            session_guard::SessionGuards,
        },
        status::Status,
        streams::{CurrentStreamsSettings, StreamsDoor, parked_connections::ParkedConnections},
    },
    hooks::{
        broker_publishes::BrokerPublishes,
        core_hooks::CoreHooks,
        failures::{FailureWatch, Failures},
        requests::HookCleaner,
    },
    http::{
        browser_guard::BrowserRules,
        port::HttpThread,
        thread_state::HttpThreadState,
        upgrade::{UpgradeEntry, Upgraded},
    },
    identity::authority::Authority,
    runtime::{
        core::{CoreHandle, Cores},
        drain,
        error::ServeError,
        inbox::{self, Message},
        index::{CoreIndex, ShardIndex},
        memory_release::give_back_at_rest,
        peer_cores::PeerCores,
        shard_files::ShardFiles,
    },
    subscriptions::Subscriptions,
};

/// Most messages that are taken before others have their turn.
const MESSAGES_MAX: usize = 64;

/// What a core's thread begins with.
#[derive(Debug)]
pub(crate) struct CoreThread {
    pub(crate) index: CoreIndex,
    /// The shards that it runs, with their lanes.
    pub(crate) lanes: Vec<(ShardIndex, LaneConfig)>,
    pub(crate) config: Config,
    pub(crate) cores: Arc<Cores>,
    /// The node to which the data directory belongs, if it does.
    pub(crate) node: Option<NodeIdentity>,
    /// The peers, if it has links.
    pub(crate) cluster: Option<Arc<ClusterState>>,
    /// Where to leave the ways to the shards' files.
    pub(crate) shard_files: Arc<ShardFiles>,
    /// What the HTTP port tells of the broker.
    pub(crate) status: Arc<Status>,
    /// Who may do what.
    pub(crate) authority: Authority,
    /// What pages in browsers may.
    pub(crate) rules: BrowserRules,
    pub(crate) receiver: inbox::Receiver,
    /// Where to say what was recovered.
    pub(crate) recovered: async_mpsc::UnboundedSender<Result<Found, ServeError>>,
    /// Where to say that the journal has failed.
    pub(crate) failed: async_mpsc::UnboundedSender<(u32, Fault)>,
    /// Dropped when the thread and those that work for it have ended.
    pub(crate) ended: mpsc::Sender<()>,
}

impl CoreThread {
    /// Starts the thread.
    pub(crate) fn start(self) -> Result<(), ServeError> {
        let name = format!("core-{}", self.index.0);
        let thread = thread::Builder::new().name(name).spawn(move || {
            let ended = self.ended.clone();
            let recovered = self.recovered.clone();
            if let Err(error) = self.run() {
                let _ = recovered.send(Err(error));
            }
            drop(ended);
        });
        thread.map(drop).map_err(ServeError::system("start a core's thread"))
    }

    fn run(self) -> Result<(), ServeError> {
        let Self { index, lanes, config, cores, node, shard_files, status, .. } = self;
        let (authority, receiver, rules) = (self.authority, self.receiver, self.rules);
        let (recovered, failed, cluster) = (self.recovered, self.failed, self.cluster);
        let is_in_cluster = node.is_some();
        let recover =
            |(shard, lane)| RecoveredShard::recover(shard, lane, &config, &cores, is_in_cluster);
        let parts = lanes.into_iter().map(recover).collect::<Result<Vec<_>, _>>()?;
        let mut found = Found::default();
        let (mut shards, mut workers) = (Vec::new(), Vec::new());
        for shard in parts {
            found.append(shard.found());
            let (shard, threads) = shard.start(&cores, &shard_files)?;
            shards.push(shard);
            workers.extend(threads);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServeError::system("start a runtime"))?;
        let core = CoreHandle::new(index, shards, cores);
        let _ = recovered.send(Ok(found));
        drop(recovered);
        let local = LocalSet::new();
        local.block_on(&runtime, async move {
            spawn_local(core.clone().run());
            spawn_local(core.clone().fold_untouched());
            spawn_local(core.clone().survey());
            spawn_local(give_back_at_rest(config.give_back));
            spawn_local(core.pace.clone().run());
            let http = open_http(&core, &config, status, rules, &authority);
            let configuration = Rc::new(CurrentConfiguration::default());
            let metrics = core.cores.metrics[index].clone();
            let hooks = Rc::new(CoreHooks::new(configuration.clone(), metrics));
            let failures = Rc::new(Failures::default());
            core.with(|core| core.set_decider(failures.clone()));
            spawn_local(failures.serve(core.clone(), authority.clone(), hooks.clone()));
            configuration.set_hooks_listener(Rc::new(FailureWatch(core.clone())));
            core.services.add(hooks);
            core.services.add(Rc::new(StoredSums(core.clone())));
            core.services.add(Rc::new(PartitionsHere(core.clone())));
            configuration.add_identity_listener(core.services.find_or_add::<SessionGuards>());
            core.services.add(configuration);
            if index == CoreIndex::FIRST {
                add_control(&core, config, &authority);
            }
            let services = core.services.clone();
            services.add(Rc::new(NativeDoor { core: core.clone(), authority }));
            services.add(http);
            let groups = cluster.map(|cluster| open_links(&core, &cluster));
            take_messages(core, receiver, failed).await;
            if let Some(groups) = groups {
                groups.close();
            }
            // They hold the core, for which its workers wait.
            services.clear();
        });
        // With the tasks goes the core, and with it what its workers wait for.
        drop(local);
        for worker in workers {
            let _ = worker.join();
        }
        Ok(())
    }
}

/// Adds the links of a core, and dials the peers that are to be dialled.
fn open_links(core: &CoreHandle, state: &Arc<ClusterState>) -> Rc<GroupLinks> {
    let (groups, links) = GroupLinks::open(core, state);
    let control = core.services.find::<Control>();
    if let Some(peers) = control.and_then(|control| control.peers.clone()) {
        let to_nodes: Rc<dyn ControlLinks> = groups.clone();
        peers.open(&to_nodes);
        groups.set_control(peers);
    }
    core.services.add(groups.clone());
    core.services.add(links.clone());
    spawn_local(core.clone().tick_groups());
    let dialled = state.peers.iter().map(|peer| peer.node).filter(|&node| node > state.own.node);
    for node in dialled {
        spawn_local(keep_link(links.clone(), node));
    }
    groups
}

/// What answers the HTTP requests of a core. Starts the task of its parked connections.
fn open_http(
    core: &CoreHandle,
    config: &Config,
    status: Arc<Status>,
    rules: BrowserRules,
    authority: &Authority,
) -> Rc<HttpThread> {
    let (cores, metrics) = (core.cores.clone(), &core.cores.metrics);
    let peer_cores = Rc::new(PeerCores::of(core.index, metrics.clone()));
    let thread_state =
        Rc::new(HttpThreadState::new(metrics[core.index].clone(), Some(peer_cores.clone()), rules));
    core.add_closing(thread_state.clone());
    let settings = Rc::new(CurrentStreamsSettings::new(config.streams_settings()));
    core.services.add(settings.clone());
    let streams = Streams::of_connections(core.clone(), peer_cores);
    let streams = StreamsDoor::new(streams, cores.clone(), settings, thread_state.clone());
    let live = LiveDoor::new(core.clone(), thread_state.clone());
    let native = Rc::<UpgradeEntry>::default();
    native.open(|| true);
    spawn_local(take_native(core.clone(), native.clone()));
    let handlers = Rc::new(HttpRouter::new(
        thread_state.clone(),
        status,
        (Some(live), Some(native)),
        (Some(streams), Some(ApiDoor::new(core))),
        authority.clone(),
        cores.inboxes[CoreIndex::FIRST].clone(),
    ));
    let rules = LiveRules {
        connections_max: config.live_connections,
        ping_interval: config.live_ping_interval,
        connect_timeout: config.live_connect_timeout,
        tells_all: config.live_tells_all,
        has_relay: config.live_redis.url.is_some(),
    };
    match LiveConnections::open(
        core.clone(),
        thread_state.clone(),
        authority.clone(),
        rules,
        &config.live_backend,
    ) {
        Ok(live) => drop(spawn_local(live.run())),
        Err(error) => tracing::warn!(%error, "live connections are refused"),
    }
    let http = Rc::new(HttpThread { thread_state, handlers, cores });
    let (silence, authority) = (config.streams_events_silence, authority.clone());
    match ParkedConnections::open(core.clone(), http.clone(), silence, authority) {
        Ok(parked) => drop(spawn_local(parked.run())),
        Err(error) => tracing::warn!(%error, "connections that wait keep their tasks"),
    }
    http
}

/// Has the native door serve connections that come over WebSocket.
async fn take_native(core: CoreHandle, entry: Rc<UpgradeEntry>) {
    loop {
        entry.wait().await;
        for Upgraded { wire, place, unread, .. } in entry.arrived() {
            let websocket = Some(Box::new(WebSocketLayer::new(place, &unread)));
            let arrival = Arrival { wire, websocket, moved: None };
            let _ = core.cores.inboxes[core.index].send(connection::arrives(arrival));
        }
    }
}

/// Adds what the first core alone serves: the control of names and settings, the configuration, and the
/// subscriptions.
fn add_control(core: &CoreHandle, config: Config, authority: &Authority) {
    let (data, allows_private) = (config.data, config.streams_allow_private_webhooks);
    let peers = core.cores.groups.clone().map(ControlPeers::new).map(Rc::new);
    let subscriptions =
        Subscriptions::new(core.clone(), data.clone(), allows_private, peers.clone());
    core.services.add(subscriptions.clone());
    let audit = core.services.find_or_add::<Audit>();
    spawn_local(AuditStream::new(core.clone()).keep(audit));
    core.services.add(AccessControl::new(core.clone(), authority.clone(), data.clone()));
    let configuration = Configuration::new(core.clone(), authority.clone(), data.clone());
    core.services.add(configuration.clone());
    let publishes = Rc::new(BrokerPublishes(core.clone()));
    let schedules = Schedules::new(core.clone(), authority.clone(), publishes, peers.clone());
    core.services.add(schedules.clone());
    let storage = TenantStorage::new(core.clone(), authority.clone(), peers.clone());
    core.services.add(storage.clone());
    let key_uses = KeyUseStore::new(core.clone(), authority.clone());
    let hooks = Rc::new(HookCleaner(core.clone()));
    let mut listeners: Vec<Rc<dyn TopicListener>> = vec![
        configuration,
        key_uses,
        storage.clone(),
        schedules.clone(),
        subscriptions.clone(),
        hooks,
    ];
    let cores = core.cores.clone();
    let tell = move |news: RelayNews| {
        let keeper = match (&news, news.topic()) {
            // Presence is kept by one core, all else concerns all.
            (RelayNews::Missed(_), _) | (_, None) => None,
            (_, Some(topic)) => Some(LiveConnections::presence_core(&cores, topic)),
        };
        for index in cores.inboxes.indices().filter(|index| keeper.is_none_or(|of| of == *index)) {
            let news = news.clone();
            LiveConnections::call(&cores, index, move |live| live.hear_relay(news));
        }
    };
    if let Some(relay) = Relay::open(core, &config.live_redis, tell) {
        core.services.add(relay.clone());
        listeners.push(relay);
    }
    let secrets =
        peers.clone().map(|peers| ClusterSecrets::new(peers, authority.clone(), data.clone()));
    if let Some(secrets) = &secrets {
        spawn_local(secrets.clone().follow());
        // The others need the keys.
        listeners.insert(0, secrets.clone());
    }
    let listeners: Rc<[Rc<dyn TopicListener>]> = listeners.into();
    let control = Control::new(core.clone(), listeners, config.live_channels_keep, peers.clone());
    let control = Rc::new(control);
    if let Some((peers, secrets)) = peers.zip(secrets) {
        let sessions = SessionReplacement::new(core.clone(), peers.clone());
        core.services.add(sessions.clone());
        let answering: [(PeerTopic, Rc<dyn PeerRequests>); 6] = [
            (PeerTopic::Names, control.clone()),
            (PeerTopic::Secrets, secrets),
            (PeerTopic::Schedules, schedules),
            (PeerTopic::Subscriptions, subscriptions),
            (PeerTopic::Sessions, sessions),
            (PeerTopic::Storage, storage),
        ];
        answering.iter().for_each(|(about, by)| peers.have_answered(*about, by));
    }
    let needs = Rc::new(Needs::default());
    core.with(|core| core.set_needs(needs.clone()));
    spawn_local(needs.serve(control.clone()));
    core.services.add(control);
}

/// Takes what reaches the core until the broker stops.
async fn take_messages(
    core: CoreHandle,
    mut receiver: inbox::Receiver,
    failed: async_mpsc::UnboundedSender<(u32, Fault)>,
) {
    let mut messages = Vec::with_capacity(MESSAGES_MAX);
    while receiver.recv_many(&mut messages, MESSAGES_MAX).await > 0 {
        for message in messages.drain(..) {
            match message {
                Message::Replace(token, ended) => core.with(|core| core.replace(token, ended)),
                Message::Shard(shard, message) => {
                    if let Some(fault) = core.with(|core| core.shard_takes(shard, message)) {
                        let ShardIndex(shard) = shard;
                        tracing::error!(shard, %fault, "the journal failed");
                        let _ = failed.send((shard, fault));
                    }
                }
                Message::Effects(effects) => core.with(|core| core.effects_from_afar(effects)),
                Message::DiskShort(short) => core.with(|core| core.set_disk_short(short)),
                Message::Call(call) => call.run(&core.services),
                Message::Found(shard, findings) => core.look(|core| core.found(shard, findings)),
                Message::Drain(done) => {
                    spawn_local(drain::one(core.clone(), done));
                }
                Message::End => {
                    core.look(|core| core.end_lanes());
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
