//! The names in a client certificate: what `rustls` has found to be signed by a trusted issuer says who the client is. It checks no
//! signature and no time.

use std::fmt;

use ring::digest;
use sennit_model::Timestamp;
use x509_cert::{
    Certificate,
    der::{Decode as _, oid::ObjectIdentifier},
    ext::pkix::{
        SubjectAltName,
        name::{DirectoryString, GeneralName},
    },
};

use crate::limits::{CERTIFICATE_BYTES_MAX, CERTIFICATE_NAME_BYTES_MAX, CERTIFICATE_NAMES_MAX};

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// The reason why a certificate names nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// It is too long.
    #[error(
        "a certificate of {length} bytes is too long: CERTIFICATE_BYTES_MAX is {CERTIFICATE_BYTES_MAX}"
    )]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// It is damaged, or no certificate.
    #[error("not a certificate: X.509 in DER, as RFC 5280 has it")]
    Malformed,
    /// It has two common names, and nobody can tell which one is meant.
    #[error("the certificate has more than one common name")]
    TwoCommonNames,
    /// It has too many names.
    #[error("the certificate has more than {CERTIFICATE_NAMES_MAX} names (CERTIFICATE_NAMES_MAX)")]
    TooManyNames,
    /// A name is empty, too long, or has control characters.
    #[error(
        "a name in the certificate is empty, has control characters or more than {CERTIFICATE_NAME_BYTES_MAX} bytes (CERTIFICATE_NAME_BYTES_MAX)"
    )]
    Name,
}

/// The SHA-256 of a certificate in DER.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificateFingerprint(pub [u8; 32]);

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CertificateFingerprint({self})")
    }
}

/// The names of a client in its certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateSubject {
    /// The common name (CN) of the subject.
    pub common_name: Option<Box<str>>,
    /// Alternative names: hosts.
    pub hosts: Vec<Box<str>>,
    /// Alternative names: URIs, as those of SPIFFE.
    pub uris: Vec<Box<str>>,
    /// Alternative names: email addresses.
    pub emails: Vec<Box<str>>,
    /// The SHA-256 of the certificate.
    pub fingerprint: CertificateFingerprint,
    /// When the certificate's time begins.
    pub not_before: Timestamp,
    /// When the certificate's time is over. What was opened with it ends then.
    pub expires_at: Timestamp,
}

impl CertificateSubject {
    /// The names in a certificate (DER).
    ///
    /// # Errors
    /// It is damaged, or has names that nobody should have.
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        if der.len() > CERTIFICATE_BYTES_MAX {
            return Err(CertificateError::TooLong { length: der.len() });
        }
        let malformed = |_| CertificateError::Malformed;
        let certificate = Certificate::from_der(der).map_err(malformed)?;
        let certificate = certificate.tbs_certificate();
        let mut common_names =
            certificate.subject().iter().filter(|attribute| attribute.oid == COMMON_NAME);
        let common_name = match (common_names.next(), common_names.next()) {
            (None, _) => None,
            (Some(attribute), None) => {
                let text = DirectoryString::try_from(&attribute.value).map_err(malformed)?;
                Some(name(&text.value())?)
            }
            (Some(_), Some(_)) => return Err(CertificateError::TwoCommonNames),
        };
        let (mut hosts, mut uris, mut emails) = (Vec::new(), Vec::new(), Vec::new());
        let alternatives = certificate.get_extension::<SubjectAltName>().map_err(malformed)?;
        for (index, alternative) in
            alternatives.iter().flat_map(|(_, alternatives)| &alternatives.0).enumerate()
        {
            if index == CERTIFICATE_NAMES_MAX {
                return Err(CertificateError::TooManyNames);
            }
            match alternative {
                GeneralName::DnsName(host) => hosts.push(name(host.as_str())?),
                GeneralName::UniformResourceIdentifier(uri) => uris.push(name(uri.as_str())?),
                GeneralName::Rfc822Name(email) => emails.push(name(email.as_str())?),
                _ => {}
            }
        }
        let mut fingerprint = [0; 32];
        fingerprint.copy_from_slice(digest::digest(&digest::SHA256, der).as_ref());
        let time = |time: x509_cert::time::Time| {
            let seconds = time.to_unix_duration().as_secs();
            Timestamp(seconds.saturating_mul(1000))
        };
        let validity = certificate.validity();
        Ok(Self {
            common_name,
            hosts,
            uris,
            emails,
            fingerprint: CertificateFingerprint(fingerprint),
            not_before: time(validity.not_before),
            expires_at: time(validity.not_after),
        })
    }
}

