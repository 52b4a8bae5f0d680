//! Signals for verbs that run until they are stopped: the first Ctrl-C, SIGTERM or SIGHUP lets the verb finish its
//! current work, and the second ends it at once.

use std::{
    process::exit,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
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

/// Shells report this plus the signal's number for a program that a signal has ended.
const ENDED_BY_SIGNAL: i32 = 128;

/// The first signal; 0 before it.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Held by the thread that ends the program.
static EXIT: Mutex<()> = Mutex::new(());

/// Called before the second signal ends the program.
static BEFORE_EXIT: OnceLock<fn()> = OnceLock::new();

/// Listens from now on: the future waits for the first signal, and the second one ends the program.
pub fn interrupted() -> impl Future<Output = ()> {
    let receiver = listen(|| {});
    async {
        if receiver.await.is_err() {
            std::future::pending().await
        }
    }
}

/// The same for callers that poll. The first signal calls `at_first`, on a thread of its own.
pub fn first_signal(at_first: impl FnOnce() + Send + 'static) -> FirstSignal {
    let (sender, receiver) = mpsc::channel();
    drop(listen(move || {
        let _ = sender.send(());
        at_first();
    }));
    FirstSignal { receiver, has_come: false }
}

/// Says whether the first signal has come.
pub struct FirstSignal {
    receiver: mpsc::Receiver<()>,
    has_come: bool,
}

impl FirstSignal {
    /// Returns whether it has come.
    pub fn has_come(&mut self) -> bool {
        self.has_come |= self.receiver.try_recv().is_ok();
        self.has_come
    }

    /// Waits for it for at most this time; returns whether it has come.
    pub fn comes_within(&mut self, longest: Duration) -> bool {
        self.has_come |= self.receiver.recv_timeout(longest).is_ok();
        self.has_come
    }
}

/// Sets a function that is called before the second signal ends the program. Only the first call
/// has an effect.
pub fn before_exit(end: fn()) {
    // A second caller would be another verb, and there is one.
    let _ = BEFORE_EXIT.set(end);
}

/// To be held until the program exits. Does not return if the second signal is about to end it.
pub fn exit_turn() -> MutexGuard<'static, ()> {
    EXIT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The name of the first signal.
#[must_use]
pub fn signal_name() -> &'static str {
    match SignalKind::from_raw(FIRST.load(Relaxed)) {
        kind if kind == SignalKind::terminate() => "SIGTERM",
        kind if kind == SignalKind::hangup() => "SIGHUP",
        _ => "Ctrl-C",
    }
}

fn listen(at_first: impl FnOnce() + Send + 'static) -> oneshot::Receiver<()> {
    let (first, receiver) = oneshot::channel();
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
                    () = wait_for_signal(&mut terminate) => SignalKind::terminate(),
                    () = wait_for_signal(&mut hangup) => SignalKind::hangup(),
                }
            };
            FIRST.store(next().await.as_raw_value(), Relaxed);
            let _ = first.send(());
            at_first();
            let second = next().await;
            // What it ends lets the verb finish too, which must not exit with another code meanwhile.
            let _exit = exit_turn();
            if let Some(end) = BEFORE_EXIT.get() {
                end();
            }
            exit(ENDED_BY_SIGNAL + second.as_raw_value())
        });
    };
    // Where there is nothing to listen with, a signal ends the program as it does any other.
    let _ = thread::Builder::new().name("interrupts".into()).spawn(listen);
    let _ = is_ready.recv();
    receiver
}

async fn wait_for_signal(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns whether the program was started with SIGHUP ignored, according to the kernel.
fn is_hangup_ignored() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else { return false };
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (mask >> (SignalKind::hangup().as_raw_value() - 1)) & 1 == 1
}
