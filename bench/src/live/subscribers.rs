//! The process of subscribers: threads that read all connections and check every offset, and the producers.

use std::{
    rc::Rc,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use sennit_centrifuge::{
    Answer, Command, Encoding, FromServer, Push, PushKind, Reply, Request, SubscribeRequest,
    SubscribeResult,
};

use super::{
    frames::Frames,
    publication::PublicationReader,
    subscriber::{Subscribed, Subscription, put_message, read_message, subscribe},
};
use crate::{
    clock::now_ns,
    connect::{key_of, pin_of},
    lag::Lag,
    latency::Latencies,
    link::Trust,
    load::share,
    merge::MergedReports,
    plan::{LiveEncoding, LiveReport, Plan, Produce, Report, Subscribe, Window},
    producer::Producer,
    sequence_check::MessageErrors,
    socket::{Poller, Socket},
    stamp::Payloads,
    usage::cpu_within,
    worker_messages::{CommandReceiver, wait_for_start},
};

/// The size of a read in bytes.
const READ_BYTES: usize = 128 << 10;

/// The longest wait for bytes before a thread looks whether the run is over.
const WAIT_NS: u64 = 20_000_000;

/// The time between two checks whether all messages have arrived.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The number of the command by which a subscriber subscribes again.
const AGAIN: u32 = 3;

/// The stamp of one message of so many is read, of another one for each subscriber.
const SAMPLED: u64 = 64;

impl From<LiveEncoding> for Encoding {
    fn from(encoding: LiveEncoding) -> Self {
        match encoding {
            LiveEncoding::Json => Self::Json,
            LiveEncoding::Protobuf => Self::Protobuf,
        }
    }
}

/// What the threads of a run share.
struct Run {
    subscription: Subscription,
    size: usize,
    /// The producer whose sequences are those of the topic, if it is alone.
    has_one_producer: bool,
    /// See [`Subscribe::resubscribes`].
    resubscribes: bool,
    /// See [`Subscribe::checks_sequences`].
    checks_sequences: bool,
    window: OnceLock<Window>,
    is_over: AtomicBool,
    lag: Lag,
    progress: Arc<AtomicU64>,
}

/// A subscriber with its connection.
#[derive(Debug)]
struct Subscriber {
    number: u32,
    socket: Socket,
    frames: Frames,
    offsets: Offsets,
    /// The sequences of the only producer, where they are looked at.
    sequences: Offsets,
    epoch: String,
}

/// The offsets that a subscriber has received, or other numbers that count up.
#[derive(Clone, Copy, Debug)]
struct Offsets {
    first: u64,
    next: u64,
    /// How many were passed over.
    missing: u64,
    /// How many came again, or behind a later one.
    duplicates: u64,
}

impl Offsets {
    fn from(first: u64) -> Self {
        Self { first, next: first, missing: 0, duplicates: 0 }
    }

    fn note(&mut self, offset: u64) {
        if offset < self.next {
            self.duplicates += 1;
            return;
        }
        self.missing += offset - self.next;
        self.next = offset + 1;
    }

    fn received(&self) -> u64 {
        self.next - self.first
    }

    /// Passes over those before `next`. Returns how many those are.
    fn pass_over(&mut self, next: u64) -> u64 {
        let missing = next.saturating_sub(self.next);
        self.next += missing;
        missing
    }

    /// The faults among the messages, if there were `all`.
    fn errors(&self, all: u64) -> MessageErrors {
        MessageErrors {
            missing: self.missing + all.saturating_sub(self.received()),
            duplicates: self.duplicates,
            ..MessageErrors::default()
        }
    }
}

/// The measurements of a thread.
#[derive(Debug)]
struct Measured {
    delivered: u64,
    latencies: Latencies,
    live: LiveReport,
}

/// The subscribers of a thread.
struct Group {
    thread: usize,
    poller: Poller,
    subscribers: Vec<Subscriber>,
    run: Arc<Run>,
}

impl Group {
    fn connect(run: Arc<Run>, thread: usize, (first, count): (u32, u32)) -> Result<Self> {
        let poller = Poller::new()?;
        let mut subscribers = Vec::with_capacity(count as usize);
        for number in first..first + count {
            let Subscribed { link, first, epoch } = subscribe(&run.subscription, number)?;
            let socket = Socket::new(link)?;
            poller.handle().add(&socket, subscribers.len())?;
            let (offsets, sequences) = (Offsets::from(first), Offsets::from(0));
            let frames = Frames::default();
            subscribers.push(Subscriber { number, socket, frames, offsets, sequences, epoch });
        }
        Ok(Self { thread, poller, subscribers, run })
    }

    /// Reads until the run is over.
    fn read(mut self) -> Result<(Vec<Subscriber>, Measured)> {
        let run = Arc::clone(&self.run);
        let mut reading = Reading::of(&run);
        let mut buffer = vec![0; READ_BYTES];
        while !run.is_over.load(Ordering::Acquire) {
            let ready = self.poller.wait(WAIT_NS)?;
            let before = reading.measured.live.messages;
            for &number in ready {
                let subscriber = &mut self.subscribers[number];
                reading
                    .read(subscriber, &mut buffer)
                    .with_context(|| format!("subscriber {}", subscriber.number))?;
            }
            let received = reading.measured.live.messages - before;
            if received > 0 {
                let all = self.subscribers.iter().map(|subscriber| subscriber.offsets.received());
                run.lag.note_slowest(self.thread, all.min().unwrap_or_default());
                run.progress.fetch_add(received, Ordering::Relaxed);
            }
        }
        Ok((self.subscribers, reading.measured))
    }
}

/// What reading needs, and what it measures.
struct Reading<'r> {
    run: &'r Run,
    publications: PublicationReader,
    payloads: Payloads,
    measured: Measured,
}

