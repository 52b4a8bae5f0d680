//! The reload of certificates: when their files change, or on demand, new connections get the new ones. Files that are
//! broken change nothing, and the log says why. No connection is cut.

use std::{rc::Rc, sync::Arc, time::Duration};

use tokio::{sync::Notify, time::timeout};

use super::{
    tls_port::TlsPort,
    tls_settings::{TlsSource, TlsStamps},
};

/// How often it is looked whether the files have changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Asks a broker to read its certificates again now. Clones ask the same broker.
#[derive(Clone, Debug, Default)]
pub struct TlsReload(Arc<Notify>);

impl TlsReload {
    /// Has the certificates be read again, whether or not the files seem changed.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

/// The ports whose settings are replaced.
#[derive(Debug)]
pub(crate) struct TlsPorts {
    pub(crate) native: Rc<TlsPort>,
    pub(crate) http: Rc<TlsPort>,
}

/// Reads the files again when they change, for ever. They were last read when they were as `read` says.
pub(crate) async fn run(
    source: TlsSource,
    mut read: TlsStamps,
    ports: TlsPorts,
    on_demand: TlsReload,
) {
    loop {
        let is_asked = timeout(LOOK_EVERY, on_demand.0.notified()).await.is_ok();
        let stamps = source.stamps();
        if stamps == read && !is_asked {
            continue;
        }
        // Files that change while they are read differ from these stamps, and are read again.
        read = stamps;
        match source.load() {
            Ok(loaded) => {
                ports.native.set(loaded.native);
                ports.http.set(loaded.http);
                let fingerprint = loaded.fingerprint;
                tracing::info!(%fingerprint, "new connections get the certificate read now");
            }
            Err(fault) => {
                tracing::warn!("the certificates stay as they were: {fault}");
            }
        }
    }
}
