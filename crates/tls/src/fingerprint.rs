//! The SHA-256 fingerprint of a certificate, as people compare and paste it.

use std::{fmt, str::FromStr};

use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;

/// How the text begins.
const PREFIX: &str = "SHA256:";

/// Bytes of the hash.
const BYTES: usize = 32;

/// The SHA-256 hash of a certificate's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint([u8; BYTES]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; BYTES];
        bytes.copy_from_slice(digest(&SHA256, certificate).as_ref());
        Self(bytes)
    }
}

/// `SHA256:` and 64 hexadecimal digits.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A text is no fingerprint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no fingerprint: write SHA256: and 64 hexadecimal digits, as `sennit cert show` prints them"
)]
pub struct FingerprintError {
    text: String,
}

impl FromStr for Fingerprint {
    type Err = FingerprintError;

    /// Takes upper and lower case, and colons between the bytes, as other tools print them.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || FingerprintError { text: text.chars().take(200).collect() };
        let trimmed = text.trim();
        let has_prefix =
            trimmed.get(..PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(PREFIX));
        let digits = if has_prefix { &trimmed[PREFIX.len()..] } else { trimmed };
        let mut digits = digits.chars().filter(|&digit| digit != ':');
        let mut bytes = [0; BYTES];
        for byte in &mut bytes {
            let mut digit = || digits.next().and_then(|digit| digit.to_digit(16)).ok_or_else(wrong);
            *byte = (digit()? << 4 | digit()?) as u8;
        }
        if digits.next().is_some() {
            return Err(wrong());
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_reads_as_it_prints_and_as_other_tools_print_it() {
        let certificate = CertificateDer::from(vec![1, 2, 3]);
        let fingerprint = Fingerprint::of(&certificate);
        let text = fingerprint.to_string();
        assert_eq!(text.len(), PREFIX.len() + 2 * BYTES);
        assert_eq!(text.parse(), Ok(fingerprint));
        let digits = text[PREFIX.len()..].to_uppercase();
        let pairs: Vec<_> = digits.as_bytes().chunks(2).map(String::from_utf8_lossy).collect();
        assert_eq!(pairs.join(":").parse(), Ok(fingerprint));
        assert_eq!(format!("sha256:{digits}").parse(), Ok(fingerprint));
    }

    #[test]
    fn what_is_too_short_or_too_long_or_no_number_is_refused() {
        for text in
            ["", "SHA256:", "SHA256:00", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), "ü"]
        {
            assert!(text.parse::<Fingerprint>().is_err(), "{text}");
        }
    }
}