/// A name that a person can read: without the characters by which one name is made to look like another.
fn name(text: &str) -> Result<Box<str>, CertificateError> {
    let is_name = (1..=CERTIFICATE_NAME_BYTES_MAX).contains(&text.len());
    if is_name && !text.chars().any(char::is_control) {
        Ok(text.into())
    } else {
        Err(CertificateError::Name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BILLING: &[u8] = include_bytes!("../test_keys/billing.der");
    const TWO_NAMES: &[u8] = include_bytes!("../test_keys/two_names.der");
    const NO_NAME: &[u8] = include_bytes!("../test_keys/no_name.der");

    /// The certificate with `from` replaced by `to`, which is as long.
    fn changed(from: &[u8], to: &[u8]) -> Vec<u8> {
        let mut der = BILLING.to_vec();
        let places: Vec<_> = (0..der.len()).filter(|at| der[*at..].starts_with(from)).collect();
        assert!(!places.is_empty() && from.len() == to.len());
        for at in places {
            der[at..at + to.len()].copy_from_slice(to);
        }
        der
    }

    #[test]
    fn the_names_of_a_certificate_are_read() {
        let subject = CertificateSubject::parse(BILLING).unwrap();
        assert_eq!(subject.common_name.as_deref(), Some("billing"));
        assert_eq!(subject.hosts, ["billing.internal".into()]);
        assert_eq!(subject.uris, ["spiffe://sennit/billing".into()]);
        assert_eq!(subject.emails, ["billing@example.com".into()]);
        assert_eq!(
            subject.fingerprint.to_string(),
            "419c0fbda3ac4cc7cc86bed6bcb5460ec81f5795fa4465caabc0f36f24d14357"
        );
        assert_eq!(
            (subject.not_before, subject.expires_at),
            (Timestamp(1_795_717_970_000), Timestamp(2_111_077_970_000))
        );
    }

    #[test]
    fn a_certificate_may_have_no_name() {
        let subject = CertificateSubject::parse(NO_NAME).unwrap();
        assert_eq!(subject.common_name, None);
        assert!(subject.hosts.is_empty() && subject.uris.is_empty() && subject.emails.is_empty());
    }

    #[test]
    fn names_that_mislead_are_refused() {
        assert_eq!(CertificateSubject::parse(TWO_NAMES), Err(CertificateError::TwoCommonNames));
        for der in [
            changed(b"billing.internal", b"billing\0internal"),
            changed(b"spiffe://sennit/billing", b"spiffe://sennit/\nilling"),
            changed(b"billing@example.com", b"billing@example.co\0"),
        ] {
            assert_eq!(CertificateSubject::parse(&der), Err(CertificateError::Name));
        }
    }

    #[test]
    fn what_is_no_certificate_is_refused() {
        for der in
            [&b""[..], b"0", b"-----BEGIN CERTIFICATE-----", &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]]
        {
            assert_eq!(CertificateSubject::parse(der), Err(CertificateError::Malformed));
        }
        for length in 0..BILLING.len() {
            assert!(CertificateSubject::parse(&BILLING[..length]).is_err());
        }
        let long = vec![0x30; CERTIFICATE_BYTES_MAX + 1];
        let refused = CertificateError::TooLong { length: long.len() };
        assert_eq!(CertificateSubject::parse(&long), Err(refused));
    }

    #[test]
    fn any_changed_byte_is_read_or_refused() {
        for at in 0..BILLING.len() {
            for change in [1, 0x80, 0xff] {
                let mut der = BILLING.to_vec();
                der[at] ^= change;
                let _ = CertificateSubject::parse(&der);
            }
        }
    }
}
