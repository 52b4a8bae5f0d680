//! Connections of workloads by the native protocol: plain, or with TLS where the address names whom to trust.

use sennit_client::{Client, ClientBuilder, Error, TlsOptions};

/// The address of a broker that is trusted by this fingerprint. It travels in plans as one text.
pub fn pinned(fingerprint: &str, address: &str) -> String {
    format!("{fingerprint}@{address}")
}

/// The settings of a client of the broker at `server`: host and port, behind a fingerprint or not.
pub fn builder(server: &str) -> ClientBuilder {
    let pinned =
        server.split_once('@').and_then(|(pin, address)| Some((pin.parse().ok()?, address)));
    match pinned {
        None => Client::builder(server),
        Some((fingerprint, address)) => Client::builder(address)
            .tls(TlsOptions { fingerprint: Some(fingerprint), ..TlsOptions::default() }),
    }
}

/// Connects to the broker at `server`.
///
/// # Errors
/// As [`ClientBuilder::connect`].
pub async fn connect(server: &str) -> Result<Client, Error> {
    builder(server).connect().await
}
