//! Connections of workloads by the native protocol: plain, or with TLS where the address names whom to trust, or
//! with the API key that it names.

use sennit_client::{Client, ClientBuilder, Credential, Error, Reconnect, TlsOptions};

/// The address of a broker that is trusted by this fingerprint. It travels in plans as one text.
pub fn pinned(fingerprint: &str, address: &str) -> String {
    format!("{fingerprint}@{address}")
}

/// The address of a broker that is shown this API key.
pub fn with_key(key: &str, server: &str) -> String {
    format!("{key}#{server}")
}

/// The settings of a client of the broker at `server`: host and port, behind an API key and a fingerprint or not.
pub fn builder(server: &str) -> ClientBuilder {
    match server.split_once('#') {
        None => without_key(server),
        Some((key, server)) => without_key(server).credential(Credential::Key(key.to_owned())),
    }
}

/// The API key in the address of a broker.
pub fn key_of(server: &str) -> Option<&str> {
    Some(server.split_once('#')?.0)
}

/// The fingerprint in the address of a broker.
pub fn pin_of(server: &str) -> Option<&str> {
    let server = server.split_once('#').map_or(server, |(_, server)| server);
    Some(server.split_once('@')?.0)
}

fn without_key(server: &str) -> ClientBuilder {
    let pinned =
        server.split_once('@').and_then(|(pin, address)| Some((pin.parse().ok()?, address)));
    match pinned {
        None => Client::builder(server),
        Some((fingerprint, address)) => Client::builder(address)
            .tls(TlsOptions { fingerprint: Some(fingerprint), ..TlsOptions::default() }),
    }
}

/// Connects to the broker at `server`. A client whose connection is lost fails: what a run measures is not clean
/// then, and a run whose broker has ended does not wait for another one.
///
/// # Errors
/// As [`ClientBuilder::connect`].
pub async fn connect(server: &str) -> Result<Client, Error> {
    builder(server).reconnect(Reconnect::off()).connect().await
}
