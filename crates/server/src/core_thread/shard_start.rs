//! The start of a shard on a core's thread: the shard is recovered, then its helper threads start. An error in the
//! data is found before anything runs.

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread::JoinHandle,
};

use sennit_journal::{Lane, LaneConfig, disk::RealDisk};
use sennit_replica::ReplicaSettings;
use sennit_replication::Membership;
use sennit_shard::{
    PackLengths, Recovered, RecoveryReport, Replica, START_SLOTS, Settings, Shard, SlotBudget,
    held_slots,
};

use crate::{
    broker::recovered_state::Found,
    cluster::group_links::group_of,
    config::Config,
    runtime::{
        clock::{moment, now},
        core::{Cores, GroupShard, LocalShard, ShardState, Workers},
        disk_reserve::DiskReserve,
        error::ServeError,
        groups::Groups,
        inbox::ShardSender,
        index::ShardIndex,
        lane_thread,
        metrics::ShardCounts,
        move_thread::{self, Loans, PackPin},
        read_thread::ReadThreads,
        shard_files::{LaneFiles, ShardFiles},
        slot_thread,
    },
};

/// The replica that a shard of a cluster's node is. Groups and replicas count from 1; on a node with peers a replica has
/// the number of its node, and the only node of a cluster has the only replica.
fn replica_of(shard: ShardIndex, groups: Option<&Groups>) -> Replica {
    let group = u64::from(group_of(shard));
    match groups {
        Some(groups) => Replica { group, id: u64::from(groups.node), is_alone: false },
        None => Replica { group, id: 1, is_alone: true },
    }
}

/// A shard that is recovered, and for which nothing runs yet.
pub(super) struct RecoveredShard {
    index: ShardIndex,
    parts: Recovered<RealDisk>,
    has_no_room: bool,
}

impl RecoveredShard {
    /// Reads the shard's journal. In a directory that belongs to a cluster it is the log of a group.
    pub(super) fn recover(
        index: ShardIndex,
        lane: LaneConfig,
        config: &Config,
        cores: &Cores,
        is_in_cluster: bool,
    ) -> Result<Self, ServeError> {
        let settings = Settings {
            cache_bytes: config.cache_bytes,
            journal_segments: config.journal_segments,
            packs: PackLengths::default(),
            writes_superseded: false,
            replica: is_in_cluster.then(|| replica_of(index, cores.groups.as_deref())),
        };
        let path = lane.directory.clone();
        let shard = index.0;
        let mut parts = sennit_shard::recover(&RealDisk::new(config.access), lane, settings, now())
            .map_err(|error| ServeError::Recover { shard, error })?;
        let report = &parts.report;
        tracing::info!(
            shard,
            generation = report.generation.0,
            records = report.records,
            bytes = report.bytes,
            torn_bytes = report.torn_bytes,
            "recovered"
        );
        log_damage(index, report, &cores.shard_metrics[index].counts);
        let has_no_room = make_room_to_start(index, &path, &mut parts, &cores.reserve)?;
        Ok(Self { index, parts, has_no_room })
    }

    /// What of it the catalogue may not know.
    pub(super) fn found(&self) -> Found {
        Found::of(self.index, self.parts.shard.engine())
    }

    /// Starts the threads that work for it. They end once the shard and its core have.
    pub(super) fn start(
        self,
        cores: &Arc<Cores>,
        shard_files: &ShardFiles,
    ) -> Result<(LocalShard, [JoinHandle<()>; 5]), ServeError> {
        let Self { index, parts, has_no_room } = self;
        let Recovered { mut shard, lane, reader, slots, mover, .. } = parts;
        shard.share_throttles(cores.throttles.clone());
        let core = cores.inboxes[cores.placement.core_of(index)].clone();
        let inbox = ShardSender { shard: index, core };
        let lane_channel = mpsc::channel();
        let (wishes, wished) = mpsc::channel();
        let metrics = cores.shard_metrics[index].clone();
        let reserve = cores.reserve.clone();
        let room = SlotBudget::new(shard.checkpoint_segments(), has_no_room);
        let to_lane = lane_channel.0.clone();
        let slot_maker =
            slot_thread::start(slots, reserve.clone(), wished, to_lane, inbox.clone())?;
        let (lane, lane_writer) = lane_thread::start(
            lane,
            room,
            reserve.clone(),
            lane_channel,
            inbox.clone(),
            wishes,
            metrics,
        )?;
        let log = cores.groups.is_some().then(|| reader.duplicate());
        let state = state_of(index, shard, cores)?;
        let packs: Arc<PackPin> = Arc::default();
        let permit = cores.move_permit.clone();
        let (reads, [one_read, other_read]) = ReadThreads::start(reader, &inbox)?;
        let loans = Loans { lane: lane.door(), reserve };
        let (moves, move_thread) =
            move_thread::start(mover, inbox.clone(), packs.clone(), permit, loans)?;
        shard_files.open(index, LaneFiles { lane: lane.door(), packs, core: inbox });
        let workers = Workers { lane, reads, moves, log };
        let local = LocalShard::new(index, state, cores.clone(), workers, has_no_room);
        Ok((local, [slot_maker, lane_writer, one_read, other_read, move_thread]))
    }
}

/// A shard that is alone, or a replica that follows nobody yet.
fn state_of(index: ShardIndex, shard: Shard, cores: &Cores) -> Result<ShardState, ServeError> {
    let Some(groups) = &cores.groups else { return Ok(ShardState::Alone(Box::new(shard))) };
    let first_members = Membership::of(groups.members.iter().copied().map(u64::from));
    let replica = sennit_replica::Replica::new(shard, &ReplicaSettings { first_members }, moment())
        .map_err(|error| ServeError::Replica { shard: index.0, error })?;
    let group = GroupShard::new(index, replica, groups.clone(), cores.session_grace);
    Ok(ShardState::InGroup(Box::new(group)))
}

/// Notes what the lane lacks in `reserve`, and returns whether the disk has no room for what all lanes lack that
/// were recovered so far. If so, refuses publishes before anything else is journaled: a start that ends early leaves
/// nothing behind. Then it releases what only the checkpoint before the newest needs.
///
/// # Errors
/// [`ServeError::NoRoomToStart`]: the shard would only wait for room.
fn make_room_to_start(
    index: ShardIndex,
    path: &Path,
    parts: &mut Recovered<RealDisk>,
    reserve: &DiskReserve,
) -> Result<bool, ServeError> {
    let Recovered { shard: state, lane, slots, .. } = parts;
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
        let (shard, path) = (index.0, path.to_owned());
        return Err(ServeError::NoRoomToStart { shard, path, free, needed });
    }
    Ok(is_full)
}

/// Says what recovery has found damaged: what is left is served.
fn log_damage(ShardIndex(shard): ShardIndex, report: &RecoveryReport, counts: &ShardCounts) {
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
    counts.journal_damage.set(damaged_places as u64);
    counts.doubtful_partitions.set(report.doubtful_partitions);
    counts.lost_files.set((report.lost_packs.len() + report.lost_segments.len()) as u64);
}
