//! Batches move out of old segments and thin packs: live batches are read back from their new places, whatever is
//! settled or interrupted between the steps of a move.

use std::{collections::BTreeSet, path::Path};

use sennit_engine::{DeadLetters, Verdict};
use sennit_journal::{Container, Disk, Fault, Position, disk::MemoryDisk};
use sennit_shard::{MoveError, Moved, PackSummary};

use crate::broker::{Broker, COUNT, MAILS, NOW, ORDERS, SEGMENT_BYTES, text, texts};

#[test]
fn what_is_live_moves_and_is_read_back_the_same_from_the_pack() {
    let mut broker = Broker::with_backlog(200);
    let segments = broker.parts.shard.segment_count();
    broker.move_all();
    assert!(broker.parts.shard.segment_count() < segments);
    let PackSummary { count: packs, bytes, live_bytes: live } = broker.parts.shard.pack_summary();
    assert!(packs > 0 && live > 0 && live < bytes, "{packs} packs, {live} of {bytes} bytes live");
    assert_eq!(broker.live_packs().len(), packs);
    broker.gets(0..200 * COUNT);
}

#[test]
fn what_was_settled_after_the_listing_is_not_wanted() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    let (container, mut held) = broker.begin_move();
    let listed = held.clone();
    broker.ack(|offset| offset < COUNT);
    broker.parts.shard.retain_wanted(&mut held);
    assert_eq!((held.len(), held[0]), (listed.len() - 1, listed[1]));
    let moved = broker.parts.mover.copy(container, &held).unwrap();
    broker.parts.shard.handle_move(moved, NOW);
    broker.settle_down();
    broker.crashed().gets(COUNT..200 * COUNT);
}

#[test]
fn what_was_settled_while_it_was_copied_is_freed_in_the_pack() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    let (_, moved) = broker.copy();
    let copied: u64 = moved.batches.iter().map(|batch| u64::from(batch.place.bytes)).sum();
    let settled = u64::from(moved.batches[0].place.bytes);
    broker.ack(|offset| offset < COUNT);
    broker.parts.shard.handle_move(moved, NOW);
    broker.settle_down();
    assert_eq!(broker.parts.shard.pack_summary().live_bytes, copied - settled);
    broker.crashed().gets(COUNT..200 * COUNT);
}

#[test]
fn a_pack_of_which_all_was_settled_while_it_was_copied_is_given_up() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    let (_, moved) = broker.copy();
    let number = moved.packs[0].number;
    broker.ack(|_| true);
    broker.parts.shard.handle_move(moved, NOW);
    broker.settle_down();
    assert_eq!(broker.remove_packs(), [number]);
    assert_eq!(broker.pack_files(), 0);
    broker.crashed().gets(0..0);
}

#[test]
fn a_pack_that_was_written_and_not_told_of_is_removed_by_the_next_start() {
    for told in [false, true] {
        let mut broker = Broker::with_backlog(200);
        let (_, moved) = broker.copy();
        let number = moved.packs[0].number;
        if told {
            // The record gathers, and the lane does not get it.
            broker.parts.shard.handle_move(moved, NOW);
        }
        let mut broker = broker.crashed();
        assert_eq!((broker.pack_files(), broker.live_packs().len()), (1, 0));
        assert_eq!(broker.remove_packs(), [number]);
        assert_eq!(broker.pack_files(), 0);
        broker.gets(0..200 * COUNT);
    }
}

#[test]
fn after_a_crash_what_was_moved_is_read_from_the_pack() {
    let mut broker = Broker::with_backlog(200);
    broker.move_all();
    let packs = broker.live_packs();
    let mut broker = broker.crashed();
    assert_eq!(broker.live_packs(), packs);
    assert_eq!(broker.remove_packs(), [0u32; 0]);
    assert_eq!(broker.pack_files(), packs.len());
    broker.gets(0..200 * COUNT);
}

#[test]
fn a_thin_pack_is_emptied_into_another() {
    let mut broker = Broker::with_backlog(200);
    broker.subscribe();
    broker.move_all();
    let packs = broker.live_packs();
    // A batch of each pack's, and little more, stays.
    broker.ack(|offset| !(offset / COUNT).is_multiple_of(20));
    let thin = broker.move_until(|container| matches!(container, Container::Pack(_)));
    let Some(Container::Pack(thin)) = thin else { panic!("no pack is thin") };
    assert!(packs.contains(&thin));
    broker.remove_packs();
    let moved = broker.parts.mover.list(Container::Pack(thin)).unwrap();
    assert!(moved.len() > 10);
    broker.empty(Container::Pack(thin));
    assert_eq!(broker.remove_packs(), [thin]);
    broker.move_all();
    broker.remove_packs();
    assert_eq!(broker.pack_files(), broker.live_packs().len());
    assert!(broker.live_packs().is_disjoint(&packs));
    broker.crashed().gets((0..200 * COUNT).filter(|offset| (offset / COUNT).is_multiple_of(20)));
}

