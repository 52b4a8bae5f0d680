//! Logins: the principal that the credentials of a client are those of. It knows no protocol.
//!
//! A password can be guessed, and its check is costly: failed ones cost their address time, and are refused before the check
//! once there are too many. Keys, tokens and certificates cannot be guessed: they are checked at once, and nothing is counted.

use std::{fmt, time::Duration};

use sennit_identity::{
    ApiKey, Claims, Directory, LoginAdmission, PasswordCost, PasswordHash, TokenRefusal, UserEntry,
    UserName,
};
use sennit_model::Timestamp;

use super::{
    authority::{Authority, key_counts},
    certificate_owner::{self, CertificateOwner},
    principal::Principal,
    token_owner::{ClaimError, TokenOwner},
};
use crate::runtime::{metrics::CoreMetrics, peer::Peer};

/// Credentials that a client shows. Debug shows no secret.
#[derive(Clone)]
pub(crate) enum Credential {
    /// None; then its certificate counts, if it has one.
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
    #[error(
        "credentials are needed: an API key, a token, a user's name and password, or a client certificate"
    )]
    Missing,
    /// They are none, wrong, expired, or not known any more.
    #[error("these credentials are not valid")]
    Invalid,
    /// They are a token whose time is over: its client has to get a new one.
    #[error("the token has expired")]
    Expired,
    /// Too many logins with a password from the client's address have failed: this one was not looked at.
    #[error("too many logins from this address have failed: try again in {} s", retry_seconds(.0))]
    TooMany(Duration),
    /// The broker does not know yet which are valid.
    #[error("the broker cannot tell yet which credentials are valid")]
    NotReady,
}

/// Whole seconds to wait.
pub(crate) fn retry_seconds(retry_after: &Duration) -> u64 {
    u64::try_from(retry_after.as_millis().div_ceil(1000)).unwrap_or(u64::MAX).max(1)
}

