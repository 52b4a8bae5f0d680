//! The worker's side of the messages with its parent: progress out, commands in.

use std::io::{self, Write};

use anyhow::{Result, bail};
use tokio::sync::mpsc;

use crate::plan::{Window, WorkerCommand, WorkerMessage};

/// Sends a message to the parent.
///
/// # Errors
/// The parent has closed the pipe.
pub fn send(message: &WorkerMessage) -> Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, message)?;
    out.write_all(b"\n")?;
    out.flush()?;
    Ok(())
}

/// The commands of the parent, in order. A worker ends when its parent ends.
pub type CommandReceiver = mpsc::UnboundedReceiver<WorkerCommand>;

/// Reports that the worker is ready, and waits for the start.
///
/// # Errors
/// The parent has ended, or sends another command.
pub async fn wait_for_start(commands: &mut CommandReceiver) -> Result<Window> {
    send(&WorkerMessage::Ready)?;
    match commands.recv().await {
        Some(WorkerCommand::Start(window)) => Ok(window),
        other => bail!("a start was expected, this came: {other:?}"),
    }
}
