//! The settings of a client: whom it trusts, and the certificate that it shows.

use std::{path::PathBuf, sync::Arc};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring::default_provider},
    pki_types::ServerName,
};

use crate::{
    fault::TlsFault,
    fingerprint::Fingerprint,
    pem::{CertificateFiles, certificates_of_file},
    pinned::PinnedVerifier,
};

/// How a client speaks TLS. By default it trusts the authorities that its machine trusts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// A PEM file with the authorities to trust, instead of the machine's.
    pub ca: Option<PathBuf>,
    /// The fingerprint of the broker's certificate, or of the authority in its chain; instead of `ca`.
    pub fingerprint: Option<Fingerprint>,
    /// The certificate that the client shows to a broker that asks for one.
    pub certificate: Option<CertificateFiles>,
    /// The name that the broker's certificate is for, if it is not the host of its address.
    pub server_name: Option<String>,
}

impl TlsOptions {
    /// The settings of connections that offer these protocols by ALPN. Reads files.
    ///
    /// # Errors
    /// A file is not what it should be, or nobody is trusted.
    pub fn client_settings(&self, protocols: &[&[u8]]) -> Result<Arc<ClientConfig>, TlsFault> {
        let provider = Arc::new(default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?;
        let builder = match (self.fingerprint, &self.ca) {
            (Some(_), Some(_)) => {
                return Err(TlsFault::Settings(
                    "--tls-ca and --tls-fingerprint exclude each other: the fingerprint alone decides",
                ));
            }
            (Some(pinned), None) => {
                let verifier = Arc::new(PinnedVerifier { pinned, provider: provider.clone() });
                builder.dangerous().with_custom_certificate_verifier(verifier)
            }
            (None, Some(_)) | (None, None) => builder.with_root_certificates(self.roots()?),
        };
        let mut settings = match &self.certificate {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let identity = files.read()?;
                let name = identity.key_source;
                builder.with_client_auth_cert(identity.chain, identity.key).map_err(|error| {
                    TlsFault::Key { source_name: name, reason: error.to_string() }
                })?
            }
        };
        settings.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(Arc::new(settings))
    }

    /// The name that the certificate of the broker at `address`, host and port, has to be for.
    ///
    /// # Errors
    /// It is none that a certificate can have.
    pub fn name_of(&self, address: &str) -> Result<ServerName<'static>, TlsFault> {
        let host = match &self.server_name {
            Some(name) => name.as_str(),
            None => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                host.trim_start_matches('[').trim_end_matches(']')
            }
        };
        ServerName::try_from(host.to_owned()).map_err(|_| TlsFault::Name { name: host.to_owned() })
    }

    fn roots(&self) -> Result<RootCertStore, TlsFault> {
        match &self.ca {
            Some(path) => roots_of(path),
            None => {
                let found = rustls_native_certs::load_native_certs();
                let mut roots = RootCertStore::empty();
                let (taken, _) = roots.add_parsable_certificates(found.certs);
                match taken {
                    0 => {
                        let first = found.errors.first().map(ToString::to_string);
                        let reason = first.unwrap_or_else(|| "none was found".into());
                        Err(TlsFault::NoRoots { reason })
                    }
                    _ => Ok(roots),
                }
            }
        }
    }
}

/// The authorities of a PEM file.
pub(crate) fn roots_of(path: &std::path::Path) -> Result<RootCertStore, TlsFault> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates_of_file(path)? {
        roots.add(certificate).map_err(|error| TlsFault::Authority {
            source_name: path.display().to_string(),
            reason: error.to_string(),
        })?;
    }
    Ok(roots)
}

/// The cryptography of both ends.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_broker_is_the_host_of_its_address_unless_another_is_given() {
        let name = |options: &TlsOptions, address: &str| {
            options.name_of(address).map(|name| name.to_str().into_owned()).ok()
        };
        let plain = TlsOptions::default();
        assert_eq!(name(&plain, "broker.example:4438").as_deref(), Some("broker.example"));
        assert_eq!(name(&plain, "[::1]:4438").as_deref(), Some("::1"));
        assert_eq!(name(&plain, "127.0.0.1:4438").as_deref(), Some("127.0.0.1"));
        assert_eq!(name(&plain, "no spaces:4438"), None);
        let named = TlsOptions { server_name: Some("b.example".into()), ..plain };
        assert_eq!(name(&named, "127.0.0.1:4438").as_deref(), Some("b.example"));
    }
}
