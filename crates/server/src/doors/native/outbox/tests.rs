//! How much may wait for one connection, and for all of a core.

use std::{
    task::{Context, Waker},
    time::Duration,
};

use sennit_engine::{Origin, SessionId};
use sennit_model::{
    Generation, Offset, OffsetRange, PartitionIndex, Timestamp, TopicId,
    limits::{WAITING_CORE_BYTES_LAST, WAITING_CORE_BYTES_MAX},
};
use sennit_protocol::GapReason;
use tokio::time::{Instant, sleep_until};

use super::*;

fn outbox() -> Outbox {
    let outbox = Outbox::new(1 << 20, &Rc::default());
    outbox.set_features(Features { gaps: true, ..Features::default() });
    outbox
}

/// Writes as much as makes a good write to a socket that takes all of it.
fn write(outbox: &Outbox) {
    outbox.fill(&mut WriteBuffer::default());
    outbox.set_unwritten(0);
}

fn gap(partition: u32, offsets: std::ops::Range<u64>, reason: GapReason) -> Gap {
    let offsets = OffsetRange { start: Offset(offsets.start), end: Offset(offsets.end) };
    Gap { subscription: 7, partition: PartitionIndex(partition), offsets, reason }
}

fn delivery(attempt: u32, bytes: usize) -> Delivery {
    Delivery {
        session: SessionId(1),
        subscription: 7,
        partition: PartitionId { topic: TopicId(1), index: PartitionIndex(0) },
        first: Offset(0),
        count: 1,
        attempt,
        generation: Generation(1),
        appended_at: Timestamp(0),
        durability: Durability::Durable,
        messages: vec![0; bytes].into(),
    }
}

#[test]
fn only_what_is_little_and_for_readers_alone_may_wait_for_more() {
    let holds = |fill: &dyn Fn(&Outbox)| {
        let outbox = outbox();
        outbox.deliver(delivery(0, 400));
        fill(&outbox);
        outbox.little_for_readers(1000)
    };
    assert_eq!(holds(&|outbox| outbox.deliver(delivery(0, 600))), Some(2));
    assert_eq!(holds(&|outbox| outbox.deliver(delivery(0, 601))), None);
    assert_eq!(holds(&|outbox| outbox.deliver(delivery(1, 1))), None);
    assert_eq!(holds(&|outbox| outbox.reply(&Reply::Pong, 0)), None);
    assert_eq!(holds(&Outbox::close), None);
}

#[test]
fn who_does_not_read_is_given_no_more_until_half_of_what_waits_is_gone() {
    let (outbox, wanted) = (outbox(), Credit { messages: 9, bytes: 9 });
    let is_given = |outbox: &Outbox| outbox.window_now(wanted) == wanted;
    for attempt in [0, 1] {
        outbox.deliver(delivery(attempt, DELIVERIES_WAITING_BYTES_MAX / 2));
        assert!(is_given(&outbox));
    }
    outbox.deliver(delivery(0, DELIVERIES_WAITING_BYTES_MAX / 2));
    assert_eq!(outbox.window_now(wanted), Credit { messages: 0, bytes: 9 });
    write(&outbox);
    assert!(!is_given(&outbox));
    write(&outbox);
    assert!(is_given(&outbox));
}

fn confirmed(first_sequence: u64) -> Confirmed {
    Confirmed {
        origin: Origin { session: SessionId(1), request: 0 },
        partition: delivery(0, 0).partition,
        producer: ProducerId(1),
        first_sequence,
        count: 1,
        first_offset: Some(Offset(first_sequence)),
        duplicate: false,
        durability: Durability::Durable,
        parts: Box::default(),
    }
}

fn is_ready(future: impl Future) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    pin!(future).poll(&mut context).is_ready()
}

/// Others of the core for which so many bytes wait.
fn others(room: &Rc<SendBudget>, bytes: usize) -> SendAccount {
    let others = room.account();
    others.set(bytes);
    others
}

