//! The processes that a run has started, so that they can be ended early.

use std::{
    io,
    process::{Child, Command},
    sync::{Mutex, PoisonError},
};

use rustix::process::{Pid, Signal, kill_process};

/// Those that run.
static RUNNING: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// A process that [`end_children`] ends. Dropping it kills it, and waits until it is gone.
pub struct Running {
    child: Child,
    pid: Pid,
}

impl Running {
    /// Starts `command`.
    ///
    /// # Errors
    /// It does not start.
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

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills it, and waits until the kernel has cleared it away.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        // From here on its number may be another's.
        running().retain(|pid| *pid != self.pid);
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.kill();
    }
}

fn running() -> std::sync::MutexGuard<'static, Vec<Pid>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks every process of this run to end: the run then fails, and clears up.
pub fn end_children() {
    for pid in running().iter() {
        // It may have ended by itself.
        let _ = kill_process(*pid, Signal::TERM);
    }
}
