//! A URL to which this broker sends requests: where the server is, and what it is asked for. It looks nothing up.

use std::fmt;

use http::Uri;

/// Longest URL, in bytes.
pub(crate) const CLIENT_URL_BYTES_MAX: usize = 2048;

/// A URL of http or https, without user, password and `#`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientUrl {
    text: Box<str>,
    pub(crate) is_tls: bool,
    pub(crate) host: Box<str>,
    pub(crate) port: u16,
    /// The host and the port, as requests name them.
    pub(crate) authority: Box<str>,
    /// The path with its query.
    pub(crate) path: Box<str>,
}

impl ClientUrl {
    /// The URL that a text is, if it is one.
    pub(crate) fn of(text: &str) -> Option<Self> {
        if text.len() > CLIENT_URL_BYTES_MAX || text.contains('#') {
            return None;
        }
        let uri: Uri = text.parse().ok()?;
        let authority = uri.authority()?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return None,
        };
        let has_port = authority.as_str().len() > authority.host().len();
        let port = match authority.port_u16() {
            Some(0) => return None,
            Some(port) => port,
            None if has_port => return None,
            None if is_tls => 443,
            None => 80,
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || authority.as_str().contains('@') {
            return None;
        }
        Some(Self {
            text: text.into(),
            is_tls,
            host: host.into(),
            port,
            authority: authority.as_str().into(),
            path: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str).into(),
        })
    }

    /// Whether its server is on this machine, by its name.
    pub(crate) fn is_here(&self) -> bool {
        self.host.eq_ignore_ascii_case("localhost")
            || self.host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    }
}

impl fmt::Display for ClientUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