#[test]
fn many_who_do_not_read_are_given_no_more_together_than_their_core_has_room_for() {
    let room = Rc::<SendBudget>::default();
    let outbox = || Outbox::new(1 << 20, &room);
    let (wanted, piece) = (Credit { messages: 9, bytes: 9 }, delivery(0, WRITE_BYTES / 2));
    let is_given = |outbox: &Outbox| outbox.window_now(wanted) == wanted;
    let give_all = |outbox: &Outbox| {
        while is_given(outbox) {
            outbox.deliver(piece.clone());
        }
    };
    let held =
        |outboxes: &[Outbox]| outboxes.iter().map(|outbox| outbox.account.bytes()).sum::<usize>();
    let many = WAITING_CORE_BYTES_MAX / DELIVERIES_WAITING_BYTES_MAX;
    let mut deaf: Vec<Outbox> = (0..3 * many).map(|_| outbox()).collect();
    deaf.iter().for_each(give_all);
    let at_least = deaf.iter().map(|outbox| outbox.account.bytes()).min();
    assert!(at_least > Some(WRITE_BYTES), "everybody is given something");
    let more_for_each = deaf.len() * 2 * WRITE_BYTES;
    assert!(held(&deaf) <= WAITING_CORE_BYTES_MAX + more_for_each, "{}", held(&deaf));
    let reads = deaf.pop().unwrap();
    while !reads.is_empty() {
        write(&reads);
    }
    assert!(is_given(&reads), "who reads goes on");
    drop(deaf);
    give_all(&reads);
    assert!(reads.account.bytes() > DELIVERIES_WAITING_BYTES_MAX, "there is room again");
}

#[test]
fn very_many_who_do_not_read_have_so_much_less_each() {
    let room = Rc::<SendBudget>::default();
    let _others = others(&room, WAITING_CORE_BYTES_MAX + 1);
    let deaf: Vec<Outbox> = (0..20_000).map(|_| Outbox::new(1 << 20, &room)).collect();
    let (wanted, piece) = (Credit { messages: 9, bytes: 9 }, delivery(0, 10 << 10));
    for outbox in &deaf {
        while outbox.window_now(wanted) == wanted {
            outbox.deliver(piece.clone());
        }
    }
    let held: usize = deaf.iter().map(|outbox| outbox.account.bytes()).sum();
    let most = WAITING_CORE_BYTES_MAX + deaf.len() * piece.messages.len();
    assert!(held <= most && held > most / 2, "{held} bytes wait");
}

#[test]
fn very_many_who_do_not_read_messages_of_8_mib_have_no_more_of_them_than_there_is_room_for() {
    let (room, message) = (Rc::<SendBudget>::default(), delivery(0, 8 << 20));
    let deaf: Vec<Outbox> = (0..1000).map(|_| Outbox::new(1 << 20, &room)).collect();
    let wanted = Credit { messages: 9, bytes: 9 };
    let is_given = |outbox: &&Outbox| outbox.window_now(wanted) == wanted;
    for _ in 0..3 {
        for outbox in deaf.iter().filter(is_given) {
            outbox.deliver(message.clone());
            outbox.fill(&mut WriteBuffer::default());
            // What the socket has not taken counts as well.
            outbox.set_unwritten(8 << 20);
        }
    }
    let held: usize = deaf.iter().map(|outbox| outbox.account.bytes()).sum();
    assert!(held > WAITING_CORE_BYTES_LAST, "{held} bytes wait");
    assert!(held <= WAITING_CORE_BYTES_LAST + message.messages.len(), "{held} bytes wait");
    assert!(!deaf.iter().any(|outbox| is_given(&outbox)), "nobody is given more");
}

#[tokio::test(flavor = "current_thread")]
async fn all_are_told_when_nobody_is_given_more_and_when_there_is_room_again() {
    let (room, wanted) = (Rc::<SendBudget>::default(), Credit { messages: 9, bytes: 9 });
    let idle: [Outbox; 2] = std::array::from_fn(|_| Outbox::new(1 << 20, &room));
    let others = others(&room, 0);
    for (bytes, messages) in [(WAITING_CORE_BYTES_LAST + 1, 0), (0, 9)] {
        let told = async {
            tokio::join!(idle[0].wait_for_hold_back_change(), idle[1].wait_for_hold_back_change())
        };
        tokio::join!(told, async { others.set(bytes) });
        let windows = idle.each_ref().map(|outbox| outbox.window_now(wanted).messages);
        assert_eq!(windows, [messages; 2]);
    }
    // Also who was busy when it turned.
    others.set(WAITING_CORE_BYTES_LAST + 1);
    assert!(is_ready(idle[0].wait_for_hold_back_change()));
    assert!(!is_ready(idle[0].wait_for_hold_back_change()));
}

