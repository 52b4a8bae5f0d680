//! A lane whose slots come, come late, or do not come.

use std::path::Path;

use sennit_journal::{
    FrameBuilder, LaneConfig, ReplayFrom, SlotMaker,
    disk::{Access, FaultPlan, FaultyDisk, MemoryDisk},
};

use super::*;
use crate::runtime::{
    inbox::{Message, Receiver},
    index::ShardIndex,
};

impl LaneDoor {
    /// To a lane that has ended.
    pub(crate) fn of_nobody() -> Self {
        Self { writer: Weak::new(), messages: mpsc::channel().0 }
    }
}

/// A writer, its maker of slots, and what the core is told.
type World<D> = (Writer<D>, FrameBuilder, SlotMaker<D>, Receiver);

fn writer() -> World<MemoryDisk> {
    writer_on(&MemoryDisk::default(), Path::new("data"))
}

fn writer_on<D: Disk>(disk: &D, data: &Path) -> World<D> {
    let config = LaneConfig {
        directory: data.join("lane-0"),
        lane: 0,
        segment_bytes: 16 << 10,
        incarnation: 7,
    };
    let recovered =
        sennit_journal::recover(disk, config, ReplayFrom::Newest, |_| Ok::<_, Fault>(()));
    let recovered = recovered.unwrap();
    let (core, inbox) = tokio::sync::mpsc::unbounded_channel();
    let writer = Writer {
        lane: recovered.lane,
        slots: mpsc::channel().0,
        room: SlotBudget::new(0, false),
        reserve: Arc::new(DiskReserve::new(1, vec![core.clone()], 16 << 10)),
        pin: None,
        core: ShardSender { shard: ShardIndex(0), core },
        metrics: Arc::default(),
    };
    (writer, recovered.builder, recovered.slots, inbox)
}

/// Has the writer hold three segments of one frame each.
fn three_segments() -> Writer<MemoryDisk> {
    let (mut writer, mut builder, mut maker, _inbox) = writer();
    for _ in 0..3 {
        writer.lane.add_spare(maker.make().unwrap());
        builder.push(1, &[b"a record"]).unwrap();
        writer.append(&[builder.seal().unwrap()]).unwrap();
        builder.start_segment();
    }
    writer
}

#[test]
fn what_is_released_while_a_pin_holds_is_spare_once_it_is_gone() {
    let mut writer = three_segments();
    writer.pin = Some(Pin { released: Vec::new(), is_broken: Arc::default() });
    writer.release(vec![0]);
    assert_eq!((writer.lane.spare_count(), writer.lane.holds(0)), (0, true));
    writer.unpin();
    assert_eq!((writer.lane.spare_count(), writer.lane.holds(0)), (1, false));
    writer.release(vec![1]);
    assert_eq!(writer.lane.spare_count(), 2);
}

#[test]
fn a_lane_gives_back_what_it_does_not_hold_once_another_is_full() {
    let (mut writer, _, mut maker, _inbox) = writer();
    let (slots, wishes) = mpsc::channel();
    writer.slots = slots;
    let reserve = writer.reserve.clone();
    for _ in 0..writer.room.wanted() + 2 {
        writer.lane.add_spare(maker.make().unwrap());
    }
    let mut gives_back = || {
        writer.give_back_surplus();
        wishes.try_iter().filter(|wish| matches!(wish, SlotWish::Remove(_))).count()
    };
    assert_eq!(gives_back(), 0, "so much is left alone");
    reserve.lacks(ShardIndex(0), 1, true);
    assert_eq!(gives_back(), 2);
}

#[test]
fn a_lane_without_room_breaks_the_pin_before_it_takes_what_was_pinned() {
    let mut writer = three_segments();
    let is_broken: Arc<AtomicBool> = Arc::default();
    writer.pin = Some(Pin { released: Vec::new(), is_broken: is_broken.clone() });
    writer.release(vec![0, 1]);
    assert!(!is_broken.load(SeqCst));
    writer.set_room(false);
    assert!(is_broken.load(SeqCst));
    assert_eq!(writer.lane.spare_count(), 2);
}

