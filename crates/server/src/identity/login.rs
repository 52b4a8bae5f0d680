//! Logins: the principal that the credentials of a client are those of. It knows no protocol.

use std::fmt;

use sennit_identity::{ApiKey, Directory, PasswordCost, PasswordHash, UserEntry, UserName};
use sennit_model::Timestamp;

use super::{
    authority::{Authority, key_counts},
    principal::Principal,
};

/// Credentials that a client shows. Debug shows no secret.
#[derive(Clone)]
pub(crate) enum Credential {
    /// None.
    None,
    /// An API key, as text.
    Key(String),
    /// The name of a user with a password, as text.
    Password { user: String, password: String },
}

/// The reason why credentials are refused. Clients are told the same of each that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginRefusal {
    /// None were shown.
    #[error("credentials are needed: an API key, or a user's name and password")]
    Missing,
    /// They are none, wrong, expired, or not known any more.
    #[error("these credentials are not valid")]
    Invalid,
    /// The broker does not know yet which are valid.
    #[error("the broker cannot tell yet which credentials are valid")]
    NotReady,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "Credential::None",
            Self::Key(_) => "Credential::Key(..)",
            Self::Password { .. } => "Credential::Password(..)",
        })
    }
}

/// The principal that the credentials are those of.
///
/// # Errors
/// They are not valid, or not known to be.
pub(crate) async fn log_in(
    authority: &Authority,
    credential: &Credential,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let directory = authority.directory().ok_or(LoginRefusal::NotReady)?;
    if !directory.has_credentials() {
        // Nobody is asked: a client that shows what was valid elsewhere is none the worse for it.
        return Ok(Principal::local(authority.clone()));
    }
    match credential {
        Credential::None => Err(LoginRefusal::Missing),
        Credential::Key(text) => key_principal(authority, &directory, text, now),
        Credential::Password { user, password } => {
            user_principal(authority, &directory, user, password).await
        }
    }
}

fn key_principal(
    authority: &Authority,
    directory: &Directory,
    text: &str,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let key = ApiKey::parse(text).map_err(|_| LoginRefusal::Invalid)?;
    let master = authority.master().ok_or(LoginRefusal::Invalid)?;
    let entry = directory.key(&key.id());
    // Of a key that is not there as much is computed as of one that is.
    let generation = entry.map_or(0, |entry| entry.generation);
    let is_current = key.verify(master, generation);
    let is_previous = key.verify(master, generation.saturating_sub(1));
    let entry = entry.ok_or(LoginRefusal::Invalid)?;
    let generation = match (is_current, is_previous) {
        (true, _) => generation,
        (false, true) => generation.saturating_sub(1),
        (false, false) => return Err(LoginRefusal::Invalid),
    };
    if !key_counts(entry, generation, now) {
        return Err(LoginRefusal::Invalid);
    }
    Ok(Principal::of_key(authority.clone(), key.id(), generation))
}

async fn user_principal(
    authority: &Authority,
    directory: &Directory,
    user: &str,
    password: &str,
) -> Result<Principal, LoginRefusal> {
    let name = user.parse::<UserName>().ok();
    let entry = name.as_ref().and_then(|name| directory.user(name)).cloned();
    let hash = entry.as_deref().map(UserEntry::hash).transpose();
    let hash = hash.map_err(|_| LoginRefusal::Invalid)?;
    let password = password.to_owned();
    let Some(permit) = authority.password_check().await else {
        return Err(LoginRefusal::NotReady);
    };
    let check = move || PasswordHash::verify(hash.as_ref(), &password, PasswordCost::DEFAULT);
    let is_right = tokio::task::spawn_blocking(check).await.unwrap_or(false);
    drop(permit);
    match (name, entry) {
        (Some(name), Some(entry)) if is_right => {
            Ok(Principal::of_user(authority.clone(), name, entry.generation))
        }
        _ => Err(LoginRefusal::Invalid),
    }
}