impl<'r> Reading<'r> {
    fn of(run: &'r Run) -> Self {
        let channel = run.subscription.channel.as_deref().unwrap_or_default();
        Self {
            run,
            publications: PublicationReader::new(run.subscription.encoding, channel, run.size),
            payloads: Payloads::json(run.size),
            measured: Measured {
                delivered: 0,
                latencies: Latencies::new(),
                live: LiveReport::default(),
            },
        }
    }

    /// Reads what a subscriber has received.
    fn read(&mut self, subscriber: &mut Subscriber, buffer: &mut [u8]) -> Result<()> {
        let Subscriber { number, socket, frames, offsets, sequences, epoch } = subscriber;
        let encoding = self.run.subscription.encoding;
        let (mut answers, mut has_lost) = (Vec::new(), false);
        socket.send_on()?;
        socket.receive(buffer, |bytes| {
            let (now, mut count) = (now_ns(), 0);
            frames.read(bytes, |first, message| {
                if let Some((offset, data)) = self.publications.read(message) {
                    offsets.note(offset);
                    if self.run.checks_sequences {
                        match Payloads::json_sequence(data) {
                            Some(sequence) => sequences.note(sequence),
                            None => self.measured.live.message_errors.corrupt += 1,
                        }
                    }
                    count += 1;
                    if (offset + u64::from(*number)).is_multiple_of(SAMPLED) {
                        self.sample(offset - offsets.first, data, now);
                    }
                    return Ok(());
                }
                for said in read_message(encoding, first, message)? {
                    match said {
                        FromServer::Ping => answers.push(Command { id: 0, request: None }),
                        FromServer::Push(Push { kind: PushKind::Unsubscribe(_), .. })
                            if self.run.resubscribes =>
                        {
                            has_lost = true;
                        }
                        FromServer::Reply(Reply {
                            result: Ok(Answer::Subscribe(result)), ..
                        }) if self.run.resubscribes => {
                            let missing = self.subscribed_again(&result, offsets);
                            sequences.pass_over(sequences.next + missing);
                        }
                        other => bail!("a publication was expected, this came: {other:?}"),
                    }
                }
                Ok(())
            })?;
            if count > 0 {
                let live = &mut self.measured.live;
                live.messages += count;
                live.bytes += bytes.len() as u64;
                live.reads += 1;
            }
            if self.run.window.get().is_some_and(|window| window.holds(now)) {
                self.measured.delivered += count;
            }
            Ok(())
        })?;
        if has_lost {
            let request = SubscribeRequest {
                channel: self.run.subscription.channel.clone().unwrap_or_default(),
                recover: true,
                epoch: epoch.clone(),
                // That of the last one that it has.
                offset: offsets.next - 1,
                ..SubscribeRequest::default()
            };
            answers.push(Command { id: AGAIN, request: Some(Request::Subscribe(request)) });
        }
        if !answers.is_empty() {
            socket.send(|out| {
                out.clear();
                answers.iter().for_each(|command| put_message(encoding, command, out));
            })?;
        }
        Ok(())
    }

    /// A subscription goes on, whether or not it has all that it missed. Returns the number of missing messages.
    fn subscribed_again(&mut self, result: &SubscribeResult, offsets: &mut Offsets) -> u64 {
        let next = if result.recovered { offsets.next } else { result.offset + 1 };
        let missing = offsets.pass_over(next);
        self.measured.live.told_missing += missing;
        self.measured.live.gaps_told += u64::from(missing > 0);
        missing
    }

    /// Reads the stamp of message `number` since the subscription.
    fn sample(&mut self, number: u64, data: &[u8], now: u64) {
        let has_number = |sequence| !self.run.has_one_producer || sequence == number;
        match self.payloads.read(data) {
            Some(stamp) if has_number(stamp.sequence) => {
                if self.run.window.get().is_some_and(|window| window.holds(stamp.intended_ns)) {
                    self.measured.latencies.record(stamp.intended_ns, now);
                }
            }
            _ => self.measured.live.message_errors.corrupt += 1,
        }
    }
}

/// Ends the run however a thread ends, so that producers do not wait for it.
struct EndsRun(Arc<Run>);

impl Drop for EndsRun {
    fn drop(&mut self) {
        self.0.lag.end();
    }
}

