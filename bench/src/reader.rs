//! Readers: read everything by offset and verify it, each with a connection and a sequence of its own.

use std::{
    cell::Cell,
    collections::BTreeMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail};
use sennit_client::{
    Client, CursorName, MessageView, Offset, PartitionIndex, ReadFrom, ReadRun, Reader,
    ReaderBuilder, Received, TopicName,
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::{
    clock::{Alarm, now_ns},
    identity::Identity,
    latency::Latencies,
    plan::{Order, Plan, Preloaded, Read, ReaderReport, Report, Window},
    stamp::Payloads,
    usage::cpu_s,
    worker_messages::{Orders, start},
};

/// How often it is looked whether all has come.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// How often a slow reader takes something.
const SLOW_STEP: Duration = Duration::from_millis(20);

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The load runs.
    Load,
    /// It has ended: who was slow is slow no more.
    CatchUp,
    /// All has come, or the time is over.
    Stop,
}

/// What one reader has seen.
struct Sight {
    number: u32,
    window: Window,
    identity: Identity,
    latencies: Latencies,
    delivered: u64,
    last_ns: u64,
    payloads: Rc<Payloads>,
    /// How many different messages it has seen, for all to see.
    count: Rc<Cell<u64>>,
}

impl Sight {
    fn saw(&mut self, run: &ReadRun) {
        let now = now_ns();
        let partition = run.partition().0;
        let (mut fresh, mut corrupt) = (0, 0);
        let read = |message: MessageView<'_>| {
            let stamp = self.payloads.read_stamp(message.payload());
            corrupt += u64::from(stamp.is_none());
            stamp
        };
        let mut stamps = run.messages().filter_map(read);
        let mut next = stamps.next();
        while let Some(first) = next {
            // Neighbours that a producer meant to send together are looked at together.
            let mut count = 1;
            next = stamps.find(|stamp| {
                let follows = stamp.producer == first.producer
                    && stamp.intended_ns == first.intended_ns
                    && stamp.sequence == first.sequence.wrapping_add(count);
                count += u64::from(follows);
                !follows
            });
            let all = (first.sequence, count);
            let new = self.identity.saw_run(self.number, partition, first.producer, all);
            if new > 0 && self.window.holds(first.intended_ns) {
                self.latencies.record_n(first.intended_ns, now, new);
            }
            fresh += new;
        }
        self.identity.saw_corrupt(corrupt);
        self.count.set(self.count.get() + fresh);
        if self.window.holds(now) && fresh > 0 {
            (self.delivered, self.last_ns) = (self.delivered + fresh, now);
        }
    }

    fn report(self) -> ReaderReport {
        ReaderReport {
            number: self.number,
            delivered: self.delivered,
            sighting: self.identity.sighting(),
            publish_to_deliver: self.latencies.buckets(),
            last_ns: self.last_ns,
        }
    }
}

/// A reader that has begun.
struct Reading {
    client: Client,
    reader: Reader,
    /// What begins it again, with the earliest message, and how often it still will.
    again: Option<Again>,
    /// Messages per second that it takes, if it is a slow one.
    rate: Option<f64>,
    commits: Option<Commits>,
}

/// The rounds of a reader that come.
struct Again {
    builder: ReaderBuilder,
    /// Messages of a round.
    messages: u64,
    /// Rounds that are left behind this one.
    left: u64,
}

/// Commits of a reader's cursor: one at a time, while it reads on.
struct Commits {
    client: Client,
    topic: TopicName,
    cursor: CursorName,
    every: u64,
    /// Behind what was read, by partition.
    positions: BTreeMap<u32, u64>,
    uncommitted: u64,
    under_way: Option<JoinHandle<Result<(), sennit_client::Error>>>,
}

impl Commits {
    /// `run` was read; commits that, if it is time and the commit before has been answered.
    async fn read(&mut self, run: &ReadRun) -> Result<()> {
        let end = run.first_offset().0 + u64::from(run.count());
        self.positions.insert(run.partition().0, end);
        self.uncommitted += u64::from(run.count());
        let is_free = self.under_way.as_ref().is_none_or(JoinHandle::is_finished);
        if self.uncommitted < self.every || !is_free {
            return Ok(());
        }
        self.finish().await?;
        self.uncommitted = 0;
        let (client, topic, cursor) =
            (self.client.clone(), self.topic.clone(), self.cursor.clone());
        let at = self.positions.iter().map(|(&index, &at)| (PartitionIndex(index), Offset(at)));
        let positions: Vec<_> = at.collect();
        let commit = async move { client.set_cursor(&topic, &cursor, &positions, false).await };
        self.under_way = Some(tokio::task::spawn_local(commit));
        Ok(())
    }

    /// Waits for the commit that is under way.
    async fn finish(&mut self) -> Result<()> {
        match self.under_way.take() {
            Some(commit) => Ok(commit.await??),
            None => Ok(()),
        }
    }
}

impl Reading {
    async fn begin(client: Client, plan: &Plan, read: &Read, number: u32) -> Result<Self> {
        let topic: TopicName = plan.topic.parse()?;
        let mut builder = client
            .reader(&topic)
            .from(if read.preloaded.is_some() { ReadFrom::Earliest } else { ReadFrom::Latest })
            .credit_messages(read.credit_messages);
        if let Some(bytes) = read.credit_bytes {
            builder = builder.credit_bytes(bytes);
        }
        let mut commits = None;
        if let Some(every) = read.commit_every {
            let cursor: CursorName = format!("reader-{number}").parse()?;
            builder = builder.cursor(&cursor);
            commits = Some(Commits {
                client: client.clone(),
                topic: topic.clone(),
                cursor,
                every,
                positions: BTreeMap::new(),
                uncommitted: 0,
                under_way: None,
            });
        }
        let again = read.preloaded.map(|Preloaded { messages, rounds }| Again {
            builder: builder.clone(),
            messages,
            left: rounds - 1,
        });
        let reader = builder.start().await?;
        let slow = read.slow.filter(|slow| slow.reader == number);
        let rate = slow.map(|slow| slow.rate);
        Ok(Self { client, reader, again, rate, commits })
    }

