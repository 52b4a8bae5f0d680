//! The keys of an issuer of tokens, and which of them may check a token. It knows no clock and fetches nothing.

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    limits::{KEY_SET_BYTES_MAX, KEY_SET_KEYS_MAX, KEYS_WITHOUT_ID_MAX},
    token_key::{TokenAlgorithm, TokenKey},
};

/// The reason why keys are no key set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeySetError {
    /// The document is too long.
    #[error("a key set of {length} bytes is too long: KEY_SET_BYTES_MAX is {KEY_SET_BYTES_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The document is something else.
    #[error("not a key set: RFC 7517 wants JSON with a member \"keys\" that is a list")]
    NotAKeySet,
    /// There are too many keys.
    #[error("{count} keys are too many: KEY_SET_KEYS_MAX is {KEY_SET_KEYS_MAX}")]
    TooManyKeys {
        /// How many there are.
        count: usize,
    },
    /// There are too many keys without an id.
    #[error(
        "{count} keys have no id (kid): KEYS_WITHOUT_ID_MAX is {KEYS_WITHOUT_ID_MAX}, since a token is checked with each of them"
    )]
    TooManyWithoutId {
        /// How many there are.
        count: usize,
    },
    /// There is no key that can be used.
    #[error(
        "no key that can be used: public keys for signatures by RS256 (2048 bits or more), ES256 or EdDSA are taken"
    )]
    NoKey,
}

/// The keys that check the tokens of one issuer. There is at least one.
#[derive(Clone, Debug)]
pub struct KeySet {
    keys: Vec<TokenKey>,
    skipped: usize,
}

/// Why no key of a set may check a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoKey {
    /// None has the id of the token.
    UnknownId,
    /// The token names no id, and there are several keys with ids.
    IdMissing,
    /// The keys in question have another algorithm.
    OtherAlgorithm,
}

impl KeySet {
    /// The set of these keys.
    ///
    /// # Errors
    /// There are none, or too many.
    pub fn new(keys: Vec<TokenKey>) -> Result<Self, KeySetError> {
        if keys.is_empty() {
            return Err(KeySetError::NoKey);
        }
        if keys.len() > KEY_SET_KEYS_MAX {
            return Err(KeySetError::TooManyKeys { count: keys.len() });
        }
        let count = keys.iter().filter(|key| key.id().is_none()).count();
        if count > KEYS_WITHOUT_ID_MAX {
            return Err(KeySetError::TooManyWithoutId { count });
        }
        Ok(Self { keys, skipped: 0 })
    }

