//! The thread of a core: it recovers its shard, starts what works for it, and takes what reaches
//! it until the broker stops.

use std::{
    path::Path,
    rc::Rc,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
};

use sennit_journal::{Fault, Lane, LaneConfig, SlotMaker, disk::RealDisk};
use sennit_shard::{
    PackLengths, Recovered, RecoveryReport, START_SLOTS, Settings, Shard, SlotBudget, held_slots,
};
use tokio::{
    sync::mpsc as async_mpsc,
    task::{LocalSet, spawn_local},
};

use crate::{
    broker::{
        catalogue_needs::Needs,
        control::Control,
        recovered_state::{Found, FoundPartition},
        streams::Streams,
    },
    config::Config,
    doors::{
        http_router::HttpRouter,
        native::connection::NativeDoor,
        status::Status,
        streams::{
            StorageRules, StreamsDoor, StreamsSettings, parked_connections::ParkedConnections,
        },
    },
    http::{browser_guard::BrowserRules, port::HttpThread, thread_state::HttpThreadState},
    runtime::{
        clock::now,
        core::{CoreHandle, Cores, Workers},
        disk_reserve::DiskReserve,
        drain,
        error::ServeError,
        inbox::{self, Message},
        lane_thread,
        memory_release::give_back_at_rest,
        metrics::CoreMetrics,
        move_thread::{self, Loans, PackPin},
        peer_cores::PeerCores,
        read_thread::ReadThreads,
        shard_files::{LaneFiles, ShardFiles},
        slot_thread,
    },
    subscriptions::Subscriptions,
};

/// Most messages that are taken before others have their turn.
const MESSAGES_MAX: usize = 64;

