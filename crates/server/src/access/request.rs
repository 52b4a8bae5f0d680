//! The requests about keys, users, roles and tenants, their answers and refusals, in the broker's own types. It knows no
//! protocol.

use std::time::Duration;

use sennit_identity::{
    CertificateName, CertificateNameError, EntryKey, Holder, IdentityNameError, PasswordError,
    Quotas, Right, RightError, RoleName, TenantName, UnknownVerb, UserName, Verb, Zeroizing,
    limits::{CERTIFICATES_OF_USER_MAX, RIGHTS_MAX, ROLES_MAX},
};

use crate::{
    broker::{configuration::ConfigurationRefusal, control_request::ControlRefusal},
    identity::principal::MissingRight,
};

/// A request. Each variant says its answer.
#[derive(Clone, Debug)]
pub(crate) enum AccessRequest {
    /// Changes something. [`AccessAnswer::Changed`], once that is durable and in force on each core.
    Change(AccessChange),
    /// Lists entries of one kind by name, those behind this text. [`AccessAnswer::Page`].
    List { kind: AccessKind, after: String, most: usize },
    /// Says whether a principal may do something, and why; the one that asks without a name.
    /// [`AccessAnswer::Decision`].
    Decide { who: Option<EntryKey>, verb: Verb, name: String },
}

/// A change.
#[derive(Clone, Debug)]
pub(crate) enum AccessChange {
    /// Creates an API key.
    CreateKey { name: String, holder: Holder, expires_ms: Option<u64> },
    /// Gives a key another secret; the one before counts so much longer.
    RotateKey { key: EntryKey, grace: Duration },
    /// Creates a user, or gives one another password; what the user may stays then.
    SetPassword { user: UserName, password: Zeroizing<String>, holder: Holder },
    /// Sets the names of client certificates that log a user in. Creates the user if there is none; what one may stays.
    SetCertificates { user: UserName, certificates: Vec<CertificateName>, holder: Holder },
    /// Sets the rights of a role.
    SetRole { role: RoleName, rights: Vec<Right> },
    /// Creates a tenant.
    CreateTenant { tenant: TenantName, quotas: Quotas },
    /// Sets all quotas of a tenant.
    SetQuotas { tenant: TenantName, quotas: Quotas },
    /// Gives roles and rights to a key or user.
    Grant { to: EntryKey, roles: Vec<RoleName>, rights: Vec<Right> },
    /// Takes roles and rights from a key or user.
    Revoke { from: EntryKey, roles: Vec<RoleName>, rights: Vec<Right> },
    /// Deletes it.
    Delete(EntryKey),
}

impl AccessChange {
    /// The name of the act in the audit, and what it is done to.
    pub(crate) fn act(&self) -> (&'static str, String) {
        match self {
            Self::CreateKey { name, .. } => ("key create", name.clone()),
            Self::RotateKey { key, .. } => ("key rotate", key.name()),
            Self::SetPassword { user, .. } => ("password set", format!("user.{user}")),
            Self::SetCertificates { user, .. } => ("certificates set", format!("user.{user}")),
            Self::SetRole { role, .. } => ("role set", format!("role.{role}")),
            Self::CreateTenant { tenant, .. } => ("tenant create", format!("tenant.{tenant}")),
            Self::SetQuotas { tenant, .. } => ("quotas set", format!("tenant.{tenant}")),
            Self::Grant { to, .. } => ("grant", to.name()),
            Self::Revoke { from, .. } => ("revoke", from.name()),
            Self::Delete(key) => ("delete", key.name()),
        }
    }
}

/// The kinds of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Keys,
    Users,
    Roles,
    Tenants,
}

/// An entry as it is listed, without anything that is secret.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ListedEntry {
    /// The id of a key, the name of the others.
    pub(crate) id: String,
    /// The purpose of a key.
    pub(crate) name: String,
    pub(crate) holder: Holder,
    pub(crate) created_ms: u64,
    pub(crate) expires_ms: Option<u64>,
    pub(crate) generation: u64,
    /// Those that log a user in.
    pub(crate) certificates: Vec<CertificateName>,
    /// When a key was last used, if it ever was.
    pub(crate) last_used_ms: Option<u64>,
    /// Of a tenant.
    pub(crate) quotas: Option<Quotas>,
    /// Bytes that a tenant stores which has a quota of them.
    pub(crate) stored_bytes: Option<u64>,
}

/// The decision about one right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DecidedRight {
    pub(crate) is_allowed: bool,
    /// The reason, with the right that decided if one did.
    pub(crate) reason: String,
}

/// The answer to a request that was not refused.
#[derive(Clone, Debug)]
pub(crate) enum AccessAnswer {
    Changed {
        /// The id of the key, or the name.
        id: String,
        /// The whole key, where it is new: it is not told again.
        key: Option<Zeroizing<String>>,
        /// Whether something was created that did not exist before.
        created: bool,
    },
    Page {
        entries: Vec<ListedEntry>,
        /// Whether others follow.
        more: bool,
    },
    Decision(DecidedRight),
}

/// The reason why a request is refused. A refusal changes nothing.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum AccessRefusal {
    #[error(transparent)]
    Missing(#[from] MissingRight),
    #[error(transparent)]
    Configuration(#[from] ConfigurationRefusal),
    #[error(transparent)]
    Control(#[from] ControlRefusal),
    #[error(transparent)]
    Right(#[from] RightError),
    #[error(transparent)]
    Name(#[from] IdentityNameError),
    #[error(transparent)]
    Certificate(#[from] CertificateNameError),
    #[error(transparent)]
    Verb(#[from] UnknownVerb),
    #[error(transparent)]
    Password(#[from] PasswordError),
    #[error("there is no {0}")]
    Unknown(String),
    #[error("there is a {0} already")]
    Exists(String),
    #[error("{0} is a role that every broker has: it cannot be changed")]
    Standard(RoleName),
    #[error("{0} is in use: take it from all keys and users first")]
    InUse(String),
    #[error("{0} logs in {1} already: take it from that user first")]
    CertificateTaken(CertificateName, UserName),
    #[error("a new user needs a password, or the name of a certificate")]
    NoCredential,
    #[error(
        "CERTIFICATES_OF_USER_MAX is {CERTIFICATES_OF_USER_MAX}: name fewer certificates, or create another user"
    )]
    TooManyCertificates,
    #[error(
        "the first key or user must have the role admin, for good and in no tenant, and a user a password: nobody could create the next one otherwise"
    )]
    FirstNotAdmin,
    #[error("this is the last admin for good: create another one first")]
    LastAdmin,
    #[error("tenants are managed by the operator, not by a tenant")]
    NotForTenants,
    #[error("ROLES_MAX is {ROLES_MAX}: take one away first, or put rights together in one role")]
    TooManyRoles,
    #[error("RIGHTS_MAX is {RIGHTS_MAX}: take one away first, or put rights together in a role")]
    TooManyRights,
    #[error("an expiry lies in the future")]
    Expired,
    #[error("a key's name is 1 to 200 bytes without control characters")]
    KeyName,
    #[error("the broker's secret cannot be read or written: {0}")]
    Secret(String),
}
