//! Any bytes as what the controls of two nodes say to each other, a change of names or its answer: refused with a reason, or decoded to
//! what is sent as the same again. Knows no link.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_server::NameMessage;

fuzz_target!(|data: &[u8]| {
    match NameMessage::decode(Bytes::copy_from_slice(data)) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(message) => {
            let bytes = message.to_bytes().expect("what was decoded can be sent");
            assert_eq!(NameMessage::decode(bytes), Ok(message));
        }
    }
});
