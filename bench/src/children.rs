//! The processes that a run has started, so that they can be ended early.

use std::{
    io,
    process::{Child, Command},
    sync::{Mutex, PoisonError},
};

use rustix::process::{Pid, Signal, kill_process};

/// The processes that run.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A process that [`end_children`] ends. Dropping it kills the process, and waits for its end.
pub struct ChildProcess {
    child: Child,
    pid: Pid,
}

impl ChildProcess {
    /// Starts `command`.
    ///
    /// # Errors
    /// The process does not start.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        running().push(pid);
        Ok(Self { child, pid })
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
        running().retain(|pid| *pid != self.pid);
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

fn running() -> std::sync::MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Signals every process of this run to end. The run then fails, and cleans up.
pub fn end_children() {
    for pid in running().iter() {
        // It may have ended by itself.
        let _ = kill_process(*pid, Signal::TERM);
    }
}
