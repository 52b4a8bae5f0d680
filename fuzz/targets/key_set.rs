//! Any bytes as a key set document and as a file of public keys: an error, or keys within the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_identity::{
    KeySet, TokenAlgorithm, TokenKey,
    limits::{KEY_SET_KEYS_MAX, KEYS_WITHOUT_ID_MAX},
};

fuzz_target!(|data: &[u8]| {
    if let Ok(set) = KeySet::from_json(data) {
        assert!((1..=KEY_SET_KEYS_MAX).contains(&set.keys().len()));
        let without_id = set.keys().iter().filter(|key| key.id().is_none()).count();
        assert!(without_id <= KEYS_WITHOUT_ID_MAX);
        let is_secret = |key: &TokenKey| key.algorithm() == TokenAlgorithm::Hs256;
        assert!(!set.keys().iter().any(is_secret), "a document has no secrets");
    }
    match TokenKey::all_from_pem(data) {
        Ok(keys) => assert!(!keys.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
