//! A host as requests name it: `Host: example.com:4437`, or the host of an `Origin`. Names are compared
//! without their ports, in lower case. It knows no requests.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A host without its port: a name or an IP address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostName {
    /// A name, in lower case and without a dot at its end.
    Name(Box<str>),
    /// An address; one of IPv4 that is written as IPv6 is one of IPv4.
    Address(IpAddr),
}

/// A text that is no host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no host: write a name such as broker.example.com, without scheme and port")]
pub struct HostNameError {
    /// What was given.
    pub text: String,
}

impl HostName {
    /// Reads `name`, `name:port`, `10.0.0.1:port` or `[::1]:port`, and says the port, if one is there.
    pub(crate) fn with_port(text: &str) -> Option<(Self, Option<u16>)> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (host, rest) = bracketed.split_once(']')?;
                let address: Ipv6Addr = host.parse().ok()?;
                (Self::Address(IpAddr::V6(address).to_canonical()), rest)
            }
            None => {
                let (host, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                (Self::unbracketed(host)?, rest)
            }
        };
        let digits = match rest {
            // `Host: name:` is allowed, and says no port.
            "" | ":" => return Some((host, None)),
            rest => rest.strip_prefix(':')?,
        };
        let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
        let port = digits.parse().ok().filter(|_| is_number)?;
        Some((host, Some(port)))
    }

    fn unbracketed(text: &str) -> Option<Self> {
        if let Ok(address) = text.parse::<Ipv4Addr>() {
            return Some(Self::Address(address.into()));
        }
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let is_name = name.split('.').all(is_label);
        is_name.then(|| Self::Name(name.to_ascii_lowercase().into()))
    }

    /// Whether it stands for this machine, wherever it is asked: browsers look up neither.
    pub(crate) fn is_loopback(&self) -> bool {
        match self {
            Self::Address(address) => address.is_loopback(),
            Self::Name(name) => &**name == "localhost" || name.ends_with(".localhost"),
        }
    }
}

impl FromStr for HostName {
    type Err = HostNameError;

    fn from_str(text: &str) -> Result<Self, HostNameError> {
        let host = match text.parse::<Ipv6Addr>() {
            Ok(address) => Some((Self::Address(IpAddr::V6(address).to_canonical()), None)),
            Err(_) => Self::with_port(text),
        };
        match host {
            Some((host, None)) if !text.ends_with(':') => Ok(host),
            _ => Err(HostNameError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(address) => write!(f, "{address}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Option<(String, Option<u16>)> {
        HostName::with_port(text).map(|(host, port)| (host.to_string(), port))
    }

    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for (text, name, port) in [
            ("example.com", "example.com", None),
            ("Example.COM.:80", "example.com", Some(80)),
            ("example.com:", "example.com", None),
            ("127.0.0.1:4437", "127.0.0.1", Some(4437)),
            ("[::1]", "::1", None),
            ("[::1]:4437", "::1", Some(4437)),
            ("[::ffff:127.0.0.1]:1", "127.0.0.1", Some(1)),
        ] {
            assert_eq!(host(text), Some((name.to_owned(), port)), "{text}");
        }
        for text in [
            "", ":1", ".", "a..b", "a b", "me@a", "a:b", "a:1:2", "a:99999", "::1", "[::1",
            "[::1]x", "[a]", "a]", "*", "a/b", "ä",
        ] {
            assert_eq!(host(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_operator_names_a_host_without_its_port() {
        assert_eq!("Broker.example.com".parse(), Ok(HostName::Name("broker.example.com".into())));
        assert_eq!("::1".parse(), Ok(HostName::Address(Ipv6Addr::LOCALHOST.into())));
        for text in ["", "a:1", "a:", "http://a", "*", "*.a"] {
            assert!(text.parse::<HostName>().is_err(), "{text}");
        }
    }

    #[test]
    fn some_hosts_stand_for_this_machine() {
        for (text, is) in [
            ("localhost", true),
            ("LOCALHOST.", true),
            ("app.localhost", true),
            ("127.8.9.1", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]", true),
            ("localhost.example.com", false),
            ("notlocalhost", false),
            ("127.0.0.1.example.com", false),
            ("0.0.0.0", false),
            ("2130706433", false),
            ("10.0.0.1", false),
        ] {
            let (host, _) = HostName::with_port(text).unwrap();
            assert_eq!(host.is_loopback(), is, "{text}");
        }
    }
}
