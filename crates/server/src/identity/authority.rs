//! The authority of a broker: whether callers are asked for credentials, which credentials count, and who may what. All
//! cores share it. It changes as soon as a change is durable, before that is confirmed.

use std::{
    fmt,
    net::IpAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use sennit_identity::{
    Directory, KeyEntry, LoginAdmission, LoginLogLine, LoginThrottle, MasterSecret, TenantName,
    UserEntry, UserName,
};
use sennit_model::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::{
    key_uses::KeyUses,
    tenant_meter::{TenantMeter, TenantMeters},
    token_issuer::TokenIssuer,
    verified_passwords::VerifiedPasswords,
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
    /// What failed logins cost those who come after them.
    throttle: Mutex<LoginThrottle>,
    verified: Mutex<VerifiedPasswords>,
    password_checks: Semaphore,
    meters: TenantMeters,
    key_uses: KeyUses,
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
            throttle: Mutex::default(),
            verified: Mutex::default(),
            password_checks: Semaphore::new(PASSWORD_CHECKS_MAX),
            meters: TenantMeters::default(),
            key_uses: KeyUses::default(),
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

    /// Has a tenant with a quota of stored bytes store nothing until these are measured for the first time.
    pub(crate) fn wait_for_measurements(&self) {
        self.0.meters.wait_for_measurements();
    }

    /// The meter of a tenant.
    pub(crate) fn meter(&self, tenant: &TenantName) -> Option<Arc<TenantMeter>> {
        self.0.meters.of(tenant)
    }

    /// The meter of the tenant that owns the topic of this name, if one does.
    pub(crate) fn meter_of_topic(&self, name: &str) -> Option<Arc<TenantMeter>> {
        let (tenant, _) = name.split_once(['.', '/'])?;
        self.meter(&tenant.parse().ok()?)
    }

    /// When keys were last used.
    pub(crate) fn key_uses(&self) -> &KeyUses {
        &self.0.key_uses
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
        self.throttle().log(now)
    }

    /// A login with a password begins, from this address and by this name. It counts as failed until it has succeeded.
    pub(super) fn attempt_login(
        &self,
        address: IpAddr,
        name: &str,
        now: Timestamp,
    ) -> LoginAdmission {
        self.throttle().attempt(address, Some(name), now)
    }

    /// A login of this name has succeeded.
    pub(super) fn login_succeeded(&self, address: IpAddr, name: &str) {
        self.throttle().succeeded(address, Some(name));
    }

    fn throttle(&self) -> MutexGuard<'_, LoginThrottle> {
        self.0.throttle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether passwords of this user that come from this address may be compared with those that were right there: not while
    /// too many were wrong.
    pub(super) fn may_recall(&self, address: IpAddr, name: &UserName, now: Timestamp) -> bool {
        self.throttle().may_recall(address, name.as_str(), now)
    }

    /// Whether this was found to be the user's password at this address before, and is still. What is not counts as a guess.
    pub(super) fn recalls(
        &self,
        address: IpAddr,
        (name, entry): (&UserName, &UserEntry),
        password: &str,
        now: Timestamp,
    ) -> bool {
        let Some(kept) = entry.password.as_deref() else { return false };
        if !self.may_recall(address, name, now) {
            return false;
        }
        let is_right = {
            let verified = self.verified();
            let found = verified.of(address, [name.as_str(), kept, password]);
            found.is_some_and(|found| verified.has(found))
        };
        if !is_right {
            self.throttle().not_recalled(address, name.as_str(), now);
        }
        is_right
    }

    /// This is the user's password, and came from this address.
    pub(super) fn note_verified(
        &self,
        address: IpAddr,
        (name, entry): (&UserName, &UserEntry),
        password: &str,
    ) {
        let mut verified = self.verified();
        let kept = entry.password.as_deref();
        let right = kept.and_then(|kept| verified.of(address, [name.as_str(), kept, password]));
        if let Some(right) = right {
            verified.add(right);
        }
    }

    fn verified(&self) -> MutexGuard<'_, VerifiedPasswords> {
        self.0.verified.lock().unwrap_or_else(PoisonError::into_inner)
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

#[cfg(test)]
mod tests {
    use sennit_identity::limits::{LOGIN_RECALL_BURST, LOGIN_RECALL_INTERVAL};

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn a_password_that_was_right_is_recalled_at_its_address_and_cannot_be_guessed_fast_there() {
        let authority = Authority::default();
        let name: UserName = "ada".parse().unwrap();
        let mut directory = Directory::default();
        let entry = br#"{"password":"$argon2id$1","generation":1,"created_ms":0}"#;
        directory.apply("user.ada", Some(entry)).unwrap();
        let entry = directory.user(&name).unwrap().clone();
        let (here, there) = ("127.0.0.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let recalls = |address, password: &str, now| {
            authority.recalls(address, (&name, &entry), password, now)
        };
        assert!(!recalls(here, "right", NOW));
        authority.note_verified(here, (&name, &entry), "right");
        for _ in 0..10_000 {
            assert!(recalls(here, "right", NOW), "who is right is not counted");
        }
        assert!(!recalls(there, "right", NOW), "a guesser elsewhere learns nothing");
        for guess in 0..LOGIN_RECALL_BURST {
            assert!(!recalls(here, &guess.to_string(), NOW));
        }
        assert!(!recalls(here, "right", NOW), "it is one guess of too many");
        assert!(recalls(here, "right", NOW.plus(LOGIN_RECALL_INTERVAL)));
    }
}
