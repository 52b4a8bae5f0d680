//! Any bytes as a client certificate, and as a name that a user accepts: an error, or names within the limits and without
//! control characters, which are read as they are written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_identity::{
    CertificateName, CertificateSubject,
    limits::{CERTIFICATE_NAME_BYTES_MAX, CERTIFICATE_NAMES_MAX},
};

fuzz_target!(|data: &[u8]| {
    if let Some(name) = std::str::from_utf8(data).ok().and_then(|text| text.parse().ok()) {
        is_read_as_written(&name);
    }
    let Ok(subject) = CertificateSubject::parse(data) else { return };
    let alternatives = [&subject.hosts, &subject.uris, &subject.emails];
    assert!(alternatives.iter().map(|names| names.len()).sum::<usize>() <= CERTIFICATE_NAMES_MAX);
    for name in alternatives.into_iter().flatten().chain(&subject.common_name) {
        assert!((1..=CERTIFICATE_NAME_BYTES_MAX).contains(&name.len()));
        assert!(!name.chars().any(char::is_control));
    }
    subject.names().for_each(|name| is_read_as_written(&name));
    assert_eq!(subject.fingerprint.to_string().len(), 64);
});

fn is_read_as_written(name: &CertificateName) {
    assert_eq!(name.as_str().parse().as_ref(), Ok(name));
}
