//! What waits to be sent on one connection. Confirms are merged while they wait; deliveries stay
//! where they lie until the socket takes them.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    pin::pin,
    rc::Rc,
};

use sennit_engine::{Confirmed, Credit, Delivery};
use sennit_model::{
    PartitionId, ProducerId,
    limits::{
        DELIVERIES_WAITING_BYTES_MAX, DELIVERIES_WAITING_CORE_BYTES_MAX, READER_BEHIND_BYTES_MAX,
    },
};
use sennit_protocol::{
    ConfirmHead, ConfirmRun, Durability, ErrorCode, Features, Gap, Reply, Run, SettleRun, Settled,
    control,
};
use tokio::sync::Notify;

use crate::{
    delivery_frames::{encode, row},
    outgoing::Outgoing,
    routes::Routes,
    send_queue::{Item, SendQueue},
    successor::Successor,
};

/// Bytes that are made ready for one write.
const WRITE_BYTES: usize = 256 << 10;

/// Bytes of replies and confirms that may wait before the reader pauses.
const REPLY_BYTES_HIGH: usize = 1 << 20;

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

#[derive(Debug, Default)]
struct Waiting {
    confirms: Vec<Confirms>,
    queue: SendQueue,
    reply_bytes: usize,
    /// Settles over several partitions whose answers are gathered, by request.
    settles: HashMap<u64, Settling>,
    /// Subscriptions that were told that they have ended.
    ended: HashSet<u32>,
    /// Those of them that the session has not heard of.
    newly_ended: Vec<u32>,
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
/// deliveries by the session's credit and by [`Outbox::needs_holding_back`], gaps by the deliveries between
/// them, and confirms and replies by [`Outbox::has_room`], for which whoever makes more of them waits.
#[derive(Debug)]
pub(crate) struct Outbox {
    waiting: RefCell<Waiting>,
    /// Bytes of deliveries that wait on all connections of the core.
    core_delivery_bytes: Rc<Cell<usize>>,
    filled: Notify,
    emptied: Notify,
    /// The largest frame body the client takes.
    frame_bytes_max: Cell<usize>,
    /// What the client knows beyond the first frames of the protocol.
    features: Cell<Features>,
    /// Who takes the session's place.
    pub(crate) successor: Successor,
    /// What the session takes part in.
    pub(crate) routes: Rc<RefCell<Routes>>,
    /// Whether the writer holds bytes that the socket has not taken.
    is_writing: Cell<bool>,
    /// Whether the writer waits for more to readers.
    is_pausing: Cell<bool>,
    /// Whether the session is to be given no more, and what rings when that changes.
    holds_back: Cell<bool>,
    weighed: Notify,
    /// Rung when the client was found to take nothing.
    deaf: Notify,
}

impl Outbox {
    pub(crate) fn new(frame_bytes_max: usize, core_delivery_bytes: Rc<Cell<usize>>) -> Self {
        Self {
            waiting: RefCell::default(),
            core_delivery_bytes,
            filled: Notify::new(),
            emptied: Notify::new(),
            frame_bytes_max: Cell::new(frame_bytes_max),
            features: Cell::default(),
            successor: Successor::default(),
            routes: Rc::default(),
            is_writing: Cell::new(false),
            is_pausing: Cell::new(false),
            holds_back: Cell::new(false),
            weighed: Notify::new(),
            deaf: Notify::new(),
        }
    }

    /// The writer says that the client takes nothing of what it is sent.
    pub(crate) fn set_deaf(&self) {
        self.deaf.notify_one();
    }

    /// Waits until it does.
    pub(crate) async fn is_deaf(&self) {
        self.deaf.notified().await;
    }

    /// Waits until the session is to be given no more, or something again; which of them,
    /// [`Self::window_now`] knows.
    pub(crate) async fn needs_holding_back(&self) {
        self.weighed.notified().await;
    }

    /// The window of a partition for now, of one that the client wants.
    pub(crate) fn window_now(&self, wanted: Credit) -> Credit {
        if self.holds_back.get() { Credit { messages: 0, ..wanted } } else { wanted }
    }

    /// So many bytes of deliveries wait now, and so many did before: whether that is too much, or little again.
    fn weigh(&self, before: usize, delivery_bytes: usize) {
        let of_core = self.core_delivery_bytes.get() - before + delivery_bytes;
        self.core_delivery_bytes.set(of_core);
        // Where others have filled the core's room a good write is left to each: who reads goes on.
        let most = match of_core > DELIVERIES_WAITING_CORE_BYTES_MAX {
            true => WRITE_BYTES,
            false => DELIVERIES_WAITING_BYTES_MAX,
        };
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
    pub(crate) async fn has_room(&self) {
        loop {
            let emptied = self.emptied.notified();
            {
                let waiting = self.waiting.borrow();
                if waiting.reply_bytes <= REPLY_BYTES_HIGH || waiting.closed {
                    return;
                }
            }
            emptied.await;
        }
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
            _ => "the topic or the group was deleted".to_owned(),
        };
        let ended = control::SubscriptionEnded { subscription, code: code.number(), reason };
        self.reply(&Reply::SubscriptionEnded(ended), 0);
    }

