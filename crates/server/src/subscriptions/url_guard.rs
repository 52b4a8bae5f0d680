//! The addresses that the broker may call for webhooks: servers in the public internet, over TLS. A name is
//! resolved for each call, and exactly the checked address is called, so that a name cannot change between check
//! and use.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Uri;

use super::name_lookup::Lookups;
use super::request::{UrlRejected, limits::WEBHOOK_URL_BYTES_MAX};

/// A webhook's address, checked as far as it can be without asking what its name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) is_tls: bool,
    /// A name or an address, without brackets.
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// What the `Host` header says.
    pub(crate) authority: Box<str>,
    pub(crate) path: Box<str>,
    /// Whether this machine itself may be called, and without TLS.
    allows_loopback: bool,
}

/// Why a name is not called now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LookupFailure {
    /// What it stands for is not called.
    #[error(transparent)]
    Rejected(#[from] UrlRejected),
    /// It stands for nothing, or nobody knows.
    #[error("{0} was not found: {1}")]
    Unknown(Box<str>, std::io::Error),
}

impl Target {
    /// The target that `url` is. Where loopback is allowed, which is for development, it may be called
    /// without TLS too.
    pub(crate) fn parse(url: &str, allows_loopback: bool) -> Result<Self, UrlRejected> {
        if url.len() > WEBHOOK_URL_BYTES_MAX {
            return Err(UrlRejected::TooLong);
        }
        let uri: Uri = url.parse().map_err(|_| UrlRejected::Malformed)?;
        let authority = uri.authority().ok_or(UrlRejected::Malformed)?;
        if authority.as_str().contains('@') || url.contains('#') {
            return Err(UrlRejected::Malformed);
        }
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") if allows_loopback => false,
            Some("http") => return Err(UrlRejected::NotTls),
            _ => return Err(UrlRejected::Malformed),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let has_port = authority.as_str().len() > authority.host().len();
        let port = authority.port_u16().filter(|port| *port > 0);
        let port = match (port, has_port) {
            (Some(port), _) => port,
            (None, true) => return Err(UrlRejected::Malformed),
            (None, false) => {
                if is_tls {
                    443
                } else {
                    80
                }
            }
        };
        if host.is_empty() {
            return Err(UrlRejected::Malformed);
        }
        let target = Self {
            is_tls,
            host: host.into(),
            port,
            authority: authority.as_str().into(),
            path: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).into(),
            allows_loopback,
        };
        if let Ok(address) = target.host.parse() {
            target.check(address)?;
        }
        Ok(target)
    }

    /// The addresses that the host stands for now. If one of them must not be called, none is.
    pub(crate) async fn look_up(
        &self,
        lookups: &Lookups,
    ) -> Result<Vec<SocketAddr>, LookupFailure> {
        let unknown = |error| LookupFailure::Unknown(self.host.clone(), error);
        let found = lookups.ask(&self.host, self.port).await.map_err(unknown)?;
        if found.is_empty() {
            return Err(unknown(std::io::ErrorKind::NotFound.into()));
        }
        for address in &found {
            self.check(address.ip())?;
        }
        Ok(found)
    }

    fn check(&self, address: IpAddr) -> Result<(), UrlRejected> {
        let is_loopback = address.to_canonical().is_loopback();
        if is_loopback && self.allows_loopback || self.is_tls && is_public(address) {
            return Ok(());
        }
        if is_public(address) {
            return Err(UrlRejected::NotTls);
        }
        Err(UrlRejected::NotPublic(address))
    }
}

/// Whether an address lies in the public internet: neither this machine nor its neighbours, where others
/// rely on nobody getting in.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// As IANA's registry of special addresses has it (RFC 6890 and those after it).
fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127 | 224..=255, _, _)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 168, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
    )
}

/// What is given out to networks, without what is only a way to an address of another kind or to
/// nobody.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, c, ..] = address.segments();
    let is_given_out = a & 0xe000 == 0x2000;
    let is_special = matches!(
        (a, b, c),
        (0x2001, 0..=0x1ff | 0xdb8, _) | (0x2002, _, _) | (0x3fff, 0..=0xfff, _)
    );
    is_given_out && !is_special
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Target, UrlRejected> {
        Target::parse(url, false)
    }

    #[test]
    fn a_target_is_an_https_address() {
        let target = parse("https://example.com/hook?a=b").unwrap();
        assert_eq!((&*target.host, target.port, &*target.path), ("example.com", 443, "/hook?a=b"));
        let target = parse("https://[2606:4700::1111]:8443").unwrap();
        assert_eq!((&*target.host, target.port, &*target.path), ("2606:4700::1111", 8443, "/"));
        for (url, why) in [
            ("", UrlRejected::Malformed),
            ("/hook", UrlRejected::Malformed),
            ("example.com", UrlRejected::Malformed),
            ("ftp://example.com", UrlRejected::Malformed),
            ("file:///etc/passwd", UrlRejected::Malformed),
            ("https://user:secret@example.com", UrlRejected::Malformed),
            ("https://example.com/#part", UrlRejected::Malformed),
            ("https://example.com:0/", UrlRejected::Malformed),
            ("https://example.com:99999/", UrlRejected::Malformed),
            ("http://example.com", UrlRejected::NotTls),
            ("http://10.0.0.1/hook", UrlRejected::NotTls),
        ] {
            assert_eq!(parse(url), Err(why), "{url}");
        }
    }

    #[test]
    fn what_is_not_in_the_public_internet_is_not_called() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "127.0.0.1",
            "100.64.0.1",
            "100.127.255.255",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::a00:1",
            "fe80::1",
            "fec0::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2001:1ff::1",
            "2002:7f00:1::1",
            "3fff::1",
            "100::1",
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert!(!is_public(address), "{address}");
            let url = match address {
                IpAddr::V4(address) => format!("https://{address}/"),
                IpAddr::V6(address) => format!("https://[{address}]/"),
            };
            assert_eq!(parse(&url), Err(UrlRejected::NotPublic(address)));
        }
        for address in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn for_development_this_machine_may_be_called_and_nothing_else() {
        for url in ["http://127.0.0.1:9/hook", "http://[::1]:9/", "https://127.0.0.1/"] {
            assert!(Target::parse(url, true).is_ok(), "{url}");
            assert!(Target::parse(url, false).is_err(), "{url}");
        }
        for url in ["http://10.0.0.1/", "https://10.0.0.1/", "http://8.8.8.8/", "http://[fe80::1]/"]
        {
            assert!(Target::parse(url, true).is_err(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_name_is_what_it_stands_for() {
        let lookups = Lookups::new(1);
        let target = parse("https://localhost/").unwrap();
        let refused = target.look_up(&lookups).await.unwrap_err();
        assert!(matches!(refused, LookupFailure::Rejected(UrlRejected::NotPublic(_))), "{refused}");
        let allowed = Target::parse("http://localhost:9/", true).unwrap();
        assert!(
            allowed.look_up(&lookups).await.unwrap().iter().all(|found| found.ip().is_loopback())
        );
        // Other spellings of an address are what they stand for too.
        for spelling in ["https://2130706433/", "https://0x7f.1/", "https://127.1/"] {
            if let Ok(target) = parse(spelling) {
                assert!(target.look_up(&lookups).await.is_err(), "{spelling}");
            }
        }
    }
}