#[test]
fn a_partition_with_much_to_move_gets_packs_of_its_own() {
    const LONG: usize = 256 << 10;
    let mut broker = Broker::open(&MemoryDisk::default(), 16 << 20);
    broker.create(ORDERS);
    broker.create(MAILS);
    for number in 0..400 {
        let partition = if number % 8 == 0 { MAILS } else { ORDERS };
        broker.publish(partition, &[format!("{number} {}", "x".repeat(LONG))]);
    }
    let (_, moved) = broker.copy();
    assert_eq!(moved.packs.len(), 2);
    assert_ne!(moved.packs[0].class, moved.packs[1].class);
    let of = |partition| -> BTreeSet<u32> {
        let batches = moved.batches.iter().filter(|batch| batch.partition == partition);
        batches.map(|batch| Position(batch.place.position).pack().unwrap().0).collect()
    };
    assert_eq!((of(ORDERS).len(), of(MAILS).len()), (1, 1));
    assert!(of(ORDERS).is_disjoint(&of(MAILS)));
}

#[test]
fn what_is_wanted_and_not_there_fails_the_whole_move() {
    let mut broker = Broker::with_backlog(200);
    let (container, held) = broker.begin_move();
    let mut wanted = held.clone();
    wanted[1].place.position += 8;
    let copied = broker.parts.mover.copy(container, &wanted);
    assert!(matches!(copied, Err(MoveError::Missing { missing: 1 })), "{copied:?}");
    assert_eq!(broker.pack_files(), 0);
}

#[test]
fn dead_letters_move_out_of_the_segment_in_which_they_were_buried() {
    let mut broker = Broker::open(&MemoryDisk::default(), SEGMENT_BYTES);
    broker.create(MAILS);
    broker.create_with(ORDERS, DeadLetters::To(MAILS.topic));
    for batch in 0..20 {
        broker.publish(ORDERS, &texts(batch * COUNT..(batch + 1) * COUNT));
    }
    broker.subscribe();
    let bury = Verdict::DeadLetter { reason: "it is bad".to_owned() };
    broker.apply_crash(bury, |_| true);
    let mails = |broker: &mut Broker| {
        broker.delivered.clear();
        broker.tell(Broker::subscription(MAILS));
        std::mem::take(&mut broker.delivered)
    };
    let letters = mails(&mut broker);
    assert_eq!(letters.len() as u64, 20 * COUNT);
    let segments = |broker: &Broker| {
        let engine = broker.parts.shard.engine();
        let places = engine.batches().filter(|kept| kept.partition == MAILS);
        let lane = places.filter(|kept| Position(kept.place.position).pack().is_none());
        lane.map(|kept| kept.place.position / SEGMENT_BYTES).collect::<BTreeSet<_>>()
    };
    assert!(segments(&broker).len() > 1);
    // A checkpoint behind them: then only the letters hold their segments.
    for _ in 0..2 {
        broker.parts.shard.checkpoint_soon();
        broker.settle_down();
        broker.parts.shard.start_segment();
        broker.settle_down();
    }
    broker.move_all();
    assert_eq!(segments(&broker), BTreeSet::new(), "they lie in packs");
    let mut broker = broker.crashed();
    assert_eq!(mails(&mut broker), letters);
}

#[test]
fn a_slot_comes_free_only_once_the_moves_are_committed() {
    let mut broker = Broker::with_backlog(200);
    let (container, moved) = broker.copy();
    let Container::Segment(segment) = container else { panic!("the journal is long") };
    broker.parts.shard.handle_move(moved, NOW);
    broker.take_effects();
    assert!(!broker.freed.contains(&segment), "the moves only gather");
    assert_eq!(broker.parts.shard.next_move(NOW), None, "it looks full still");
    let frames = broker.take_frames();
    let end = broker.parts.lane.append(&frames).unwrap();
    broker.take_effects();
    assert!(!broker.freed.contains(&segment), "the shard was not told of the commit");
    broker.parts.shard.handle_commit(end, NOW);
    broker.take_effects();
    assert!(broker.freed.contains(&segment));
}

#[test]
fn what_could_not_be_moved_is_left_and_the_next_is_moved() {
    let mut broker = Broker::with_backlog(200);
    let (container, _) = broker.begin_move();
    assert_eq!(broker.parts.shard.next_move(NOW), None, "one at a time");
    broker.parts.shard.handle_failed_move(container, &MoveError::Missing { missing: 1 }, NOW);
    let next = broker.parts.shard.next_move(NOW).unwrap();
    assert_ne!(next, container);
    broker.empty(next);
    broker.move_all();
    let Container::Segment(segment) = container else { panic!("the journal is long") };
    assert!(!broker.freed.contains(&segment));
    broker.gets(0..200 * COUNT);
}

