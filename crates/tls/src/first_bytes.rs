//! The first bytes of a connection: whether they begin a TLS handshake, and the alert for a client that begins one
//! where none is spoken.

/// The record type of a handshake, and the major version of every TLS (RFC 8446, 5.1).
const HANDSHAKE: [u8; 2] = [0x16, 0x03];

/// A fatal alert, `handshake_failure`, in the form that every version of TLS reads (RFC 8446, 6).
pub const ALERT_NOT_TLS: [u8; 7] = [0x15, 0x03, 0x01, 0x00, 0x02, 0x02, 0x28];

/// The protocols that an HTTP port speaks over TLS, the better first (RFC 7301, RFC 9113).
pub const HTTP_PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Whether `first` begins a TLS handshake; `None` if it is too short to tell.
#[must_use]
pub fn begins_tls(first: &[u8]) -> Option<bool> {
    let seen = first.len().min(HANDSHAKE.len());
    if first[..seen] != HANDSHAKE[..seen] {
        return Some(false);
    }
    (seen == HANDSHAKE.len()).then_some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_told_from_what_else_may_come_by_two_bytes() {
        assert_eq!(begins_tls(b""), None);
        assert_eq!(begins_tls(&[0x16]), None);
        assert_eq!(begins_tls(&[0x16, 0x03, 0x01]), Some(true));
        assert_eq!(begins_tls(b"GET / HTTP/1.1"), Some(false));
        assert_eq!(begins_tls(b"SENNIT\0\x01"), Some(false));
    }
}
