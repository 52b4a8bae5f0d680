//! The principal of a request: the identity it is made for, and what that may at the moment. It knows no credentials.

use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use sennit_identity::{
    ApiKeyId, EntryKey, Holder, OverQuota, Rights, TenantName, UserEntry, UserName, Verb,
};
use sennit_model::Timestamp;
use tokio::time::timeout;

use super::{
    authority::{Authority, key_counts},
    certificate_owner::CertificateOwner,
    key_uses::KeyConnection,
    tenant_meter::TenantMeter,
    token_owner::TokenOwner,
};
use crate::runtime::clock::now;

/// On whose behalf something is asked. Clones are cheap: every request has one.
#[derive(Clone)]
pub(crate) struct Principal(Arc<Kind>);

enum Kind {
    /// A client that has shown no credentials, because none are asked for; the application may say who it is.
    Local(Authority, Option<TokenOwner>),
    /// The broker itself.
    Broker,
    /// A client whose credentials are not looked at, because it asks for what is open to all.
    Nobody,
    /// Somebody who has shown credentials.
    Known(Known),
}

struct Known {
    authority: Authority,
    who: Who,
    standing: Mutex<Standing>,
}

/// The rights of a principal and the meter of its tenant, at a revision of the authority.
#[derive(Clone, Default)]
struct Standing {
    revision: u64,
    rights: Arc<Rights>,
    meter: Option<Arc<TenantMeter>>,
}

/// Somebody who has shown credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Key {
        id: ApiKeyId,
        generation: u64,
    },
    /// By a password. A user of the same name that was created anew is another.
    User {
        name: UserName,
        generation: u64,
        created_ms: u64,
    },
    Certificate(CertificateOwner),
    Token(Arc<TokenOwner>),
}

/// How long credentials are not looked at again while nothing changes: the clock may be put forward.
const LOOKED_AT_AGAIN: Duration = Duration::from_secs(60);

/// A right that a principal lacks. It says nothing about whether the thing exists.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", missing(*.verb, .name))]
pub(crate) struct MissingRight {
    pub(crate) verb: Verb,
    /// The topic or key; empty for the broker as a whole.
    pub(crate) name: String,
}

fn missing(verb: Verb, name: &str) -> String {
    match name {
        "" => format!("missing right: {verb}"),
        name => format!("missing right: {verb} {name:?}"),
    }
}

/// The credentials with which a principal came do not count any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the credentials do not count any more: they were revoked, replaced, or have expired")]
pub(crate) struct CredentialsEnded;

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({self})")
    }
}

/// The name in logs and in the audit.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            Kind::Local(..) => f.write_str("local"),
            Kind::Broker => f.write_str("broker"),
            Kind::Nobody => f.write_str("nobody"),
            Kind::Known(Known { who: Who::Key { id, .. }, .. }) => write!(f, "key:{id}"),
            Kind::Known(Known { who: Who::User { name, .. }, .. }) => write!(f, "user:{name}"),
            Kind::Known(Known { who: Who::Certificate(owner), .. }) => {
                write!(f, "certificate:{}", owner.user())
            }
            Kind::Known(Known { who: Who::Token(owner), .. }) => {
                write!(f, "token:{}", owner.subject())
            }
        }
    }
}

impl Principal {
    /// The principal of a client that is asked for no credentials. It may do everything, as long as nobody is asked.
    pub(crate) fn local(authority: Authority) -> Self {
        Self(Arc::new(Kind::Local(authority, None)))
    }

    /// The same, for one whom the application names.
    pub(super) fn local_owner(authority: Authority, owner: TokenOwner) -> Self {
        Self(Arc::new(Kind::Local(authority, Some(owner))))
    }

    /// The broker itself: it keeps topics of its own, and follows streams for its subscriptions.
    pub(crate) fn broker() -> Self {
        static BROKER: LazyLock<Principal> = LazyLock::new(|| Principal(Arc::new(Kind::Broker)));
        BROKER.clone()
    }

    /// A client whose credentials are not looked at. It may do nothing for which a right is needed.
    pub(crate) fn nobody() -> Self {
        static NOBODY: LazyLock<Principal> = LazyLock::new(|| Principal(Arc::new(Kind::Nobody)));
        NOBODY.clone()
    }

    pub(super) fn of_key(authority: Authority, id: ApiKeyId, generation: u64) -> Self {
        Self::of(authority, Who::Key { id, generation })
    }

    pub(super) fn of_user(authority: Authority, name: UserName, entry: &UserEntry) -> Self {
        let (generation, created_ms) = (entry.generation, entry.created_ms);
        Self::of(authority, Who::User { name, generation, created_ms })
    }

    pub(super) fn of_certificate(authority: Authority, owner: CertificateOwner) -> Self {
        Self::of(authority, Who::Certificate(owner))
    }

    pub(super) fn of_token(authority: Authority, owner: TokenOwner) -> Self {
        Self::of(authority, Who::Token(Arc::new(owner)))
    }

    fn of(authority: Authority, who: Who) -> Self {
        let standing = Mutex::default();
        Self(Arc::new(Kind::Known(Known { authority, who, standing })))
    }