/// Connects the subscribers, and, after the start, publishes until the window ends; then waits until each subscriber
/// has every message.
///
/// # Errors
/// The broker cannot be reached, or the parent has ended. The report has the errors of subscribers.
pub async fn subscribe_all(
    plan: &Rc<Plan>,
    load: &Subscribe,
    progress: &Arc<AtomicU64>,
    commands: &mut CommandReceiver,
) -> Result<Report> {
    let threads = load.threads.clamp(1, load.subscribers);
    let run = Arc::new(Run {
        subscription: Subscription {
            http: load.http.clone(),
            encoding: load.encoding.into(),
            trust: pin_of(&plan.server).map(Trust::in_fingerprint).transpose()?,
            token: key_of(&plan.server).map(str::to_owned),
            channel: load.is_subscribed.then(|| plan.topic.clone()),
        },
        size: plan.size,
        has_one_producer: load.produce.as_ref().is_some_and(|produce| produce.count == 1),
        resubscribes: load.resubscribes,
        checks_sequences: load.checks_sequences,
        window: OnceLock::new(),
        is_over: AtomicBool::new(false),
        lag: Lag::new(load.lag, threads),
        progress: Arc::clone(progress),
    });
    let stalled = load.subscribers..load.subscribers + load.stalled;
    // They are there as long as the run.
    let stalled: Vec<Subscribed> =
        stalled.map(|number| subscribe(&run.subscription, number)).collect::<Result<_>>()?;
    let groups = connect_all(&run, load.subscribers, threads)?;
    let readers: Vec<JoinHandle<_>> = groups
        .into_iter()
        .map(|group| {
            let ends = EndsRun(Arc::clone(&run));
            thread::spawn(move || {
                let read = group.read();
                drop(ends);
                read
            })
        })
        .collect();
    let mut report = match &load.produce {
        Some(produce) => publish(plan, produce, &run, commands).await?,
        None => {
            wait_for_start(commands).await?;
            Report::default()
        }
    };
    let confirmed: u64 = report.sent.iter().map(|(_, _, confirmed)| confirmed).sum();
    let deadline_ns = now_ns() + (load.drain_s * 1e9) as u64;
    while run.lag.slowest() < confirmed && now_ns() < deadline_ns && !run.lag.is_over() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    run.is_over.store(true, Ordering::Release);
    drop(stalled);
    let (mut latencies, mut live) = (Latencies::new(), LiveReport::default());
    for reader in readers {
        match reader.join().map_err(|_| anyhow!("a thread of subscribers panicked"))? {
            Ok((subscribers, measured)) => {
                report.delivered += measured.delivered;
                latencies.add(&measured.latencies.buckets());
                live.add(&measured.live);
                for Subscriber { offsets, sequences, .. } in subscribers {
                    live.message_errors.add(&offsets.errors(confirmed));
                    if load.checks_sequences {
                        live.message_errors.add(&sequences.errors(confirmed));
                    }
                }
            }
            Err(error) => report.errors.push(format!("{error:#}")),
        }
    }
    report.publish_to_deliver = latencies.buckets();
    report.live = Some(live);
    Ok(report)
}

/// Connects all subscribers, each thread its own.
fn connect_all(run: &Arc<Run>, subscribers: u32, threads: u32) -> Result<Vec<Group>> {
    let connecting: Vec<_> = (0..threads)
        .map(|thread| {
            let (run, part) = (Arc::clone(run), share(subscribers, threads, thread));
            thread::spawn(move || Group::connect(run, thread as usize, part))
        })
        .collect();
    let connected = connecting
        .into_iter()
        .map(|group| group.join().map_err(|_| anyhow!("a thread of subscribers panicked"))?);
    connected.collect()
}

/// Publishes from the start until the window ends, and waits for all confirms.
async fn publish(
    plan: &Rc<Plan>,
    produce: &Produce,
    run: &Arc<Run>,
    commands: &mut CommandReceiver,
) -> Result<Report> {
    let mut producers = Vec::new();
    for number in produce.first..produce.first + produce.count {
        producers.push(Producer::connect(plan, produce, number).await?);
    }
    let window = wait_for_start(commands).await?;
    run.window.get_or_init(|| window);
    let used = tokio::task::spawn_local(cpu_within(window, std::future::pending()));
    let tasks: Vec<_> = producers
        .into_iter()
        .map(|producer| {
            let (plan, produce, run) = (Rc::clone(plan), produce.clone(), Arc::clone(run));
            tokio::task::spawn_local(async move {
                // Deliveries are what progress counts.
                let published = AtomicU64::new(0);
                producer.run(&plan, &produce, window, &published, Some(&run.lag)).await
            })
        })
        .collect();
    let mut all = MergedReports::default();
    for task in tasks {
        all.add(task.await?);
    }
    // A run that has failed ends before its window.
    let cpu_s = if run.lag.is_over() { None } else { used.await? };
    Ok(Report { cpu_s, ..all.report() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_and_what_comes_again_is_counted() {
        let mut offsets = Offsets::from(11);
        for offset in [11, 12, 15, 14, 15, 16] {
            offsets.note(offset);
        }
        assert_eq!((offsets.missing, offsets.duplicates, offsets.received()), (2, 2, 6));
    }
}
