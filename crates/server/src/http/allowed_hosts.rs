//! The hosts that a request may name. A page can make a name of its own point at this machine (DNS rebinding) and
//! then sends that name, so names have to be allowed one by one; an address cannot be made to point elsewhere. It
//! knows no origins.

use std::net::IpAddr;

use super::host_name::HostName;

/// The hosts that a request may name.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHosts {
    /// Where the port listens.
    bound: IpAddr,
    /// What the operator allows.
    more: Vec<HostName>,
}

impl AllowedHosts {
    /// Those of a port that listens at `bound`: what stands for this machine, that address, and `more`. Of a
    /// port that listens beyond this machine, any address.
    pub(crate) fn new(bound: IpAddr, more: Vec<HostName>) -> Self {
        Self { bound: bound.to_canonical(), more }
    }

    /// Whether a request may name this host.
    pub(crate) fn allows(&self, host: &HostName) -> bool {
        if host.is_loopback() || self.more.contains(host) {
            return true;
        }
        match host {
            HostName::Address(address) => *address == self.bound || !self.bound.is_loopback(),
            HostName::Name(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_allowed(bound: &str, more: &[&str], host: &str) -> bool {
        let more = more.iter().map(|host| host.parse().unwrap()).collect();
        let hosts = AllowedHosts::new(bound.parse().unwrap(), more);
        hosts.allows(&host.parse().unwrap())
    }

    #[test]
    fn a_port_of_this_machine_is_asked_for_as_such() {
        for (host, is) in [
            ("localhost", true),
            ("a.localhost", true),
            ("127.0.0.1", true),
            ("127.0.0.2", true),
            ("::1", true),
            ("10.0.0.1", false),
            ("evil.example", false),
        ] {
            assert_eq!(is_allowed("127.0.0.1", &[], host), is, "{host}");
        }
    }

    #[test]
    fn a_port_for_others_is_asked_for_by_any_address_and_by_known_names() {
        for bound in ["0.0.0.0", "::", "10.0.0.1"] {
            for (host, is) in
                [("10.0.0.1", true), ("10.0.0.9", true), ("::1", true), ("evil.example", false)]
            {
                assert_eq!(is_allowed(bound, &[], host), is, "{bound} {host}");
            }
        }
        let more = ["broker.example.com", "192.0.2.7"];
        assert!(is_allowed("0.0.0.0", &more, "BROKER.example.com."));
        assert!(is_allowed("127.0.0.1", &more, "192.0.2.7"));
        assert!(!is_allowed("127.0.0.1", &more, "example.com"));
    }
}
