//! An issuer of tokens: its rules, and its keys from a file or from a URL. Keys from a URL are fetched in the background; a
//! check of a token never waits for the issuer. All cores share it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sennit_identity::{
    Claims, FetchJitter, KeySet, KeySetCache, TokenKey, TokenRefusal, TokenRules,
};
use sennit_model::Timestamp;
use tokio::sync::Notify;

use super::{
    key_set_fetch::{KeySetUrl, fetch},
    token_config::{TokenKeys, TokenSettings},
};
use crate::http::client::HttpClient;

/// An issuer of tokens. Clones are one.
#[derive(Clone, Debug)]
pub(crate) struct TokenIssuer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    rules: TokenRules,
    keys: Keys,
}

#[derive(Debug)]
enum Keys {
    /// Of files: a reload makes another issuer.
    Fixed(Arc<KeySet>),
    /// Of a URL.
    Published { url: KeySetUrl, cache: Mutex<KeySetCache>, moved: Notify },
}

impl TokenIssuer {
    /// The issuer of these settings. If its keys are at a URL, somebody has to run [`Self::keep_fetching`].
    pub(crate) fn new(settings: &TokenSettings) -> Self {
        let keys = match &settings.keys {
            TokenKeys::Known(keys) => Keys::Fixed(Arc::new(keys.clone())),
            TokenKeys::At(url) => {
                Keys::Published { url: url.clone(), cache: Mutex::default(), moved: Notify::new() }
            }
        };
        Self(Arc::new(Shared { rules: settings.rules.clone(), keys }))
    }

    /// The claims of a token, if it is one of this issuer and good at `now`. If it names a key that is not known, the keys are
    /// fetched soon, and the token is refused for now.
    ///
    /// # Errors
    /// The token is not taken, or the keys of the issuer are not known.
    pub(crate) fn verify(&self, token: &str, now: Timestamp) -> Result<Claims, TokenRefusal> {
        let Shared { rules, keys } = &*self.0;
        let (cache, moved) = match keys {
            Keys::Fixed(keys) => return rules.verify(keys, token, now),
            Keys::Published { cache, moved, .. } => (cache, moved),
        };
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        let keys = lock().keys(now).cloned().ok_or(TokenRefusal::NoKeys)?;
        let verified = rules.verify(&keys, token, now);
        if matches!(verified, Err(TokenRefusal::UnknownKey { .. })) && lock().unknown_key(now) {
            moved.notify_one();
        }
        verified
    }

    /// Fetches the keys whenever they are due, for ever; ends at once if they are not at a URL. `clock` is the broker's time.
    pub(crate) async fn keep_fetching(&self, clock: impl Fn() -> Timestamp) {
        let Keys::Published { url, cache, moved } = &self.0.keys else { return };
        let lock = || cache.lock().unwrap_or_else(PoisonError::into_inner);
        let client = HttpClient::default();
        loop {
            let now = clock();
            if !lock().begin(now) {
                let wait = lock().next_fetch().map_or(Duration::ZERO, |next| next.since(now));
                // An unknown key may have moved the next fetch.
                let _ = tokio::time::timeout(wait, moved.notified()).await;
                continue;
            }
            let fetched = fetch(&client, url).await;
            let (now, jitter) = (clock(), jitter());
            match fetched {
                Ok(fetched) => {
                    let ids: Vec<_> = fetched.keys.keys().iter().map(TokenKey::id).collect();
                    let skipped = fetched.keys.skipped();
                    tracing::debug!(%url, ?ids, skipped, "the keys of the token issuer were fetched");
                    lock().fetched(fetched.keys, fetched.max_age, now, jitter);
                }
                Err(error) => {
                    lock().failed(now, jitter);
                    let has_keys = lock().keys(now).is_some();
                    let failures = lock().failures();
                    tracing::warn!(
                        %url, %error, failures, has_keys,
                        "the keys of the token issuer could not be fetched"
                    );
                }
            }
        }
    }
}

/// A random part of a wait; none, if the system gives no random numbers.
fn jitter() -> FetchJitter {
    let mut byte = [0];
    let _ = getrandom::fill(&mut byte);
    FetchJitter(byte[0])
}

#[cfg(test)]
mod tests;