#[test]
fn a_batch_of_more_segments_than_there_are_ever_slots_is_written_as_far_as_they_go() {
    let folder = tempfile::tempdir().unwrap();
    let disk = RealDisk::new(Access::Buffered);
    let (mut writer, mut builder, mut maker, mut inbox) = writer_on(&disk, folder.path());
    let (slots, wishes) = mpsc::channel();
    writer.slots = slots;
    writer.ask_for_slots();
    let mut frames = Vec::new();
    for _ in 0..=20 {
        builder.push(1, &[b"a record"]).unwrap();
        frames.push(builder.seal().unwrap());
        builder.start_segment();
    }
    let core = writer.core.clone();
    let (sender, messages) = mpsc::channel();
    let lane = LaneThread { writer: Arc::new(Mutex::new(writer)), messages, core };
    let mut left = &frames[..];
    for _ in 0..frames.len() {
        // What is wished for is made; then the lane is to wait no longer.
        for wish in wishes.try_iter() {
            let SlotWish::Make(wish) = wish else { panic!("{wish:?}") };
            sender.send(LaneMessage::Spare(maker.make().unwrap(), wish)).unwrap();
        }
        sender.send(LaneMessage::End).unwrap();
        if let Some(whole) = lane.append(left, &mut VecDeque::new()).unwrap() {
            assert_eq!((whole.end, whole.is_all), (frames[20].end, true));
            return;
        }
        while let Ok(Message::Shard(_, ShardMessage::Committed(part))) = inbox.try_recv() {
            assert_eq!((part.end, part.is_all), (left[0].end, false));
            left = &left[1..];
        }
    }
    panic!("{} segments are still to be written", left.len());
}

#[test]
fn publishes_are_refused_while_held_slots_are_missing_and_acks_have_them() {
    let (mut writer, mut builder, mut maker, mut inbox) = writer();
    let (slots, wishes) = mpsc::channel();
    writer.slots = slots;
    let mut told = || loop {
        match inbox.try_recv() {
            Ok(Message::Shard(_, ShardMessage::StorageFull(full))) => return Some(full),
            Ok(Message::DiskShort(_)) => {}
            Ok(other) => panic!("{other:?}"),
            Err(_) => return None,
        }
    };
    writer.ask_for_slots();
    let wished = || wishes.try_iter().filter(|wish| matches!(wish, SlotWish::Make(_))).count();
    let held = wished();
    for _ in 0..held {
        writer.add_spare(maker.make().unwrap(), SlotRequest::Held);
    }
    writer.set_room(false);
    assert_eq!((told(), wished()), (None, 0), "all that is held is there");
    let mut append = |writer: &mut Writer<MemoryDisk>| {
        builder.push(1, &[b"a record"]).unwrap();
        writer.append(&[builder.seal().unwrap()]).unwrap();
        builder.start_segment();
    };
    append(&mut writer);
    assert_eq!(told(), Some(true));
    assert_eq!(writer.metrics.counts.storage_needed_bytes.value(), 2 * (16 << 10));
    (1..held).for_each(|_| append(&mut writer));
    assert_eq!((told(), writer.lane.spare_count()), (None, 0));
    // What consumers have freed is as good as room on the disk, once all is there and one more.
    let segments: Vec<_> = writer.lane.segments().collect();
    for segment in segments.into_iter().take(held - 1) {
        writer.release(vec![segment]);
    }
    assert_eq!(told(), None);
    writer.add_spare(maker.make().unwrap(), SlotRequest::Held);
    assert_eq!(told(), None);
    writer.add_spare(maker.make().unwrap(), SlotRequest::Held);
    assert_eq!(told(), Some(false));
    assert_eq!(writer.metrics.counts.storage_needed_bytes.value(), 0);
}

#[test]
fn publishes_are_refused_with_the_first_held_slot_that_is_used_though_no_slot_is_asked_for_in_time()
{
    let plan = FaultPlan { capacity_bytes: 8 * (16 << 10), ..FaultPlan::default() };
    let disk = FaultyDisk::new(1, plan);
    let (mut writer, mut builder, mut maker, mut inbox) = writer_on(&disk, Path::new("data"));
    // Nobody makes what is wished for: the thread that does is behind.
    let (slots, _wishes) = mpsc::channel();
    writer.slots = slots;
    writer.ask_for_slots();
    let held = writer.room.wanted();
    for _ in 0..held {
        writer.add_spare(maker.make().unwrap(), SlotRequest::Held);
    }
    let mut append = |writer: &mut Writer<FaultyDisk>| {
        builder.push(1, &[b"a record"]).unwrap();
        let committed = writer.append(&[builder.seal().unwrap()]).unwrap();
        builder.start_segment();
        committed.is_full
    };
    assert_eq!((held, append(&mut writer)), (7, false), "there is room for one more");
    assert!(append(&mut writer), "but not for two");
    let told = std::iter::from_fn(|| inbox.try_recv().ok());
    let is_told =
        |message: &Message| matches!(message, Message::Shard(_, ShardMessage::StorageFull(true)));
    assert_eq!(told.filter(is_told).count(), 1);
}

#[test]
fn a_slot_is_lent_to_a_pack_as_long_as_the_lane_can_go_on_without_it() {
    let (mut writer, _, mut maker, _inbox) = writer();
    for _ in 0..3 {
        writer.add_spare(maker.make().unwrap(), SlotRequest::Held);
    }
    assert!(writer.lend_slot().is_none(), "it accepts publishes, and would not any more");
    writer.set_room(false);
    assert!(writer.lend_slot().is_some());
    assert!(writer.lend_slot().is_none());
}
