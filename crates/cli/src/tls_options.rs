//! The options of TLS with a broker: whom to trust, and the certificate to show. Both ports share them.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use sennit_client::{CertificateFiles, Fingerprint, TlsOptions};

/// TLS with the broker.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TlsArgs {
    /// Connect by TLS. The broker's certificate is verified with the authorities that this machine
    /// trusts, unless another option says whom to trust; these options imply this one
    #[arg(long, env = "SENNIT_TLS", value_parser = FalseyValueParser::new())]
    #[arg(global = true, help_heading = "TLS")]
    tls: bool,
    /// Trust the authorities of this PEM file instead
    #[arg(long, value_name = "FILE", env = "SENNIT_TLS_CA", conflicts_with = "tls_fingerprint")]
    #[arg(global = true, help_heading = "TLS")]
    tls_ca: Option<PathBuf>,
    /// Trust the certificate with this fingerprint instead, or what the authority with it has
    /// signed for the broker's name: SHA256: and 64 hexadecimal digits
    #[arg(long, value_name = "FINGERPRINT", env = "SENNIT_TLS_FINGERPRINT")]
    #[arg(global = true, help_heading = "TLS")]
    tls_fingerprint: Option<Fingerprint>,
    /// The certificate to show if the broker asks for one: two PEM files, the chain and its key
    #[arg(long, value_name = "CERT,KEY", env = "SENNIT_TLS_CERT")]
    #[arg(global = true, help_heading = "TLS")]
    tls_cert: Option<CertificateFiles>,
    /// The name that the broker's certificate is for, if it is not the host of its address
    #[arg(long, value_name = "NAME", env = "SENNIT_TLS_SERVER_NAME")]
    #[arg(global = true, help_heading = "TLS")]
    tls_server_name: Option<String>,
}

impl TlsArgs {
    /// How to speak TLS with a broker whose address asks for it or not; `None` for plain TCP.
    pub fn options(&self, is_asked: bool) -> Option<TlsOptions> {
        let Self { tls, tls_ca, tls_fingerprint, tls_cert, tls_server_name } = self.clone();
        let is_implied = tls_ca.is_some()
            || tls_fingerprint.is_some()
            || tls_cert.is_some()
            || tls_server_name.is_some();
        (tls || is_asked || is_implied).then_some(TlsOptions {
            ca: tls_ca,
            fingerprint: tls_fingerprint,
            certificate: tls_cert,
            server_name: tls_server_name,
        })
    }
}
