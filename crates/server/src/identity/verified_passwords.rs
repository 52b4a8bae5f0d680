//! The passwords that were verified before: a user who logs in again from an address waits neither for a check, which takes
//! tens of milliseconds, nor for what others there have guessed. Nothing of a password is kept. One that was right at another
//! address is not compared: a guesser would learn here at once what it has to wait for elsewhere.

use std::{collections::HashSet, fmt, net::IpAddr};

use foldhash::fast::RandomState;
use ring::hmac;

/// Most passwords that are remembered; then it begins anew.
const VERIFIED_MAX: usize = 4096;

/// What is kept of a user's password that was right.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct VerifiedPassword([u8; 32]);

/// The passwords that were right.
pub(super) struct VerifiedPasswords {
    /// Drawn when the broker starts, and kept nowhere. `None` if the system had no random numbers: nothing is remembered.
    key: Option<hmac::Key>,
    verified: HashSet<VerifiedPassword, RandomState>,
}

impl fmt::Debug for VerifiedPasswords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerifiedPasswords").field("count", &self.verified.len()).finish()
    }
}

impl Default for VerifiedPasswords {
    fn default() -> Self {
        let mut secret = [0; 32];
        let key = getrandom::fill(&mut secret).ok();
        let key = key.map(|()| hmac::Key::new(hmac::HMAC_SHA256, &secret));
        Self { key, verified: HashSet::default() }
    }
}

impl VerifiedPasswords {
    /// What would be kept of this password of a user at this address, whose hash is `kept` now. With another hash it is
    /// another. `None` if nothing is remembered.
    pub(super) fn of(
        &self,
        address: IpAddr,
        [user, kept, password]: [&str; 3],
    ) -> Option<VerifiedPassword> {
        let mut context = hmac::Context::with_key(self.key.as_ref()?);
        let address = match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        context.update(&address.octets());
        for part in [user, kept, password] {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part.as_bytes());
        }
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        Some(VerifiedPassword(tag))
    }

    /// Whether it was right before.
    pub(super) fn has(&self, password: VerifiedPassword) -> bool {
        self.verified.contains(&password)
    }

    /// It was right.
    pub(super) fn add(&mut self, password: VerifiedPassword) {
        if self.verified.len() >= VERIFIED_MAX {
            self.verified.clear();
        }
        self.verified.insert(password);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_remembered_for_one_user_one_hash_and_one_address() {
        let mut passwords = VerifiedPasswords::default();
        let here = "192.0.2.1".parse().unwrap();
        let of = |passwords: &VerifiedPasswords, user: &str, kept: &str, password: &str| {
            passwords.of(here, [user, kept, password]).unwrap()
        };
        let right = of(&passwords, "ada", "$argon2id$1", "correct horse");
        passwords.add(right);
        assert!(passwords.has(of(&passwords, "ada", "$argon2id$1", "correct horse")));
        let at = |address: &str| {
            let parts = ["ada", "$argon2id$1", "correct horse"];
            passwords.of(address.parse().unwrap(), parts).unwrap()
        };
        for other in [
            of(&passwords, "ada", "$argon2id$2", "correct horse"),
            of(&passwords, "bob", "$argon2id$1", "correct horse"),
            of(&passwords, "ada", "$argon2id$1", "correct hors"),
            of(&passwords, "ada$argon2id$1", "", "correct horse"),
            at("192.0.2.2"),
        ] {
            assert!(!passwords.has(other));
        }
        assert!(passwords.has(at("::ffff:192.0.2.1")));
        for index in 0..3 * VERIFIED_MAX {
            let other = of(&passwords, "ada", "x", &index.to_string());
            passwords.add(other);
            assert!(passwords.verified.len() <= VERIFIED_MAX);
        }
    }
}