/// What a core's thread begins with.
#[derive(Debug)]
pub(crate) struct CoreThread {
    pub(crate) index: usize,
    pub(crate) lane: LaneConfig,
    pub(crate) config: Config,
    pub(crate) cores: Arc<Cores>,
    /// Where to leave a way to the shard's files.
    pub(crate) shard_files: Arc<ShardFiles>,
    /// What the HTTP port tells of the broker.
    pub(crate) status: Arc<Status>,
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
        let name = format!("core-{}", self.index);
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
        let Self { index, lane, config, cores, shard_files, status, receiver, rules, .. } = self;
        let (recovered, failed) = (self.recovered, self.failed);
        let shard = index as u32;
        let disk = RealDisk::new(config.access);
        let streams = StreamsSettings {
            storage: StorageRules::new(config.streams_storage, &config.streams_storage_rules),
            public_url: config.streams_public_url,
            long_poll_timeout: config.streams_long_poll_timeout,
            events_silence: config.streams_events_silence,
            events_span: config.streams_events_span,
        };
        let settings = Settings {
            cache_bytes: config.cache_bytes,
            journal_segments: config.journal_segments,
            packs: PackLengths::default(),
        };
        let path = lane.directory.clone();
        let parts = sennit_shard::recover(&disk, lane, settings, now())
            .map_err(|error| ServeError::Recover { shard, error })?;
        let Recovered { shard: mut state, mut lane, reader, slots, mover, report } = parts;
        tracing::info!(
            shard,
            generation = report.generation.0,
            records = report.records,
            bytes = report.bytes,
            torn_bytes = report.torn_bytes,
            "recovered"
        );
        tell_damage(shard, &report, &cores.metrics[index]);
        let inbox = &cores.inboxes[index];
        let lane_channel = mpsc::channel();
        let (wishes, wished) = mpsc::channel();
        let metrics = cores.metrics[index].clone();
        let reserve = cores.reserve.clone();
        let begins_full = begins_full(index, &path, (&mut state, &mut lane, &slots), &reserve)?;
        let room = SlotBudget::new(state.checkpoint_segments(), begins_full);
        let loans = reserve.clone();
        let (slots, lane) = ((slots, reserve.clone()), (lane, room, reserve));
        let slot_maker =
            slot_thread::start(shard, slots, wished, lane_channel.0.clone(), inbox.clone())?;
        let (lane, lane_writer) =
            lane_thread::start(shard, lane, lane_channel, inbox.clone(), wishes, metrics)?;
        let packs: Arc<PackPin> = Arc::default();
        let turn = cores.move_permit.clone();
        let (reads, [one_read, other_read]) = ReadThreads::start(shard, reader, inbox)?;
        let loans = Loans { lane: lane.door(), reserve: loans };
        let (moves, move_thread) =
            move_thread::start(shard, mover, inbox.clone(), packs.clone(), turn, loans)?;
        let workers: [JoinHandle<()>; 5] =
            [slot_maker, lane_writer, one_read, other_read, move_thread];
        shard_files.open(index, LaneFiles { lane: lane.door(), packs, core: inbox.clone() });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServeError::system("start a runtime"))?;
        let partitions = state.engine().settings_hashes();
        let partitions =
            partitions.map(|(id, settings)| FoundPartition { id, shard: index, settings });
        let held_streams = state.engine().held_streams().collect();
        let forks = state.engine().forks_of_streams().collect();
        let found = Found { partitions: partitions.collect(), held_streams, forks };
        let core = CoreHandle::new(index, state, cores, Workers { lane, reads, moves });
        core.with(|core| core.set_storage_full(begins_full));
        let _ = recovered.send(Ok(found));
        drop(recovered);
        let local = LocalSet::new();
        local.block_on(&runtime, async move {
            spawn_local(core.clone().run());
            spawn_local(core.clone().fold_untouched());
            spawn_local(core.clone().survey());
            spawn_local(give_back_at_rest(config.give_back));
            spawn_local(core.pace.clone().run());
            let metrics = &core.cores.metrics;
            let peer_cores = Rc::new(PeerCores::of(index, metrics.clone()));
            let thread_state = Rc::new(HttpThreadState::new(
                metrics[index].clone(),
                Some(peer_cores.clone()),
                rules,
            ));
            core.add_closing(thread_state.clone());
            let asked = Streams::of_connections(core.clone(), peer_cores);
            let cores = core.cores.clone();
            let streams = StreamsDoor::new(asked, cores, streams, thread_state.clone());
            let handler = Rc::new(HttpRouter::new(thread_state.clone(), status, Some(streams)));
            let http = Rc::new(HttpThread { thread_state, handler, cores: core.cores.clone() });
            match ParkedConnections::open(core.clone(), http.clone(), config.streams_events_silence)
            {
                Ok(parked) => drop(spawn_local(parked.run())),
                Err(error) => tracing::warn!(%error, "connections that wait keep their tasks"),
            }
            let (data, allows) = (config.data, config.streams_allow_private_webhooks);
            let subscriptions = Subscriptions::new(core.clone(), data, allows);
            let services = core.services.clone();
            services.add(subscriptions.clone());
            let control = Rc::new(Control::new(core.clone(), subscriptions));
            if index == 0 {
                let needs = Rc::new(Needs::default());
                core.with(|core| core.set_needs(needs.clone()));
                spawn_local(needs.serve(control.clone()));
            }
            services.add(control);
            services.add(Rc::new(NativeDoor(core.clone())));
            services.add(http);
            take_messages(core, receiver, failed).await;
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
                Message::Commands(commands) => core.with(|core| core.handle_from_afar(commands)),
                Message::Effects(effects) => core.with(|core| core.effects_from_afar(effects)),
                Message::Committed(done) => core.with(|core| core.committed(done)),
                Message::StorageFull(full) => core.with(|core| core.set_storage_full(full)),
                Message::DiskShort(short) => core.with(|core| core.set_disk_short(short)),
                Message::AreWanted(held) => core.with(|core| core.are_wanted(held)),
                Message::Moved(moved) => core.with(|core| core.moved(moved)),
                Message::MoveFailed(home, error) => {
                    core.with(|core| core.move_failed(home, &error));
                }
                Message::Compacted(done) => core.with(|core| core.compacted(done)),
                Message::CompactionFailed => core.with(|core| core.compaction_failed()),
                Message::PacksInUse(answer) => {
                    let _ = answer.send(core.look(|core| core.shard().packs_in_use()));
                }
                Message::Fetched(fetch, bytes) => core.with(|core| core.fetched(fetch, bytes)),
                Message::Call(call) => call.run(&core.services),
                Message::Holding(shard, groups) => core.look(|core| core.holding(shard, &groups)),
                Message::Fenced(fault) => {
                    tracing::error!(shard = core.index, %fault, "the journal failed");
                    core.with(|core| core.fenced());
                    let _ = failed.send((core.index as u32, fault));
                }
                Message::Drain(done) => {
                    spawn_local(drain::one(core.clone(), done));
                }
                Message::End => {
                    core.with(|core| core.end_lane());
                    return;
                }
            }
        }
    }
}

