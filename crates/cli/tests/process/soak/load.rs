//! The workers of a soak: they publish, take, ack, fail, return, delete and create. A worker holds the ledger of
//! its topic.

use std::rc::Rc;

use sennit_client::{Consumer, GroupName, Message, Publisher, TopicConfig};
use tokio::{sync::MutexGuard, time::timeout};

use super::{BATCH_MAX, CREDIT, Held, PATIENCE, World, queue, stream};
use crate::{ledger::Ledger, torture::Choices};

impl World {
    /// A topic of `topics` that nobody else has.
    async fn draw<'a>(
        &self,
        topics: &'a [Held],
        choices: &mut Choices,
    ) -> (&'a Held, MutexGuard<'a, Ledger>) {
        let mut draw = || &topics[choices.below(topics.len() as u64) as usize];
        for _ in 0..8 {
            let held = draw();
            if let Ok(ledger) = held.ledger.try_lock() {
                return (held, ledger);
            }
        }
        let held = draw();
        (held, held.ledger.lock().await)
    }

    pub(super) fn account(&self, before: u64, ledger: &Ledger) {
        self.unsettled_bytes.set(self.unsettled_bytes.get() + ledger.unsettled_bytes() - before);
    }

    pub(super) async fn publisher(&self, held: &Held, turn: u64) -> Publisher {
        // A producer of its own for each turn would be remembered for long.
        self.client(turn).publisher(&held.name).idempotent(false).open().await.unwrap()
    }

    /// Publishes `count` messages, each of which must get the next offset.
    pub(super) async fn publish(&self, publisher: &Publisher, ledger: &mut Ledger, count: u64) {
        let first = ledger.end();
        let mut waiting = Vec::with_capacity(count as usize);
        for offset in first..first + count {
            let message = Message::new(ledger.payload(offset));
            waiting.push(publisher.publish(message).await.unwrap());
        }
        for (offset, pending) in (first..).zip(waiting) {
            let confirm = pending.await.unwrap();
            let at = confirm.offset.map(|at| at.0);
            assert_eq!(at, Some(offset), "{} has lost or invented messages", publisher.topic());
        }
        ledger.confirmed(count);
        self.counts.borrow_mut().published += count;
    }

    pub(super) async fn subscribe(&self, held: &Held, group: &GroupName, turn: u64) -> Consumer {
        let consumer = self.client(turn).consumer(&held.name, group).credit_messages(CREDIT);
        consumer.create_group_if_missing(true).subscribe().await.unwrap()
    }

    /// Takes about `count` messages of a queue. Most are acked, some fail, some are given back; without
    /// choices all are acked, and nobody waits for that.
    pub(super) async fn consume(
        &self,
        (held, ledger): (&Held, &mut Ledger),
        count: u64,
        (turn, choices): (u64, Option<&mut Choices>),
    ) {
        let mut choices = choices;
        let mut consumer = self.subscribe(held, &GroupName::default_group(), turn).await;
        let (mut taken, mut in_hand) = (0, Vec::new());
        let mut in_hand_count = 0;
        while taken < count && ledger.unsettled() > in_hand_count {
            let name = &held.name;
            let Ok(next) = timeout(PATIENCE, consumer.next_run()).await else {
                panic!("{name} lost some of {} messages: {ledger:?}", ledger.unsettled());
            };
            let run = next.expect("the subscription goes on").unwrap();
            let first = run.first_offset().0;
            for (offset, message) in (first..).zip(run.messages()) {
                if let Some(wrong) = ledger.judge(offset, message.payload()) {
                    panic!("{name} delivered {offset} in {run:?}, and {wrong}: {ledger:?}");
                }
            }
            taken += u64::from(run.count());
            let last = first + u64::from(run.count());
            match choices.as_mut().map(|choices| choices.below(20)) {
                Some(0) => run.retry(),
                Some(1) => {
                    in_hand_count += u64::from(run.count());
                    in_hand.push(run);
                }
                acks => {
                    if acks.is_some() {
                        let settled = run.ack_confirmed().await.unwrap();
                        assert_eq!(settled.stale, 0, "{name} says another had {run:?}");
                    } else {
                        run.ack();
                    }
                    (first..last).for_each(|offset| ledger.settle(offset));
                    self.counts.borrow_mut().acked += u64::from(run.count());
                }
            }
        }
        consumer.close().await.unwrap();
    }

    async fn make_again(&self, held: &Held, ledger: &mut Ledger, config: TopicConfig, turn: u64) {
        let client = self.client(turn);
        client.delete_topic(&held.name).await.unwrap();
        assert!(client.create_topic(&held.name, config).await.unwrap(), "it was deleted");
        ledger.begin_again();
        self.counts.borrow_mut().made_again += 1;
    }

    pub(super) async fn work(self: Rc<Self>, worker: u64, mut choices: Choices) {
        while self.working.get() {
            let deep = self.scale.deep as usize;
            match choices.below(100) {
                0..30 => {
                    let (held, mut ledger) = self.draw(&self.streams, &mut choices).await;
                    let publisher = self.publisher(held, worker).await;
                    self.publish(&publisher, &mut ledger, 1 + choices.below(BATCH_MAX)).await;
                }
                30..32 => {
                    let (held, mut ledger) = self.draw(&self.streams, &mut choices).await;
                    self.make_again(held, &mut ledger, stream(), worker).await;
                }
                32..33 => {
                    let (held, mut ledger) = self.draw(&self.queues[deep..], &mut choices).await;
                    let before = ledger.unsettled_bytes();
                    self.make_again(held, &mut ledger, queue(), worker).await;
                    self.account(before, &ledger);
                }
                turn => {
                    // The backlog is read and fed as well, and stays as long as it is.
                    let is_deep = turn.is_multiple_of(8);
                    let topics = if is_deep { &self.queues[..deep] } else { &self.queues[deep..] };
                    let (held, mut ledger) = self.draw(topics, &mut choices).await;
                    let before = ledger.unsettled_bytes();
                    let share = self.scale.backlog_bytes / deep as u64;
                    let is_enough = if is_deep { before > share } else { before > 64 << 10 };
                    if is_enough {
                        let some = choices.below(4 * BATCH_MAX);
                        let with = (worker, Some(&mut choices));
                        self.consume((held, &mut ledger), some, with).await;
                    } else {
                        let publisher = self.publisher(held, worker).await;
                        self.publish(&publisher, &mut ledger, 1 + choices.below(BATCH_MAX)).await;
                    }
                    self.account(before, &ledger);
                }
            }
        }
    }
}