impl LoginRefusal {
    fn count(self, metrics: &CoreMetrics) {
        match self {
            Self::Invalid | Self::Expired => metrics.logins_refused.add(1),
            Self::TooMany(_) => metrics.logins_locked_out.add(1),
            // Many clients ask first, and show credentials when they are told to.
            Self::Missing | Self::NotReady => {}
        }
    }
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

/// The principal that the credentials are those of, which this peer shows.
///
/// # Errors
/// They are not valid, or not known to be, or too many before them were not.
pub(crate) async fn log_in(
    authority: &Authority,
    credential: &Credential,
    peer: &Peer,
    metrics: &CoreMetrics,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let login = check(authority, credential, peer, now).await;
    let Err(refusal) = login else { return login };
    refusal.count(metrics);
    if matches!(refusal, LoginRefusal::Missing | LoginRefusal::NotReady) {
        return login;
    }
    if let Some(line) = authority.log_refused_login(now) {
        let (who, address, left_out) = (shown(credential, peer), peer.address(), line.left_out);
        tracing::warn!(who, %address, %refusal, left_out, "a login was refused");
    }
    login
}

/// Credentials in the log: nothing that was shown, except the name of a user or of a certificate, or the id of a key.
fn shown(credential: &Credential, peer: &Peer) -> String {
    match credential {
        Credential::None => {
            peer.certificate().map_or_else(|| "nobody".to_owned(), certificate_owner::shown)
        }
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
    peer: &Peer,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let directory = authority.directory().ok_or(LoginRefusal::NotReady)?;
    if !authority.asks() {
        // Nobody is asked: a client that shows what was valid elsewhere is none the worse for it.
        return Ok(Principal::local(authority.clone()));
    }
    match credential {
        Credential::None => match peer.certificate() {
            Some(der) => certificate_principal(authority, &directory, der, now),
            None => Err(LoginRefusal::Missing),
        },
        Credential::Key(text) if ApiKey::is_meant_by(text) => {
            key_principal(authority, &directory, text, now)
        }
        Credential::Key(text) => token_principal(authority, &directory, text, now),
        Credential::Password { user, password } => {
            user_principal(authority, user, password, peer, now).await
        }
    }
}

/// Counts a login as failed until it succeeds, and waits as long as those before it make it wait.
async fn admitted(
    authority: &Authority,
    peer: &Peer,
    user: &str,
    now: Timestamp,
) -> Result<(), LoginRefusal> {
    match authority.attempt_login(peer.address(), user, now) {
        LoginAdmission::After(Duration::ZERO) => {}
        LoginAdmission::After(delay) => tokio::time::sleep(delay).await,
        LoginAdmission::Refused { retry_after } => return Err(LoginRefusal::TooMany(retry_after)),
    }
    Ok(())
}

fn certificate_principal(
    authority: &Authority,
    directory: &Directory,
    der: &[u8],
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let owner = CertificateOwner::of(der, directory, now).map_err(|refusal| {
        tracing::debug!(%refusal, "a certificate was refused");
        LoginRefusal::Invalid
    })?;
    Ok(Principal::of_certificate(authority.clone(), owner))
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
    let principal = Principal::of_key(authority.clone(), key.id(), generation);
    principal.note_use(now);
    Ok(principal)
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
    let owner = owner(directory, claims).map_err(|error| {
        tracing::debug!(%error, "a token was refused");
        LoginRefusal::Invalid
    })?;
    Ok(Principal::of_token(authority.clone(), owner))
}

fn owner(directory: &Directory, claims: Claims) -> Result<TokenOwner, ClaimError> {
    let owner = TokenOwner::new(claims)?;
    let tenant = owner.holder().tenant.as_ref();
    match tenant.filter(|tenant| directory.tenant(tenant).is_none()) {
        Some(tenant) => Err(ClaimError::UnknownTenant(tenant.clone())),
        None => Ok(owner),
    }
}

/// The principal of whom an application that is trusted claims this. Where nobody is asked for credentials it may do everything, as
/// others do.
///
/// # Errors
/// The claims say nothing that counts, or it is not known yet what counts.
pub(crate) fn claimed_principal(
    authority: &Authority,
    claims: Claims,
) -> Result<Principal, ClaimError> {
    let directory = authority.directory().ok_or(ClaimError::NotReady)?;
    let owner = owner(&directory, claims)?;
    Ok(match authority.asks() {
        true => Principal::of_token(authority.clone(), owner),
        false => Principal::local_owner(authority.clone(), owner),
    })
}

async fn user_principal(
    authority: &Authority,
    user: &str,
    password: &str,
    peer: &Peer,
    now: Timestamp,
) -> Result<Principal, LoginRefusal> {
    let entry_of = |name: &UserName| authority.directory()?.user(name).cloned();
    let name = user.parse::<UserName>().ok();
    if let Some(name) = &name
        && let Some(entry) = entry_of(name)
        && authority.recalls(peer.address(), (name, &entry), password, now)
    {
        return Ok(Principal::of_user(authority.clone(), name.clone(), &entry));
    }
    admitted(authority, peer, user, now).await?;
    let entry = name.as_ref().and_then(entry_of);
    let hash = entry.as_deref().map(UserEntry::hash).transpose();
    let hash = hash.map_err(|_| LoginRefusal::Invalid)?.flatten();
    let checked = password.to_owned();
    let Some(permit) = authority.password_check().await else {
        return Err(LoginRefusal::NotReady);
    };
    let check = move || PasswordHash::verify(hash.as_ref(), &checked, PasswordCost::DEFAULT);
    let is_right = tokio::task::spawn_blocking(check).await.unwrap_or(false);
    drop(permit);
    match (name, entry) {
        (Some(name), Some(entry)) if is_right => {
            authority.login_succeeded(peer.address(), user);
            authority.note_verified(peer.address(), (&name, &entry), password);
            Ok(Principal::of_user(authority.clone(), name, &entry))
        }
        _ => Err(LoginRefusal::Invalid),
    }
}
