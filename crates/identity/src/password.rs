//! Passwords of people: kept as argon2id hashes in PHC strings, checked in a time that does not tell whether the user exists.
//! It knows no user.
//!
//! A check takes tens of milliseconds and as much memory as its cost says, so the caller runs it away from the threads
//! that serve connections, and few at a time.

use std::fmt;

use argon2::{
    Algorithm, Argon2, Params, Version,
    password_hash::{PasswordHasher as _, PasswordVerifier as _, phc},
};

use crate::limits::{
    PASSWORD_BYTES_MAX, PASSWORD_CHARACTERS_MIN, PASSWORD_HASH_BYTES_MAX, PASSWORD_MEMORY_KIB_MAX,
    PASSWORD_MEMORY_KIB_MIN, PASSWORD_PASSES_MAX, PASSWORD_WORK_KIB_MAX, PASSWORD_WORK_KIB_MIN,
};

/// Random bytes of the salt of a password hash.
pub const SALT_BYTES: usize = 16;

/// Bytes of a password hash.
const HASH_BYTES: usize = 32;

/// The reason why a password or a password hash is not taken. It never repeats either of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    /// The new password is too short.
    #[error(
        "a password has at least {PASSWORD_CHARACTERS_MIN} characters (PASSWORD_CHARACTERS_MIN): a few words are easy to remember"
    )]
    TooShort,
    /// The password is too long.
    #[error("a password of {length} bytes is too long: PASSWORD_BYTES_MAX is {PASSWORD_BYTES_MAX}")]
    TooLong {
        /// Its length in bytes.
        length: usize,
    },
    /// The password has a character that nobody types.
    #[error("a password has no control characters; does a line end follow it?")]
    ControlCharacter,
    /// The cost is below or above what is allowed.
    #[error(
        "a password hash takes {PASSWORD_MEMORY_KIB_MIN} to {PASSWORD_MEMORY_KIB_MAX} KiB, 1 to {PASSWORD_PASSES_MAX} passes, and {PASSWORD_WORK_KIB_MIN} to {PASSWORD_WORK_KIB_MAX} KiB times passes; this one takes {memory_kib} KiB and {passes} passes"
    )]
    Cost {
        /// Memory in KiB.
        memory_kib: u32,
        /// Passes over the memory.
        passes: u32,
    },
    /// The text is not a hash that this broker takes.
    #[error(
        "not a password hash: write $argon2id$v=19$m=MEMORY,t=PASSES,p=1$SALT$HASH, with a salt of at least 8 and a hash of {HASH_BYTES} bytes"
    )]
    NotAHash,
}

/// The cost of a password hash: what an attacker who has stolen it pays for each guess, and the broker for each login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PasswordCost {
    memory_kib: u32,
    passes: u32,
}

impl PasswordCost {
    /// The cost that OWASP recommends first: 19 MiB and two passes, on one lane. About 20 ms on a core of 2024.
    pub const DEFAULT: Self = Self { memory_kib: 19 * 1024, passes: 2 };

    /// The least cost that is allowed: 7 MiB and five passes, for machines with little memory.
    pub const LEAST: Self = Self { memory_kib: PASSWORD_MEMORY_KIB_MIN, passes: 5 };

    /// This cost.
    ///
    /// # Errors
    /// It is too low to protect a stolen hash, or so high that logins would exhaust the broker.
    pub fn new(memory_kib: u32, passes: u32) -> Result<Self, PasswordError> {
        let work = u64::from(memory_kib) * u64::from(passes);
        let is_allowed = (PASSWORD_MEMORY_KIB_MIN..=PASSWORD_MEMORY_KIB_MAX).contains(&memory_kib)
            && (1..=PASSWORD_PASSES_MAX).contains(&passes)
            && (PASSWORD_WORK_KIB_MIN.into()..=PASSWORD_WORK_KIB_MAX.into()).contains(&work);
        if is_allowed {
            Ok(Self { memory_kib, passes })
        } else {
            Err(PasswordError::Cost { memory_kib, passes })
        }
    }

    /// Memory in KiB.
    #[must_use]
    pub fn memory_kib(self) -> u32 {
        self.memory_kib
    }

    /// Passes over the memory.
    #[must_use]
    pub fn passes(self) -> u32 {
        self.passes
    }

    fn hasher(self) -> Argon2<'static> {
        let params = Params::new(self.memory_kib, self.passes, 1, Some(HASH_BYTES));
        let params = params.expect("each cost lies within the bounds of argon2");
        Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
    }
}

