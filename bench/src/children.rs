//! The processes that a run has started, so that they can be ended early, with everything that waits for them.

use std::{
    io,
    process::{Child, Command},
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The processes of this run.
static CHILDREN: ChildList = ChildList::new();

/// The time between two checks whether the run is being ended, beside what it waits for.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The processes that run, until they are ended. One that starts is listed before the end, or is refused.
struct ChildList {
    state: Mutex<ListState>,
    ended: Condvar,
}

struct ListState {
    running: Vec<Pid>,
    is_ending: bool,
}

impl ChildList {
    const fn new() -> Self {
        let state = ListState { running: Vec::new(), is_ending: false };
        Self { state: Mutex::new(state), ended: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, ListState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a process and lists it, in one step for [`Self::end`].
    fn spawn(&'static self, command: &mut Command) -> io::Result<ChildProcess> {
        let mut state = self.state();
        if state.is_ending {
            return Err(io::Error::other("the run is being ended"));
        }
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        state.running.push(pid);
        Ok(ChildProcess { child, pid, list: self })
    }

    /// Signals every process to end, and has no other one started.
    fn end(&self) {
        let mut state = self.state();
        state.is_ending = true;
        for pid in &state.running {
            // It may have ended by itself.
            let _ = kill_process(*pid, Signal::TERM);
        }
        self.ended.notify_all();
    }

    /// Waits for this time, or for the end if that comes first. Returns whether the list is being ended.
    fn ends_within(&self, wait: Duration) -> bool {
        let waited = self.ended.wait_timeout_while(self.state(), wait, |state| !state.is_ending);
        waited.unwrap_or_else(PoisonError::into_inner).0.is_ending
    }
}

/// A process that [`end_children`] ends. Dropping it kills the process, and waits for its end.
pub struct ChildProcess {
    child: Child,
    pid: Pid,
    list: &'static ChildList,
}

impl ChildProcess {
    /// Starts `command`.
    ///
    /// # Errors
    /// The process does not start, or the run is being ended.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        CHILDREN.spawn(command)
    }

    /// The process.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process, and waits for its end.
    ///
    /// # Errors
    /// The system reports an error.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        // From here on another process may have its id.
        self.list.state().running.retain(|pid| *pid != self.pid);
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

/// Signals every process of this run to end, and has no other one started. The run then fails, and cleans up.
pub fn end_children() {
    CHILDREN.end();
}

/// Pauses this thread.
///
/// # Errors
/// The run is being ended.
pub fn pause(wait: Duration) -> Result<()> {
    if CHILDREN.ends_within(wait) {
        bail!("the run is being ended");
    }
    Ok(())
}

/// Does `work`, which may wait for a broker that does not come back.
///
/// # Errors
/// Those of `work`, or the run is being ended.
pub async fn unless_ended<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let ended = async {
        while pause(Duration::ZERO).is_ok() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = ended => bail!("the run is being ended"),
    }
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt as _, process::Stdio, sync::mpsc, thread};

    use super::*;

    /// A list that only this test knows.
    fn list() -> &'static ChildList {
        Box::leak(Box::new(ChildList::new()))
    }

    /// A process that ends when its standard input does.
    fn waiting() -> Command {
        let mut command = Command::new("cat");
        command.stdin(Stdio::piped());
        command
    }

    /// The signal that ended a process, which would have ended by itself from here on.
    fn ended_by(mut process: ChildProcess) -> Option<i32> {
        drop(process.child().stdin.take());
        process.child().wait().unwrap().signal()
    }

    #[test]
    fn the_end_of_a_list_ends_its_processes_and_refuses_others() {
        let list = list();
        let process = list.spawn(&mut waiting()).unwrap();
        list.end();
        assert_eq!(ended_by(process), Some(Signal::TERM.as_raw()));
        let refused = list.spawn(&mut waiting()).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some("the run is being ended"));
    }

    #[test]
    fn a_process_that_starts_beside_the_end_of_its_list_is_ended_or_refused() {
        let list = list();
        let (started, first) = mpsc::channel();
        let starter = thread::spawn(move || {
            let mut processes = Vec::new();
            for _ in 0..50 {
                processes.extend(list.spawn(&mut waiting()));
                let _ = started.send(());
            }
            processes
        });
        first.recv().unwrap();
        list.end();
        for process in starter.join().unwrap() {
            assert_eq!(ended_by(process), Some(Signal::TERM.as_raw()));
        }
    }

    #[test]
    fn a_pause_ends_with_the_list() {
        let list = list();
        assert!(!list.ends_within(Duration::ZERO));
        let waits = thread::spawn(|| list.ends_within(Duration::MAX));
        list.end();
        assert!(waits.join().unwrap());
    }
}
