//! The tokens that prove a worker's claim. The broker stores none of them: each names its claim, and its code
//! proves it. It knows no subscriptions' states.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::hmac;
use sennit_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::keys::Keys;
use super::request::{SubscriptionRefusal, limits::TOKEN_SPAN_MS};

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Token {
    /// The subscription.
    #[serde(rename = "s")]
    pub(crate) id: Box<str>,
    /// The generation of the wake.
    #[serde(rename = "g")]
    pub(crate) generation: u64,
    /// The wake.
    #[serde(rename = "w")]
    pub(crate) wake: Box<str>,
    /// When it is good for nothing any more.
    #[serde(rename = "e")]
    expires_at_ms: u64,
}

impl Token {
    /// One that is good from now on.
    pub(crate) fn new(id: &str, generation: u64, wake: &str, now: Timestamp) -> Self {
        let expires_at_ms = now.0.saturating_add(TOKEN_SPAN_MS);
        Self { id: id.into(), generation, wake: wake.into(), expires_at_ms }
    }

    /// As it is given away.
    pub(crate) fn write(&self, keys: &Keys) -> String {
        let said = serde_json::to_vec(self).expect("texts and numbers can be written");
        let code = hmac::sign(&keys.tokens, &said);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(said), URL_SAFE_NO_PAD.encode(code))
    }

    /// What `text` says about the subscription `id`.
    ///
    /// # Errors
    /// It is no token of these keys, is another subscription's, or its time is over.
    pub(crate) fn read(
        keys: &Keys,
        text: &str,
        id: &str,
        now: Timestamp,
    ) -> Result<Self, SubscriptionRefusal> {
        let invalid = SubscriptionRefusal::TokenInvalid;
        let said = text.split_once('.').and_then(|(said, code)| {
            let said = URL_SAFE_NO_PAD.decode(said).ok()?;
            let code = URL_SAFE_NO_PAD.decode(code).ok()?;
            hmac::verify(&keys.tokens, &said, &code).ok()?;
            serde_json::from_slice::<Self>(&said).ok()
        });
        match said {
            Some(token) if *token.id != *id => Err(invalid),
            Some(token) if token.expires_at_ms <= now.0 => Err(SubscriptionRefusal::TokenExpired),
            Some(token) => Ok(token),
            None => Err(invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::open(tempfile::tempdir().unwrap().path()).unwrap()
    }

    #[test]
    fn a_token_says_what_it_was_told() {
        let keys = keys();
        let token = Token::new("s", 3, "wake", Timestamp(10));
        let text = token.write(&keys);
        assert_eq!(Token::read(&keys, &text, "s", Timestamp(11)), Ok(token));
    }

    #[test]
    fn a_token_is_good_for_one_subscription_one_broker_and_one_day() {
        let ours = keys();
        let text = Token::new("s", 3, "wake", Timestamp(10)).write(&ours);
        let invalid = Err(SubscriptionRefusal::TokenInvalid);
        assert_eq!(Token::read(&ours, &text, "t", Timestamp(11)), invalid);
        assert_eq!(Token::read(&keys(), &text, "s", Timestamp(11)), invalid);
        let late = Timestamp(10 + TOKEN_SPAN_MS);
        assert_eq!(Token::read(&ours, &text, "s", late), Err(SubscriptionRefusal::TokenExpired));
    }

    #[test]
    fn a_token_that_was_changed_is_none() {
        let keys = keys();
        let text = Token::new("s", 3, "wake", Timestamp(10)).write(&keys);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            let read = Token::read(&keys, &changed, "s", Timestamp(11));
            assert_eq!(read, Err(SubscriptionRefusal::TokenInvalid), "byte {at}");
        }
        for none in ["", ".", "a", "a.b", "....", "ä.ö"] {
            let read = Token::read(&keys, none, "s", Timestamp(11));
            assert_eq!(read, Err(SubscriptionRefusal::TokenInvalid), "{none:?}");
        }
    }
}
