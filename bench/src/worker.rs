//! A worker process: reads its plan from standard input, connects, waits for the start, produces or consumes, and
//! writes its measurements to standard output.

use std::{
    cell::RefCell,
    io::{self, BufRead},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tokio::{
    sync::{mpsc, watch},
    task::LocalSet,
};

use crate::{
    clock::now_ns,
    consumer::{Consumer, ConsumerResults},
    echo::EchoClient,
    http, live,
    plan::{Consume, Plan, Produce, Report, Role, WorkerCommand, WorkerMessage},
    producer::Producer,
    reader::read_all,
    worker_messages::{CommandReceiver, send, wait_for_start},
};

/// The time between two progress messages of a worker.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The time between two checks whether consumers have all messages.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Runs the plan on standard input.
///
/// # Errors
/// Standard input has no plan, or standard output is closed. The worker sends other errors as messages.
pub fn run() -> Result<()> {
    let mut first = String::new();
    io::stdin().lock().read_line(&mut first)?;
    let plan: Plan = serde_json::from_str(&first).context("standard input holds no plan")?;
    let (commands, received) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(command) = serde_json::from_str::<WorkerCommand>(&line) else { return };
            if commands.send(command).is_err() {
                return;
            }
        }
        // The parent has ended, because it keeps its end of the pipe open: nobody waits for a report.
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = LocalSet::new().block_on(&runtime, work(plan, received));
    send(&match done {
        Ok(report) => WorkerMessage::Done(Box::new(report)),
        Err(error) => WorkerMessage::Failed(format!("{error:#}")),
    })
}

async fn work(plan: Plan, mut commands: CommandReceiver) -> Result<Report> {
    let progress = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&progress);
    tokio::task::spawn_local(async move {
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        loop {
            ticks.tick().await;
            let count = counted.load(Ordering::Relaxed);
            if count > 0 && send(&WorkerMessage::Progress(count)).is_err() {
                return;
            }
        }
    });
    let plan = Rc::new(plan);
    match &plan.role {
        Role::Produce(produce) => {
            let produce = Rc::new(produce.clone());
            produce_all(&plan, &produce, &progress, &mut commands).await
        }
        Role::Consume(consume) => {
            let consume = Rc::new(consume.clone());
            consume_all(&plan, &consume, &progress, &mut commands).await
        }
        Role::Echo(echo) => {
            let rounds = EchoClient::connect(&plan).await?;
            let window = wait_for_start(&mut commands).await?;
            rounds.run(&plan, echo, window, &progress).await
        }
        Role::Subscribe(subscribe) => {
            live::subscribe_all(&plan, subscribe, &progress, &mut commands).await
        }
        Role::Read(read) => read_all(&plan, read, &progress, &mut commands).await,
        Role::Http(load) => {
            let clients = http::connect(&plan.server, load)?;
            let window = wait_for_start(&mut commands).await?;
            tokio::task::spawn_blocking(move || http::ask(clients, window, &progress)).await?
        }
        Role::Wait(load, wait) => {
            let waiters = http::Waiters::connect(&plan.server, load, wait)?;
            wait_for_start(&mut commands).await?;
            tokio::task::spawn_blocking(move || waiters.go(&progress)).await?
        }
        Role::Null(null) => {
            http::serve_null(&plan.server, null)?;
            wait_for_start(&mut commands).await?;
            bail!("the null server is never told to start")
        }
    }
}

async fn produce_all(
    plan: &Rc<Plan>,
    produce: &Rc<Produce>,
    progress: &Arc<AtomicU64>,
    commands: &mut CommandReceiver,
) -> Result<Report> {
    let mut producers = Vec::new();
    for number in produce.first..produce.first + produce.count {
        producers.push(Producer::connect(plan, produce, number).await?);
    }
    let window = wait_for_start(commands).await?;
    let tasks: Vec<_> = producers
        .into_iter()
        .map(|producer| {
            let (plan, produce) = (Rc::clone(plan), Rc::clone(produce));
            let progress = Arc::clone(progress);
            tokio::task::spawn_local(async move {
                producer.run(&plan, &produce, window, &progress, None).await
            })
        })
        .collect();
    let mut all = crate::merge::MergedReports::default();
    for task in tasks {
        all.add(task.await?);
    }
    Ok(all.report())
}

async fn consume_all(
    plan: &Rc<Plan>,
    consume: &Rc<Consume>,
    progress: &Arc<AtomicU64>,
    commands: &mut CommandReceiver,
) -> Result<Report> {
    let mut consumers = Vec::new();
    for number in consume.first..consume.first + consume.count {
        consumers.push(Consumer::connect(plan, number).await?);
    }
    let window = wait_for_start(commands).await?;
    let results = Rc::new(RefCell::new(ConsumerResults::new(plan, window)));
    let (stop, stopped) = watch::channel(false);
    let tasks: Vec<_> = consumers
        .into_iter()
        .map(|consumer| {
            let (plan, consume) = (Rc::clone(plan), Rc::clone(consume));
            let (results, progress) = (Rc::clone(&results), Arc::clone(progress));
            let stopped = stopped.clone();
            tokio::task::spawn_local(async move {
                consumer.run(&plan, &consume, &results, &progress, stopped).await
            })
        })
        .collect();
    let Some(WorkerCommand::Finish { expect, deadline_ns }) = commands.recv().await else {
        bail!("the parent has gone");
    };
    let finished = || tasks.iter().any(tokio::task::JoinHandle::is_finished);
    while results.borrow().count() < expect && now_ns() < deadline_ns && !finished() {
        tokio::time::sleep(LOOK_EVERY).await;
    }
    stop.send_replace(true);
    let mut errors = Vec::new();
    for task in tasks {
        errors.extend(task.await?.err().map(|error| format!("consumer: {error:#}")));
    }
    let results = Rc::into_inner(results).context("all consumers have ended")?.into_inner();
    Ok(Report { errors, ..results.report() })
}