impl Default for PasswordCost {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The hash of a password, as it is stored. Debug shows its cost alone: the hash lets guesses be checked elsewhere.
#[derive(Clone)]
pub struct PasswordHash {
    cost: PasswordCost,
    phc: phc::PasswordHash,
}

impl PasswordHash {
    /// The hash of a new password.
    ///
    /// # Errors
    /// The password is too short, too long, or has control characters.
    pub fn new(
        password: &str,
        salt: [u8; SALT_BYTES],
        cost: PasswordCost,
    ) -> Result<Self, PasswordError> {
        if password.chars().count() < PASSWORD_CHARACTERS_MIN {
            return Err(PasswordError::TooShort);
        }
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(PasswordError::TooLong { length: password.len() });
        }
        if password.chars().any(char::is_control) {
            return Err(PasswordError::ControlCharacter);
        }
        let phc = cost.hasher().hash_password_with_salt(password.as_bytes(), &salt);
        Ok(Self { cost, phc: phc.expect("password and salt lie within the bounds of argon2") })
    }

    /// The hash that a PHC string is. Its cost is bounded, so a check of it is too.
    ///
    /// # Errors
    /// The text is something else, of another algorithm, or its cost is not allowed.
    pub fn parse(text: &str) -> Result<Self, PasswordError> {
        if text.len() > PASSWORD_HASH_BYTES_MAX {
            return Err(PasswordError::NotAHash);
        }
        let phc = phc::PasswordHash::new(text).map_err(|_| PasswordError::NotAHash)?;
        let params = Params::try_from(&phc).map_err(|_| PasswordError::NotAHash)?;
        let is_ours = phc.algorithm.as_str() == Algorithm::Argon2id.as_str()
            && phc.version == Some(Version::V0x13.into())
            && params.p_cost() == 1
            && params.keyid().is_empty()
            && params.data().is_empty()
            && phc.salt.is_some()
            && params.output_len() == Some(HASH_BYTES);
        if !is_ours {
            return Err(PasswordError::NotAHash);
        }
        let cost = PasswordCost::new(params.m_cost(), params.t_cost())?;
        Ok(Self { cost, phc })
    }

    /// The PHC string, to store it.
    #[must_use]
    pub fn expose(&self) -> String {
        self.phc.to_string()
    }

    /// The cost with which it was made. The owner of a cheaper one than is configured now gets a new hash at the next
    /// login, when the password is known.
    #[must_use]
    pub fn cost(&self) -> PasswordCost {
        self.cost
    }

