//! The public URL of the broker: the beginning of all addresses that it hands out. It knows no paths.

use std::{fmt, str::FromStr};

use http::{Uri, header};

use crate::http::request::Request;

/// Where others find the HTTP port, perhaps through a proxy that speaks TLS: `https://example.com`, or
/// a path of that. No slash at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl(Box<str>);

impl PublicUrl {
    /// The address, as it was given.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A text that is no such address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no address that others find the broker by: write https://example.com")]
pub struct PublicUrlError {
    /// What was given.
    pub text: String,
}

impl FromStr for PublicUrl {
    type Err = PublicUrlError;

    fn from_str(text: &str) -> Result<Self, PublicUrlError> {
        let wrong = || PublicUrlError { text: text.to_owned() };
        let url: Uri = text.parse().map_err(|_| wrong())?;
        let is_web = url.scheme_str().is_some_and(|scheme| matches!(scheme, "http" | "https"));
        let host = url.authority().map(|authority| authority.as_str());
        let is_plain = host.is_some_and(|host| !host.contains('@')) && !text.contains(['?', '#']);
        if !is_web || !is_plain {
            return Err(wrong());
        }
        Ok(Self(text.trim_end_matches('/').into()))
    }
}

/// Where others find the broker.
#[derive(Clone, Debug)]
pub(crate) enum PublicOrigin {
    /// Where the operator says.
    Url(PublicUrl),
    /// Where each client has: at the host that it names, with TLS or without.
    Host {
        /// Whether the port speaks TLS.
        is_tls: bool,
    },
}

/// What addresses begin with that answer `request`. `None` if neither operator nor client says.
pub(super) fn origin(request: &Request, public: &PublicOrigin) -> Option<String> {
    let is_tls = match public {
        PublicOrigin::Url(PublicUrl(url)) => return Some(url.to_string()),
        PublicOrigin::Host { is_tls } => is_tls,
    };
    let host = str::from_utf8(request.headers().get(&header::HOST)?).ok()?;
    let scheme = if *is_tls { "https" } else { "http" };
    (!host.is_empty()).then(|| format!("{scheme}://{host}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_host_and_perhaps_a_path() {
        for (text, url) in [
            ("https://example.com", "https://example.com"),
            ("https://example.com/", "https://example.com"),
            ("http://10.0.0.1:8080/broker/", "http://10.0.0.1:8080/broker"),
        ] {
            assert_eq!(text.parse(), Ok(PublicUrl(url.into())), "{text}");
        }
        for text in [
            "",
            "example.com",
            "/v1",
            "ftp://a",
            "https://",
            "https://a/?b",
            "https://a#b",
            "https://me@a",
        ] {
            assert!(text.parse::<PublicUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_the_operator_says_counts_and_not_who_asks() {
        let request = Request::with_headers(&[("host", "here:1"), ("x-forwarded-proto", "https")]);
        let here = |is_tls| origin(&request, &PublicOrigin::Host { is_tls });
        assert_eq!(here(false).as_deref(), Some("http://here:1"));
        assert_eq!(here(true).as_deref(), Some("https://here:1"));
        let public = "https://example.com".parse().unwrap();
        assert_eq!(
            origin(&request, &PublicOrigin::Url(public)).as_deref(),
            Some("https://example.com")
        );
        assert_eq!(
            origin(&Request::with_headers(&[]), &PublicOrigin::Host { is_tls: false }),
            None
        );
    }
}
