//! The parent's side of a worker process.

use std::{
    io::{BufRead, BufReader, Write},
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};

use crate::{
    children::ChildProcess,
    plan::{Plan, Report, WorkerCommand, WorkerMessage},
};

/// Time within which a worker connects.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A worker process. Dropping it ends the process.
pub struct Worker {
    /// Ends the process when it is dropped.
    _child: ChildProcess,
    commands: ChildStdin,
    messages: Receiver<WorkerMessage>,
}

impl Worker {
    /// Starts a worker and waits until it is connected.
    ///
    /// # Errors
    /// The process does not start, or cannot prepare its part of the plan.
    pub fn start(plan: &Plan) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bench-worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = ChildProcess::spawn(&mut command).context("a worker does not start")?;
        let commands = child.child().stdin.take().context("a worker has a standard input")?;
        let output = child.child().stdout.take().context("a worker has a standard output")?;
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let Ok(message) = serde_json::from_str(&line) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let mut worker = Self { _child: child, commands, messages };
        worker.send_line(&serde_json::to_string(plan)?)?;
        match worker.messages.recv_timeout(READY_TIMEOUT) {
            Ok(WorkerMessage::Ready) => Ok(worker),
            Ok(WorkerMessage::Failed(text)) => bail!("a worker failed: {text}"),
            Ok(other) => bail!("a worker was to get ready and said {other:?}"),
            Err(_) => bail!("a worker was not ready after {READY_TIMEOUT:?}"),
        }
    }

    fn send_line(&mut self, line: &str) -> Result<()> {
        self.commands.write_all(line.as_bytes())?;
        self.commands.write_all(b"\n")?;
        Ok(self.commands.flush()?)
    }

    /// Sends a command.
    ///
    /// # Errors
    /// The worker has ended.
    pub fn send(&mut self, command: WorkerCommand) -> Result<()> {
        self.send_line(&serde_json::to_string(&command)?).context("a worker has gone")
    }

    /// Waits at most `wait` for the report. Passes the worker's progress to `progress`.
    ///
    /// # Errors
    /// The worker has failed or ended.
    pub fn report(
        &mut self,
        wait: Duration,
        progress: &mut impl FnMut(u64),
    ) -> Result<Option<Report>> {
        loop {
            match self.messages.recv_timeout(wait) {
                Ok(WorkerMessage::Progress(count)) => progress(count),
                Ok(WorkerMessage::Done(report)) => return Ok(Some(*report)),
                Ok(WorkerMessage::Failed(text)) => bail!("a worker failed: {text}"),
                Ok(WorkerMessage::Ready) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => bail!("a worker ended without a report"),
            }
        }
    }
}
