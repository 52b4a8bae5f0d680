//! Readers: each reads every message by offset and verifies it, over a connection of its own.

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

use crate::connect::connect;
use crate::{
    clock::now_ns,
    latency::Latencies,
    plan::{Plan, Preloaded, Read, ReaderReport, Report, Window, WorkerCommand},
    sequence_check::SequenceCheck,
    stamp::Payloads,
    usage::cpu_within,
    worker_messages::{CommandReceiver, wait_for_start},
};

/// The time between two checks whether all messages have arrived.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The time between two reads of a slow reader.
const SLOW_STEP: Duration = Duration::from_millis(20);

/// The phase of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The load runs.
    Load,
    /// The load has ended: slow readers read at full speed.
    CatchUp,
    /// All messages have arrived, or the time is over.
    Stop,
}

/// The results of one reader.
struct ReaderResults {
    number: u32,
    window: Window,
    sequences: SequenceCheck,
    latencies: Latencies,
    delivered: u64,
    last_ns: u64,
    payloads: Rc<Payloads>,
    /// The number of different messages, which the whole process shares.
    count: Rc<Cell<u64>>,
}

impl ReaderResults {
    fn record(&mut self, run: &ReadRun) {
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
            // Neighbours with the same intended instant are recorded together.
            let mut count = 1;
            next = stamps.find(|stamp| {
                let follows = stamp.producer == first.producer
                    && stamp.intended_ns == first.intended_ns
                    && stamp.sequence == first.sequence.wrapping_add(count);
                count += u64::from(follows);
                !follows
            });
            let new = self.sequences.record_run(
                self.number,
                partition,
                first.producer,
                first.sequence,
                count,
            );
            if new > 0 && self.window.holds(first.intended_ns) {
                self.latencies.record_n(first.intended_ns, now, new);
            }
            fresh += new;
        }
        self.sequences.record_corrupt(corrupt);
        self.count.set(self.count.get() + fresh);
        if self.window.holds(now) && fresh > 0 {
            (self.delivered, self.last_ns) = (self.delivered + fresh, now);
        }
    }

    fn report(self) -> ReaderReport {
        ReaderReport {
            number: self.number,
            delivered: self.delivered,
            received: self.sequences.received(),
            publish_to_deliver: self.latencies.buckets(),
            last_ns: self.last_ns,
        }
    }
}

/// A reader with a subscription.
struct ActiveReader {
    client: Client,
    reader: Reader,
    /// The rounds that the reader starts later, from the earliest message.
    again: Option<RemainingRounds>,
    /// Messages per second that a slow reader takes.
    rate: Option<f64>,
    commits: Option<Commits>,
}

/// The rounds that a reader has not started yet.
struct RemainingRounds {
    builder: ReaderBuilder,
    /// The number of messages in a round.
    messages: u64,
    /// The number of rounds after the current one.
    left: u64,
}

/// The commits of a reader's cursor: one at a time, while the reader continues.
struct Commits {
    client: Client,
    topic: TopicName,
    cursor: CursorName,
    every: u64,
    /// The offset after the last message read, by partition.
    positions: BTreeMap<u32, u64>,
    uncommitted: u64,
    under_way: Option<JoinHandle<Result<(), sennit_client::Error>>>,
}

impl Commits {
    /// Notes that `run` was read. Commits the position if a commit is due and the previous one is answered.
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

    /// Waits for the commit in flight.
    async fn finish(&mut self) -> Result<()> {
        match self.under_way.take() {
            Some(commit) => Ok(commit.await??),
            None => Ok(()),
        }
    }
}

