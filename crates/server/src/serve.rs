//! Starting and stopping: the directory is locked, every shard is recovered on the thread that
//! will own it, then the doors open. Stopping goes the other way round.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use sennit_journal::{DataDirectory, DirectorySettings, Fault, LaneConfig, disk::RealDisk};
use sennit_model::PartitionId;
use sennit_protocol::{Reply, control};
use sennit_shard::{Recovered, Settings};
use tokio::{
    net::TcpListener,
    sync::{mpsc as async_mpsc, oneshot, watch},
    task::LocalSet,
};

use crate::{
    config::Config,
    connection,
    control::Control,
    core::{CoreHandle, Cores, now},
    error::ServeError,
    gauge::IngestGauge,
    http::{self, Status},
    inbox::{self, Message},
    lane_thread, listener,
    metrics::{self, CoreMetrics},
    read_thread, slot_thread,
};

/// How long sessions have to take what is theirs when the broker stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Where the broker listens, once it does.
#[derive(Clone, Copy, Debug)]
pub struct Addresses {
    /// The native protocol.
    pub listen: SocketAddr,
    /// HTTP.
    pub http: SocketAddr,
    /// How many shards there are.
    pub shards: u32,
}

/// Runs a broker until `stop` is done, or a journal fails. `ready` is called once it serves.
///
/// # Errors
/// A [`ServeError`]: it could not start, or a journal failed.
pub fn serve(
    config: Config,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(Addresses),
) -> Result<(), ServeError> {
    config.check()?;
    let native = listener::listen(config.listen)?;
    let http = listener::listen(config.http)?;
    let directory = open_directory(&config)?;
    let settings = *directory.settings();
    let shards = settings.shards as usize;

    let (inboxes, receivers): (Vec<_>, Vec<_>) =
        (0..shards).map(|_| async_mpsc::unbounded_channel()).unzip();
    let metrics: Vec<Arc<CoreMetrics>> = (0..shards).map(|_| Arc::default()).collect();
    let cores = Arc::new(Cores {
        inboxes,
        gauges: (0..shards).map(|_| IngestGauge::new(config.ingest_bytes)).collect(),
        metrics: metrics.clone(),
        session_grace: config.session_grace,
    });
    let status = Arc::new(Status {
        draining: AtomicBool::new(false),
        fenced: AtomicBool::new(false),
        registry: metrics::registry(metrics),
    });
    let (failed, mut failures) = async_mpsc::unbounded_channel();
    let (recovered, recoveries) = mpsc::channel();
    let (open, opened) = watch::channel(None);
    let mut threads = Vec::new();
    for (index, receiver) in receivers.into_iter().enumerate() {
        let start = CoreStart {
            index,
            lane: LaneConfig {
                directory: directory.lane_directory(index as u32),
                lane: index as u32,
                segment_bytes: settings.segment_bytes,
                incarnation: settings.incarnation,
            },
            config: config.clone(),
            cores: cores.clone(),
            receiver,
            recovered: recovered.clone(),
            opened: opened.clone(),
            failed: failed.clone(),
        };
        let thread = thread::Builder::new()
            .name(format!("core-{index}"))
            .spawn(move || start.run())
            .map_err(ServeError::system("start a core's thread"))?;
        threads.push(thread);
    }
    drop(recovered);
    let mut owned = Vec::new();
    for _ in 0..shards {
        match recoveries.recv() {
            Ok(partitions) => owned.extend(partitions?),
            Err(_) => break,
        }
    }
    let _ = open.send(Some(Arc::new(owned)));

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(ServeError::system("start a runtime"))?;
    let local = LocalSet::new();
    local.block_on(&runtime, async {
        let addresses = Addresses {
            listen: native.local_addr().map_err(ServeError::system("ask for an address"))?,
            http: http.local_addr().map_err(ServeError::system("ask for an address"))?,
            shards: settings.shards,
        };
        let native = TcpListener::from_std(native).map_err(ServeError::system("listen"))?;
        let http = TcpListener::from_std(http).map_err(ServeError::system("listen"))?;
        tokio::task::spawn_local(http::serve(http, status.clone()));
        // Nobody is let in before the shards are as the catalogue says.
        let (asked, reconciled) = oneshot::channel();
        let _ = cores.inboxes[0].send(Message::Reconcile(asked));
        let _ = reconciled.await;
        let accepting = tokio::task::spawn_local(listener::accept(native, cores.clone()));
        ready(addresses);
        let outcome = tokio::select! {
            () = stop => Ok(()),
            Some((shard, fault)) = failures.recv() => Err(ServeError::Fenced { shard, fault }),
        };
        status.draining.store(true, Relaxed);
        status.fenced.store(outcome.is_err(), Relaxed);
        accepting.abort();
        drain(&cores).await;
        outcome
    })
}

