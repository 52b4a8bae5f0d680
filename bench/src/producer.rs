//! Producers: publish on a schedule or as fast as possible, each with a connection of its own.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use sennit_client::{BatchBuilder, Client, ConfirmedRun, Message, PartitionIndex, Publisher};
use sennit_model::TopicName;

use crate::connect::connect;
use crate::{
    clock::{Alarm, now_ns},
    lag::Lag,
    latency::Latencies,
    plan::{Plan, Produce, Report, Window},
    stamp::{Payloads, Stamp},
};

/// The number of messages for which a producer without a schedule reads the clock once. Messages that wait for the
/// window meanwhile count as late, never as early.
const MESSAGES_PER_LOOK: u64 = 16;

/// The rate of a process above which its schedule has ticks instead of single messages.
const SINGLE_RATE_MAX: f64 = 5000.0;

/// The length of the longest tick, in nanoseconds.
const TICK_NS_MAX: u64 = 1_000_000;

/// The intended instants of a producer's messages.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    start_ns: u64,
    interval_ns: f64,
    tick_ns: u64,
}

impl Schedule {
    /// The schedule of producer number `index` of `count` that together send `rate` messages per second. At
    /// thousands per second, the schedule has ticks of 0.1 ms for each producer, at most 1 ms, so that the producer
    /// does not spend its time on waking up.
    #[must_use]
    pub fn new(start_ns: u64, rate: f64, index: u32, count: u32) -> Self {
        let tick_ns = match rate <= SINGLE_RATE_MAX {
            true => 1,
            false => (u64::from(count) * 100_000).min(TICK_NS_MAX),
        };
        let interval_ns = f64::from(count) * 1e9 / rate;
        let offset = (interval_ns.max(tick_ns as f64) * f64::from(index) / f64::from(count)) as u64;
        Self { start_ns: start_ns + offset, interval_ns, tick_ns }
    }

    /// The intended instant of message `sequence`.
    #[must_use]
    pub fn intended_ns(&self, sequence: u64) -> u64 {
        let exact = (sequence as f64 * self.interval_ns) as u64;
        self.start_ns + exact - exact % self.tick_ns
    }
}

/// The messages that wait for their confirms.
struct Confirms {
    window: Window,
    /// The first sequence and the intended instant of messages that share the instant, oldest first.
    sent: VecDeque<(u64, u64)>,
    report: Report,
    latencies: Latencies,
    confirmed: u64,
}

impl Confirms {
    fn sent(&mut self, sequence: u64, intended_ns: u64) {
        if self.sent.back().is_none_or(|&(_, last)| last != intended_ns) {
            self.sent.push_back((sequence, intended_ns));
        }
    }

    fn confirmed(&mut self, run: ConfirmedRun) {
        let now = now_ns();
        for _ in 0..run.count {
            while self.sent.get(1).is_some_and(|&(first, _)| first <= self.confirmed) {
                self.sent.pop_front();
            }
            self.confirmed += 1;
            let Some(&(_, intended_ns)) = self.sent.front() else { continue };
            if self.window.holds(intended_ns) {
                self.latencies.record(intended_ns, now);
            }
        }
        if self.window.holds(now) {
            self.report.confirmed += u64::from(run.count);
            self.report.mark(now);
        }
    }
}

/// A producer with a connection.
pub struct Producer {
    number: u32,
    publisher: Publisher,
    _client: Client,
    confirms: Arc<Mutex<Confirms>>,
}

impl Producer {
    /// Connects producer `number`. Each producer has one partition, so that a confirm identifies its messages.
    ///
    /// # Errors
    /// The broker cannot be reached or has no such topic.
    pub async fn connect(plan: &Plan, produce: &Produce, number: u32) -> Result<Self> {
        let client = connect(&plan.server).await?;
        let topic: TopicName = plan.topic.parse()?;
        let confirms = Arc::new(Mutex::new(Confirms {
            window: Window { start_ns: 0, from_ns: 0, until_ns: 0 },
            sent: VecDeque::new(),
            report: Report::default(),
            latencies: Latencies::new(),
            confirmed: 0,
        }));
        let told = Arc::clone(&confirms);
        let publisher = client
            .publisher(&topic)
            .window_messages(produce.window)
            .partition(PartitionIndex(number % plan.partitions))
            .on_confirm(move |run| {
                told.lock().unwrap_or_else(PoisonError::into_inner).confirmed(run);
            })
            .open()
            .await?;
        Ok(Self { number, publisher, _client: client, confirms })
    }

