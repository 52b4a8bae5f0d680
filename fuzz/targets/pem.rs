//! Any bytes as PEM, as a certificate to describe, and as a fingerprint: an error without the bytes, or what reads the
//! same again. Knows only `sennit-tls`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sennit_tls::{CertificateDer, CertificateDescription, Fingerprint, certificates};

fuzz_target!(|data: &[u8]| {
    match certificates(data, "input") {
        Ok(found) => {
            assert!(!found.is_empty());
            for certificate in &found {
                let _ = CertificateDescription::of(certificate);
            }
        }
        Err(fault) => assert!(fault.to_string().starts_with("input ")),
    }
    let certificate = CertificateDer::from(data.to_vec());
    let _ = CertificateDescription::of(&certificate);
    let printed = Fingerprint::of(&certificate);
    assert_eq!(printed.to_string().parse(), Ok(printed));
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(fingerprint) = text.parse::<Fingerprint>()
    {
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }
});
