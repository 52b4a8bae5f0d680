//! Bytes that are not shown: neither by Debug nor in an error, and zeroed when they are dropped.

use std::fmt;

use ring::hmac;
use zeroize::Zeroizing;

/// The length of a [`Secret`] in bytes.
pub const SECRET_BYTES: usize = 32;

/// A secret of 32 bytes. It is zeroed when it is dropped. There is no `==`, which would compare in a time that tells where two
/// secrets differ.
#[derive(Clone)]
pub struct Secret(Zeroizing<[u8; SECRET_BYTES]>);

impl Secret {
    /// The secret of these bytes.
    #[must_use]
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// The bytes, for the place that writes them to a file or compares them.
    #[must_use]
    pub fn expose(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The broker's master secret, from which the secrets of all API keys are derived. A broker that loses it refuses all
/// keys; somebody who has it can make each of them.
#[derive(Clone)]
pub struct MasterSecret(hmac::Key);

impl MasterSecret {
    /// The master secret of these random bytes.
    #[must_use]
    pub fn new(secret: &Secret) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, secret.expose()))
    }

    /// The secret for `message`: its HMAC-SHA256. The message begins with its purpose.
    pub(crate) fn derive(&self, message: &[u8]) -> Secret {
        let mut bytes = [0; SECRET_BYTES];
        bytes.copy_from_slice(hmac::sign(&self.0, message).as_ref());
        Secret::new(bytes)
    }

    /// Whether `presented` is the secret for `message`. The time it takes does not depend on where they differ.
    pub(crate) fn verify(&self, message: &[u8], presented: &Secret) -> bool {
        hmac::verify(&self.0, message, presented.expose()).is_ok()
    }
}

impl fmt::Debug for MasterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret::new([0xab; 32]);
        let master = MasterSecret::new(&secret);
        assert_eq!(format!("{secret:?} {master:?}"), "Secret(..) MasterSecret(..)");
        assert_eq!(format!("{:#?}", Some(&secret)), "Some(\n    Secret(..),\n)");
    }
}
