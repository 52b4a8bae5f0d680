//! A watch of the configuration, as the program sees it. It is told of entries and changes by the connection task,
//! and asks anew for those that did not fit while the program was busy.

use std::{fmt, sync::Arc};

use sennit_protocol::control;
use tokio::sync::mpsc;

use crate::{
    configuration_event::Event,
    connection_handle::{Command, ConnectionHandle},
    error::Error,
};

/// Most events that wait for the program. Beyond that the client ends the watch, and starts it anew when
/// the program has taken them.
const EVENTS_WAITING_MAX: usize = 64;

/// A watch of the configuration. Dropping it ends it.
pub struct ConfigurationWatch {
    connection: Arc<ConnectionHandle>,
    prefix: String,
    watch: u32,
    events: mpsc::Receiver<Event>,
    /// The revision of the last event that the program has taken.
    revision: Option<u64>,
    has_ended: bool,
}

impl ConfigurationWatch {
    pub(crate) async fn start(
        connection: Arc<ConnectionHandle>,
        prefix: &str,
        revision: Option<u64>,
    ) -> Result<Self, Error> {
        let (_, events) = mpsc::channel(1);
        let prefix = prefix.to_owned();
        let mut this = Self { connection, prefix, watch: 0, events, revision, has_ended: false };
        this.restart().await?;
        Ok(this)
    }

    /// Starts it behind what the program has taken.
    async fn restart(&mut self) -> Result<(), Error> {
        let watch = self.connection.next_number() as u32;
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        let body = control::WatchConfiguration {
            subscription: watch,
            prefix: self.prefix.clone(),
            after_revision: self.revision,
        };
        // Set first: if this call is cancelled, dropping it ends the watch, and the next call waits for it.
        (self.watch, self.events) = (watch, events);
        let command = |answer| Command::WatchConfiguration { watch: body, events: sender, answer };
        self.connection.call(command).await
    }

    /// The next event; `None` after an error. May be cancelled without loss.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when the client has given up, [`Error::Refused`] when the broker refuses to
    /// go on. Each is followed by `None`.
    pub async fn next(&mut self) -> Option<Event> {
        while !self.has_ended {
            match self.events.recv().await {
                Some(Ok(event)) => {
                    self.revision = Some(event.revision());
                    return Some(Ok(event));
                }
                Some(Err(error)) => {
                    self.has_ended = true;
                    return Some(Err(error));
                }
                // More came than may wait.
                None => {
                    if let Err(error) = self.restart().await {
                        self.has_ended = true;
                        return Some(Err(error));
                    }
                }
            }
        }
        None
    }
}

impl Drop for ConfigurationWatch {
    fn drop(&mut self) {
        self.connection.send(Command::Unsubscribe { subscription: self.watch, answer: None });
    }
}

impl fmt::Debug for ConfigurationWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigurationWatch")
            .field("prefix", &self.prefix)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}
