//! Any bytes as a sealed message and as a file of keys: a refusal that says why, or what was sealed; and keys whose text is
//! the same.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use sennit_seal::{KeyRing, Sealer, is_sealed};

/// Made for this.
static RING: LazyLock<KeyRing> = LazyLock::new(|| {
    let keys = "sennit-channel-key:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA
        sennit-recipient-private-key:nh2rL3WGQ0f-9QoVCMOBJZCOHJNbXd831tAJThsebhEEakfUc_7oxb6BHubDoWMpHl2ZXBgZxa-vrsUVrgnl26zLbFQtIofpGG3K-GNhLYoHN8BWpQPaMYk3guOYFOtw2g";
    KeyRing::from_text(keys).expect("these are keys")
});

fuzz_target!(|data: &[u8]| {
    match RING.open("news", data) {
        // Nobody guesses a tag: it is one of the seeds.
        Ok(opened) => {
            assert!(is_sealed(data));
            assert!(opened.payload.len() < data.len() && opened.signed_by.is_none());
        }
        Err(refused) => assert!(!refused.to_string().is_empty() && !refused.code().is_empty()),
    }
    let Ok(text) = std::str::from_utf8(data) else { return };
    match KeyRing::from_text(text) {
        Ok(ring) => {
            assert_eq!(KeyRing::from_text(&ring.to_text()), Ok(ring.clone()));
            if let Ok(sealer) = Sealer::new(&ring) {
                let message = sealer.seal("news", data, 7).expect("it has room");
                // Who has the channel's key, or is a recipient, opens it; others are told.
                let opened = ring.open("news", &message);
                assert!(opened.is_err() || opened.is_ok_and(|opened| opened.payload == data));
            }
        }
        Err(refused) => assert!(!refused.to_string().is_empty()),
    }
});
