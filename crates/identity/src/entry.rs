//! The entries that keep who may do what: of keys, users, roles and tenants, each a line of JSON. docs/reference/identity.md has them.
//! It knows no place where they lie.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    api_key::ApiKeyId,
    certificate_name::CertificateName,
    name::{RoleName, TenantName, UserName},
    password::{PasswordError, PasswordHash},
    quota::Quotas,
    right::Right,
};

/// The tenant, the roles and the rights of a key or a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// The tenant that it belongs to; without, it belongs to the broker's operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<TenantName>,
    /// Its roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RoleName>,
    /// Its own rights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rights: Vec<Right>,
}

/// An API key. Its secret is derived, and not kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyEntry {
    /// What it is for, for people.
    pub name: String,
    /// The generation that counts; a rotation adds 1.
    pub generation: u64,
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// When it ends; without, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_ms: Option<u64>,
    /// Until when the generation before counts as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_until_ms: Option<u64>,
    /// What it may.
    #[serde(flatten)]
    pub holder: Holder,
}

/// A user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserEntry {
    /// The hash of the password, a PHC string; without, no password logs the user in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// How often the password was set; a connection made with an older one ends.
    pub generation: u64,
    /// When the user was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// The names of client certificates that log the user in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub certificates: Vec<CertificateName>,
    /// The tenant, roles and rights of the user.
    #[serde(flatten)]
    pub holder: Holder,
}

impl UserEntry {
    /// The hash of the password, if the user has one.
    ///
    /// # Errors
    /// The hash cannot be checked.
    pub fn hash(&self) -> Result<Option<PasswordHash>, PasswordError> {
        self.password.as_deref().map(PasswordHash::parse).transpose()
    }
}

/// A role: a set of rights.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleEntry {
    /// Its rights.
    pub rights: Vec<Right>,
}

/// A tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEntry {
    /// When it was created, in milliseconds since 1970.
    pub created_ms: u64,
    /// Its quotas.
    #[serde(flatten)]
    pub quotas: Quotas,
}

/// The thing that an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EntryKey {
    /// An API key.
    Key(ApiKeyId),
    /// A user.
    User(UserName),
    /// A role.
    Role(RoleName),
    /// A tenant.
    Tenant(TenantName),
}

impl EntryKey {
    /// The name of the entry.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Key(id) => format!("key.{id}"),
            Self::User(name) => format!("user.{name}"),
            Self::Role(name) => format!("role.{name}"),
            Self::Tenant(name) => format!("tenant.{name}"),
        }
    }

    /// The thing that an entry of this name is about; `None` if it is none.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        let (kind, name) = name.split_once('.')?;
        Some(match kind {
            "key" => Self::Key(name.parse().ok()?),
            "user" => Self::User(name.parse().ok()?),
            "role" => Self::Role(name.parse().ok()?),
            "tenant" => Self::Tenant(name.parse().ok()?),
            _ => return None,
        })
    }
}

/// The bytes of an entry.
#[must_use]
pub fn entry_bytes(entry: &impl Serialize) -> Vec<u8> {
    // Names, texts and numbers have a form in JSON.
    serde_json::to_vec(entry).unwrap_or_default()
}

/// The entry that the bytes are.
///
/// # Errors
/// Says what is wrong with them. It repeats no value.
pub(crate) fn parse_entry<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        format!("line {} column {}: not as it is written", error.line(), error.column())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_lines_of_json_that_are_read_again() {
        let entry = KeyEntry {
            name: "billing".into(),
            generation: 2,
            created_ms: 5,
            expires_ms: None,
            previous_until_ms: Some(9),
            holder: Holder {
                tenant: Some("acme".parse().unwrap()),
                roles: vec!["viewer".parse().unwrap()],
                rights: vec!["publish acme.>".parse().unwrap()],
            },
        };
        let bytes = entry_bytes(&entry);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"name":"billing","generation":2,"created_ms":5,"previous_until_ms":9,"tenant":"acme","roles":["viewer"],"rights":["allow publish acme.>"]}"#
        );
        assert_eq!(parse_entry(&bytes), Ok(entry));
        let wrong = String::from_utf8_lossy(&bytes).replace("publish", "fly");
        let error = parse_entry::<KeyEntry>(wrong.as_bytes()).unwrap_err();
        assert!(!error.contains("acme"), "{error}");
    }

    #[test]
    fn a_user_has_a_password_or_certificates_or_both() {
        let entry = UserEntry {
            password: None,
            generation: 0,
            created_ms: 5,
            certificates: vec![
                "cn:billing".parse().unwrap(),
                "uri:spiffe://sennit/billing".parse().unwrap(),
            ],
            holder: Holder { roles: vec!["viewer".parse().unwrap()], ..Holder::default() },
        };
        let bytes = entry_bytes(&entry);
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            r#"{"generation":0,"created_ms":5,"certificates":["cn:billing","uri:spiffe://sennit/billing"],"roles":["viewer"]}"#
        );
        assert!(matches!(entry.hash(), Ok(None)));
        assert_eq!(parse_entry(&bytes), Ok(entry.clone()));
        // As it was written before users had certificates.
        let older =
            r#"{"password":"$argon2id$x","generation":1,"created_ms":5,"roles":["viewer"]}"#;
        let user = UserEntry {
            password: Some("$argon2id$x".into()),
            generation: 1,
            certificates: Vec::new(),
            ..entry
        };
        assert_eq!(parse_entry(older.as_bytes()), Ok(user.clone()));
        assert_eq!(String::from_utf8_lossy(&entry_bytes(&user)), older);
        assert!(user.hash().is_err(), "it is no hash");
        let wrong = r#"{"generation":0,"created_ms":5,"certificates":["billing"]}"#;
        assert!(parse_entry::<UserEntry>(wrong.as_bytes()).is_err());
    }

    #[test]
    fn names_of_entries_find_their_way_back() {
        for name in ["key.0w3ge1r70w3g", "user.ada.l@example.org", "role.ops", "tenant.acme"] {
            assert_eq!(EntryKey::of_name(name).unwrap().name(), name);
        }
        for name in ["", "key", "key.x", "role.a.b", "other.a"] {
            assert_eq!(EntryKey::of_name(name), None, "{name}");
        }
    }
}
