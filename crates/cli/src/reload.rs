//! SIGHUP: the broker reads its settings again. What can change while it runs is changed; the log says what was, and what
//! needs a restart. Settings with a problem change nothing.

use std::io::IsTerminal;

use sennit_server::Config;
use sennit_settings::{Reload, changes, take_over};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc::UnboundedSender,
};

use crate::{
    logging::LogFilter,
    settings::{SETTINGS, SettingSources, Start},
};

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
    pub async fn reload_on_signals(mut self) {
        let Ok(mut hangups) = signal(SignalKind::hangup()) else {
            return std::future::pending().await;
        };
        let at_terminal = has_terminal();
        while hangups.recv().await.is_some() {
            if at_terminal && !has_terminal() {
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
    std::io::stdin().is_terminal()
        || std::io::stdout().is_terminal()
        || std::io::stderr().is_terminal()
}
