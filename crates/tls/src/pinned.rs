//! Trust by fingerprint: a client takes the certificate that is pinned, whatever it is for, or one for the broker's
//! name that the pinned authority has signed.

use std::sync::Arc;

use rustls::{
    DigitallySignedStruct, Error as Rustls, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::{fault::TlsFault, fingerprint::Fingerprint};

/// Verifies that a server's chain has the pinned certificate.
#[derive(Debug)]
pub(crate) struct PinnedVerifier {
    pub(crate) pinned: Fingerprint,
    pub(crate) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for PinnedVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Rustls> {
        let found = Fingerprint::of(end_entity);
        if found == self.pinned {
            return Ok(ServerCertVerified::assertion());
        }
        let is_pinned = |other: &&CertificateDer<'_>| Fingerprint::of(other) == self.pinned;
        let Some(authority) = intermediates.iter().find(is_pinned) else {
            let fault = TlsFault::Pin { pinned: self.pinned, found };
            return Err(Rustls::Other(OtherError(Arc::new(fault))));
        };
        // It is not enough that the chain shows the authority: it has to have signed.
        let mut roots = RootCertStore::empty();
        roots.add(authority.clone().into_owned())?;
        let provider = self.provider.clone();
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| Rustls::General(error.to_string()))?;
        verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Rustls> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Rustls> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