/// Asks for as long as it is read.
fn ask_all(outbox: &Outbox) {
    while is_ready(outbox.wait_for_room()) {
        outbox.reply(&Reply::Pong, 0);
    }
}

#[test]
fn many_who_ask_and_do_not_read_are_read_no_further_than_their_core_has_room_for() {
    let room = Rc::<SendBudget>::default();
    let others = others(&room, 0);
    let deaf: Vec<Outbox> = (0..200).map(|_| Outbox::new(1 << 20, &room)).collect();
    let held = || deaf.iter().map(|outbox| outbox.account.bytes()).collect::<Vec<_>>();
    // Two have filled what is theirs alone, one of them by confirms.
    ask_all(&deaf[0]);
    let mut sequence = 0;
    while is_ready(deaf[1].wait_for_room()) {
        deaf[1].confirm(&confirmed(sequence));
        sequence += 2;
    }
    assert!(held()[..2].iter().all(|held| *held > REPLIES_WAITING_BYTES_MAX), "{:?}", held());
    others.set(WAITING_CORE_BYTES_MAX);
    deaf.iter().for_each(ask_all);
    let more: usize = held()[2..].iter().sum();
    assert!(more <= deaf.len() * (WRITE_BYTES + 100), "{more} bytes wait");
    assert!(held()[2..].iter().all(|held| *held > 0), "everybody is answered something");
    let reads = &deaf[2];
    assert!(!is_ready(reads.wait_for_room()));
    write(reads);
    assert!(is_ready(reads.wait_for_room()), "who reads goes on");
    // What the socket has not taken waits too.
    ask_all(reads);
    reads.fill(&mut WriteBuffer::default());
    reads.set_unwritten(1);
    assert!(!is_ready(reads.wait_for_room()));
    reads.set_unwritten(0);
    ask_all(reads);
    drop(others);
    assert!(is_ready(reads.wait_for_room()), "there is room again");
}

#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn what_is_for_readers_waits_to_the_end_of_a_pause_and_all_else_ends_it() {
    let paused = async |fill: &dyn Fn(&Outbox)| {
        let (outbox, begin) = (outbox(), Instant::now());
        outbox.deliver(delivery(0, 400));
        let filling = async {
            sleep_until(begin + Duration::from_millis(1)).await;
            fill(&outbox);
        };
        tokio::join!(outbox.pause(sleep_until(begin + Duration::from_millis(3)), 1000), filling);
        begin.elapsed().as_millis()
    };
    assert_eq!(paused(&|outbox| outbox.deliver(delivery(0, 400))).await, 3);
    assert_eq!(paused(&|outbox| outbox.deliver(delivery(1, 400))).await, 1);
    assert_eq!(paused(&|outbox| outbox.reply(&Reply::Pong, 0)).await, 1);
    assert_eq!(paused(&|outbox| outbox.gap(gap(0, 0..1, GapReason::Filtered))).await, 1);
    assert_eq!(paused(&Outbox::close).await, 1);
}

#[tokio::test(flavor = "current_thread")]
async fn all_who_wait_for_room_go_on_once_there_is_some_or_the_session_is_over() {
    for ends in [false, true] {
        let outbox = outbox();
        while outbox.waiting.borrow().reply_bytes <= REPLIES_WAITING_BYTES_MAX {
            outbox.reply(&Reply::Pong, 0);
        }
        let make_room = async {
            if ends {
                outbox.close();
            }
            while !ends && !outbox.is_empty() {
                write(&outbox);
            }
        };
        tokio::join!(outbox.wait_for_room(), outbox.wait_for_room(), make_room);
    }
}