    /// Reads until it is told to stop, or nobody is left to tell it.
    async fn run(
        mut self,
        mut sight: Sight,
        progress: Arc<AtomicU64>,
        mut phase: watch::Receiver<Phase>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<ReaderReport> {
        loop {
            if let Some(rate) = self.rate {
                self.hold_back(rate, &sight, &mut phase).await;
            }
            let received = tokio::select! {
                biased;
                received = self.reader.receive_run() => received,
                _ = &mut stop => break,
            };
            match received.context("the subscription has ended")?? {
                Received::Delivered(run) => {
                    sight.saw(&run);
                    progress.fetch_add(u64::from(run.count()), Ordering::Relaxed);
                    if let Some(commits) = &mut self.commits {
                        commits.read(&run).await?;
                    }
                    if let Some(again) = &mut self.again
                        && again.left > 0
                        && sight.identity.count() == again.messages
                    {
                        again.left -= 1;
                        sight.identity.begin_again();
                        let next = again.builder.clone().start().await?;
                        std::mem::replace(&mut self.reader, next).close().await?;
                    }
                }
                Received::Gap(gap) => bail!("{gap}"),
            }
        }
        if let Some(commits) = &mut self.commits {
            commits.finish().await?;
        }
        self.reader.close().await?;
        self.client.close().await;
        Ok(sight.report())
    }

    /// Waits until a reader of `rate` messages per second may take more, or the load has ended.
    async fn hold_back(&self, rate: f64, sight: &Sight, phase: &mut watch::Receiver<Phase>) {
        loop {
            if *phase.borrow() != Phase::Load {
                return;
            }
            let since = now_ns().saturating_sub(sight.window.start_ns) as f64 / 1e9;
            if (sight.count.get() as f64) < rate * since {
                return;
            }
            // The end of the load is heard at once.
            let _ = tokio::time::timeout(SLOW_STEP, phase.changed()).await;
        }
    }
}

/// Does the part of a run that `read` says: all connect, begin to read and wait for the start, or where
/// everything lies there already wait before they begin, and end once each has got everything.
///
/// # Errors
/// The broker cannot be reached, or the parent has gone. What goes wrong with a reader is in the
/// report.
pub async fn read_all(
    plan: &Plan,
    read: &Read,
    progress: &Arc<AtomicU64>,
    orders: &mut Orders,
) -> Result<Report> {
    let mut clients = Vec::new();
    for number in read.first..read.first + read.count {
        clients.push((number, Client::connect(plan.server.clone()).await?));
    }
    let mut window = None;
    if read.preloaded.is_some() {
        window = Some(start(orders).await?);
    }
    let mut readings = Vec::new();
    for (number, client) in clients {
        readings.push((number, Reading::begin(client, plan, read, number).await?));
    }
    let window = match window {
        Some(window) => window,
        None => start(orders).await?,
    };
    let payloads = Rc::new(Payloads::new(plan.size));
    let (phase, told) = watch::channel(Phase::Load);
    let (mut tasks, mut counts, mut stops) = (Vec::new(), Vec::new(), Vec::new());
    for (number, reading) in readings {
        let count = Rc::new(Cell::new(0));
        counts.push(Rc::clone(&count));
        let (identity, latencies) = (Identity::new(), Latencies::new());
        let payloads = Rc::clone(&payloads);
        let sight = Sight {
            number,
            window,
            identity,
            latencies,
            delivered: 0,
            last_ns: 0,
            payloads,
            count,
        };
        let (progress, told) = (Arc::clone(progress), told.clone());
        // One for each: to look at it costs less than at what all share.
        let (stop, stopped) = oneshot::channel();
        stops.push(stop);
        tasks.push(tokio::task::spawn_local(reading.run(sight, progress, told, stopped)));
    }
    let used = tokio::task::spawn_local(cpu_within(window, told));
    let Some(Order::Finish { expect, deadline_ns }) = orders.recv().await else {
        bail!("the parent has gone");
    };
    phase.send_replace(Phase::CatchUp);
    let all_came = || counts.iter().all(|count| count.get() >= expect);
    let finished = || tasks.iter().any(JoinHandle::is_finished);
    while !all_came() && now_ns() < deadline_ns && !finished() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    phase.send_replace(Phase::Stop);
    drop(stops);
    let mut report = Report { cpu_s: used.await?, ..Report::default() };
    for (number, task) in (read.first..).zip(tasks) {
        match task.await? {
            Ok(reader) => report.readers.push(reader),
            Err(error) => report.errors.push(format!("reader {number}: {error:#}")),
        }
    }
    Ok(report)
}

/// Processor seconds that this process uses within `window`, or until all stop.
async fn cpu_within(window: Window, mut phase: watch::Receiver<Phase>) -> Option<f64> {
    let (pid, mut alarm) = (std::process::id(), Alarm::new().ok()?);
    alarm.until(window.from_ns).await.ok()?;
    let before = cpu_s(pid)?;
    tokio::select! {
        ended = alarm.until(window.until_ns) => ended.ok()?,
        _ = phase.wait_for(|phase| *phase == Phase::Stop) => (),
    }
    Some(cpu_s(pid)? - before)
}
