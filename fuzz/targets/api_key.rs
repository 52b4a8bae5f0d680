//! Any text as an API key and as the id of one: an error, or a key whose text is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_identity::{ApiKey, ApiKeyId, MasterSecret, Secret};

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(id) = text.parse::<ApiKeyId>() {
        assert_eq!(id.as_str(), text);
    }
    match ApiKey::parse(text) {
        Ok(key) => {
            assert_eq!(&**key.expose(), text);
            // The seed of this target is a key of this master secret; no other text is.
            let master = MasterSecret::new(&Secret::new([1; 32]));
            let derived = ApiKey::derive(&master, key.id(), 3);
            assert_eq!(key.verify(&master, 3), derived.expose() == key.expose());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
