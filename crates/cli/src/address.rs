//! Parses addresses: `localhost:4438`, `:4438`, `[::1]:4438`, a name or a port alone, or a list of them. Opens no
//! connection.

use std::{
    fmt,
    net::{Ipv6Addr, SocketAddr, ToSocketAddrs},
};

/// The default port of the native protocol.
pub const NATIVE_PORT: u16 = 4438;

/// The default port of HTTP.
pub const HTTP_PORT: u16 = 4437;

/// The default host of a broker's address.
const LOOPBACK: &str = "127.0.0.1";

/// The default host of an address to listen on: all addresses of this machine.
const EVERYWHERE: &str = "0.0.0.0";

/// An address to listen on. A name is looked up now; of several addresses the first of IPv4 is
/// used, because clients try it first. `:4438` means all addresses of this machine.
///
/// # Errors
/// A text for people.
pub fn listen(text: &str, port: u16) -> Result<SocketAddr, String> {
    let Parts { host, port } = parts(text, port, EVERYWHERE)?;
    let wrong = |why: &str| format!("{host}: {why}; write 127.0.0.1:{port} or localhost:{port}");
    let found = (host.as_str(), port).to_socket_addrs();
    let found: Vec<_> = found.map_err(|error| wrong(&error.to_string()))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| wrong("this name has no address"))
}

/// The address of a broker, or those of the nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddresses {
    /// Host and port of each, one at least. The connection looks the names up.
    pub host_ports: Vec<String>,
    /// Whether they say that TLS is spoken there.
    pub is_tls: bool,
}

impl fmt::Display for BrokerAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.host_ports.join(","))
    }
}

/// The addresses of brokers, with commas between: host and port, as they are or as http:// or https:// URLs.
///
/// # Errors
/// A text for people.
pub fn brokers(text: &str, port: u16) -> Result<BrokerAddresses, String> {
    let found: Vec<_> = text.split(',').map(|one| broker(one, port)).collect::<Result<_, _>>()?;
    let is_tls = found.iter().any(|(_, is_tls)| *is_tls);
    if !found.iter().all(|(_, speaks)| *speaks == is_tls) {
        return Err(format!("{text:?} has addresses with https:// and others without it"));
    }
    Ok(BrokerAddresses {
        host_ports: found.into_iter().map(|(host_port, _)| host_port).collect(),
        is_tls,
    })
}

/// Host and port of an address, and whether it says that TLS is spoken there.
fn broker(text: &str, port: u16) -> Result<(String, bool), String> {
    let text = text.trim();
    let secure = text.strip_prefix("https://");
    let bare = secure.or_else(|| text.strip_prefix("http://")).unwrap_or(text);
    let bare = bare.strip_suffix('/').unwrap_or(bare);
    let Parts { host, port } = parts(bare, port, LOOPBACK)?;
    let is_v6 = host.parse::<Ipv6Addr>().is_ok();
    let host_port = if is_v6 { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Ok((host_port, secure.is_some()))
}

/// Addresses of the native protocol.
///
/// # Errors
/// A text for people.
pub fn native_brokers(text: &str) -> Result<BrokerAddresses, String> {
    brokers(text, NATIVE_PORT)
}

/// Addresses of HTTP.
///
/// # Errors
/// A text for people.
pub fn http_brokers(text: &str) -> Result<BrokerAddresses, String> {
    brokers(text, HTTP_PORT)
}

struct Parts {
    host: String,
    port: u16,
}

/// Splits `text` into host and port, with these defaults.
fn parts(text: &str, default_port: u16, default_host: &str) -> Result<Parts, String> {
    let text = text.trim();
    let wrong = |why: &str| {
        format!("{text:?} {why}: write localhost:{default_port} or [::1]:{default_port}")
    };
    if text.is_empty() {
        return Err(wrong("is no address"));
    }
    // A port alone is one of this machine; an address of IPv6 has colons of its own.
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let port = text.parse().map_err(|_| wrong("is no port, they end at 65535"))?;
        return Ok(Parts { host: LOOPBACK.into(), port });
    }
    if text.parse::<Ipv6Addr>().is_ok() {
        return Ok(Parts { host: text.into(), port: default_port });
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) =
                rest.split_once(']').ok_or_else(|| wrong("has no closing bracket"))?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err(wrong("has no IPv6 address between its brackets"));
            }
            (host, port)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => default_port,
        None => return Err(wrong("is no address")),
        Some(digits) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().map_err(|_| wrong("has no such port, they end at 65535"))?
        }
        Some(_) => return Err(wrong("has no number behind its colon")),
    };
    if text.starts_with('[') {
        return Ok(Parts { host: host.into(), port });
    }
    let is_strange = |c: char| c.is_whitespace() || c.is_control() || "/@[]?#".contains(c);
    match host {
        "" | "*" => Ok(Parts { host: default_host.into(), port }),
        host if host.contains(is_strange) => Err(wrong("is no address")),
        host => Ok(Parts { host: host.into(), port }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_to_listen_on_may_be_a_name_or_a_part() {
        for (text, address) in [
            ("127.0.0.1:4438", "127.0.0.1:4438"),
            ("localhost:4438", "127.0.0.1:4438"),
            ("localhost:0", "127.0.0.1:0"),
            ("localhost", "127.0.0.1:4438"),
            ("9000", "127.0.0.1:9000"),
            (":9000", "0.0.0.0:9000"),
            ("*:9000", "0.0.0.0:9000"),
            ("0.0.0.0:9000", "0.0.0.0:9000"),
            ("[::1]:9000", "[::1]:9000"),
            ("[::1]", "[::1]:4438"),
            ("::1", "[::1]:4438"),
        ] {
            assert_eq!(listen(text, 4438).map(|address| address.to_string()), Ok(address.into()));
        }
    }

    #[test]
    fn the_address_of_a_broker_is_completed_and_not_looked_up() {
        for (text, address) in [
            ("broker.example:4438", "broker.example:4438"),
            ("broker.example", "broker.example:4438"),
            (":4439", "127.0.0.1:4439"),
            ("4439", "127.0.0.1:4439"),
            ("[::1]:4439", "[::1]:4439"),
            ("::1", "[::1]:4438"),
            ("http://broker.example:80/", "broker.example:80"),
        ] {
            assert_eq!(broker(text, 4438), Ok((address.to_owned(), false)), "{text}");
        }
    }

    #[test]
    fn a_list_has_an_address_between_commas_and_one_way_to_speak() {
        let found = brokers("a.example, b.example:9,:4439", 4438).unwrap();
        assert_eq!(found.host_ports, ["a.example:4438", "b.example:9", "127.0.0.1:4439"]);
        assert_eq!(found.to_string(), "a.example:4438,b.example:9,127.0.0.1:4439");
        assert!(brokers("https://a,https://b", 4437).unwrap().is_tls);
        for text in ["a,", ",a", "a,,b", "https://a,b", "a,b:c"] {
            assert!(brokers(text, 4437).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_may_say_that_tls_is_spoken_there() {
        let found = broker("https://broker.example/", 4437);
        assert_eq!(found, Ok(("broker.example:4437".to_owned(), true)));
    }

    #[test]
    fn a_wrong_address_is_told_what_would_be_right() {
        for text in ["", "a:b", "a:", "a:70000", "70000", "[::1", "[a]:1", "a b:1", "a/b", "u@h:1"]
        {
            let said = listen(text, 4438).unwrap_err();
            assert!(said.contains("localhost:4438"), "{text:?}: {said}");
            assert!(broker(text, 4438).is_err(), "{text:?}");
        }
    }
}