    /// The user, if it has logged in by a password.
    pub(super) fn user_by_password(&self) -> Option<&UserName> {
        match &*self.0 {
            Kind::Known(Known { who: Who::User { name, .. }, .. }) => Some(name),
            _ => None,
        }
    }

    /// Notes that the key with which it came is used.
    pub(super) fn note_use(&self, now: Timestamp) {
        if let Some((authority, id)) = self.key() {
            authority.key_uses().note(id, now);
        }
    }

    /// A connection of it: the key with which it came is in use until that is dropped.
    pub(crate) fn connect(&self) -> Option<KeyConnection> {
        let (authority, id) = self.key()?;
        Some(authority.key_uses().connect(id))
    }

    fn key(&self) -> Option<(&Authority, &ApiKeyId)> {
        match &*self.0 {
            Kind::Known(Known { authority, who: Who::Key { id, .. }, .. }) => Some((authority, id)),
            _ => None,
        }
    }

    /// The name under which others know it: of the user, the subject of the token, or the id of the key; empty if it has shown no
    /// credentials.
    pub(crate) fn user_name(&self) -> String {
        match &*self.0 {
            Kind::Local(_, Some(owner)) => owner.subject().to_owned(),
            Kind::Local(..) | Kind::Broker | Kind::Nobody => String::new(),
            Kind::Known(known) => match &known.who {
                Who::Key { id, .. } => id.to_string(),
                Who::User { name, .. } => name.to_string(),
                Who::Certificate(owner) => owner.user().to_string(),
                Who::Token(owner) => owner.subject().to_owned(),
            },
        }
    }

    /// What its token says of it, for others: JSON.
    pub(crate) fn info(&self) -> Option<String> {
        match &*self.0 {
            Kind::Known(Known { who: Who::Token(owner), .. }) => owner.info().map(str::to_owned),
            Kind::Local(_, Some(owner)) => owner.info().map(str::to_owned),
            _ => None,
        }
    }

    /// The same, of whom its issuer says something new: until when it counts, and what others may know of it. Nothing, if no issuer
    /// has said who it is.
    pub(crate) fn renewed(&self, expires: Timestamp, info: Option<Box<str>>) -> Option<Self> {
        match &*self.0 {
            Kind::Known(Known { authority, who: Who::Token(owner), .. }) => {
                Some(Self::of_token(authority.clone(), owner.renewed(expires, info)))
            }
            Kind::Local(authority, Some(owner)) => {
                Some(Self::local_owner(authority.clone(), owner.renewed(expires, info)))
            }
            _ => None,
        }
    }

    /// The channels that its token names: live connections of it are subscribed to them when they begin.
    pub(crate) fn channels(&self) -> &[Box<str>] {
        match &*self.0 {
            Kind::Known(Known { who: Who::Token(owner), .. }) => owner.channels(),
            _ => &[],
        }
    }

    /// Whether this is the broker itself.
    pub(crate) fn is_broker(&self) -> bool {
        matches!(*self.0, Kind::Broker)
    }

    /// Whether it has shown credentials.
    pub(crate) fn is_known(&self) -> bool {
        matches!(*self.0, Kind::Known(_))
    }

    /// Whether it may do everything, at its revision.
    pub(crate) fn is_unrestricted(&self) -> bool {
        match &*self.0 {
            Kind::Broker => true,
            Kind::Local(authority, _) => !authority.asks(),
            Kind::Nobody | Kind::Known(_) => false,
        }
    }

    /// The tenant that it belongs to.
    pub(crate) fn tenant(&self) -> Option<TenantName> {
        match &*self.0 {
            Kind::Known(known) => known.holder().and_then(|holder| holder.tenant),
            Kind::Local(..) | Kind::Broker | Kind::Nobody => None,
        }
    }

    /// All that it may, if it has shown credentials.
    pub(crate) fn rights(&self) -> Option<Arc<Rights>> {
        match &*self.0 {
            Kind::Known(known) => Some(known.standing().rights),
            Kind::Local(..) | Kind::Broker | Kind::Nobody => None,
        }
    }

    /// The number of the last change of what anybody may: what was allowed at it is allowed until the next.
    pub(crate) fn revision(&self) -> u64 {
        match &*self.0 {
            Kind::Local(authority, _) | Kind::Known(Known { authority, .. }) => {
                authority.revision()
            }
            Kind::Broker | Kind::Nobody => 0,
        }
    }

    /// Checks that its credentials still count.
    ///
    /// # Errors
    /// They do not.
    pub(crate) fn check(&self, now: Timestamp) -> Result<(), CredentialsEnded> {
        let counts = match &*self.0 {
            Kind::Broker | Kind::Nobody => true,
            Kind::Local(authority, _) => !authority.asks(),
            Kind::Known(known) => known.counts(now),
        };
        if counts { Ok(()) } else { Err(CredentialsEnded) }
    }

