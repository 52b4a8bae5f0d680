//! Any text as a token, and any header and payload with a right signature: a refusal, or claims that the rules allow.
#![no_main]

use std::sync::LazyLock;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use libfuzzer_sys::fuzz_target;
use ring::hmac;
use sennit_identity::{KeySet, TokenKey, TokenRules};
use sennit_model::Timestamp;

const SECRET: [u8; 32] = [7; 32];
const NOW: Timestamp = Timestamp(1_800_000_000_000);

static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let pem = include_bytes!("../../crates/identity/test_keys/rsa_public.pem");
    let mut keys = TokenKey::all_from_pem(pem).expect("a public key");
    keys.push(TokenKey::from_secret(&SECRET).expect("a secret"));
    KeySet::new(keys).expect("two keys")
});

// The header ends at the first newline; the payload follows.
fuzz_target!(|data: &[u8]| {
    let rules = TokenRules::new("https://issuer.example", "sennit").expect("rules");
    if let Ok(text) = std::str::from_utf8(data) {
        assert!(rules.verify(&KEYS, text, NOW).is_err(), "no text has a signature by chance");
    }
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (header, payload) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
    let code = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &SECRET), message.as_bytes());
    let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(code));
    match rules.verify(&KEYS, &token, NOW) {
        Ok(claims) => {
            assert!(!claims.subject.is_empty());
            assert_eq!(&*claims.issuer, rules.issuer());
            assert!(claims.expires_at > NOW);
            assert!(claims.expires_at <= NOW.plus(TokenRules::LIFETIME_MAX + TokenRules::LEEWAY));
        }
        Err(refusal) => {
            assert!(!refusal.to_string().is_empty());
            assert!(refusal.public_message().len() < 40);
        }
    }
});
