//! Logins: the principal that the credentials of a client are those of. It knows no protocol.

use std::fmt;

use sennit_identity::{
    ApiKey, Directory, PasswordCost, PasswordHash, TokenRefusal, UserEntry, UserName,
};
use sennit_model::Timestamp;

use super::{
    authority::{Authority, key_counts},
    principal::Principal,
    token_owner::TokenOwner,
};

/// Credentials that a client shows. Debug shows no secret.
#[derive(Clone)]
pub(crate) enum Credential {
    /// None.
    None,
    /// An API key or a token, as text.
    Key(String),
    /// The name of a user with a password, as text.
    Password { user: String, password: String },
}

/// The reason why credentials are refused. Clients are told the same of each that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginRefusal {
    /// None were shown.
    #[error("credentials are needed: an API key, a token, or a user's name and password")]
    Missing,
    /// They are none, wrong, expired, or not known any more.
    #[error("these credentials are not valid")]
    Invalid,
    /// They are a token whose time is over: its client has to get a new one.
    #[error("the token has expired")]
    Expired,
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
    let login = check(authority, credential, now).await;
    if let Err(refusal @ (LoginRefusal::Invalid | LoginRefusal::Expired)) = &login
        && let Some(line) = authority.log_refused_login(now)
    {
        let (who, left_out) = (shown(credential), line.left_out);
        tracing::warn!(who, %refusal, left_out, "a login was refused");
    }
    login
}

/// Credentials in the log: nothing that was shown, except the name of a user or the id of a key.
fn shown(credential: &Credential) -> String {
    match credential {
        Credential::None => "nobody".to_owned(),
        Credential::Key(text) => match ApiKey::parse(text) {
            Ok(key) => format!("key:{}", key.id()),
            Err(_) => "a key or token".to_owned(),
        },
        Credential::Password { user, .. } => match user.parse::<UserName>() {
            Ok(name) => format!("user:{name}"),
            Err(_) => "a user".to_owned(),
        },
    }
}

async fn check(
    authority: &Authority,
    credential: &Credential,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let directory = authority.directory().ok_or(LoginRefusal::NotReady)?;
    if !authority.asks() {
        // Nobody is asked: a client that shows what was valid elsewhere is none the worse for it.
        return Ok(Principal::local(authority.clone()));
    }
    match credential {
        Credential::None => Err(LoginRefusal::Missing),
        Credential::Key(text) if ApiKey::is_meant_by(text) => {
            key_principal(authority, &directory, text, now)
        }
        Credential::Key(text) => token_principal(authority, &directory, text, now),
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

fn token_principal(
    authority: &Authority,
    directory: &Directory,
    text: &str,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let issuer = authority.issuer().ok_or(LoginRefusal::Invalid)?;
    let claims = issuer.verify(text, now).map_err(|refusal| {
        tracing::debug!(%refusal, "a token was refused");
        match refusal {
            TokenRefusal::Expired => LoginRefusal::Expired,
            TokenRefusal::NoKeys => LoginRefusal::NotReady,
            _ => LoginRefusal::Invalid,
        }
    })?;
    let owner = TokenOwner::new(claims).map_err(|error| {
        tracing::debug!(%error, "a token was refused");
        LoginRefusal::Invalid
    })?;
    let tenant = owner.holder().tenant.as_ref();
    if tenant.is_some_and(|tenant| directory.tenant(tenant).is_none()) {
        tracing::debug!("a token of a tenant that is not there was refused");
        return Err(LoginRefusal::Invalid);
    }
    Ok(Principal::of_token(authority.clone(), owner))
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
