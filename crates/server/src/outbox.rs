//! What waits to be sent on one connection. Confirms are merged while they wait; deliveries stay
//! where they lie until the socket takes them.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet, VecDeque},
};

use sennit_engine::{Confirmed, Delivery};
use sennit_model::{Messages, PartitionId, ProducerId};
use sennit_protocol::{
    ConfirmHead, ConfirmRun, DeliverHead, Durability, ErrorCode, Reply, SettleRun, Settled, control,
};
use tokio::sync::Notify;

/// Bytes that are made ready for one write.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes of replies that may wait before the reader pauses.
const REPLY_BYTES_HIGH: usize = 1 << 20;

#[derive(Debug)]
enum Item {
    Delivery(Delivery),
    Reply(Vec<u8>),
}

/// Confirms of one producer in one partition.
#[derive(Debug)]
struct Confirms {
    partition: PartitionId,
    producer: ProducerId,
    up_to_sequence: u64,
    runs: Vec<ConfirmRun>,
}

#[derive(Debug, Default)]
struct Waiting {
    confirms: Vec<Confirms>,
    items: VecDeque<Item>,
    reply_bytes: usize,
    /// Settles over several partitions whose answers are gathered, by request.
    settles: HashMap<u64, Settling>,
    /// Subscriptions that were told that they have ended.
    ended: HashSet<u32>,
    closed: bool,
}

/// The answers to one settle, one for each partition it names.
#[derive(Debug)]
struct Settling {
    missing: usize,
    applied: u64,
    stale: Vec<SettleRun>,
}

/// What waits to be sent on one connection. Deliveries are bounded by the session's credit,
/// confirms by what it publishes, replies by [`Outbox::has_room`], which the reader waits for.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: RefCell<Waiting>,
    filled: Notify,
    emptied: Notify,
    /// The largest frame body the client takes.
    frame_bytes_max: Cell<usize>,
}

impl Outbox {
    pub(crate) fn new(frame_bytes_max: usize) -> Self {
        Self {
            waiting: RefCell::default(),
            filled: Notify::new(),
            emptied: Notify::new(),
            frame_bytes_max: Cell::new(frame_bytes_max),
        }
    }

    /// No frame is larger from now on.
    pub(crate) fn set_frame_bytes_max(&self, limit: usize) {
        self.frame_bytes_max.set(limit);
    }

