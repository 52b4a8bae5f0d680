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
    children::Running,
    plan::{News, Order, Plan, Report},
};

/// How long a worker may take to connect.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A worker. Dropping it ends the process.
pub struct Worker {
    /// Ends the process when it is dropped.
    _child: Running,
    orders: ChildStdin,
    news: Receiver<News>,
}

impl Worker {
    /// Starts a worker and waits until it is connected.
    ///
    /// # Errors
    /// The process does not start, or cannot do its part of the plan.
    pub fn start(plan: &Plan) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("bench-worker").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = Running::spawn(&mut command).context("a worker does not start")?;
        let orders = child.child().stdin.take().context("a worker has a standard input")?;
        let said = child.child().stdout.take().context("a worker has a standard output")?;
        let (sender, news) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(said).lines().map_while(Result::ok) {
                let Ok(news) = serde_json::from_str(&line) else { return };
                if sender.send(news).is_err() {
                    return;
                }
            }
        });
        let mut worker = Self { _child: child, orders, news };
        worker.tell(&serde_json::to_string(plan)?)?;
        match worker.news.recv_timeout(READY_TIMEOUT) {
            Ok(News::Ready) => Ok(worker),
            Ok(News::Failed(text)) => bail!("a worker failed: {text}"),
            Ok(other) => bail!("a worker was to get ready and said {other:?}"),
            Err(_) => bail!("a worker was not ready after {READY_TIMEOUT:?}"),
        }
    }

    fn tell(&mut self, line: &str) -> Result<()> {
        self.orders.write_all(line.as_bytes())?;
        self.orders.write_all(b"\n")?;
        Ok(self.orders.flush()?)
    }

    /// Gives an order.
    ///
    /// # Errors
    /// The worker has gone.
    pub fn order(&mut self, order: Order) -> Result<()> {
        self.tell(&serde_json::to_string(&order)?).context("a worker has gone")
    }

    /// The report, if it comes within `wait`; what the worker says of its progress goes to
    /// `progress`.
    ///
    /// # Errors
    /// The worker failed or has gone.
    pub fn report(
        &mut self,
        wait: Duration,
        progress: &mut impl FnMut(u64),
    ) -> Result<Option<Report>> {
        loop {
            match self.news.recv_timeout(wait) {
                Ok(News::Progress(count)) => progress(count),
                Ok(News::Done(report)) => return Ok(Some(*report)),
                Ok(News::Failed(text)) => bail!("a worker failed: {text}"),
                Ok(News::Ready) => {}
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => bail!("a worker ended without a report"),
            }
        }
    }
}
