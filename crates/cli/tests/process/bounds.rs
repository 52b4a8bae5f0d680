//! Time limits for every wait of a test, with an error that says what did not happen. The only place where tests
//! poll.

use std::{
    fs,
    process::{Child, Command},
    sync::mpsc::{self, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use tokio::task::LocalSet;

/// Longer than anything takes that a test waits for, on a machine that does other work.
pub const BOUND: Duration = Duration::from_secs(180);

/// How soon a test looks again.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Waits until something is so.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < BOUND, "not after {BOUND:?}: {what}");
        thread::sleep(LOOK_AGAIN);
    }
}

/// As [`until`], while the other tasks go on.
pub async fn until_async(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < BOUND, "not after {BOUND:?}: {what}");
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Does what a test does with clients, on a runtime of its own.
pub fn within<T>(what: &str, test: impl Future<Output = T>) -> T {
    within_bound(BOUND, what, test)
}

/// As [`within`], for what takes longer.
pub fn within_bound<T>(bound: Duration, what: &str, test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime is made");
    let done =
        LocalSet::new().block_on(&runtime, async { tokio::time::timeout(bound, test).await });
    done.unwrap_or_else(|_| panic!("not done after {bound:?}: {what}"))
}

/// What a thread comes to.
pub fn joined<T>(what: &str, thread: JoinHandle<T>) -> T {
    until(what, || thread.is_finished());
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Looks after a child that a test waits for or reads from: one that does not end is killed, so that the test
/// goes on, and fails when this is dropped.
pub struct Watch {
    /// Dropped when the test is done with the child.
    done: Option<mpsc::Sender<()>>,
    killer: Option<JoinHandle<bool>>,
    what: String,
}

impl Watch {
    /// Looks after `child`, which `what` names.
    pub fn over(child: &Child, what: &str) -> Self {
        let pid = child.id();
        let (done, is_done) = mpsc::channel();
        let killer = thread::spawn(move || {
            let is_late = is_done.recv_timeout(BOUND) == Err(RecvTimeoutError::Timeout);
            is_late && kill_child(pid)
        });
        Self { done: Some(done), killer: Some(killer), what: what.to_owned() }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.done.take());
        let was_late = self.killer.take().is_some_and(|killer| killer.join().unwrap_or(true));
        if was_late && !thread::panicking() {
            panic!("{} had not ended after {BOUND:?}", self.what);
        }
    }
}

/// Kills a process if it is a child of this one: another may have its number by now. Says whether it was.
fn kill_child(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    let is_ours = parent.is_some_and(|parent| parent.trim() == std::process::id().to_string());
    let killed = || Command::new("kill").args(["-KILL", &pid.to_string()]).status();
    is_ours && killed().is_ok_and(|status| status.success())
}

#[test]
fn a_child_that_ends_in_time_is_left_alone() {
    let mut child = Command::new("true").spawn().expect("it starts");
    let watch = Watch::over(&child, "true");
    until("it ends", || child.try_wait().expect("it was started").is_some());
    drop(watch);
}

#[test]
fn a_child_is_killed_and_a_process_of_others_is_not() {
    let mut child =
        Command::new("cat").stdin(std::process::Stdio::piped()).spawn().expect("it starts");
    assert!(kill_child(child.id()));
    until("it is killed", || child.try_wait().expect("it was started").is_some());
    assert!(!kill_child(std::process::id()), "this process is not its own child");
}
