//! The outbox of one connection. Confirms are merged while they wait; deliveries stay where they lie until the
//! socket takes them.

mod effects;

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    pin::pin,
    rc::Rc,
};

use sennit_engine::{Confirmed, Credit, Delivery};
use sennit_model::{
    PartitionId, ProducerId,
    limits::{DELIVERIES_WAITING_BYTES_MAX, READER_BEHIND_BYTES_MAX, REPLIES_WAITING_BYTES_MAX},
};
use sennit_protocol::{
    ConfirmHead, ConfirmRun, Durability, ErrorCode, Features, Gap, PublishNote, Reply, Run,
    SettleRun, Settled, control,
};
use tokio::sync::Notify;

use super::{
    delivery_frames::{encode, row},
    send_queue::{Item, SendQueue},
    subscription_routes::Routes,
};
use crate::runtime::{
    send_budget::{SendAccount, SendBudget},
    session_takeover::SessionTakeover,
    write_buffer::WriteBuffer,
};

/// Bytes that are made ready for one write.
const WRITE_BYTES: usize = 256 << 10;

/// Whether it is of a stream's reader, who has no lease.
fn is_for_reader(delivery: &Delivery) -> bool {
    delivery.attempt == 0
}

/// Confirms of one producer in one partition.
#[derive(Debug)]
struct Confirms {
    partition: PartitionId,
    producer: ProducerId,
    durability: Durability,
    runs: Vec<ConfirmRun>,
}

impl Confirms {
    /// Adds a run, to the last one if it goes on where that ends; returns how many more there are.
    fn push(&mut self, run: ConfirmRun) -> usize {
        if let Some(last) = self.runs.last_mut()
            && !(last.duplicate || run.duplicate)
            && last.first_sequence + u64::from(last.count) == run.first_sequence
            && last.first_offset.map(|first| first.plus(last.count.into())) == run.first_offset
            && let Some(count) = last.count.checked_add(run.count)
        {
            last.count = count;
            return 0;
        }
        self.runs.push(run);
        1
    }
}

/// The runs of a confirm: one, unless the broker has left out duplicates.
fn runs_of(confirmed: &Confirmed, whole: ConfirmRun) -> impl Iterator<Item = ConfirmRun> {
    let only = confirmed.parts.is_empty().then_some(whole);
    let mut next = whole.first_sequence;
    let parts = confirmed.parts.iter().map(move |part| {
        let (count, duplicate) = (part.count, part.duplicate);
        let first_sequence = next;
        next += u64::from(count);
        ConfirmRun { first_sequence, first_offset: Some(part.first_offset), count, duplicate }
    });
    only.into_iter().chain(parts)
}

#[derive(Debug, Default)]
struct Waiting {
    /// They go before the confirms, with the numbers of their requests.
    notes: Vec<(u64, PublishNote)>,
    confirms: Vec<Confirms>,
    queue: SendQueue,
    /// Of replies and confirms.
    reply_bytes: usize,
    /// Of those that were made ready last, until the socket has taken all of that write.
    written_reply_bytes: usize,
    /// Settles over several partitions whose answers are gathered, by request.
    settles: HashMap<u64, Settling>,
    /// Subscriptions that were told that they have ended.
    ended: HashSet<u32>,
    /// Those of them that the session has not heard of.
    newly_ended: Vec<u32>,
    /// Subscriptions that have lost their right: what was on the way for them is dropped.
    forbidden: HashSet<u32>,
    closed: bool,
}

/// The answers to one settle, one for each partition it names.
#[derive(Debug)]
struct Settling {
    missing: usize,
    applied: u64,
    stale: Vec<SettleRun>,
    /// A partition has refused, and the client was told so; there is no other answer.
    refused: bool,
}

