//! Sessions of a core that carries nothing by itself.

use std::{
    sync::{Arc, mpsc},
    task::{Context, Poll, Waker},
};

use sennit_engine::{DeadLetters, PartitionCommand};
use sennit_journal::{
    LaneConfig,
    disk::{Access, RealDisk},
};
use sennit_model::{
    BatchBuilder, Message, ProducerStamp, Timestamp, TopicConfig, TopicId, TopicKind,
};
use sennit_shard::{PackLengths, Recovered, Settings, SlotBudget};

use super::*;
use crate::runtime::{
    core::{Cores, LocalShard, ShardState, Workers},
    disk_reserve::DiskReserve,
    inbox::ShardSender,
    index::IndexVec,
    lane_thread,
    move_permit::MovePermit,
    move_thread::{self, Loans},
    placement::Placement,
    publish_gauge::PublishGauge,
    read_thread::ReadThreads,
};

const SEGMENT_BYTES: u64 = 1 << 20;
const HIGH: u64 = 64 << 10;
/// Two of them are more than the high mark.
const PAYLOAD_BYTES: usize = 40 << 10;
const PARTITION: PartitionId = PartitionId { topic: TopicId(1), index: PartitionIndex(0) };

/// A core that carries nothing by itself, with a partition.
fn core(folder: &std::path::Path) -> CoreHandle {
    let lane = LaneConfig {
        directory: folder.join("lane-0"),
        lane: 0,
        segment_bytes: SEGMENT_BYTES,
        incarnation: 1,
    };
    let settings = Settings {
        cache_bytes: 0,
        journal_segments: 8,
        packs: PackLengths::default(),
        writes_superseded: false,
        replica: None,
    };
    let disk = RealDisk::new(Access::Buffered);
    let parts = sennit_shard::recover(&disk, lane, settings, Timestamp(1)).unwrap();
    let Recovered { shard, lane, reader, mover, .. } = parts;
    let (inbox, _) = tokio::sync::mpsc::unbounded_channel();
    let move_permit = Arc::new(MovePermit::new(|| {}));
    let reserve = Arc::new(DiskReserve::new(1, vec![inbox.clone()], SEGMENT_BYTES));
    let slots = mpsc::channel().0;
    let index = ShardIndex(0);
    let to_shard = ShardSender { shard: index, core: inbox.clone() };
    let (lane, _) = lane_thread::start(
        lane,
        SlotBudget::new(1, false),
        reserve.clone(),
        mpsc::channel(),
        to_shard.clone(),
        slots,
        Arc::default(),
    )
    .unwrap();
    let (reads, _) = ReadThreads::start(reader, &to_shard).unwrap();
    let loans = Loans { lane: lane.door(), reserve: reserve.clone() };
    let (moves, _) =
        move_thread::start(mover, to_shard, Arc::default(), move_permit.clone(), loans).unwrap();
    let cores = Arc::new(Cores {
        placement: Placement::round_robin(1, 1),
        inboxes: IndexVec::from_iter([inbox]),
        gauges: IndexVec::of(1, |_| PublishGauge::new(HIGH)),
        metrics: IndexVec::of(1, |_| Arc::default()),
        shard_metrics: IndexVec::of(1, |_| Arc::default()),
        session_grace: Duration::ZERO,
        move_permit,
        throttles: Arc::default(),
        reserve,
        groups: None,
        claims: 1.into(),
        topic_changes: 0.into(),
        own_topic: <_>::default(),
    });
    let workers = Workers { lane, reads, moves, log: None };
    let local =
        LocalShard::new(index, ShardState::Alone(Box::new(shard)), cores.clone(), workers, false);
    let core = CoreHandle::new(CoreIndex(0), vec![local], cores);
    let open = PartitionCommand::Open {
        config: TopicConfig::of_kind(TopicKind::Stream),
        groups: Vec::new(),
        dead_letters: DeadLetters::NotYet,
    };
    let origin = Origin { session: SessionId(1), request: 1 };
    core.with(|core| {
        core.command(ShardIndex(0), Command::Partition(origin, PARTITION, open));
        core.handle();
    });
    core
}

fn session(core: &CoreHandle) -> Session {
    let outbox = Rc::new(Outbox::new(1 << 20, &Rc::default()));
    let id = core.with(|core| core.open_session(outbox.clone()));
    Session::new(id, core.clone(), outbox, Authority::default(), Peer::default())
}

/// What a client sends that says hello and publishes so many batches.
fn input(batches: usize) -> BytesMut {
    let mut bytes = Preface::BYTES.to_vec();
    let hello = control::Hello { frame_bytes_max: 1 << 20, ..<_>::default() };
    Request::Hello(hello).encode(1, &mut bytes);
    for _ in 0..batches {
        let mut batch = BatchBuilder::new();
        batch.push(&Message::new(vec![0; PAYLOAD_BYTES])).unwrap();
        let batch = batch.take().unwrap();
        let publish = Publish::new(PARTITION, ProducerStamp::default(), &batch);
        Request::Publish(publish).encode(2, &mut bytes);
    }
    BytesMut::from(&bytes[..])
}

#[test]
fn what_very_many_publish_in_one_pass_is_no_more_than_a_batch_beyond_the_mark() {
    let folder = tempfile::tempdir().unwrap();
    let core = core(folder.path());
    let gauge = |core: &CoreHandle| core.cores.gauges[ShardIndex(0)].bytes();
    let mut context = Context::from_waker(Waker::noop());
    let mut sessions: Vec<_> = (0..20).map(|_| (session(&core), input(3))).collect();
    let mut takes: Vec<_> =
        sessions.iter_mut().map(|(session, input)| Box::pin(session.take(input))).collect();
    for take in &mut takes {
        assert_eq!(take.as_mut().poll(&mut context), Poll::Pending);
        assert!(gauge(&core) <= HIGH + (PAYLOAD_BYTES as u64 + 4096), "{}", gauge(&core));
    }
    // They go on once it is committed, each as far as there is room.
    for _ in 0..60 {
        core.with(|core| core.handle());
        core.cores.gauges[ShardIndex(0)].set(0);
        takes.retain_mut(|take| take.as_mut().poll(&mut context).is_pending());
    }
    assert_eq!(takes.len(), 0);
}