    /// When its credentials end by themselves.
    pub(crate) fn expires(&self) -> Option<Timestamp> {
        let (authority, who) = match &*self.0 {
            Kind::Known(Known { authority, who, .. }) => (authority, who),
            Kind::Local(_, Some(owner)) => return Some(owner.expires_at()),
            _ => return None,
        };
        let (id, generation) = match who {
            Who::Key { id, generation } => (id, generation),
            Who::User { .. } => return None,
            Who::Certificate(owner) => return Some(owner.expires_at()),
            Who::Token(owner) => return Some(owner.expires_at()),
        };
        let directory = authority.directory()?;
        let entry = directory.key(id)?;
        let of_previous = entry.previous_until_ms.filter(|_| *generation != entry.generation);
        entry.expires_ms.into_iter().chain(of_previous).min().map(Timestamp)
    }

    /// Checks that it may do something to the topic or the entry of this name, or to the broker if the name is empty.
    ///
    /// # Errors
    /// It may not.
    pub(crate) fn may(&self, verb: Verb, name: &str) -> Result<(), MissingRight> {
        let is_allowed = match &*self.0 {
            Kind::Broker => true,
            Kind::Nobody => false,
            Kind::Local(authority, _) => !authority.asks(),
            Kind::Known(known) => known.counts(now()) && known.standing().rights.allow(verb, name),
        };
        if is_allowed { Ok(()) } else { Err(MissingRight { verb, name: name.to_owned() }) }
    }

    /// Where what it uses is counted, if it belongs to a tenant.
    pub(crate) fn meter(&self) -> Option<Arc<TenantMeter>> {
        match &*self.0 {
            Kind::Known(known) => known.standing().meter,
            Kind::Local(..) | Kind::Broker | Kind::Nobody => None,
        }
    }

    /// Counts a batch of so many messages and bytes that it publishes.
    ///
    /// # Errors
    /// A quota of its tenant is used up.
    pub(crate) fn take(&self, batch: (u64, u64)) -> Result<(), OverQuota> {
        self.meter().map_or(Ok(()), |meter| meter.take(batch, now()))
    }

    /// Waits until it may not do this any more.
    pub(crate) async fn lost(&self, verb: Verb, name: &str) -> MissingRight {
        let mut changes = match &*self.0 {
            Kind::Local(authority, _) | Kind::Known(Known { authority, .. }) => authority.changes(),
            Kind::Broker | Kind::Nobody => std::future::pending().await,
        };
        loop {
            if let Err(missing) = self.may(verb, name) {
                return missing;
            }
            let left = self.expires().map(|at| at.since(now()).min(LOOKED_AT_AGAIN));
            let changed = timeout(left.unwrap_or(LOOKED_AT_AGAIN), changes.changed());
            if let Ok(Err(_)) = changed.await {
                std::future::pending().await
            }
        }
    }
}

impl Known {
    fn holder(&self) -> Option<Holder> {
        let directory = self.authority.directory()?;
        match &self.who {
            Who::Key { id, .. } => directory.key(id).map(|entry| entry.holder.clone()),
            Who::User { name, .. } => directory.user(name).map(|entry| entry.holder.clone()),
            Who::Certificate(owner) => {
                directory.user(owner.user()).map(|entry| entry.holder.clone())
            }
            Who::Token(owner) => Some(owner.holder().clone()),
        }
    }

    fn counts(&self, now: Timestamp) -> bool {
        let Some(directory) = self.authority.directory() else { return false };
        match &self.who {
            Who::Key { id, generation } => {
                directory.key(id).is_some_and(|entry| key_counts(entry, *generation, now))
            }
            Who::User { name, generation, created_ms } => {
                let entry = directory.user(name);
                entry.is_some_and(|entry| {
                    (entry.generation, entry.created_ms) == (*generation, *created_ms)
                })
            }
            Who::Certificate(owner) => owner.counts(&directory, now),
            Who::Token(owner) => {
                let tenant = owner.holder().tenant.as_ref();
                now < owner.expires_at() && tenant.is_none_or(|it| directory.tenant(it).is_some())
            }
        }
    }

    /// How it stands now.
    fn standing(&self) -> Standing {
        let revision = self.authority.revision();
        let mut held = self.standing.lock().unwrap_or_else(PoisonError::into_inner);
        if held.revision != revision {
            let tenant = self.holder().and_then(|holder| holder.tenant);
            let meter = tenant.and_then(|tenant| self.authority.meter(&tenant));
            *held = Standing { revision, rights: Arc::new(self.rights_now()), meter };
        }
        held.clone()
    }

    fn rights_now(&self) -> Rights {
        let Some(directory) = self.authority.directory() else { return Rights::default() };
        match (&self.who, self.who.entry()) {
            (Who::Token(owner), _) => owner.rights(&directory),
            (_, Some(entry)) => directory.rights_of_entry(&entry).unwrap_or_default(),
            (_, None) => Rights::default(),
        }
    }
}

impl Who {
    fn entry(&self) -> Option<EntryKey> {
        match self {
            Self::Key { id, .. } => Some(EntryKey::Key(*id)),
            Self::User { name, .. } => Some(EntryKey::User(name.clone())),
            Self::Certificate(owner) => Some(EntryKey::User(owner.user().clone())),
            Self::Token(_) => None,
        }
    }
}
