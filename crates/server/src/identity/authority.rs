//! The authority of a broker: whether callers are asked for credentials, which credentials count, and who may what. All
//! cores share it. It changes as soon as a change is durable, before that is confirmed.

use std::{
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use sennit_identity::{
    ApiKey, Directory, KeyEntry, MasterSecret, PasswordCost, PasswordHash, UserEntry, UserName,
};
use sennit_model::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::principal::Principal;

/// Passwords that are checked at once: each check takes some 20 MiB and 20 ms.
const PASSWORD_CHECKS_MAX: usize = 2;

/// The authority of a broker. Clones are one.
#[derive(Clone)]
pub(crate) struct Authority(Arc<Shared>);

struct Shared {
    state: RwLock<State>,
    /// Counts the changes: who has decided something at this revision may do it again without asking.
    revision: AtomicU64,
    /// The secret from which those of API keys are derived, once there are any.
    master: OnceLock<MasterSecret>,
    password_checks: Semaphore,
    /// Told of each change.
    changes: watch::Sender<()>,
}

#[derive(Clone, Debug)]
enum State {
    /// What was kept is not read, or could not be: nobody is let in.
    Unknown,
    Known(Arc<Directory>),
}

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

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Default for Authority {
    /// One that asks nobody for credentials, because there are none.
    fn default() -> Self {
        Self::in_state(State::Known(Arc::default()))
    }
}

impl Authority {
    /// The authority of a broker that has not read yet what it has kept: nobody is let in.
    pub(crate) fn before_start() -> Self {
        Self::in_state(State::Unknown)
    }

    fn in_state(state: State) -> Self {
        Self(Arc::new(Shared {
            state: RwLock::new(state),
            revision: AtomicU64::new(1),
            master: OnceLock::new(),
            password_checks: Semaphore::new(PASSWORD_CHECKS_MAX),
            changes: watch::Sender::new(()),
        }))
    }

    /// From now on this directory is in force.
    pub(crate) fn set(&self, directory: Directory) {
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = State::Known(Arc::new(directory));
        // Within the lock: a revision that was seen has its directory.
        self.0.revision.fetch_add(1, Ordering::Release);
        drop(state);
        self.0.changes.send_replace(());
    }

    /// Is told of each change from now on.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changes.subscribe()
    }

    /// The secret of API keys; the first one stays.
    pub(crate) fn set_master(&self, master: MasterSecret) {
        let _ = self.0.master.set(master);
    }

    /// The secret of API keys, once there are any.
    pub(crate) fn master(&self) -> Option<&MasterSecret> {
        self.0.master.get()
    }

    /// The number of the last change.
    pub(crate) fn revision(&self) -> u64 {
        self.0.revision.load(Ordering::Acquire)
    }

    /// The directory in force; `None` while it is not known.
    pub(crate) fn directory(&self) -> Option<Arc<Directory>> {
        match &*self.0.state.read().unwrap_or_else(PoisonError::into_inner) {
            State::Unknown => None,
            State::Known(directory) => Some(directory.clone()),
        }
    }

    /// Whether callers are asked for credentials.
    pub(crate) fn asks(&self) -> bool {
        self.directory().is_none_or(|directory| directory.has_credentials())
    }

    /// The principal that the credentials are those of.
    ///
    /// # Errors
    /// They are not valid, or not known to be.
    pub(crate) async fn log_in(
        &self,
        credential: &Credential,
        now: Timestamp,
    ) -> Result<Principal, LoginRefusal> {
        let directory = self.directory().ok_or(LoginRefusal::NotReady)?;
        if !directory.has_credentials() {
            // Nobody is asked: a client that shows what was valid elsewhere is none the worse for it.
            return Ok(Principal::local(self.clone()));
        }
        match credential {
            Credential::None => Err(LoginRefusal::Missing),
            Credential::Key(text) => self.key_principal(&directory, text, now),
            Credential::Password { user, password } => {
                self.user_principal(&directory, user, password).await
            }
        }
    }

    fn key_principal(
        &self,
        directory: &Directory,
        text: &str,
        now: Timestamp,
    ) -> Result<Principal, LoginRefusal> {
        let key = ApiKey::parse(text).map_err(|_| LoginRefusal::Invalid)?;
        let master = self.master().ok_or(LoginRefusal::Invalid)?;
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
        Ok(Principal::of_key(self.clone(), key.id(), generation))
    }

    async fn user_principal(
        &self,
        directory: &Directory,
        user: &str,
        password: &str,
    ) -> Result<Principal, LoginRefusal> {
        let name = user.parse::<UserName>().ok();
        let entry = name.as_ref().and_then(|name| directory.user(name)).cloned();
        let hash = entry.as_deref().map(UserEntry::hash).transpose();
        let hash = hash.map_err(|_| LoginRefusal::Invalid)?;
        let password = password.to_owned();
        let Ok(permit) = self.0.password_checks.acquire().await else {
            return Err(LoginRefusal::NotReady);
        };
        let check = move || PasswordHash::verify(hash.as_ref(), &password, PasswordCost::DEFAULT);
        let is_right = tokio::task::spawn_blocking(check).await.unwrap_or(false);
        drop(permit);
        match (name, entry) {
            (Some(name), Some(entry)) if is_right => {
                Ok(Principal::of_user(self.clone(), name, entry.generation))
            }
            _ => Err(LoginRefusal::Invalid),
        }
    }
}

/// Whether a key of this generation counts at this time.
pub(super) fn key_counts(entry: &KeyEntry, generation: u64, now: Timestamp) -> bool {
    let is_before = |until: Option<u64>| until.is_some_and(|until| now.0 < until);
    let has_generation = generation == entry.generation
        || generation + 1 == entry.generation && is_before(entry.previous_until_ms);
    has_generation && (entry.expires_ms.is_none() || is_before(entry.expires_ms))
}
