//! TLS without sockets: the codec of a connection, PEM files, the settings of both ends, and what to say when they do
//! not understand each other. With the feature `issuing`, certificates are made and described.
//!
//! It does not know what a connection carries, nor who a client is.

#[cfg(feature = "issuing")]
mod authority;
mod broker_settings;
mod client_settings;
mod codec;
#[cfg(feature = "issuing")]
mod description;
mod fault;
mod fingerprint;
mod first_bytes;
mod pem;
mod pinned;

#[cfg(feature = "issuing")]
pub use authority::{Authority, IssuedCertificate, write_secret_file};
pub use broker_settings::{ClientCertificates, server_settings};
pub use client_settings::TlsOptions;
pub use codec::Codec;
#[cfg(feature = "issuing")]
pub use description::CertificateDescription;
pub use fault::TlsFault;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use first_bytes::{ALERT_NOT_TLS, HTTP_PROTOCOLS, begins_tls};
pub use pem::{CertificateFiles, Identity, certificates, certificates_of_file};
pub use rustls::{
    ClientConfig, ServerConfig,
    pki_types::{CertificateDer, ServerName},
};