impl ActiveReader {
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
        let again = read.preloaded.map(|Preloaded { messages, rounds }| RemainingRounds {
            builder: builder.clone(),
            messages,
            left: rounds - 1,
        });
        let reader = builder.start().await?;
        let slow = read.slow.filter(|slow| slow.reader == number);
        let rate = slow.map(|slow| slow.rate);
        Ok(Self { client, reader, again, rate, commits })
    }

    /// Reads until `stop` arrives or its sender is dropped.
    async fn run(
        mut self,
        mut results: ReaderResults,
        progress: Arc<AtomicU64>,
        mut phase: watch::Receiver<Phase>,
        mut stop: oneshot::Receiver<()>,
    ) -> Result<ReaderReport> {
        loop {
            if let Some(rate) = self.rate {
                self.hold_back(rate, &results, &mut phase).await;
            }
            let received = tokio::select! {
                biased;
                received = self.reader.receive_run() => received,
                _ = &mut stop => break,
            };
            match received.context("the subscription has ended")?? {
                Received::Delivered(run) => {
                    results.record(&run);
                    progress.fetch_add(u64::from(run.count()), Ordering::Relaxed);
                    if let Some(commits) = &mut self.commits {
                        commits.read(&run).await?;
                    }
                    if let Some(again) = &mut self.again
                        && again.left > 0
                        && results.sequences.count() == again.messages
                    {
                        again.left -= 1;
                        results.sequences.start_round();
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
        Ok(results.report())
    }

    /// Waits until a reader with a limit of `rate` messages per second may continue, or the load has ended.
    async fn hold_back(
        &self,
        rate: f64,
        results: &ReaderResults,
        phase: &mut watch::Receiver<Phase>,
    ) {
        loop {
            if *phase.borrow() != Phase::Load {
                return;
            }
            let since = now_ns().saturating_sub(results.window.start_ns) as f64 / 1e9;
            if (results.count.get() as f64) < rate * since {
                return;
            }
            // A change of the phase ends the wait.
            let _ = tokio::time::timeout(SLOW_STEP, phase.changed()).await;
        }
    }
}

/// Runs the readers of `read`: they connect, subscribe, wait for the start, and end once each has received every
/// message. Readers of preloaded messages wait for the start before they subscribe.
///
/// # Errors
/// The broker cannot be reached, or the parent has ended. The report has the errors of single readers.
pub async fn read_all(
    plan: &Plan,
    read: &Read,
    progress: &Arc<AtomicU64>,
    commands: &mut CommandReceiver,
) -> Result<Report> {
    let mut clients = Vec::new();
    for number in read.first..read.first + read.count {
        clients.push((number, connect(&plan.server).await?));
    }
    let mut window = None;
    if read.preloaded.is_some() {
        window = Some(wait_for_start(commands).await?);
    }
    let mut readers = Vec::new();
    for (number, client) in clients {
        readers.push((number, ActiveReader::begin(client, plan, read, number).await?));
    }
    let window = match window {
        Some(window) => window,
        None => wait_for_start(commands).await?,
    };
    let payloads = Rc::new(Payloads::new(plan.size));
    let (phase, phases) = watch::channel(Phase::Load);
    let (mut tasks, mut counts, mut stops) = (Vec::new(), Vec::new(), Vec::new());
    for (number, reading) in readers {
        let count = Rc::new(Cell::new(0));
        counts.push(Rc::clone(&count));
        let (sequences, latencies) = (SequenceCheck::new(), Latencies::new());
        let payloads = Rc::clone(&payloads);
        let results = ReaderResults {
            number,
            window,
            sequences,
            latencies,
            delivered: 0,
            last_ns: 0,
            payloads,
            count,
        };
        let (progress, phases) = (Arc::clone(progress), phases.clone());
        // One channel for each reader: a poll of it costs less than one of a shared channel.
        let (stop, stopped) = oneshot::channel();
        stops.push(stop);
        tasks.push(tokio::task::spawn_local(reading.run(results, progress, phases, stopped)));
    }
    let mut phases = phases;
    let ended = async move { drop(phases.wait_for(|phase| *phase == Phase::Stop).await) };
    let used = tokio::task::spawn_local(cpu_within(window, ended));
    let Some(WorkerCommand::Finish { expect, deadline_ns }) = commands.recv().await else {
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
