//! The origins that may use a route. A browser names the origin of a page in each request whose answer the page may
//! read or that changes something. It knows no hosts but those of origins.

use std::{fmt, str::FromStr};

use super::host_name::HostName;

/// Pages that an operator allows to use streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpOrigin {
    /// All pages, to read.
    All,
    /// The pages of one origin, to read and to change.
    One(Box<str>),
}

/// A text that names no origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no origin: write https://app.example.com, or * for all pages, to read")]
pub struct HttpOriginError {
    /// What was given.
    pub text: String,
}

impl FromStr for HttpOrigin {
    type Err = HttpOriginError;

    fn from_str(text: &str) -> Result<Self, HttpOriginError> {
        if text == "*" {
            return Ok(Self::All);
        }
        let lower = text.trim_end_matches('/').to_ascii_lowercase();
        match Origin::parse(&lower) {
            Some(_) => Ok(Self::One(lower.into())),
            None => Err(HttpOriginError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for HttpOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::One(text) => f.write_str(text),
        }
    }
}

/// An origin: scheme, host and port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    is_tls: bool,
    host: HostName,
    port: u16,
}

impl Origin {
    /// Reads `http://host:port` or `https://host:port`.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, authority) = text.split_once("://")?;
        let is_tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let (host, port) = HostName::with_port(authority)?;
        Some(Self { is_tls, host, port: port.unwrap_or(if is_tls { 443 } else { 80 }) })
    }

    /// Whether its pages come from where a request goes that names this host and port.
    fn is_at(&self, host: &HostName, port: Option<u16>) -> bool {
        // Without a port it is that of the scheme, which a proxy may have changed.
        self.host == *host
            && port.is_none_or(|port| port == self.port)
            && (port.is_some() || self.port == if self.is_tls { 443 } else { 80 })
    }
}

/// Whose page asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asker {
    /// No page, as far as the request says; or one of the broker's own origin.
    Own,
    /// A page of an origin that may use streams.
    Allowed,
    /// A page of another origin.
    Foreign,
}

/// The origins whose pages may use streams.
#[derive(Clone, Debug, Default)]
pub(crate) struct AllowedOrigins {
    /// Where others find the broker, if the operator has said so.
    own: Option<Origin>,
    named: Vec<Origin>,
    /// Whether all pages may read.
    is_open: bool,
}

impl AllowedOrigins {
    /// Those that an operator allows. `own` is the address by which others find the broker.
    pub(crate) fn new(allowed: &[HttpOrigin], own: Option<&str>) -> Self {
        let named = allowed.iter().filter_map(|origin| match origin {
            HttpOrigin::One(text) => Origin::parse(text),
            HttpOrigin::All => None,
        });
        // Of an address with a path, only its host is of account.
        let own = own.and_then(|url| {
            let (scheme, rest) = url.split_once("://")?;
            let authority = rest.split('/').next().unwrap_or_default();
            Origin::parse(&format!("{scheme}://{authority}").to_ascii_lowercase())
        });
        Self { own, named: named.collect(), is_open: allowed.contains(&HttpOrigin::All) }
    }

    /// Whether pages of all origins may read streams.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// The host by which others find the broker.
    pub(crate) fn own_host(&self) -> Option<&HostName> {
        self.own.as_ref().map(|origin| &origin.host)
    }

    /// Whose page says `origin` in a request that names that host and port.
    pub(crate) fn asker(&self, origin: &[u8], host: &HostName, port: Option<u16>) -> Asker {
        let text = str::from_utf8(origin).unwrap_or_default().to_ascii_lowercase();
        let Some(origin) = Origin::parse(&text) else { return Asker::Foreign };
        if origin.is_at(host, port) || self.own.as_ref() == Some(&origin) {
            return Asker::Own;
        }
        // Where both are of this machine, whoever asks has it before them.
        let is_local = origin.host.is_loopback() && host.is_loopback();
        if is_local || self.named.contains(&origin) { Asker::Allowed } else { Asker::Foreign }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asker(allowed: &[&str], own: Option<&str>, origin: &str, host: &str) -> Asker {
        let allowed: Vec<_> = allowed.iter().map(|text| text.parse().unwrap()).collect();
        let origins = AllowedOrigins::new(&allowed, own);
        let (host, port) = HostName::with_port(host).unwrap();
        origins.asker(origin.as_bytes(), &host, port)
    }

    #[test]
    fn a_page_of_the_broker_itself_is_its_own() {
        for (origin, host) in [
            ("http://127.0.0.1:4437", "127.0.0.1:4437"),
            ("http://LocalHost:4437", "localhost:4437"),
            ("http://[::1]:4437", "[::1]:4437"),
            ("http://broker.example", "broker.example"),
            ("http://broker.example", "broker.example:80"),
            ("https://broker.example", "broker.example"),
        ] {
            assert_eq!(asker(&[], None, origin, host), Asker::Own, "{origin} {host}");
        }
        let own = Some("https://Example.com/broker");
        assert_eq!(asker(&[], own, "https://example.com", "10.0.0.1:4437"), Asker::Own);
    }

    #[test]
    fn pages_of_this_machine_may_use_streams_of_this_machine() {
        for origin in ["http://localhost:3000", "http://127.0.0.1:8080", "https://app.localhost"] {
            assert_eq!(asker(&[], None, origin, "127.0.0.1:4437"), Asker::Allowed, "{origin}");
            let beyond = asker(&[], None, origin, "10.0.0.1:4437");
            assert_eq!(beyond, Asker::Foreign, "{origin}");
        }
    }

    #[test]
    fn all_other_pages_are_foreign_unless_they_are_named() {
        let named = ["https://app.example.com", "http://a:8080"];
        for (origin, expected) in [
            ("https://app.example.com", Asker::Allowed),
            ("https://APP.example.com:443", Asker::Allowed),
            ("http://a:8080", Asker::Allowed),
            ("http://app.example.com", Asker::Foreign),
            ("https://app.example.com:8443", Asker::Foreign),
            ("https://evil.example", Asker::Foreign),
            ("https://app.example.com.evil.example", Asker::Foreign),
            ("http://127.0.0.1.evil.example", Asker::Foreign),
            ("null", Asker::Foreign),
            ("", Asker::Foreign),
            ("file://", Asker::Foreign),
            ("chrome-extension://abc", Asker::Foreign),
            ("https://app.example.com, https://app.example.com", Asker::Foreign),
        ] {
            assert_eq!(asker(&named, None, origin, "127.0.0.1:4437"), expected, "{origin:?}");
        }
        // That all may read makes nobody allowed: whoever changes something has to be named.
        assert_eq!(asker(&["*"], None, "https://evil.example", "localhost"), Asker::Foreign);
    }

    #[test]
    fn what_an_operator_names_is_an_origin_or_all() {
        assert_eq!("*".parse(), Ok(HttpOrigin::All));
        assert_eq!("https://A.b/".parse(), Ok(HttpOrigin::One("https://a.b".into())));
        for text in ["", "a.b", "https://", "https://a/b", "ftp://a", "null", "https://*.a"] {
            assert!(text.parse::<HttpOrigin>().is_err(), "{text}");
        }
    }
}
