//! The owner of a client certificate: the user that it logs in, as long as that accepts it. It knows no signature: TLS has
//! checked it.

use sennit_identity::{CertificateError, CertificateName, CertificateSubject, Directory, UserName};
use sennit_model::Timestamp;

/// The reason why a certificate that TLS has verified logs nobody in.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateRefusal {
    #[error(transparent)]
    Unreadable(#[from] CertificateError),
    #[error("the certificate has expired since the handshake")]
    Expired,
    #[error("no user accepts a name of the certificate, or several do")]
    Unknown,
}

/// The owner of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateOwner {
    user: UserName,
    /// The names by which the user has accepted the certificate.
    accepted: Vec<CertificateName>,
    expires_at: Timestamp,
}

impl CertificateOwner {
    /// The owner of the certificate in DER.
    ///
    /// # Errors
    /// It logs nobody in.
    pub(super) fn of(
        der: &[u8],
        directory: &Directory,
        now: Timestamp,
    ) -> Result<Self, CertificateRefusal> {
        let subject = CertificateSubject::parse(der)?;
        if now >= subject.expires_at {
            return Err(CertificateRefusal::Expired);
        }
        let found = directory.user_of_certificate(subject.names());
        let (user, accepted) = found.ok_or(CertificateRefusal::Unknown)?;
        Ok(Self { user, accepted, expires_at: subject.expires_at })
    }

    pub(super) fn user(&self) -> &UserName {
        &self.user
    }

    /// The time from which the certificate does not count.
    pub(super) fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// Whether the user is there, and still accepts it.
    pub(super) fn counts(&self, directory: &Directory, now: Timestamp) -> bool {
        let accepts =
            |name| directory.user(&self.user).is_some_and(|user| user.certificates.contains(name));
        now < self.expires_at && self.accepted.iter().any(accepts)
    }
}

/// The certificate in the log: its common name, or its first other name.
pub(super) fn shown(der: &[u8]) -> String {
    let Ok(subject) = CertificateSubject::parse(der) else {
        return "a certificate that cannot be read".to_owned();
    };
    // The fingerprint is the first, and tells people the least.
    let name = subject.names().nth(1).or_else(|| subject.names().next());
    name.map_or_else(String::new, |name| format!("certificate {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BILLING: &[u8] = include_bytes!("../../../identity/test_keys/billing.der");
    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn directory(certificates: &str) -> Directory {
        let mut directory = Directory::default();
        let user = format!(r#"{{"generation":0,"created_ms":0,"certificates":[{certificates}]}}"#);
        directory.apply("user.ada", Some(user.as_bytes())).unwrap();
        directory
    }

    #[test]
    fn a_certificate_counts_as_long_as_its_user_accepts_it_and_its_time_is_not_over() {
        let both = directory(r#""cn:billing","uri:spiffe://sennit/billing""#);
        let owner = CertificateOwner::of(BILLING, &both, NOW).unwrap();
        assert_eq!(owner.user().as_str(), "ada");
        assert!(owner.counts(&both, NOW));
        assert!(owner.counts(&directory(r#""uri:spiffe://sennit/billing""#), NOW));
        assert!(!owner.counts(&directory(r#""cn:other""#), NOW));
        assert!(!owner.counts(&Directory::default(), NOW));
        assert!(!owner.counts(&both, owner.expires_at()));
    }

    #[test]
    fn a_certificate_that_nobody_accepts_or_that_has_expired_logs_nobody_in() {
        let known = directory(r#""cn:billing""#);
        let end = CertificateOwner::of(BILLING, &known, NOW).unwrap().expires_at();
        let refused = CertificateOwner::of(BILLING, &known, end).unwrap_err();
        assert!(matches!(refused, CertificateRefusal::Expired));
        let refused = CertificateOwner::of(BILLING, &Directory::default(), NOW).unwrap_err();
        assert!(matches!(refused, CertificateRefusal::Unknown));
        let refused = CertificateOwner::of(b"0", &known, NOW).unwrap_err();
        assert!(matches!(refused, CertificateRefusal::Unreadable(_)));
    }

    #[test]
    fn the_log_names_a_certificate_as_people_do() {
        assert_eq!(shown(BILLING), "certificate cn:billing");
        assert_eq!(shown(b"0"), "a certificate that cannot be read");
    }
}
