//! SIGHUP: the broker reads its settings again. What can change while it runs is changed; the log says what was, and what
//! needs a restart. Settings with a problem change nothing. A SIGHUP that comes before the broker serves is kept until it does.

use std::io::{self, IsTerminal};

use sennit_server::Config;
use sennit_settings::{Reload, changes, take_over};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    sync::mpsc::UnboundedSender,
};

use crate::{
    logging::LogFilter,
    settings::{SETTINGS, SettingSources, Start},
};

/// The SIGHUPs of this process.
pub struct ReloadSignals {
    signals: Signal,
    /// Whether the broker was started from a terminal.
    at_terminal: bool,
}

impl ReloadSignals {
    /// Takes SIGHUPs from now on, before there is a broker: one would end the process otherwise. They are kept for the
    /// runtime of the broker.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn take() -> io::Result<Self> {
        // The handler belongs to the process, and any later runtime hears of its signals.
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        let _entered = runtime.enter();
        Ok(Self { signals: signal(SignalKind::hangup())?, at_terminal: has_terminal() })
    }
}

/// The settings that a reload reads and changes.
pub struct SettingsReload {
    /// Where the settings come from.
    pub sources: SettingSources,
    /// The settings in force.
    pub running: Start,
    /// The log filter.
    pub filter: LogFilter,
    /// The way to the broker.
    pub broker: UnboundedSender<Config>,
}

impl SettingsReload {
    /// Reloads on each SIGHUP. Ends when one says that the terminal is gone from which the broker was started.
    pub async fn reload_on_signals(mut self, mut hangups: ReloadSignals) {
        while hangups.signals.recv().await.is_some() {
            if hangups.at_terminal && !has_terminal() {
                return;
            }
            self.reload().await;
        }
        std::future::pending().await
    }

    async fn reload(&mut self) {
        // It reads files and looks names up.
        let sources = self.sources.clone();
        let loaded = tokio::task::spawn_blocking(move || sources.load()).await;
        let new = match loaded {
            Ok(Ok(resolved)) => resolved,
            Ok(Err(problems)) => {
                for problem in problems.lines() {
                    tracing::error!("{problem}");
                }
                return tracing::error!(
                    "the reload has changed nothing: the settings have problems"
                );
            }
            Err(error) => return tracing::error!(%error, "the reload has changed nothing"),
        };
        for warning in &new.warnings {
            tracing::warn!("{warning}");
        }
        let changes = changes(&SETTINGS, &self.running, &new.values);
        take_over(&SETTINGS, &mut self.running, &new.values);
        if let Err(error) = self.filter.set(&self.running.log_filter) {
            tracing::error!(error, "the log filter stays as it was");
        }
        let _ = self.broker.send(self.running.broker.clone());
        let mut restarts = 0;
        for change in &changes {
            let (setting, old, new) = (change.setting.name(), &change.old, &change.new);
            match change.setting.reload {
                Reload::Applied => tracing::info!(%setting, %old, %new, "changed by a reload"),
                Reload::Restart => {
                    restarts += 1;
                    tracing::warn!(%setting, %old, %new, "needs a restart, and stays as it was");
                }
            }
        }
        let changed = changes.len() - restarts;
        tracing::info!(changed, restarts, "the settings were read again");
    }
}

/// Whether a standard stream is a terminal.
fn has_terminal() -> bool {
    io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal()
}