    /// Waits while too many replies wait: a client that asks and does not read is not read either.
    pub(crate) async fn has_room(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.waiting.borrow().reply_bytes <= REPLY_BYTES_HIGH {
                return;
            }
            emptied.await;
        }
    }

    /// A settle will be answered by so many partitions; the answers go out as one.
    pub(crate) fn expect_settled(&self, request: u64, partitions: usize) {
        let settling = Settling { missing: partitions, applied: 0, stale: Vec::new() };
        self.waiting.borrow_mut().settles.insert(request, settling);
    }

    pub(crate) fn settled(
        &self,
        request: u64,
        applied: u64,
        stale: impl Iterator<Item = SettleRun>,
    ) {
        let mut waiting = self.waiting.borrow_mut();
        let Some(settling) = waiting.settles.get_mut(&request) else {
            drop(waiting);
            let settled = Settled { applied, stale: stale.collect() };
            return self.reply(&Reply::Settled(settled), request);
        };
        settling.missing -= 1;
        settling.applied += applied;
        settling.stale.extend(stale);
        if settling.missing > 0 {
            return;
        }
        let Some(Settling { applied, stale, .. }) = waiting.settles.remove(&request) else {
            return;
        };
        drop(waiting);
        let settled = Settled { applied, stale: stale.into_iter().collect() };
        self.reply(&Reply::Settled(settled), request);
    }

    pub(crate) fn refused(&self, request: u64, error: control::Error) {
        self.waiting.borrow_mut().settles.remove(&request);
        self.reply(&Reply::Error(error), request);
    }

    /// A subscription of this number begins.
    pub(crate) fn subscription_begins(&self, subscription: u32) {
        self.waiting.borrow_mut().ended.remove(&subscription);
    }

    /// A subscription has lost a partition because topic or group are gone; said once.
    pub(crate) fn subscription_ended(&self, subscription: u32) {
        if self.waiting.borrow_mut().ended.insert(subscription) {
            let ended = control::SubscriptionEnded {
                subscription,
                code: ErrorCode::UnknownTopic.number(),
                reason: "the topic or the group was deleted".to_owned(),
            };
            self.reply(&Reply::SubscriptionEnded(ended), 0);
        }
    }

    pub(crate) fn confirm(&self, confirmed: &Confirmed) {
        let mut waiting = self.waiting.borrow_mut();
        let Confirmed { partition, producer, first_sequence, count, first_offset, .. } = *confirmed;
        let (duplicate, end) = (confirmed.duplicate, first_sequence + u64::from(count));
        let run = ConfirmRun { first_sequence, first_offset, count, duplicate };
        let found = waiting
            .confirms
            .iter_mut()
            .find(|held| held.partition == partition && held.producer == producer);
        match found {
            Some(held) => {
                held.up_to_sequence = held.up_to_sequence.max(end);
                held.runs.push(run);
            }
            None => waiting.confirms.push(Confirms {
                partition,
                producer,
                up_to_sequence: end,
                runs: vec![run],
            }),
        }
        self.filled.notify_one();
    }

    pub(crate) fn deliver(&self, delivery: Delivery) {
        self.waiting.borrow_mut().items.push_back(Item::Delivery(delivery));
        self.filled.notify_one();
    }

    pub(crate) fn reply(&self, reply: &Reply, request: u64) {
        let mut bytes = Vec::new();
        reply.encode(request, &mut bytes);
        let mut waiting = self.waiting.borrow_mut();
        waiting.reply_bytes += bytes.len();
        waiting.items.push_back(Item::Reply(bytes));
        self.filled.notify_one();
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        let waiting = self.waiting.borrow();
        waiting.confirms.is_empty() && waiting.items.is_empty()
    }

    /// Nothing more will come: the writer sends what is here and ends.
    pub(crate) fn close(&self) {
        self.waiting.borrow_mut().closed = true;
        self.filled.notify_one();
    }

    /// Waits until there is something to send and encodes as much of it into `out` as makes a good
    /// write. False once the outbox is closed and empty.
    pub(crate) async fn next(&self, out: &mut Vec<u8>) -> bool {
        loop {
            self.fill(out);
            if !out.is_empty() {
                return true;
            }
            if self.waiting.borrow().closed {
                return false;
            }
            self.filled.notified().await;
        }
    }

    fn fill(&self, out: &mut Vec<u8>) {
        let mut waiting = self.waiting.borrow_mut();
        for confirms in waiting.confirms.drain(..) {
            let Confirms { partition, producer, up_to_sequence, runs } = confirms;
            let durability = Durability::Durable;
            let head = ConfirmHead { partition, producer, up_to_sequence, durability };
            head.encode(runs.into_iter(), 0, out);
        }
        while out.len() < WRITE_BYTES {
            match waiting.items.pop_front() {
                Some(Item::Reply(bytes)) => {
                    waiting.reply_bytes -= bytes.len();
                    out.extend_from_slice(&bytes);
                    self.emptied.notify_one();
                }
                Some(Item::Delivery(delivery)) => self.encode(delivery, out),
                None => return,
            }
        }
    }

    /// Encodes a delivery, in several frames if one would be larger than the client takes. A
    /// single message beyond that limit goes out all the same: the client has to say so.
    fn encode(&self, mut delivery: Delivery, out: &mut Vec<u8>) {
        let room = self.frame_bytes_max.get().saturating_sub(DeliverHead::BYTES);
        while delivery.messages.len() > room && delivery.count > 1 {
            let mut messages = Messages::of_checked(&delivery.messages);
            let (mut count, mut length) = (0, 0);
            loop {
                let next = messages.skip_bytes(1);
                if count > 0 && length + next > room || count + 1 == delivery.count {
                    break;
                }
                (count, length) = (count + 1, length + next);
            }
            let rest = delivery.messages.split_off(length);
            let part = Delivery { count, ..delivery.clone() };
            delivery = Delivery {
                first: part.first.plus(u64::from(count)),
                count: delivery.count - count,
                messages: rest,
                ..part
            };
            encode_frame(&part, out);
        }
        encode_frame(&delivery, out);
    }
}

fn encode_frame(delivery: &Delivery, out: &mut Vec<u8>) {
    let head = DeliverHead {
        subscription: delivery.subscription,
        partition: delivery.partition.index,
        first: delivery.first,
        appended_at: delivery.appended_at,
        attempt: delivery.attempt,
        generation: delivery.generation,
        count: delivery.count,
        durability: Durability::Durable,
    };
    out.reserve(delivery.messages.len() + 64);
    head.encode(delivery.messages.len(), 0, out);
    out.extend_from_slice(&delivery.messages);
}