/// Tells every core to finish, and waits until they have, within bounds.
async fn drain(cores: &Cores) {
    let waiting: Vec<_> = cores
        .inboxes
        .iter()
        .map(|inbox| {
            let (done, finished) = oneshot::channel();
            let _ = inbox.send(Message::Drain(done));
            finished
        })
        .collect();
    let all = async {
        for finished in waiting {
            let _ = finished.await;
        }
    };
    if tokio::time::timeout(DRAIN + Duration::from_secs(1), all).await.is_err() {
        tracing::warn!("some sessions did not take what was theirs in time");
    }
}

fn open_directory(config: &Config) -> Result<DataDirectory, ServeError> {
    let parallel = thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let incarnation = getrandom::u64().map_err(|error| {
        ServeError::system("draw a random number")(std::io::Error::other(error.to_string()))
    })?;
    let wanted = DirectorySettings {
        shards: config.shards.unwrap_or(parallel).clamp(1, 256),
        segment_bytes: config.segment_bytes,
        incarnation,
    };
    let directory = DataDirectory::open(&config.data, wanted)?;
    let held = directory.settings().shards;
    if config.shards.is_some_and(|shards| shards != held) {
        tracing::warn!(
            shards = held,
            "the data directory has its own number of shards, which stands"
        );
    }
    Ok(directory)
}

type Owned = Vec<(usize, PartitionId)>;

/// What a core's thread begins with.
struct CoreStart {
    index: usize,
    lane: LaneConfig,
    config: Config,
    cores: Arc<Cores>,
    receiver: inbox::Receiver,
    recovered: mpsc::Sender<Result<Owned, ServeError>>,
    opened: watch::Receiver<Option<Arc<Owned>>>,
    failed: async_mpsc::UnboundedSender<(u32, Fault)>,
}

impl CoreStart {
    fn run(self) {
        let Self { index, lane, config, cores, receiver, recovered, opened, failed } = self;
        let shard = index as u32;
        let disk = RealDisk::new(config.access);
        let settings = Settings { cache_bytes: config.cache_bytes };
        let parts = match sennit_shard::recover(&disk, lane, settings, now()) {
            Ok(parts) => parts,
            Err(error) => {
                let _ = recovered.send(Err(ServeError::Recover { shard, error }));
                return;
            }
        };
        let Recovered { shard: state, lane, reader, slots, report } = parts;
        tracing::info!(
            shard,
            generation = report.generation.0,
            records = report.records,
            bytes = report.bytes,
            torn_bytes = report.torn_bytes,
            "recovered"
        );
        let inbox = &cores.inboxes[index];
        let (lane_sender, lane_messages) = mpsc::channel();
        let (wishes, wished) = mpsc::channel();
        let (fetch_sender, fetches) = mpsc::channel();
        let started = slot_thread::start(shard, slots, wished, lane_sender.clone(), inbox.clone())
            .and_then(|()| read_thread::start(shard, reader, fetches, inbox.clone()))
            .and_then(|()| {
                let metrics = cores.metrics[index].clone();
                lane_thread::start(shard, lane, lane_messages, inbox.clone(), wishes, metrics)
            });
        let runtime = started.and_then(|_| {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(ServeError::system("start a runtime"))
        });
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = recovered.send(Err(error));
                return;
            }
        };
        let owned = state.engine().partition_ids().map(|partition| (index, partition)).collect();
        let core = CoreHandle::new(index, state, cores, lane_sender, fetch_sender);
        let _ = recovered.send(Ok(owned));
        drop(recovered);
        let local = LocalSet::new();
        local.block_on(&runtime, async move {
            tokio::task::spawn_local(core.clone().run());
            take_messages(core, receiver, opened, failed).await;
        });
    }
}