    /// The set in a key set document (JWKS, RFC 7517). Members that cannot be used are skipped: an issuer may publish keys
    /// of other kinds and for other purposes.
    ///
    /// # Errors
    /// The document is too long, not a key set, or has no key that can be used, or too many.
    pub fn from_json(document: &[u8]) -> Result<Self, KeySetError> {
        #[derive(Deserialize)]
        struct Document<'a> {
            #[serde(borrow)]
            keys: Vec<&'a RawValue>,
        }
        if document.len() > KEY_SET_BYTES_MAX {
            return Err(KeySetError::TooLong { length: document.len() });
        }
        let document: Document<'_> =
            serde_json::from_slice(document).map_err(|_| KeySetError::NotAKeySet)?;
        if document.keys.len() > KEY_SET_KEYS_MAX {
            return Err(KeySetError::TooManyKeys { count: document.keys.len() });
        }
        let keys: Vec<_> =
            document.keys.iter().filter_map(|key| TokenKey::from_json(key.get())).collect();
        let skipped = document.keys.len() - keys.len();
        Ok(Self { skipped, ..Self::new(keys)? })
    }

    /// The keys.
    #[must_use]
    pub fn keys(&self) -> &[TokenKey] {
        &self.keys
    }

    /// Number of members of the document that could not be used.
    #[must_use]
    pub fn skipped(&self) -> usize {
        self.skipped
    }

    /// The keys that may check a token with this header: the one that the token names; when no key has that name, those
    /// without a name; when the token names none, those without a name or the only one. Their algorithm is the token's.
    pub(crate) fn candidates(
        &self,
        id: Option<&str>,
        algorithm: TokenAlgorithm,
    ) -> Result<impl Iterator<Item = &TokenKey>, NoKey> {
        let named = |key: &&TokenKey| id.is_some() && key.id() == id;
        let nameless = |key: &&TokenKey| key.id().is_none();
        let wanted: &dyn Fn(&&TokenKey) -> bool = if self.keys.iter().any(|key| named(&key)) {
            &named
        } else if self.keys.iter().any(|key| nameless(&key)) {
            &nameless
        } else if id.is_some() {
            return Err(NoKey::UnknownId);
        } else if self.keys.len() > 1 {
            return Err(NoKey::IdMissing);
        } else {
            &|_| true
        };
        let of_algorithm = |key: &&TokenKey| key.algorithm() == algorithm;
        let found: Vec<_> = self.keys.iter().filter(wanted).filter(of_algorithm).collect();
        if found.is_empty() { Err(NoKey::OtherAlgorithm) } else { Ok(found.into_iter()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn read(document: &Value) -> Result<KeySet, KeySetError> {
        KeySet::from_json(document.to_string().as_bytes())
    }

    fn ed25519(changes: Value) -> Value {
        let mut key = json!({ "kty": "OKP", "crv": "Ed25519", "x": X });
        for (name, value) in changes.as_object().unwrap() {
            key[name] = value.clone();
        }
        key
    }

    #[test]
    fn keys_for_other_things_are_skipped_and_not_fatal() {
        let skipped = [
            json!({}),
            json!(7),
            json!({ "kty": "oct", "k": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA" }),
            json!({ "kty": "EC", "crv": "P-384", "x": X, "y": X }),
            json!({ "kty": "EC", "crv": "P-256", "x": X }),
            json!({ "kty": "EC", "crv": "P-256", "x": "AAAA", "y": X }),
            json!({ "kty": "RSA", "n": "AQAB", "e": "AQAB" }),
            json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA" }),
            ed25519(json!({ "use": "enc" })),
            ed25519(json!({ "alg": "ES256" })),
            ed25519(json!({ "key_ops": ["sign"] })),
            ed25519(json!({ "kid": 7 })),
            ed25519(json!({ "kid": "" })),
            ed25519(json!({ "x": "AAAA" })),
            ed25519(json!({ "x": format!("{X}=") })),
            ed25519(json!({ "crv": "Ed448" })),
            ed25519(json!({ "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A" })),
        ];
        let taken = [
            ed25519(json!({ "kid": "a", "use": "sig", "alg": "EdDSA", "x5c": ["..."], "new": {} })),
            ed25519(json!({ "kid": "b", "alg": "Ed25519", "key_ops": ["verify"] })),
            ed25519(json!({ "d": null })),
        ];
        let keys = [&skipped[..], &taken].concat();
        let set = read(&json!({ "keys": keys, "more": 1 })).unwrap();
        assert_eq!((set.keys().len(), set.skipped()), (taken.len(), skipped.len()));
        let ids: Vec<_> = set.keys().iter().map(TokenKey::id).collect();
        assert_eq!(ids, [Some("a"), Some("b"), None]);
        for key in skipped {
            assert_eq!(read(&json!({ "keys": [key] })).unwrap_err(), KeySetError::NoKey);
        }
    }

    #[test]
    fn what_is_no_key_set_is_refused() {
        for document in
            ["", "{}", "[]", "null", r#"{"keys":{}}"#, "<html>", r#"{"keys":[]"#, r#"{"keys":[]}x"#]
        {
            let refused = KeySet::from_json(document.as_bytes()).unwrap_err();
            assert_eq!(refused, KeySetError::NotAKeySet, "{document}");
        }
        let deep = format!(r#"{{"keys":[{}"#, "[".repeat(100_000));
        assert_eq!(KeySet::from_json(deep.as_bytes()).unwrap_err(), KeySetError::NotAKeySet);
        assert_eq!(KeySet::from_json(b"{\"keys\":[]}").unwrap_err(), KeySetError::NoKey);
        assert_eq!(
            KeySet::from_json(b"{\"keys\":[\"\xff\"]}").unwrap_err(),
            KeySetError::NotAKeySet
        );
    }

    #[test]
    fn a_key_set_has_bounds() {
        let long = vec![b' '; KEY_SET_BYTES_MAX + 1];
        let refused = KeySetError::TooLong { length: long.len() };
        assert_eq!(KeySet::from_json(&long).unwrap_err(), refused);
        let many: Vec<_> = (0..=KEY_SET_KEYS_MAX).map(|_| ed25519(json!({ "kid": "k" }))).collect();
        let refused = KeySetError::TooManyKeys { count: KEY_SET_KEYS_MAX + 1 };
        assert_eq!(read(&json!({ "keys": many })).unwrap_err(), refused);
        assert!(read(&json!({ "keys": &many[1..] })).is_ok());
        let nameless: Vec<_> = (0..=KEYS_WITHOUT_ID_MAX).map(|_| ed25519(json!({}))).collect();
        let refused = KeySetError::TooManyWithoutId { count: KEYS_WITHOUT_ID_MAX + 1 };
        assert_eq!(read(&json!({ "keys": nameless })).unwrap_err(), refused);
        let zeros = format!(r#"{{"keys":[{}0]}}"#, "0,".repeat(KEY_SET_BYTES_MAX / 2 - 10));
        assert!(matches!(
            KeySet::from_json(zeros.as_bytes()),
            Err(KeySetError::TooManyKeys { .. })
        ));
    }

    proptest! {
        #[test]
        fn any_document_is_read_without_a_panic(bytes: Vec<u8>, text in r#"\{"keys":\[(\{("(kty|crv|x|n|e|kid|use)":("OKP"|"RSA"|"AQAB"|"Ed25519"|1|null),?){0,6}\},?){0,3}\]\}"#) {
            let _ = KeySet::from_json(&bytes);
            let _ = KeySet::from_json(text.as_bytes());
        }
    }
}