    /// Sends the messages of the plan and waits for all confirms. `progress` counts messages.
    pub async fn run(
        self,
        plan: &Plan,
        produce: &Produce,
        window: Window,
        progress: &AtomicU64,
        lag: Option<&Lag>,
    ) -> Report {
        self.confirms().window = window;
        let mut sent = 0;
        let published = self.send(plan, produce, (window, lag), progress, &mut sent).await;
        let flushed = self.publisher.flush().await;
        let mut confirms = self.confirms();
        let mut report = std::mem::take(&mut confirms.report);
        report.sent = vec![(self.number, sent, confirms.confirmed)];
        report.publish_to_confirm = std::mem::take(&mut confirms.latencies).buckets();
        let flushed = flushed.map_err(anyhow::Error::from);
        for error in [published.err(), flushed.err()].into_iter().flatten() {
            report.errors.push(format!("producer {}: {error:#}", self.number));
        }
        report
    }

    fn confirms(&self) -> std::sync::MutexGuard<'_, Confirms> {
        self.confirms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send(
        &self,
        plan: &Plan,
        produce: &Produce,
        (window, lag): (Window, Option<&Lag>),
        progress: &AtomicU64,
        sent: &mut u64,
    ) -> Result<()> {
        let mut payloads = match produce.is_json {
            true => Payloads::json(plan.size),
            false => Payloads::new(plan.size),
        };
        let mut alarm = Alarm::new()?;
        let index = self.number - produce.first;
        let schedule =
            produce.rate.map(|rate| Schedule::new(window.start_ns, rate, index, produce.count));
        let chunk = produce.batch.map_or(MESSAGES_PER_LOOK.min(produce.window as u64), u64::from);
        let last = produce.messages.unwrap_or(u64::MAX);
        let mut builder = BatchBuilder::new();
        alarm.until(window.start_ns).await?;
        while *sent < last {
            // The intended instant of a batch is that of its first message.
            let (intended_ns, count) = match &schedule {
                None => (now_ns(), chunk),
                Some(schedule) => {
                    let intended_ns = schedule.intended_ns(*sent);
                    (intended_ns, produce.batch.map_or(1, u64::from))
                }
            };
            if intended_ns >= window.until_ns {
                break;
            }
            if schedule.is_some() {
                alarm.until(intended_ns).await?;
            }
            let count = count.min(last - *sent);
            if let Some(lag) = lag
                && !lag.allows(count, window.until_ns).await?
            {
                break;
            }
            self.confirms().sent(*sent, intended_ns);
            for _ in 0..count {
                let stamp = Stamp { producer: self.number, sequence: *sent, intended_ns };
                let mut message = Message::new(payloads.make(stamp));
                if let Some(keys) = &plan.keys {
                    message.headers = keys.headers(*sent);
                }
                match produce.batch {
                    Some(_) => builder.push(&message)?,
                    None => drop(self.publisher.publish(message).await?),
                }
                *sent += 1;
            }
            if let Some(batch) = builder.take() {
                drop(self.publisher.publish_batch(batch).await?);
            }
            progress.fetch_add(count, Ordering::Relaxed);
            if window.holds(intended_ns) {
                self.confirms().report.published += count;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_sends_as_many_as_its_rate_says() {
        for (rate, producers) in [(100.0, 1), (5000.0, 3), (100_000.0, 10), (3e6, 1)] {
            let second: u64 = (0..producers)
                .map(|index| {
                    let schedule = Schedule::new(0, rate, index, producers);
                    (0..).take_while(|&n| schedule.intended_ns(n) < 1_000_000_000).count() as u64
                })
                .sum();
            let off = (second as f64 - rate).abs() / rate;
            assert!(off < 0.05, "{second} of {rate}");
        }
    }

    #[test]
    fn each_confirm_is_measured_from_its_own_messages_instant() {
        let now = now_ns();
        let mut confirms = Confirms {
            window: Window { start_ns: 0, from_ns: 0, until_ns: u64::MAX },
            sent: VecDeque::new(),
            report: Report::default(),
            latencies: Latencies::new(),
            confirmed: 0,
        };
        // Two messages of ten seconds ago, one of now; confirmed one and two at a time.
        confirms.sent(0, now - 10_000_000_000);
        confirms.sent(1, now - 10_000_000_000);
        confirms.sent(2, now);
        for (first_sequence, count) in [(0, 1), (1, 2)] {
            confirms.confirmed(ConfirmedRun {
                partition: PartitionIndex(0),
                first_sequence,
                count,
                first_offset: None,
                duplicate: false,
                dropped: 0,
            });
        }
        let buckets = confirms.latencies.buckets();
        let slow: u64 =
            buckets.iter().filter(|(us, _)| *us >= 9_900_000).map(|(_, count)| count).sum();
        assert_eq!((slow, buckets.iter().map(|(_, count)| count).sum::<u64>()), (2, 3));
    }
}
