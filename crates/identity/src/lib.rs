//! Who asks, and what they may: credentials and the rights of those who show them. It knows no topic, no socket and no
//! storage; time, random numbers and the secrets of the broker are arguments.
//!
//! In reading order: a `right` allows or denies a `verb` for what matches a `pattern`; a `role` is a named set of them;
//! the `rights` of a principal decide. The `directory` has the `entry` of each key, user, role and tenant; `last_use` is that of a key. An `api_key`,
//! a `password`, a `token` of an issuer and a `certificate` are what they show; a `token_key` of the issuer's `key_set`
//! checks the signature of a token, and `mint` makes tokens for development. A user accepts certificates by a
//! `certificate_name`. The `lockout` says what failed logins cost.

mod address_prefix;
mod api_key;
mod base32;
mod certificate;
mod certificate_name;
mod directory;
mod entry;
mod key_set;
mod key_set_cache;
mod last_use;
pub mod limits;
mod lockout;
mod mint;
mod name;
mod password;
mod pattern;
mod quota;
mod right;
mod rights;
mod ring_provider;
mod role;
mod secret;
mod stored_meter;
mod token;
mod token_key;
mod verb;

pub use address_prefix::AddressPrefix;
pub use api_key::{
    API_KEY_CHARACTERS, API_KEY_ID_CHARACTERS, API_KEY_ID_RANDOM_BYTES, API_KEY_PREFIX, ApiKey,
    ApiKeyError, ApiKeyId,
};
pub use certificate::{CertificateError, CertificateFingerprint, CertificateSubject};
pub use certificate_name::{CertificateName, CertificateNameError};
pub use directory::{Directory, EntryError, is_admin, is_standard_role};
pub use entry::{EntryKey, Holder, KeyEntry, RoleEntry, TenantEntry, UserEntry, entry_bytes};
pub use key_set::{KeySet, KeySetError};
pub use key_set_cache::{FetchJitter, KeySetCache};
pub use last_use::{LAST_USE_ENTRY_PREFIX, LastUse};
pub use lockout::{LoginAdmission, LoginLogLine, LoginThrottle};
pub use mint::{MintError, NewToken, SigningKey};
pub use name::{IdentityNameError, RoleName, TenantName, UserName};
pub use password::{PasswordCost, PasswordError, PasswordHash, SALT_BYTES};
pub use pattern::{FilledPattern, PatternError, RightPattern};
pub use quota::{OverQuota, QuotaMeter, QuotaRetry, Quotas};
pub use right::{Right, RightEffect, RightError};
pub use rights::{DENY_ALL, Decision, DecisionReason, RightSource, Rights};
pub use ring::rand::SystemRandom;
pub use role::{ADMIN, STANDARD_ROLES, StandardRole};
pub use secret::{MasterSecret, SECRET_BYTES, Secret};
pub use stored_meter::{StoredBytes, StoredMeter};
pub use token::{Claims, TokenRefusal, TokenRules, TokenRulesError};
pub use token_key::{TokenAlgorithm, TokenKey, TokenKeyError, UnknownAlgorithm};
pub use verb::{Subject, UnknownVerb, Verb, VerbSet};
pub use zeroize::Zeroizing;
