//! Any bytes as a message of the stream in which the configuration is kept: an error, or what is written as the same
//! bytes again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_server::KeptConfiguration;

// The first byte says how long the key is; the payload follows it.
fuzz_target!(|data: &[u8]| {
    let Some((&length, rest)) = data.split_first() else { return };
    let (key, payload) = rest.split_at(rest.len().min(usize::from(length)));
    match KeptConfiguration::decode(key, payload) {
        Ok(kept) => {
            let message = kept.message();
            assert_eq!((&message.key[..], &message.payload[..]), (key, payload));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
