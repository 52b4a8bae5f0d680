//! The settings of a server: its certificate, and whether clients show theirs.

use std::{path::Path, sync::Arc};

use rustls::{
    ServerConfig,
    crypto::ring::Ticketer,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

use crate::{
    client_settings::{provider, roots_of},
    fault::TlsFault,
    pem::Identity,
};

/// Whether clients show certificates of their own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    Off,
    /// They may; a certificate that is shown has to be good.
    Optional,
    /// They must.
    Required,
}

/// The settings of connections that are served under `identity` and offer these protocols by ALPN. Client
/// certificates have to be from the authorities of the file `client_ca`. Sessions can be resumed by ticket.
///
/// # Errors
/// Key and certificate do not fit, or the authorities are none.
pub fn server_settings(
    identity: Identity,
    clients: ClientCertificates,
    client_ca: Option<&Path>,
    protocols: &[&[u8]],
) -> Result<Arc<ServerConfig>, TlsFault> {
    let builder =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
    let builder = match clients {
        ClientCertificates::Off => builder.with_no_client_auth(),
        asked => builder.with_client_cert_verifier(verifier(asked, client_ca)?),
    };
    let name = identity.key_source;
    let mut settings = builder
        .with_single_cert(identity.chain, identity.key)
        .map_err(|error| TlsFault::Key { source_name: name, reason: error.to_string() })?;
    settings.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    settings.ticketer = Ticketer::new()?;
    Ok(Arc::new(settings))
}

fn verifier(
    clients: ClientCertificates,
    client_ca: Option<&Path>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsFault> {
    let Some(path) = client_ca else {
        return Err(TlsFault::Settings(
            "--tls-client needs --tls-client-ca FILE: the authorities whose client certificates are good",
        ));
    };
    let roots = Arc::new(roots_of(path)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider());
    let builder = match clients {
        ClientCertificates::Optional => builder.allow_unauthenticated(),
        ClientCertificates::Off | ClientCertificates::Required => builder,
    };
    builder.build().map_err(|error| TlsFault::Authority {
        source_name: path.display().to_string(),
        reason: error.to_string(),
    })
}