/// What waits to be sent on one connection. All of it is bounded, also where the client does not read:
/// deliveries by the session's credit and by [`Outbox::wait_for_hold_back_change`], gaps by the deliveries between
/// them, and confirms and replies by [`Outbox::wait_for_room`], for which whoever makes more of them waits.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: RefCell<Waiting>,
    /// What waits here counts on the account of the core.
    account: SendAccount,
    filled: Notify,
    emptied: Notify,
    /// The largest frame body the client takes.
    frame_bytes_max: Cell<usize>,
    /// What the client knows beyond the first frames of the protocol.
    features: Cell<Features>,
    /// Who takes the session's place.
    pub(crate) successor: SessionTakeover,
    /// What the session takes part in.
    pub(crate) routes: Rc<RefCell<Routes>>,
    /// Whether the writer is at work on a write that the socket has not taken whole.
    is_writing: Cell<bool>,
    /// How many bytes of it the socket has not taken.
    unwritten_bytes: Cell<usize>,
    /// Whether the writer waits for more to readers.
    is_pausing: Cell<bool>,
    /// Whether too much waits here for the session to be given more, and what rings when that changes.
    holds_back: Cell<bool>,
    weighed: Notify,
    /// Whether the session's windows were last closed for what waits, here or on the core.
    is_held_back: Cell<bool>,
    /// Rung when the client was found to take nothing.
    deaf: Notify,
    /// Whether deliveries are dropped: the session is about to end.
    delivers_nothing: Cell<bool>,
}

impl Outbox {
    pub(crate) fn new(frame_bytes_max: usize, room: &Rc<SendBudget>) -> Self {
        Self {
            waiting: RefCell::default(),
            account: room.account(),
            filled: Notify::new(),
            emptied: Notify::new(),
            frame_bytes_max: Cell::new(frame_bytes_max),
            features: Cell::default(),
            successor: SessionTakeover::default(),
            routes: Rc::default(),
            is_writing: Cell::new(false),
            unwritten_bytes: Cell::new(0),
            is_pausing: Cell::new(false),
            holds_back: Cell::new(false),
            weighed: Notify::new(),
            is_held_back: Cell::new(false),
            deaf: Notify::new(),
            delivers_nothing: Cell::new(false),
        }
    }

    /// The writer says that the client takes nothing of what it is sent.
    pub(crate) fn set_deaf(&self) {
        self.deaf.notify_one();
    }

    /// Waits until it does.
    pub(crate) async fn wait_until_deaf(&self) {
        self.deaf.notified().await;
    }

    /// Waits until the session is to be given no more, or something again; which of them,
    /// [`Self::window_now`] knows.
    pub(crate) async fn wait_for_hold_back_change(&self) {
        loop {
            let turns = self.account.room.turns();
            let must = self.must_hold_back();
            if self.is_held_back.replace(must) != must {
                return;
            }
            tokio::select! {
                () = self.weighed.notified() => {}
                () = turns => {}
            }
        }
    }

    fn must_hold_back(&self) -> bool {
        self.holds_back.get() || self.account.room.is_closed()
    }

    /// The window of a partition for now, of one that the client wants.
    pub(crate) fn window_now(&self, wanted: Credit) -> Credit {
        if self.must_hold_back() { Credit { messages: 0, ..wanted } } else { wanted }
    }

    /// How much may wait here of what may come to `most`.
    fn room_of(&self, most: usize) -> usize {
        // Where others have filled the core's room a good write is left to each: who reads goes on.
        let room = &self.account.room;
        if room.is_full() { room.share().min(WRITE_BYTES) } else { most }
    }

    /// Something has changed of what waits: counts it, and finds out whether it is too much, or little again.
    fn weigh(&self, waiting: &Waiting) {
        let delivery_bytes = waiting.queue.delivery_bytes() + self.unwritten_bytes.get();
        self.account.set(delivery_bytes + waiting.reply_bytes);
        let most = self.room_of(DELIVERIES_WAITING_BYTES_MAX);
        let most = if self.holds_back.get() { most / 2 } else { most };
        let holds_back = delivery_bytes > most;
        if self.holds_back.replace(holds_back) != holds_back {
            self.weighed.notify_one();
        }
    }

