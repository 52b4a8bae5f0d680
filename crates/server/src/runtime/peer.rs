//! The peer of a connection: the address that it comes from, and the certificate that TLS has verified. It does not know who
//! that is.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

/// The peer of a connection.
#[derive(Clone, Default)]
pub(crate) struct Peer {
    address: Option<IpAddr>,
    certificate: Option<Arc<[u8]>>,
}

impl Peer {
    /// The peer at this address, with the certificate (DER) that it has shown.
    pub(crate) fn new(address: Option<IpAddr>, certificate: Option<Arc<[u8]>>) -> Self {
        Self { address, certificate }
    }

    /// The address. All peers that are gone before it was asked for have one.
    pub(crate) fn address(&self) -> IpAddr {
        self.address.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
    }

    /// The certificate in DER. A trusted authority has signed it, and it counted when the connection began.
    pub(crate) fn certificate(&self) -> Option<&[u8]> {
        self.certificate.as_deref()
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has_certificate = self.certificate.is_some();
        let mut shown = f.debug_struct("Peer");
        shown.field("address", &self.address).field("has_certificate", &has_certificate).finish()
    }
}
