//! Messages between brokers that share a Redis: whatever comes is refused, or is what it becomes again.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use sennit_server::RelayMessage;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = RelayMessage::decode(Bytes::copy_from_slice(bytes)) {
        assert_eq!(message.encode(), bytes);
    }
});