/// Whether the disk has no room for the slots that all lanes lack which have been recovered so far: the shard
/// is told then, before anything else is journaled, so that starts that end early leave nothing behind. Refuses
/// a start that would only wait for room.
fn begins_full(
    index: usize,
    path: &Path,
    (state, lane, slots): (&mut Shard, &mut Lane<RealDisk>, &SlotMaker<RealDisk>),
    reserve: &DiskReserve,
) -> Result<bool, ServeError> {
    let checkpoint_segments = state.checkpoint_segments();
    reserve.set_checkpoint_segments(index, checkpoint_segments);
    let missing = |lane: &Lane<RealDisk>| {
        held_slots(checkpoint_segments).saturating_sub(lane.spare_count() as u64) as usize
    };
    reserve.lacks(index, missing(lane), false);
    let free = slots.available_bytes().map_err(ServeError::Directory)?;
    let is_full = free < reserve.missing_bytes();
    if is_full {
        state.set_storage_full(true);
        // Segments that only the checkpoint before the newest needs are room too.
        let mut released = Vec::new();
        state.take_released(&mut released);
        released.into_iter().for_each(|segment| lane.release(segment));
        reserve.lacks(index, missing(lane), false);
    }
    let needed = START_SLOTS.saturating_sub(lane.spare_count() as u64) * reserve.segment_bytes();
    if free < needed {
        let (shard, path) = (index as u32, path.to_owned());
        return Err(ServeError::NoRoomToStart { shard, path, free, needed });
    }
    Ok(is_full)
}

/// Says what recovery has found damaged: what is left is served.
fn tell_damage(shard: u32, report: &RecoveryReport, metrics: &CoreMetrics) {
    for damage in &report.damage {
        let (path, position) = (damage.path.display(), damage.position.0);
        let (bytes, what) = (damage.bytes, damage.problem);
        tracing::error!(shard, %path, position, bytes, what, "the journal is damaged: what lay there is lost");
    }
    for pack in &report.lost_packs {
        tracing::error!(shard, pack, "a pack is gone: the messages in it cannot be delivered");
    }
    for segment in &report.lost_segments {
        tracing::error!(
            shard,
            segment,
            "a segment is gone: the messages in it cannot be delivered"
        );
    }
    for (segment, path) in &report.headless_segments {
        let path = path.display();
        tracing::error!(shard, segment, %path, "the header of a segment is damaged: its messages are read all the same, a repair moves them");
    }
    for path in &report.unreadable_slots {
        let path = path.display();
        tracing::warn!(shard, %path, "a slot cannot be read: nothing in it is wanted, it is left alone");
    }
    let damaged_places = report.damage.len() + report.headless_segments.len();
    metrics.journal_damage.set(damaged_places as u64);
    metrics.doubtful_partitions.set(report.doubtful_partitions);
    metrics.lost_files.set((report.lost_packs.len() + report.lost_segments.len()) as u64);
}