    pub(crate) fn confirm(&self, confirmed: &Confirmed) {
        let Confirmed { partition, producer, first_sequence, count, first_offset, .. } = *confirmed;
        let durability = confirmed.durability;
        let run =
            ConfirmRun { first_sequence, first_offset, count, duplicate: confirmed.duplicate };
        let mut waiting = self.waiting.borrow_mut();
        let Waiting { confirms, reply_bytes, .. } = &mut *waiting;
        // The last one first: batches come in rows.
        let is_same = |held: &Confirms| held.partition == partition && held.producer == producer;
        // What has reached something else goes behind: what a frame confirms, it confirms up to there.
        let held = confirms.iter_mut().rev().find(|held| is_same(held));
        let more = match held.filter(|held| held.durability == durability) {
            Some(held) => held.push(run),
            None => {
                confirms.push(Confirms { partition, producer, durability, runs: vec![run] });
                1
            }
        };
        *reply_bytes += more * ConfirmRun::BYTES;
        self.filled.notify_one();
    }

    pub(crate) fn deliver(&self, delivery: Delivery) {
        let may_wait = self.is_pausing.get() && is_for_reader(&delivery);
        let mut waiting = self.waiting.borrow_mut();
        let before = waiting.queue.delivery_bytes();
        waiting.queue.push_delivery(delivery);
        self.weigh(before, waiting.queue.delivery_bytes());
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
    pub(crate) async fn has_something(&self) -> bool {
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

    /// The writer says whether it holds bytes that the socket has not taken.
    pub(crate) fn set_writing(&self, is_writing: bool) {
        self.is_writing.set(is_writing);
    }

    /// Encodes as much of what waits into `out` as makes a good write.
    pub(crate) fn fill(&self, out: &mut Outgoing) {
        let mut waiting = self.waiting.borrow_mut();
        let frame_bytes_max = self.frame_bytes_max.get();
        let runs_max =
            (frame_bytes_max.saturating_sub(ConfirmHead::BYTES) / ConfirmRun::BYTES).max(1);
        let (reply_bytes_before, before) = (waiting.reply_bytes, waiting.queue.delivery_bytes());
        let Waiting { confirms, reply_bytes, .. } = &mut *waiting;
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
        self.weigh(before, waiting.queue.delivery_bytes());
        if waiting.reply_bytes < reply_bytes_before {
            self.emptied.notify_waiters();
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.weigh(self.waiting.borrow().queue.delivery_bytes(), 0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sennit_engine::SessionId;
    use sennit_model::{Generation, Offset, OffsetRange, PartitionIndex, Timestamp, TopicId};
    use sennit_protocol::GapReason;
    use tokio::time::{Instant, sleep_until};

    use super::*;

    fn outbox() -> Outbox {
        let outbox = Outbox::new(1 << 20, Rc::default());
        outbox.set_features(Features { gaps: true, ..Features::default() });
        outbox
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
        outbox.fill(&mut Outgoing::default());
        assert!(!is_given(&outbox));
        outbox.fill(&mut Outgoing::default());
        assert!(is_given(&outbox));
    }

    #[test]
    fn many_who_do_not_read_are_given_no_more_together_than_their_core_has_room_for() {
        let held = Rc::new(Cell::new(0));
        let outbox = || Outbox::new(1 << 20, held.clone());
        let (wanted, piece) = (Credit { messages: 9, bytes: 9 }, delivery(0, WRITE_BYTES / 2));
        let is_given = |outbox: &Outbox| outbox.window_now(wanted) == wanted;
        let give_all = |outbox: &Outbox| {
            while is_given(outbox) {
                outbox.deliver(piece.clone());
            }
        };
        let many = DELIVERIES_WAITING_CORE_BYTES_MAX / DELIVERIES_WAITING_BYTES_MAX;
        let mut deaf: Vec<Outbox> = (0..3 * many).map(|_| outbox()).collect();
        deaf.iter().for_each(give_all);
        let at_least =
            deaf.iter().map(|outbox| outbox.waiting.borrow().queue.delivery_bytes()).min();
        assert!(at_least > Some(WRITE_BYTES), "everybody is given something");
        let more_for_each = deaf.len() * 2 * WRITE_BYTES;
        assert!(held.get() <= DELIVERIES_WAITING_CORE_BYTES_MAX + more_for_each, "{}", held.get());
        let reads = deaf.pop().unwrap();
        while !reads.is_empty() {
            reads.fill(&mut Outgoing::default());
        }
        assert!(is_given(&reads), "who reads goes on");
        drop(deaf);
        assert_eq!(held.get(), 0, "they are gone");
        let begin = held.get();
        give_all(&reads);
        assert!(held.get() - begin > DELIVERIES_WAITING_BYTES_MAX, "there is room again");
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
            tokio::join!(
                outbox.pause(sleep_until(begin + Duration::from_millis(3)), 1000),
                filling
            );
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
            while outbox.waiting.borrow().reply_bytes <= REPLY_BYTES_HIGH {
                outbox.reply(&Reply::Pong, 0);
            }
            let make_room = async {
                if ends {
                    outbox.close();
                }
                while !ends && !outbox.is_empty() {
                    outbox.fill(&mut Outgoing::default());
                }
            };
            tokio::join!(outbox.has_room(), outbox.has_room(), make_room);
        }
    }
}
