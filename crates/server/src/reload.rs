//! A reload: settings that change while the broker runs. Each of them has one line in [`Running::apply`]; the table of
//! settings (`cli/settings/table`) says of each whether it is one of these or needs a restart.

use std::{net::IpAddr, rc::Rc, sync::Arc, time::Duration};

use crate::{
    broker::scrub_thread::{self, ScrubHandle},
    config::Config,
    doors::streams::CurrentStreamsSettings,
    http::{port::HttpThread, thread_state::HttpThreadState},
    runtime::{
        core::Cores, error::ServeError, inbox::Message, index::CoreIndex, shard_files::ShardFiles,
        tls_reload::TlsReload,
    },
    subscriptions::Subscriptions,
};

/// What a reload changes.
pub(crate) struct Running {
    pub(crate) cores: Arc<Cores>,
    pub(crate) shard_files: Arc<ShardFiles>,
    /// Where HTTP listens.
    pub(crate) http: IpAddr,
    /// Those of HTTP connections that no core serves.
    pub(crate) outside_cores: [Rc<HttpThreadState>; 2],
    pub(crate) segment_bytes: u64,
    /// Has the certificates be read again.
    pub(crate) tls_reload: TlsReload,
    /// The scrub, once it was asked for.
    pub(crate) scrub: Option<ScrubHandle>,
    /// The time of its passes.
    pub(crate) scrub_every: Option<Duration>,
}

impl Running {
    /// Puts the settings of `config` in force that can change while the broker runs; of the others it takes no notice.
    pub(crate) fn apply(&mut self, config: &Config) -> Result<(), ServeError> {
        self.set_browser_rules(config);
        self.set_streams_settings(config);
        self.allow_private_webhooks(config);
        self.set_ingest_bytes(config);
        self.tls_reload.now();
        self.set_scrub(config)
    }

    fn set_browser_rules(&self, config: &Config) {
        let rules = config.browser_rules(self.http);
        for thread_state in &self.outside_cores {
            thread_state.guard.set_rules(rules.clone());
        }
        for inbox in self.cores.inboxes.iter() {
            let rules = rules.clone();
            let _ = inbox.send(Message::call(move |http: &Rc<HttpThread>| {
                http.thread_state.guard.set_rules(rules);
            }));
        }
    }

    fn set_streams_settings(&self, config: &Config) {
        for inbox in self.cores.inboxes.iter() {
            let settings = config.streams_settings();
            let _ = inbox.send(Message::call(move |current: &Rc<CurrentStreamsSettings>| {
                current.set(settings);
            }));
        }
    }

    fn allow_private_webhooks(&self, config: &Config) {
        let allows = config.streams_allow_private_webhooks;
        let allow = move |subscriptions: &Rc<Subscriptions>| subscriptions.allow_loopback(allows);
        let _ = self.cores.inboxes[CoreIndex::FIRST].send(Message::call(allow));
    }

    fn set_ingest_bytes(&self, config: &Config) {
        let bytes = config.ingest_bytes(self.segment_bytes);
        self.cores.gauges.iter().for_each(|gauge| gauge.set_high(bytes));
    }

    /// Starts the scrub, or tells it the time of its passes.
    pub(crate) fn set_scrub(&mut self, config: &Config) -> Result<(), ServeError> {
        // A pass that runs is not begun again without a reason.
        if config.scrub_every == self.scrub_every {
            return Ok(());
        }
        self.scrub_every = config.scrub_every;
        match (&self.scrub, config.scrub_every) {
            (Some(scrub), every) => scrub.set_every(every),
            (None, Some(every)) => {
                let (files, metrics) = (self.shard_files.clone(), self.cores.shard_metrics.clone());
                self.scrub = Some(scrub_thread::start(every, files, metrics)?);
            }
            (None, None) => {}
        }
        Ok(())
    }
}
