//! The names by which users accept client certificates: `cn:NAME`, `dns:HOST`, `uri:URI`, `email:ADDRESS`, or `sha256:DIGITS`
//! for one certificate alone. They are checked when they are parsed, and trusted afterwards.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{certificate::CertificateSubject, limits::CERTIFICATE_NAME_BYTES_MAX};

/// The reason why a text is no name of a certificate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CertificateNameError {
    /// It says no kind of name that there is.
    #[error(
        "a name of a certificate begins with cn:, dns:, uri:, email: or sha256:, as in cn:billing"
    )]
    Kind,
    /// The name is empty, too long, or has control characters.
    #[error(
        "a name of a certificate has 1 to {CERTIFICATE_NAME_BYTES_MAX} bytes (CERTIFICATE_NAME_BYTES_MAX) and no control characters"
    )]
    Name,
    /// A fingerprint is none.
    #[error(
        "a fingerprint is sha256: and 64 hexadecimal digits; colons between bytes are left out"
    )]
    Fingerprint,
}

/// A name of a certificate. Two are equal if they are the same to a user who accepts one: hosts are, whatever their case is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CertificateName(Arc<str>);

impl CertificateName {
    /// The name as text, with its kind.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn of(kind: &str, name: &str) -> Self {
        Self(format!("{kind}:{name}").into())
    }
}

impl CertificateSubject {
    /// All names by which a user may accept the certificate, its fingerprint first.
    pub fn names(&self) -> impl Iterator<Item = CertificateName> + '_ {
        let own = CertificateName::of("sha256", &self.fingerprint.to_string());
        let common = self.common_name.iter().map(|name| CertificateName::of("cn", name));
        let hosts = &self.hosts;
        let hosts = hosts.iter().map(|host| CertificateName::of("dns", &host.to_ascii_lowercase()));
        let uris = self.uris.iter().map(|uri| CertificateName::of("uri", uri));
        let emails = self.emails.iter().map(|email| CertificateName::of("email", email));
        std::iter::once(own).chain(common).chain(hosts).chain(uris).chain(emails)
    }
}

impl FromStr for CertificateName {
    type Err = CertificateNameError;

    fn from_str(text: &str) -> Result<Self, CertificateNameError> {
        let (kind, name) = text.split_once(':').ok_or(CertificateNameError::Kind)?;
        let is_name = (1..=CERTIFICATE_NAME_BYTES_MAX).contains(&name.len())
            && !name.chars().any(char::is_control);
        match kind {
            "cn" | "dns" | "uri" | "email" if !is_name => Err(CertificateNameError::Name),
            "cn" | "uri" | "email" => Ok(Self(text.into())),
            "dns" => Ok(Self::of(kind, &name.to_ascii_lowercase())),
            "sha256" => {
                let digits: String = name.chars().filter(|c| *c != ':').collect();
                let is_fingerprint =
                    digits.len() == 64 && digits.chars().all(|c| c.is_ascii_hexdigit());
                match is_fingerprint {
                    true => Ok(Self::of(kind, &digits.to_ascii_lowercase())),
                    false => Err(CertificateNameError::Fingerprint),
                }
            }
            // As `sennit cert show` prints a fingerprint.
            "SHA256" => format!("sha256:{name}").parse(),
            _ => Err(CertificateNameError::Kind),
        }
    }
}

impl TryFrom<String> for CertificateName {
    type Error = CertificateNameError;

    fn try_from(text: String) -> Result<Self, CertificateNameError> {
        text.parse()
    }
}

impl From<CertificateName> for String {
    fn from(name: CertificateName) -> Self {
        name.as_str().to_owned()
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BILLING: &[u8] = include_bytes!("../test_keys/billing.der");
    const FINGERPRINT: &str =
        "sha256:419c0fbda3ac4cc7cc86bed6bcb5460ec81f5795fa4465caabc0f36f24d14357";

    #[test]
    fn a_certificate_has_the_names_that_users_write() {
        let subject = CertificateSubject::parse(BILLING).unwrap();
        let names: Vec<CertificateName> = subject.names().collect();
        let written = [
            FINGERPRINT,
            "cn:billing",
            "dns:Billing.Internal",
            "uri:spiffe://sennit/billing",
            "email:billing@example.com",
        ];
        let written: Vec<CertificateName> =
            written.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(names, written);
        assert!(names.iter().all(|name| name.as_str().parse().as_ref() == Ok(name)));
    }

    #[test]
    fn a_fingerprint_is_read_as_it_is_printed() {
        let (_, digits) = FINGERPRINT.split_once(':').unwrap();
        let bytes: Vec<_> =
            (0..32).map(|at| digits[2 * at..2 * at + 2].to_ascii_uppercase()).collect();
        let printed = format!("SHA256:{}", bytes.join(":"));
        assert_eq!(printed.parse::<CertificateName>().unwrap().as_str(), FINGERPRINT);
    }

    #[test]
    fn other_texts_are_refused_with_what_would_be_right() {
        let long = format!("cn:{}", "x".repeat(CERTIFICATE_NAME_BYTES_MAX + 1));
        for (text, error) in [
            ("", CertificateNameError::Kind),
            ("billing", CertificateNameError::Kind),
            ("ip:10.0.0.1", CertificateNameError::Kind),
            ("CN:billing", CertificateNameError::Kind),
            ("cn:", CertificateNameError::Name),
            ("uri:a\nb", CertificateNameError::Name),
            (&long, CertificateNameError::Name),
            ("sha256:41", CertificateNameError::Fingerprint),
            (&FINGERPRINT.replace("sha256:4", "sha256:g"), CertificateNameError::Fingerprint),
        ] {
            assert_eq!(text.parse::<CertificateName>(), Err(error), "{text:?}");
        }
    }
}
