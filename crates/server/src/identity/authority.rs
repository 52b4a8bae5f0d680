//! The authority of a broker: whether callers are asked for credentials, which credentials count, and who may what. All
//! cores share it. It changes as soon as a change is durable, before that is confirmed.

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use sennit_identity::{Directory, KeyEntry, LoginLogLine, LoginThrottle, MasterSecret, TenantName};
use sennit_model::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::{
    tenant_meter::{TenantMeter, TenantMeters},
    token_issuer::TokenIssuer,
};

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
    /// Whose tokens are taken.
    issuer: OnceLock<TokenIssuer>,
    refused_logins: Mutex<LoginThrottle>,
    password_checks: Semaphore,
    meters: TenantMeters,
    /// Told of each change.
    changes: watch::Sender<()>,
}

#[derive(Clone, Debug)]
enum State {
    /// What was kept is not read, or could not be: nobody is let in.
    Unknown,
    Known(Arc<Directory>),
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
            issuer: OnceLock::new(),
            refused_logins: Mutex::default(),
            password_checks: Semaphore::new(PASSWORD_CHECKS_MAX),
            meters: TenantMeters::default(),
            changes: watch::Sender::new(()),
        }))
    }

    /// From now on this directory is in force.
    pub(crate) fn set(&self, directory: Directory) {
        self.0.meters.set(&directory);
        let mut state = self.0.state.write().unwrap_or_else(PoisonError::into_inner);
        *state = State::Known(Arc::new(directory));
        // Within the lock: a revision that was seen has its directory.
        self.0.revision.fetch_add(1, Ordering::Release);
        drop(state);
        self.0.changes.send_replace(());
    }

    /// The meter of a tenant.
    pub(super) fn meter(&self, tenant: &TenantName) -> Option<Arc<TenantMeter>> {
        self.0.meters.of(tenant)
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

    /// The issuer whose tokens are taken, if there is one.
    pub(crate) fn issuer(&self) -> Option<&TokenIssuer> {
        self.0.issuer.get()
    }

    /// Whether to log that a login was refused.
    pub(super) fn log_refused_login(&self, now: Timestamp) -> Option<LoginLogLine> {
        self.0.refused_logins.lock().unwrap_or_else(PoisonError::into_inner).log(now)
    }

    /// The issuer whose tokens are taken; the first one stays.
    pub(crate) fn set_issuer(&self, issuer: TokenIssuer) {
        let _ = self.0.issuer.set(issuer);
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
        self.0.issuer.get().is_some()
            || self.directory().is_none_or(|directory| directory.has_credentials())
    }

    /// A permit to check a password. `None` if the broker stops.
    pub(crate) async fn password_check(&self) -> Option<SemaphorePermit<'_>> {
        self.0.password_checks.acquire().await.ok()
    }
}

/// Whether a key of this generation counts at this time.
pub(super) fn key_counts(entry: &KeyEntry, generation: u64, now: Timestamp) -> bool {
    let is_before = |until: Option<u64>| until.is_some_and(|until| now.0 < until);
    let has_generation = generation == entry.generation
        || generation + 1 == entry.generation && is_before(entry.previous_until_ms);
    has_generation && (entry.expires_ms.is_none() || is_before(entry.expires_ms))
}
