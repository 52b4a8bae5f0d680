//! The names of users, roles and tenants. They are checked when they are parsed, and trusted afterwards.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::limits::IDENTITY_NAME_BYTES_MAX;

/// The reason why a text is no name of a user, role or tenant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityNameError {
    /// The name is empty or too long.
    #[error("a name has 1 to {IDENTITY_NAME_BYTES_MAX} characters, this one has {0}")]
    Length(usize),
    /// A character is not allowed.
    #[error("{character:?} at byte {position}: the name is made of {allowed}")]
    Character {
        /// The character.
        character: char,
        /// Its position in bytes.
        position: usize,
        /// The characters of such a name.
        allowed: &'static str,
    },
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $allowed:literal, $others:pat) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $type {
            type Err = IdentityNameError;

            fn from_str(text: &str) -> Result<Self, IdentityNameError> {
                if text.is_empty() || text.len() > IDENTITY_NAME_BYTES_MAX {
                    return Err(IdentityNameError::Length(text.len()));
                }
                let is_allowed = |c: char| matches!(c, 'a'..='z' | 'A'..='Z' | '0'..='9' | $others);
                match text.char_indices().find(|(_, character)| !is_allowed(*character)) {
                    Some((position, character)) => {
                        let allowed = $allowed;
                        Err(IdentityNameError::Character { character, position, allowed })
                    }
                    None => Ok(Self(text.into())),
                }
            }
        }

        impl TryFrom<String> for $type {
            type Error = IdentityNameError;

            fn try_from(text: String) -> Result<Self, IdentityNameError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.as_str().to_owned()
            }
        }

        impl Borrow<str> for $type {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

name! {
    /// The name of a user: a person who logs in with a password.
    UserName, "a-z A-Z 0-9 _ - . @ +", '_' | '-' | '.' | '@' | '+'
}
name! {
    /// The name of a role: a set of rights.
    RoleName, "a-z A-Z 0-9 _ -", '_' | '-'
}
name! {
    /// The name of a tenant, which is the first part of the names of its topics.
    TenantName, "a-z A-Z 0-9 _ -", '_' | '-'
}

impl TenantName {
    /// Returns whether a topic or key of this name is the tenant's: `acme.orders` and `acme/orders` are those of `acme`.
    #[must_use]
    pub fn owns(&self, name: &str) -> bool {
        name.strip_prefix(&*self.0).is_some_and(|rest| rest.starts_with(['.', '/']))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_characters_and_no_others() {
        assert!("ada.l@example.org".parse::<UserName>().is_ok());
        for text in ["", "a b", "a/b", "ü", "a:b", &"x".repeat(65)] {
            assert!(text.parse::<UserName>().is_err(), "{text:?}");
        }
        assert!("on-call_2".parse::<RoleName>().is_ok());
        for text in ["a.b", "a@b", ""] {
            assert!(text.parse::<TenantName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_tenant_owns_the_names_below_its_own() {
        let acme: TenantName = "acme".parse().unwrap();
        for (name, expected) in [
            ("acme.orders", true),
            ("acme/orders", true),
            ("acme", false),
            ("acme2.orders", false),
            ("other.acme.orders", false),
        ] {
            assert_eq!(acme.owns(name), expected, "{name}");
        }
    }
}
