//! What signals do to a verb that goes on until it is stopped: the first Ctrl-C, SIGTERM or SIGHUP lets
//! it finish what it has begun, and the second ends it at once, whatever it waits for.

use std::{
    process::exit,
    sync::{
        OnceLock,
        atomic::{AtomicI32, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::Duration,
};

use tokio::{
    runtime::Builder,
    signal::unix::{Signal, SignalKind, signal},
    sync::oneshot,
};

/// What shells report of a program that a signal has ended: this and the signal's number.
const ENDED_BY_SIGNAL: i32 = 128;

/// The signal that came first; 0 before it.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// What is done before the second signal ends the program.
static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();

/// Listens from now on: what it returns waits for the first signal, and the second ends the program.
pub fn interrupted() -> impl Future<Output = ()> {
    let heard = listen(|| {});
    async {
        if heard.await.is_err() {
            std::future::pending().await
        }
    }
}

/// The same for callers that look now and then. `at_first` is called when the first signal comes, on a
/// thread of its own.
pub fn first_signal(at_first: impl FnOnce() + Send + 'static) -> FirstSignal {
    let (came, heard) = mpsc::channel();
    drop(listen(move || {
        let _ = came.send(());
        at_first();
    }));
    FirstSignal { heard, has_come: false }
}

/// Says whether the first signal has come.
pub struct FirstSignal {
    heard: mpsc::Receiver<()>,
    has_come: bool,
}

impl FirstSignal {
    /// Whether it has come.
    pub fn has_come(&mut self) -> bool {
        self.has_come |= self.heard.try_recv().is_ok();
        self.has_come
    }

    /// Waits for it, at most so long; says whether it has come.
    pub fn comes_within(&mut self, longest: Duration) -> bool {
        self.has_come |= self.heard.recv_timeout(longest).is_ok();
        self.has_come
    }
}

/// Has `end` called before the second signal ends the program. Only the first call counts.
pub fn before_exit(end: fn()) {
    // A second caller would be another verb, and there is one.
    let _ = BEFORE_EXIT.set(end);
}

/// How the signal that came first is called.
#[must_use]
pub fn signal_name() -> &'static str {
    match SignalKind::from_raw(FIRST.load(Relaxed)) {
        kind if kind == SignalKind::terminate() => "SIGTERM",
        kind if kind == SignalKind::hangup() => "SIGHUP",
        _ => "Ctrl-C",
    }
}

fn listen(at_first: impl FnOnce() + Send + 'static) -> oneshot::Receiver<()> {
    let (first, heard) = oneshot::channel();
    let (ready, is_ready) = mpsc::channel();
    // One that listens hears both, also when the second comes before anybody waits for it. On a thread of
    // its own it does so while the verb waits for whoever reads its standard output.
    let listen = move || {
        let Ok(runtime) = Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            let Ok(mut interrupt) = signal(SignalKind::interrupt()) else { return };
            let mut terminate = signal(SignalKind::terminate()).ok();
            // nohup has it ignored, and means it.
            let mut hangup =
                if is_hangup_ignored() { None } else { signal(SignalKind::hangup()).ok() };
            let _ = ready.send(());
            let mut next = async || {
                tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    () = came(&mut terminate) => SignalKind::terminate(),
                    () = came(&mut hangup) => SignalKind::hangup(),
                }
            };
            FIRST.store(next().await.as_raw_value(), Relaxed);
            let _ = first.send(());
            at_first();
            let second = next().await;
            if let Some(end) = BEFORE_EXIT.get() {
                end();
            }
            exit(ENDED_BY_SIGNAL + second.as_raw_value())
        });
    };
    // Where there is nothing to listen with, a signal ends the program as it does any other.
    let _ = thread::Builder::new().name("interrupts".into()).spawn(listen);
    let _ = is_ready.recv();
    heard
}

async fn came(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Whether the program was started with SIGHUP ignored, as the kernel tells it.
fn is_hangup_ignored() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (mask >> (SignalKind::hangup().as_raw_value() - 1)) & 1 == 1
}
