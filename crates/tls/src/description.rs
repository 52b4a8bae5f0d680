//! The description of a certificate for people: whose it is, for which names, from when until when.

use std::net::{Ipv4Addr, Ipv6Addr};

use rustls::pki_types::CertificateDer;
use x509_parser::{extensions::GeneralName, prelude::X509Certificate};

use crate::{fault::TlsFault, fingerprint::Fingerprint};

/// A certificate, described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateDescription {
    /// Whose it is.
    pub subject: String,
    /// Who has signed it.
    pub issuer: String,
    /// The host names and addresses that it is for.
    pub names: Vec<String>,
    /// The second, since 1970, from which on it is valid.
    pub valid_from: i64,
    /// The second, since 1970, of its end.
    pub valid_until: i64,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// The hash of its bytes.
    pub fingerprint: Fingerprint,
}

impl CertificateDescription {
    /// Describes a certificate. Nothing is verified.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of(certificate: &CertificateDer<'_>) -> Result<Self, TlsFault> {
        let unreadable =
            |reason: String| TlsFault::Pem { source_name: "a certificate".into(), reason };
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate)
            .map_err(|error| unreadable(error.to_string()))?;
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            names: names(&parsed),
            valid_from: parsed.validity().not_before.timestamp(),
            valid_until: parsed.validity().not_after.timestamp(),
            is_authority: parsed.is_ca(),
            fingerprint: Fingerprint::of(certificate),
        })
    }
}

fn names(parsed: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = parsed.subject_alternative_name() else { return Vec::new() };
    extension.value.general_names.iter().filter_map(name).collect()
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) | GeneralName::RFC822Name(name) | GeneralName::URI(name) => {
            Some((*name).to_owned())
        }
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(|bytes| Ipv4Addr::from(bytes).to_string());
            v4.or_else(|_| {
                <[u8; 16]>::try_from(*bytes).map(|bytes| Ipv6Addr::from(bytes).to_string())
            })
            .ok()
        }
        _ => None,
    }
}
