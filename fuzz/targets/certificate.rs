//! Any bytes as a client certificate: an error, or names within the limits and without control characters.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_identity::{
    CertificateSubject,
    limits::{CERTIFICATE_NAME_BYTES_MAX, CERTIFICATE_NAMES_MAX},
};

fuzz_target!(|data: &[u8]| {
    let Ok(subject) = CertificateSubject::parse(data) else { return };
    let alternatives = [&subject.hosts, &subject.uris, &subject.emails];
    assert!(alternatives.iter().map(|names| names.len()).sum::<usize>() <= CERTIFICATE_NAMES_MAX);
    for name in alternatives.into_iter().flatten().chain(&subject.common_name) {
        assert!((1..=CERTIFICATE_NAME_BYTES_MAX).contains(&name.len()));
        assert!(!name.chars().any(char::is_control));
    }
    assert_eq!(subject.fingerprint.to_string().len(), 64);
});
