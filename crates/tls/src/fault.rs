//! What is wrong with certificates, keys and peers, in words that say what would be right. It shows no key.

use std::{io, path::PathBuf};

use rustls::{AlertDescription, CertificateError, Error as Rustls, PeerIncompatible};

use crate::fingerprint::Fingerprint;

/// Why TLS cannot be set up, or a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum TlsFault {
    /// A file cannot be read.
    #[error("cannot read {}: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// A file is longer than PEM files are.
    #[error("{} is longer than {limit} bytes: it is no PEM file of certificates or of a key", path.display())]
    Long {
        /// The file.
        path: PathBuf,
        /// Most bytes of a file.
        limit: u64,
    },
    /// A file is not PEM.
    #[error("{source_name} is not PEM: {reason}")]
    Pem {
        /// Where the text is from.
        source_name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A file has no certificate.
    #[error(
        "{source_name} has no certificate; it begins with -----BEGIN CERTIFICATE-----, the chain's first first"
    )]
    NoCertificate {
        /// Where the text is from.
        source_name: String,
    },
    /// A file has no private key.
    #[error(
        "{source_name} has no private key; it begins with -----BEGIN PRIVATE KEY----- and is not encrypted"
    )]
    NoKey {
        /// Where the text is from.
        source_name: String,
    },
    /// A key is not that of its certificate, or cannot be used.
    #[error("the key of {source_name} does not fit: {reason}")]
    Key {
        /// Where the key is from.
        source_name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate cannot be used as an authority.
    #[error("{source_name} is no authority: {reason}")]
    Authority {
        /// Where the certificate is from.
        source_name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// This machine trusts nobody.
    #[error(
        "this machine has no trusted authorities ({reason}); name one with --tls-ca FILE, or pin the broker with --tls-fingerprint"
    )]
    NoRoots {
        /// What was found.
        reason: String,
    },
    /// A host name cannot be in a certificate.
    #[error("{name:?} is no name that a certificate can have; use a host name or an IP address")]
    Name {
        /// The name.
        name: String,
    },
    /// A certificate could not be made.
    #[error("cannot make a certificate: {reason}")]
    Issue {
        /// Why not.
        reason: String,
    },
    /// The settings do not go together.
    #[error("{0}")]
    Settings(&'static str),
    /// The pinned certificate did not come.
    #[error(
        "the broker's certificate is {found}, which is not the pinned {pinned}; someone may be in between, or the broker has a new certificate: ask whoever runs it"
    )]
    Pin {
        /// What was pinned.
        pinned: Fingerprint,
        /// The certificate that came.
        found: Fingerprint,
    },
    /// The handshake failed.
    #[error("{}", explained(.0))]
    Handshake(#[from] Rustls),
}

impl TlsFault {
    /// What the fault of a handshake means to whoever runs the broker.
    #[must_use]
    pub fn seen_by_broker(&self) -> String {
        match self {
            Self::Handshake(Rustls::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                "the client's certificate is from no authority of --tls-client-ca".into()
            }
            Self::Handshake(Rustls::InvalidCertificate(error)) => {
                format!("the client's certificate is not good: {error}")
            }
            Self::Handshake(Rustls::NoCertificatesPresented) => {
                "the client showed no certificate, and --tls-client requires one".into()
            }
            fault => fault.to_string(),
        }
    }

    /// Whether the peer seems to speak something else than TLS.
    #[must_use]
    pub fn is_not_tls(&self) -> bool {
        matches!(
            self,
            Self::Handshake(
                Rustls::InvalidMessage(_)
                    | Rustls::AlertReceived(
                        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion
                    )
            )
        )
    }
}

/// What a failed handshake means to the one who has to do something about it.
fn explained(error: &Rustls) -> String {
    match error {
        Rustls::InvalidCertificate(error) => certificate(error),
        Rustls::AlertReceived(AlertDescription::CertificateRequired) => {
            "the broker asks for a client certificate: give one with --tls-cert CERT,KEY".into()
        }
        Rustls::AlertReceived(AlertDescription::UnknownCA) => {
            "the other side does not trust the authority of the certificate that it was shown"
                .into()
        }
        Rustls::AlertReceived(AlertDescription::CertificateExpired) => {
            "the other side says that the certificate it was shown has expired".into()
        }
        Rustls::AlertReceived(alert) => format!("the other side ended the handshake: {alert:?}"),
        Rustls::InvalidMessage(_) => "the other side does not speak TLS".into(),
        Rustls::NoCertificatesPresented => "the client showed no certificate".into(),
        Rustls::PeerIncompatible(PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig) => {
            "the other side speaks neither TLS 1.3 nor 1.2".into()
        }
        Rustls::Other(error) => error.to_string(),
        error => error.to_string(),
    }
}

fn certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the certificate has expired ({error})")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the certificate is not valid yet, or this machine's clock is behind ({error})")
        }
        CertificateError::UnknownIssuer => {
            "the certificate is from an authority that is not trusted here: name the authority's certificate with --tls-ca FILE, or pin the certificate with --tls-fingerprint SHA256:...".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("the certificate is for another name ({error})")
        }
        CertificateError::Other(error) => error.0.to_string(),
        error => format!("the certificate is not good: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_not_tls_is_told_from_a_certificate_that_is_not_trusted() {
        let other =
            TlsFault::from(Rustls::InvalidMessage(rustls::InvalidMessage::InvalidContentType));
        assert!(other.is_not_tls());
        let alert = TlsFault::from(Rustls::AlertReceived(AlertDescription::HandshakeFailure));
        assert!(alert.is_not_tls());
        let unknown = TlsFault::from(Rustls::InvalidCertificate(CertificateError::UnknownIssuer));
        assert!(!unknown.is_not_tls());
        assert!(unknown.to_string().contains("--tls-ca"), "{unknown}");
    }
}