#[test]
fn what_could_not_be_moved_for_lack_of_room_is_tried_again_after_a_while() {
    let mut broker = Broker::with_backlog(200);
    let container = broker.parts.shard.next_move(NOW).unwrap();
    let path = "data/lane-0/pack-0000000000.pack".into();
    let full = MoveError::Journal(Fault::StorageFull { path });
    broker.parts.shard.handle_failed_move(container, &full, NOW);
    let next = broker.parts.shard.next_move(NOW).unwrap();
    assert_ne!(next, container);
    // That cannot be read, and not for a while only.
    broker.parts.shard.handle_failed_move(next, &MoveError::Missing { missing: 1 }, NOW);
    let later = broker.parts.shard.next_move_at().unwrap();
    assert!(later > NOW);
    assert_eq!(broker.parts.shard.next_move(later), Some(container));
    assert_eq!(broker.parts.shard.next_move_at(), None, "nobody has to come back for it");
    broker.empty(container);
    assert!(broker.parts.shard.next_move(later).is_some_and(|after| after != next));
}

#[test]
fn what_holds_nothing_wanted_is_not_asked_about_again() {
    let mut broker = Broker::with_backlog(200);
    let (container, _) = broker.begin_move();
    broker.parts.shard.handle_move(Moved::default(), NOW);
    broker.settle_down();
    assert_ne!(broker.parts.shard.next_move(NOW), Some(container));
}

#[test]
fn a_read_that_fails_because_its_batch_was_moved_holds_nobody_up() {
    let mut broker = Broker::with_backlog(200);
    broker.parts.shard.handle(&mut vec![Broker::subscription(ORDERS)], NOW);
    broker.commit();
    let fetches = broker.take_fetches();
    assert!(!fetches.is_empty());
    for _ in 0..100 {
        let Some(container) = broker.parts.shard.next_move(NOW) else { break };
        let mut held = broker.parts.mover.list(container).unwrap();
        broker.parts.shard.retain_wanted(&mut held);
        let moved = broker.parts.mover.copy(container, &held).unwrap();
        broker.parts.shard.handle_move(moved, NOW);
        broker.commit();
    }
    for fetch in fetches {
        // The slots were given to other segments.
        broker.parts.shard.handle_fetch(fetch, None, NOW);
    }
    broker.settle_down();
    let expected: Vec<_> = (0..200 * COUNT).map(|n| (n, text(n))).collect();
    assert_eq!(broker.delivered.len(), expected.len());
    assert_eq!(broker.delivered, expected);
    assert_eq!(broker.parts.shard.counters().damaged_batches, 0);
}

#[test]
fn what_a_copy_that_fails_has_made_goes_once_packs_may_be_removed_and_the_next_one_works() {
    let mut broker = Broker::with_backlog(200);
    // What is in the way of the first pack.
    broker.disk.create(Path::new("data/lane-0/pack-0000000000.pack")).unwrap();
    let (container, mut held) = broker.begin_move();
    broker.parts.shard.retain_wanted(&mut held);
    assert!(broker.parts.mover.copy(container, &held).is_err());
    assert_eq!(broker.pack_files(), 1, "somebody may copy what lies there");
    let rubbish = broker.parts.mover.take_orphaned_packs();
    assert_eq!(rubbish, [0]);
    for pack in rubbish {
        let mut removal = broker.parts.mover.start_removal(pack).unwrap();
        while !removal.step().unwrap() {}
    }
    assert_eq!(broker.pack_files(), 0);
    let moved = broker.parts.mover.copy(container, &held).unwrap();
    assert_eq!(moved.batches.len(), held.len());
    assert!(broker.parts.mover.take_orphaned_packs().is_empty());
}

#[test]
fn a_pack_that_a_crash_left_to_nobody_is_removed_under_a_number_that_no_other_has() {
    let mut broker = Broker::with_backlog(100);
    let (_, unrecorded) = broker.copy();
    let mut broker = broker.crashed();
    let (_, moved) = broker.copy();
    let made: Vec<_> = moved.packs.iter().map(|pack| pack.number).collect();
    let left: Vec<_> = unrecorded.packs.iter().map(|pack| pack.number).collect();
    assert!(made.iter().all(|number| !left.contains(number)), "{made:?} and {left:?}");
    assert_eq!(broker.remove_packs(), left);
    broker.parts.shard.handle_move(moved, NOW);
    broker.settle_down();
    broker.gets(0..100 * COUNT);
}
