//! Fetches the key set of an issuer of tokens (JWKS) from its URL: over TLS, within a time and a length, without redirects. It
//! knows no token.

use std::{fmt, io, net::SocketAddr, str::FromStr, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use sennit_identity::{KeySet, KeySetError, limits::KEY_SET_BYTES_MAX};

use crate::http::{
    client::{ClientFailure, HttpClient},
    client_url::{CLIENT_URL_BYTES_MAX, ClientUrl},
};

/// Longest time of a fetch, from the lookup of the name to the last byte.
const KEY_SET_FETCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a text is not the URL of a key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetUrlError {
    /// The text is no URL that can be fetched.
    #[error(
        "not the URL of a key set: write https://HOST/PATH, without user, password and #, in at most {CLIENT_URL_BYTES_MAX} bytes"
    )]
    Malformed,
    /// Anybody on the way could put keys of their own into the answer.
    #[error(
        "a key set comes over https://; http:// is for this machine (127.0.0.1, [::1], localhost) alone"
    )]
    NotTls,
}

/// The URL of a key set.
#[derive(Clone, PartialEq, Eq)]
pub struct KeySetUrl(ClientUrl);

impl FromStr for KeySetUrl {
    type Err = KeySetUrlError;

    fn from_str(text: &str) -> Result<Self, KeySetUrlError> {
        let url = ClientUrl::of(text).ok_or(KeySetUrlError::Malformed)?;
        if !url.is_tls && !url.is_here() {
            return Err(KeySetUrlError::NotTls);
        }
        Ok(Self(url))
    }
}

impl fmt::Display for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for KeySetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeySetUrl({self})")
    }
}

/// The reason why a fetch has brought no key set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetFetchFailure {
    /// The name stands for nothing.
    #[error("the name was not found: {0}")]
    Lookup(io::Error),
    /// The name of this machine stands for another one, and there is no TLS.
    #[error("localhost stands for {0}, which is not this machine")]
    NotLoopback(SocketAddr),
    /// The request cannot be made.
    #[error("no request: {0}")]
    Request(#[from] http::Error),
    /// The issuer was not reached.
    #[error(transparent)]
    Client(#[from] ClientFailure),
    /// The issuer has answered with something else than 200.
    #[error("answered {0}")]
    Status(StatusCode),
    /// The issuer sends its clients elsewhere.
    #[error("answered {0}: redirects are not followed, configure the URL at the end of them")]
    Redirect(StatusCode),
    /// The answer is too long; the rest of it was not read.
    #[error("the answer is longer than {KEY_SET_BYTES_MAX} bytes (KEY_SET_BYTES_MAX)")]
    TooLong,
    /// The answer has broken off.
    #[error("the answer broke off: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    /// The answer is no key set.
    #[error(transparent)]
    KeySet(#[from] KeySetError),
    /// The issuer was too slow.
    #[error("no whole answer in {} s", KEY_SET_FETCH_TIMEOUT.as_secs())]
    TooSlow,
}

/// What a fetch has brought.
#[derive(Debug)]
pub(crate) struct FetchedKeySet {
    pub(crate) keys: KeySet,
    /// For how long the keys are fresh, if the issuer says so.
    pub(crate) max_age: Option<Duration>,
}

/// Fetches the key set at `url`.
///
/// # Errors
/// The issuer is away, slow, or sends something else.
pub(crate) async fn fetch(
    client: &HttpClient,
    url: &KeySetUrl,
) -> Result<FetchedKeySet, KeySetFetchFailure> {
    let fetched = tokio::time::timeout(KEY_SET_FETCH_TIMEOUT, try_fetch(client, url));
    fetched.await.unwrap_or(Err(KeySetFetchFailure::TooSlow))
}

async fn try_fetch(
    client: &HttpClient,
    KeySetUrl(url): &KeySetUrl,
) -> Result<FetchedKeySet, KeySetFetchFailure> {
    let found = tokio::net::lookup_host((&*url.host, url.port)).await;
    let addresses: Vec<_> = found.map_err(KeySetFetchFailure::Lookup)?.collect();
    if !url.is_tls {
        let elsewhere = addresses.iter().find(|address| !address.ip().is_loopback());
        if let Some(address) = elsewhere {
            return Err(KeySetFetchFailure::NotLoopback(*address));
        }
    }
    let request = Request::get(&*url.path)
        .header(header::HOST, &*url.authority)
        .header(header::ACCEPT, "application/jwk-set+json, application/json")
        .header(header::USER_AGENT, concat!("sennit/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(Bytes::new()))?;
    let answer = client.send(url.is_tls, &url.host, &addresses, request).await?;
    let status = answer.response.status();
    if status.is_redirection() {
        return Err(KeySetFetchFailure::Redirect(status));
    }
    if status != StatusCode::OK {
        return Err(KeySetFetchFailure::Status(status));
    }
    let max_age = answer.response.headers().get(header::CACHE_CONTROL);
    let max_age = max_age.and_then(|value| max_age_of(value.to_str().ok()?));
    let body = Limited::new(answer.response.into_body(), KEY_SET_BYTES_MAX);
    let body = body.collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            KeySetFetchFailure::TooLong
        } else {
            KeySetFetchFailure::Body(error)
        }
    });
    let bytes = body?.to_bytes();
    drop(answer.connection);
    Ok(FetchedKeySet { keys: KeySet::from_json(&bytes)?, max_age })
}

/// For how long a `Cache-Control` header lets an answer be used.
fn max_age_of(value: &str) -> Option<Duration> {
    let mut directives = value.split(',').map(|directive| directive.trim().to_ascii_lowercase());
    if directives.clone().any(|directive| directive == "no-store" || directive == "no-cache") {
        return Some(Duration::ZERO);
    }
    let seconds = directives.find_map(|directive| {
        directive.strip_prefix("max-age=")?.trim_matches('"').parse::<u32>().ok()
    });
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

#[cfg(test)]
mod tests;