    /// The longest body that the client takes.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        self.frame_bytes_max.get()
    }

    /// No frame is larger from now on.
    pub(crate) fn set_frame_bytes_max(&self, limit: usize) {
        self.frame_bytes_max.set(limit);
    }

    /// What was granted; nothing else is sent that needs it.
    pub(crate) fn set_features(&self, features: Features) {
        self.features.set(features);
    }

    /// What was granted.
    pub(crate) fn features(&self) -> Features {
        self.features.get()
    }

    /// Waits while too many replies wait: a client that asks and does not read is not read either, nor told
    /// of what it watches. Several may wait.
    pub(crate) async fn wait_for_room(&self) {
        loop {
            let (emptied, freed) = (self.emptied.notified(), self.account.room.is_freed());
            {
                let Waiting { reply_bytes, written_reply_bytes, closed, .. } =
                    *self.waiting.borrow();
                let most = self.room_of(REPLIES_WAITING_BYTES_MAX);
                if reply_bytes + written_reply_bytes <= most || closed {
                    return;
                }
            }
            tokio::select! {
                () = emptied => {}
                () = freed => {}
            }
        }
    }

    /// Whether all connections of the core hold so much that each may ask for one answer at a time only.
    pub(crate) fn is_room_full(&self) -> bool {
        self.account.room.is_full()
    }

    /// A settle will be answered by so many partitions; the answers go out as one.
    pub(crate) fn expect_settled(&self, request: u64, partitions: usize) {
        let settling =
            Settling { missing: partitions, applied: 0, stale: Vec::new(), refused: false };
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
        settling.applied += applied;
        settling.stale.extend(stale);
        settling.missing -= 1;
        if settling.missing > 0 {
            return;
        }
        let Some(Settling { applied, stale, refused: false, .. }) =
            waiting.settles.remove(&request)
        else {
            return;
        };
        drop(waiting);
        let settled = Settled { applied, stale: stale.into_iter().collect() };
        self.reply(&Reply::Settled(settled), request);
    }

    pub(crate) fn refused(&self, request: u64, error: control::Error) {
        let mut waiting = self.waiting.borrow_mut();
        if let Some(settling) = waiting.settles.get_mut(&request) {
            settling.missing -= 1;
            let said = std::mem::replace(&mut settling.refused, true);
            if settling.missing == 0 {
                waiting.settles.remove(&request);
            }
            if said {
                return;
            }
        }
        drop(waiting);
        self.reply(&Reply::Error(error), request);
    }

    /// A subscription of this number begins.
    pub(crate) fn subscription_begins(&self, subscription: u32) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.ended.remove(&subscription);
        waiting.forbidden.remove(&subscription);
        waiting.queue.subscription_begins();
    }

    /// A subscription has lost a partition, because topic or group are gone or another has its
    /// cursor; said once.
    pub(crate) fn subscription_ended(&self, subscription: u32, code: ErrorCode) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.ended.insert(subscription) {
            return;
        }
        waiting.newly_ended.push(subscription);
        drop(waiting);
        let reason = match code {
            ErrorCode::CursorHeld => "another reader has its cursor".to_owned(),
            ErrorCode::SlowConsumer => format!(
                "it has fallen behind: READER_BEHIND_BYTES_MAX is {READER_BEHIND_BYTES_MAX}"
            ),
            ErrorCode::OutcomeUnknown => {
                "the partition is served elsewhere now: subscribe again".to_owned()
            }
            _ => "the topic or the group was deleted".to_owned(),
        };
        let ended = control::SubscriptionEnded { subscription, code: code.number(), reason };
        self.reply(&Reply::SubscriptionEnded(ended), 0);
    }

    /// A subscription has lost the right that it needs: nothing more of it is delivered.
    pub(crate) fn subscription_forbidden(&self, subscription: u32, verb: &str) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.forbidden.insert(subscription);
        drop(waiting);
        let reason = format!("the right to {verb} was taken");
        let code = ErrorCode::Forbidden.number();
        let ended = control::SubscriptionEnded { subscription, code, reason };
        self.reply(&Reply::SubscriptionEnded(ended), 0);
    }

    /// The credentials of the client do not count any more: nothing more is delivered.
    pub(crate) fn deliver_nothing_more(&self) {
        self.delivers_nothing.set(true);
    }

    pub(crate) fn confirm(&self, confirmed: &Confirmed) {
        let Confirmed { partition, producer, first_sequence, count, first_offset, .. } = *confirmed;
        let durability = confirmed.durability;
        let duplicate = confirmed.duplicate;
        let whole = ConfirmRun { first_sequence, first_offset, count, duplicate };
        let runs = runs_of(confirmed, whole);
        let mut waiting = self.waiting.borrow_mut();
        let Waiting { confirms, reply_bytes, .. } = &mut *waiting;
        // The last one first: batches come in rows.
        let is_same = |held: &Confirms| held.partition == partition && held.producer == producer;
        // What has reached something else goes behind: what a frame confirms, it confirms up to there.
        let held = confirms.iter_mut().rev().find(|held| is_same(held));
        let more: usize = match held.filter(|held| held.durability == durability) {
            Some(held) => runs.map(|run| held.push(run)).sum(),
            None => {
                let runs: Vec<_> = runs.collect();
                let count = runs.len();
                confirms.push(Confirms { partition, producer, durability, runs });
                count
            }
        };
        *reply_bytes += more * ConfirmRun::BYTES;
        self.weigh(&waiting);
        self.filled.notify_one();
    }

    /// A publish has done something to older messages; said before its confirm.
    pub(crate) fn publish_note(&self, note: &sennit_engine::PublishNote) {
        if !self.features.get().publish_notes {
            return;
        }
        let sennit_engine::PublishNote {
            origin,
            partition,
            producer,
            first_sequence,
            dropped,
            replaced,
        } = *note;
        let note = PublishNote { partition, producer, first_sequence, dropped, replaced };
        let mut waiting = self.waiting.borrow_mut();
        waiting.notes.push((origin.request, note));
        waiting.reply_bytes += PublishNote::BYTES;
        self.weigh(&waiting);
        self.filled.notify_one();
    }

    pub(crate) fn deliver(&self, delivery: Delivery) {
        let may_wait = self.is_pausing.get() && is_for_reader(&delivery);
        let mut waiting = self.waiting.borrow_mut();
        if self.delivers_nothing.get() || waiting.forbidden.contains(&delivery.subscription) {
            return;
        }
        waiting.queue.push_delivery(delivery);
        self.weigh(&waiting);
        if !may_wait {
            self.filled.notify_one();
        }
    }

    /// Messages are passed over; said behind what was delivered before.
    pub(crate) fn gap(&self, gap: Gap) {
        if self.features.get().gaps {
            self.waiting.borrow_mut().queue.push_gap(gap);
            self.filled.notify_one();
        }
    }

    pub(crate) fn reply(&self, reply: &Reply, request: u64) {
        let mut waiting = self.waiting.borrow_mut();
        let bytes = waiting.queue.push_reply(reply, request);
        waiting.reply_bytes += bytes;
        self.weigh(&waiting);
        self.filled.notify_one();
    }

    /// Sends bytes that are no frame, to a client that does not speak the protocol.
    pub(crate) fn alert(&self, bytes: &[u8]) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.queue.push_alert(bytes);
        waiting.reply_bytes += bytes.len();
        self.filled.notify_one();
    }

    /// Whether nothing waits, and the socket has taken all that was written.
    pub(crate) fn is_empty(&self) -> bool {
        let waiting = self.waiting.borrow();
        waiting.confirms.is_empty() && waiting.queue.is_empty() && !self.is_writing.get()
    }

    /// How many deliveries wait, if all that waits is for readers, and at most so many bytes.
    pub(crate) fn little_for_readers(&self, bytes_max: usize) -> Option<usize> {
        let waiting = self.waiting.borrow();
        let mut bytes = 0;
        let is_little = waiting.confirms.is_empty()
            && !waiting.closed
            && waiting.queue.iter().all(|item| {
                let delivery = item.delivery().filter(|delivery| is_for_reader(delivery));
                bytes += delivery.map_or(0, |delivery| delivery.messages.len());
                delivery.is_some() && bytes <= bytes_max
            });
        is_little.then_some(waiting.queue.len())
    }

    /// Waits until then, unless more than a little is here, or something that is not for readers comes.
    pub(crate) async fn pause(&self, until: impl Future<Output = ()>, bytes_max: usize) {
        let mut end = pin!(until);
        self.is_pausing.set(true);
        while self.little_for_readers(bytes_max).is_some() {
            tokio::select! {
                () = &mut end => break,
                () = self.filled.notified() => {}
            }
        }
        self.is_pausing.set(false);
    }

    /// The subscriptions that were told since the last call that they have ended.
    pub(crate) fn take_ended(&self) -> Vec<u32> {
        std::mem::take(&mut self.waiting.borrow_mut().newly_ended)
    }

    /// Nothing more will come: the writer sends what is here and ends.
    pub(crate) fn close(&self) {
        self.waiting.borrow_mut().closed = true;
        self.filled.notify_one();
        self.emptied.notify_waiters();
    }

    /// Waits until there is something to send. False once the outbox is closed and empty.
    pub(crate) async fn wait_for_output(&self) -> bool {
        loop {
            {
                let waiting = self.waiting.borrow();
                if !(waiting.confirms.is_empty() && waiting.queue.is_empty()) {
                    return true;
                }
                if waiting.closed {
                    return false;
                }
            }
            self.filled.notified().await;
        }
    }

    /// The writer begins a write, and fills it next.
    pub(crate) fn begins_write(&self) {
        self.is_writing.set(true);
    }

    /// The writer says how many bytes of its write the socket has not taken; none is the end of it.
    pub(crate) fn set_unwritten(&self, bytes: usize) {
        let mut waiting = self.waiting.borrow_mut();
        self.is_writing.set(bytes > 0);
        if bytes == 0 && std::mem::take(&mut waiting.written_reply_bytes) > 0 {
            self.emptied.notify_waiters();
        }
        self.unwritten_bytes.set(bytes);
        self.weigh(&waiting);
    }

    /// Encodes as much of what waits into `out` as makes a good write.
    pub(crate) fn fill(&self, out: &mut WriteBuffer) {
        let mut waiting = self.waiting.borrow_mut();
        let frame_bytes_max = self.frame_bytes_max.get();
        let runs_max =
            (frame_bytes_max.saturating_sub(ConfirmHead::BYTES) / ConfirmRun::BYTES).max(1);
        let reply_bytes_before = waiting.reply_bytes;
        let Waiting { confirms, notes, reply_bytes, .. } = &mut *waiting;
        for (request, note) in notes.drain(..) {
            *reply_bytes -= PublishNote::BYTES;
            note.encode(request, out.own());
        }
        for Confirms { partition, producer, durability, runs } in confirms.drain(..) {
            *reply_bytes -= runs.len() * ConfirmRun::BYTES;
            for runs in runs.chunks(runs_max) {
                let ends = runs.iter().map(|run| run.first_sequence + u64::from(run.count));
                let up_to_sequence = ends.max().unwrap_or_default();
                let head = ConfirmHead { partition, producer, up_to_sequence, durability };
                head.encode(runs.iter().copied(), 0, out.own());
            }
        }
        while out.len() < WRITE_BYTES {
            let Waiting { queue, reply_bytes, .. } = &mut *waiting;
            let gone = match queue.front() {
                Some(Item::Replies(bytes)) => {
                    *reply_bytes -= bytes.len();
                    out.own().extend_from_slice(bytes);
                    1
                }
                Some(Item::Gap(gap)) => {
                    Reply::Gap(*gap).encode(0, out.own());
                    1
                }
                Some(Item::Delivery(first)) => {
                    let behind = queue.iter().skip(1).map_while(Item::delivery);
                    let follow = row(first, behind, frame_bytes_max);
                    let row = queue.range(1..=follow).filter_map(Item::delivery);
                    encode(first, row, frame_bytes_max, out);
                    1 + follow
                }
                None => break,
            };
            queue.remove(gone);
        }
        waiting.written_reply_bytes = reply_bytes_before - waiting.reply_bytes;
    }
}

#[cfg(test)]
mod tests;