/// Most messages that are taken before others have their turn.
const MESSAGES_MAX: usize = 64;

/// Takes what reaches the core until the broker stops.
async fn take_messages(
    core: CoreHandle,
    mut receiver: inbox::Receiver,
    opened: watch::Receiver<Option<Arc<Owned>>>,
    failed: async_mpsc::UnboundedSender<(u32, Fault)>,
) {
    let control = Control::new(core.clone());
    let mut messages = Vec::with_capacity(MESSAGES_MAX);
    while receiver.recv_many(&mut messages, MESSAGES_MAX).await > 0 {
        for message in messages.drain(..) {
            match message {
                Message::Connection(stream) => {
                    tokio::task::spawn_local(connection::serve(stream, core.clone()));
                }
                Message::Commands(commands) => core.with(|core| core.handle_from_afar(commands)),
                Message::Effects(effects) => core.with(|core| core.effects_from_afar(effects)),
                Message::Committed(end) => core.with(|core| core.committed(end)),
                Message::StorageFull(full) => core.with(|core| core.set_storage_full(full)),
                Message::Fetched(fetch, bytes) => core.with(|core| core.fetched(fetch, bytes)),
                Message::Control(request, answer) => {
                    let control = control.clone();
                    tokio::task::spawn_local(async move {
                        let _ = answer.send(control.answer(request).await);
                    });
                }
                Message::Reconcile(done) => {
                    let (control, opened) = (control.clone(), opened.clone());
                    tokio::task::spawn_local(async move {
                        let owned = opened.borrow().clone().unwrap_or_default();
                        if let Err(error) = control.reconcile(&owned).await {
                            tracing::error!(error = error.message, "shards lag the catalogue");
                        }
                        let _ = done.send(());
                    });
                }
                Message::Fenced(fault) => {
                    tracing::error!(shard = core.index, %fault, "the journal failed");
                    core.with(|core| core.fenced());
                    let _ = failed.send((core.index as u32, fault));
                }
                Message::Drain(done) => {
                    tokio::task::spawn_local(drain_core(core.clone(), done));
                }
            }
        }
        if core.look(|core| !core.answers.dead_letter_topics_needed.is_empty()) {
            let control = control.clone();
            tokio::task::spawn_local(async move { control.create_dead_letter_topics().await });
        }
    }
}

/// Says goodbye to the sessions of a core, and waits until its lane has written everything and
/// they have taken what is theirs.
async fn drain_core(core: CoreHandle, done: oneshot::Sender<()>) {
    let go_away = Reply::GoAway(control::GoAway {
        reason: "the broker stops".to_owned(),
        grace_ms: u64::try_from(DRAIN.as_millis()).unwrap_or(u64::MAX),
    });
    core.with(|core| {
        core.drain();
        core.outboxes().for_each(|outbox| outbox.reply(&go_away, 0));
    });
    let give_up = tokio::time::Instant::now() + DRAIN;
    loop {
        let finished = core.look(|core| {
            core.is_fenced() || core.is_quiet() && core.outboxes().all(|outbox| outbox.is_empty())
        });
        if finished || tokio::time::Instant::now() >= give_up {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _ = done.send(());
}