    /// Whether this is the user's password. A user who does not exist has no hash: the answer is no, after as much
    /// work as a user with a hash of `cost` takes, so that time does not tell whether the user exists. A password that is
    /// too long is refused without work, for both.
    #[must_use]
    pub fn verify(user: Option<&Self>, password: &str, cost: PasswordCost) -> bool {
        if password.len() > PASSWORD_BYTES_MAX {
            return false;
        }
        match user {
            Some(hash) => {
                hash.cost.hasher().verify_password(password.as_bytes(), &hash.phc).is_ok()
            }
            None => {
                let spent = cost.hasher().hash_password_with_salt(password.as_bytes(), &[0; 16]);
                std::hint::black_box(spent).is_err_and(|_| false)
            }
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PasswordHash").field("cost", &self.cost).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWORD: &str = "correct horse battery staple";
    const LEAST: PasswordCost = PasswordCost::LEAST;

    fn hash() -> PasswordHash {
        PasswordHash::new(PASSWORD, [5; 16], LEAST).unwrap()
    }

    #[test]
    fn a_password_is_its_own_and_no_other() {
        let kept = PasswordHash::parse(&hash().expose()).unwrap();
        assert!(PasswordHash::verify(Some(&kept), PASSWORD, PasswordCost::DEFAULT));
        assert!(!PasswordHash::verify(Some(&kept), "correct horse battery stapler", LEAST));
        assert!(!PasswordHash::verify(Some(&kept), "", LEAST));
        let other_salt = PasswordHash::new(PASSWORD, [6; 16], LEAST).unwrap();
        assert_ne!(kept.expose(), other_salt.expose());
        assert_eq!(kept.cost(), LEAST);
    }

    #[test]
    fn a_user_who_does_not_exist_has_no_password() {
        assert!(!PasswordHash::verify(None, PASSWORD, LEAST));
        assert!(!PasswordHash::verify(None, "", LEAST));
    }

    /// As the OWASP cheat sheet on password storage has it.
    #[test]
    fn the_default_is_what_is_recommended() {
        assert_eq!(PasswordCost::new(19_456, 2).unwrap(), PasswordCost::DEFAULT);
        let made = PasswordHash::new(PASSWORD, [5; 16], PasswordCost::default()).unwrap();
        assert!(
            made.expose().starts_with("$argon2id$v=19$m=19456,t=2,p=1$BQUFBQUFBQUFBQUFBQUFBQ$")
        );
    }

    #[test]
    fn costs_have_a_floor_and_a_ceiling() {
        for (memory_kib, passes) in [(19_456, 2), (12_288, 3), (9216, 4), (7168, 5), (47_104, 1)] {
            assert!(PasswordCost::new(memory_kib, passes).is_ok(), "OWASP: {memory_kib}, {passes}");
        }
        for (memory_kib, passes) in [
            (0, 0),
            (8, 64),
            (7168, 4),
            (19_456, 1),
            (47_104, 0),
            (262_145, 1),
            (262_144, 5),
            (7168, 65),
        ] {
            let refused = PasswordCost::new(memory_kib, passes);
            assert_eq!(refused, Err(PasswordError::Cost { memory_kib, passes }));
        }
    }

    #[test]
    fn new_passwords_have_bounds() {
        let new = |password: &str| PasswordHash::new(password, [0; 16], LEAST).map(drop);
        assert_eq!(new("short"), Err(PasswordError::TooShort));
        assert_eq!(new("trailing line end\n"), Err(PasswordError::ControlCharacter));
        let long = "x".repeat(PASSWORD_BYTES_MAX + 1);
        assert_eq!(new(&long), Err(PasswordError::TooLong { length: long.len() }));
        assert_eq!(new("pässwörd ütf"), Ok(()));
        assert!(!PasswordHash::verify(Some(&hash()), &long, LEAST));
    }

    #[test]
    fn hostile_hashes_are_refused_before_any_work() {
        let tail = "$BQUFBQUFBQUFBQUFBQUFBQ$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let parse = |text: &str| PasswordHash::parse(text).map(drop).unwrap_err();
        assert!(PasswordHash::parse(&format!("$argon2id$v=19$m=7168,t=5,p=1{tail}")).is_ok());
        for head in [
            "$argon2id$v=19$m=4294967295,t=1,p=1",
            "$argon2id$v=19$m=262144,t=64,p=1",
            "$argon2id$v=19$m=8,t=1,p=1",
        ] {
            assert!(
                matches!(parse(&format!("{head}{tail}")), PasswordError::Cost { .. }),
                "{head}"
            );
        }
        for head in [
            "$argon2i$v=19$m=19456,t=2,p=1",
            "$argon2d$v=19$m=19456,t=2,p=1",
            "$argon2id$v=16$m=19456,t=2,p=1",
            "$argon2id$m=19456,t=2,p=1",
            "$argon2id$v=19$m=19456,t=2,p=16777215",
            "$argon2id$v=19$m=19456,t=2,p=2",
            "$argon2id$v=19$m=19456,t=99999999999,p=1",
            "$argon2id$v=19$m=19456,t=2,p=1,data=AAAA",
            "$argon2id$v=19$m=19456,t=2,p=1,keyid=AAAA",
            "$scrypt$v=19$ln=15,r=8,p=1",
        ] {
            assert_eq!(parse(&format!("{head}{tail}")), PasswordError::NotAHash, "{head}");
        }
        for text in [
            "",
            "$",
            "$argon2id$v=19$m=19456,t=2,p=1",
            "$argon2id$v=19$m=19456,t=2,p=1$BQUFBQUFBQUFBQUFBQUFBQ",
            "$argon2id$v=19$m=19456,t=2,p=1$BQUFBQUFBQUFBQUFBQUFBQ$AAAAAAAAAAAAAAAAAAAAAA",
            &"$".repeat(1_000_000),
        ] {
            assert_eq!(parse(text), PasswordError::NotAHash);
        }
    }

    #[test]
    fn neither_debug_nor_an_error_shows_a_hash_or_a_password() {
        let shown = format!("{:?}", hash());
        assert_eq!(
            shown,
            "PasswordHash { cost: PasswordCost { memory_kib: 7168, passes: 5 }, .. }"
        );
        let refused = PasswordHash::new("secret\u{7}secret", [0; 16], LEAST).unwrap_err();
        assert!(!format!("{refused} {refused:?}").contains("secret"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_a_panic_and_with_a_bound(
            text in r"\$argon2(id|i|d)\$v=1[69]\$m=[0-9]{1,10},t=[0-9]{1,10},p=[0-9]\$[A-Za-z0-9+/]{8,30}\$[A-Za-z0-9+/]{43}"
        ) {
            if let Ok(hash) = PasswordHash::parse(&text) {
                prop_assert!(hash.cost().memory_kib() <= PASSWORD_MEMORY_KIB_MAX);
                prop_assert_eq!(hash.expose(), text);
            }
        }
    }
}
