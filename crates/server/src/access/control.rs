//! The control of keys, users, roles and tenants, on the first core: it decides requests one after the other against the
//! directory in force, and has the configuration keep each change as one entry.

use std::{path::PathBuf, rc::Rc, sync::Arc};

use bytes::Bytes;
use sennit_engine::Refusal;
use sennit_identity::{
    ApiKey, ApiKeyId, DecisionReason, Directory, EntryKey, Holder, KeyEntry, MasterSecret, Quotas,
    RightSource, Rights, RoleEntry, TenantEntry, TenantName, UserEntry, Verb, Zeroizing,
    entry_bytes, is_admin, is_standard_role,
    limits::{RIGHTS_MAX, ROLES_MAX},
};
use sennit_model::{ConfigurationKey, IDENTITY_KEY_PREFIX};
use tokio::{
    sync::{Mutex, oneshot},
    task::spawn_local,
    time::Instant,
};

use super::request::{
    AccessAnswer, AccessChange, AccessKind, AccessRefusal, AccessRequest, DecidedRight, ListedEntry,
};
use crate::{
    broker::{
        audit,
        configuration::{self, Configuration, ConfigurationRefusal, ConfigurationRequest, Write},
        control_request::ControlRefusal,
        key_file,
        leader_requests::LEADER_PATIENCE,
        tenant_storage::TenantStorage,
    },
    identity::{authority::Authority, principal::Principal},
    runtime::{
        clock::now,
        core::{CoreHandle, Cores},
        inbox::Message,
        index::CoreIndex,
    },
};

mod first_admin;
mod users;

pub(crate) use self::first_admin::{first_admin_key, first_admin_key_of_cluster};

/// The longest name of a key, in bytes.
const KEY_NAME_BYTES_MAX: usize = 200;

type Answer = Result<AccessAnswer, AccessRefusal>;

/// The control of keys, users, roles and tenants.
#[derive(Debug)]
pub(crate) struct AccessControl {
    core: CoreHandle,
    authority: Authority,
    /// The data directory, with the file of the broker's secrets.
    data: PathBuf,
    /// One change after the other: each is decided on the ground of those before it.
    turn: Mutex<()>,
}

/// Asks the first core, on behalf of a principal. Without an answer the broker stops.
pub(crate) fn ask(
    cores: &Cores,
    principal: Principal,
    request: AccessRequest,
) -> oneshot::Receiver<Answer> {
    let (sender, answer) = oneshot::channel();
    let message = Message::call(move |control: &Rc<AccessControl>| {
        let control = control.clone();
        spawn_local(async move {
            let _ = sender.send(control.answer(&principal, request).await);
        });
    });
    let _ = cores.inboxes[CoreIndex::FIRST].send(message);
    answer
}

/// What the rights decide, and the right that does.
fn decided(rights: &Rights, verb: Verb, name: &str) -> DecidedRight {
    let decision = rights.decide(verb, name);
    let reason = match decision.reason {
        DecisionReason::Right(text, RightSource::Own) => format!("by its right `{text}`"),
        DecisionReason::Right(text, RightSource::Role(role)) => {
            format!("by the right `{text}` of the role {role}")
        }
        DecisionReason::Right(text, RightSource::Claim) => {
            format!("by the right `{text}` of its token")
        }
        DecisionReason::NoRight => "no right allows it".to_owned(),
        DecisionReason::OtherTenant(tenant) => {
            format!(
                "the name does not begin with {tenant}. or {tenant}/, as those of its tenant do"
            )
        }
        DecisionReason::NotForTenants => {
            "this is about the broker as a whole, and not for tenants".to_owned()
        }
    };
    let is_allowed = decision.is_allowed;
    DecidedRight { is_allowed, reason }
}

impl AccessControl {
    /// The control of the broker with this data directory.
    pub(crate) fn new(core: CoreHandle, authority: Authority, data: PathBuf) -> Rc<Self> {
        Rc::new(Self { core, authority, data, turn: Mutex::new(()) })
    }

    async fn answer(&self, principal: &Principal, request: AccessRequest) -> Answer {
        if let AccessRequest::Decide { who: None, verb, name } = &request {
            // Whoever asks may know what it may itself.
            return Ok(AccessAnswer::Decision(match principal.rights() {
                Some(rights) => decided(&rights, *verb, name),
                None => DecidedRight {
                    is_allowed: principal.may(*verb, name).is_ok(),
                    reason: "nobody is asked for credentials".to_owned(),
                },
            }));
        }
        if let AccessRequest::Change(change) = request {
            let (act, to) = change.act();
            let changed = self.change_if_allowed(principal, change).await;
            audit::note(&self.core.cores, principal, act, to, &changed);
            return changed;
        }
        principal.may(Verb::Identity, "")?;
        let scope = Scope(principal.tenant());
        match request {
            AccessRequest::Change(_) => Err(ControlRefusal::WrongAnswer.into()),
            AccessRequest::List { kind, after, most } => {
                let directory = self.directory()?;
                Ok(list((&self.authority, &directory), &scope, kind, &after, most))
            }
            AccessRequest::Decide { who, verb, name } => {
                let who = who.ok_or(ControlRefusal::WrongAnswer)?;
                let directory = self.directory()?;
                scope.check(&directory, &who)?;
                self.decide(&who, verb, &name)
            }
        }
    }

    /// Decides a change on the directory that this node has, and again if another node was first to change it.
    async fn change_if_allowed(&self, principal: &Principal, change: AccessChange) -> Answer {
        principal.may(Verb::Identity, "")?;
        let _turn = self.turn.lock().await;
        let deadline = Instant::now() + LEADER_PATIENCE;
        loop {
            let ground = self.ground().await?;
            // The node may have learned just now who the admins are.
            principal.may(Verb::Identity, "")?;
            match self.change(&ground, &Scope(principal.tenant()), change.clone()).await {
                Err(AccessRefusal::Configuration(ConfigurationRefusal::OtherDirectory))
                    if Instant::now() < deadline => {}
                decided => return decided,
            }
        }
    }

    /// The directory with all that was confirmed before, at whatever node.
    async fn ground(&self) -> Result<Ground, AccessRefusal> {
        let configuration = self.core.services.find::<Configuration>();
        configuration.ok_or(ControlRefusal::ShuttingDown)?.catch_up().await?;
        // In this order: the directory is of this revision, or the change does not count.
        let revision = self.authority.revision();
        Ok(Ground { revision, directory: self.directory()? })
    }

    fn directory(&self) -> Result<Arc<Directory>, AccessRefusal> {
        self.authority.directory().ok_or_else(|| ConfigurationRefusal::Unreadable.into())
    }

    fn decide(&self, who: &EntryKey, verb: Verb, name: &str) -> Answer {
        let directory = self.directory()?;
        let rights = directory.rights_of_entry(who).ok_or_else(|| unknown(who))?;
        Ok(AccessAnswer::Decision(decided(&rights, verb, name)))
    }

    async fn change(&self, ground: &Ground, scope: &Scope, change: AccessChange) -> Answer {
        let directory = &ground.directory;
        match change {
            AccessChange::CreateKey { name, mut holder, expires_ms } => {
                let is_name = |c: char| !c.is_control();
                if name.is_empty() || name.len() > KEY_NAME_BYTES_MAX || !name.chars().all(is_name)
                {
                    return Err(AccessRefusal::KeyName);
                }
                if expires_ms.is_some_and(|expires| expires <= now().0) {
                    return Err(AccessRefusal::Expired);
                }
                scope.fit(&mut holder)?;
                check_holder(directory, &holder)?;
                let is_first = !directory.has_credentials();
                if is_first && !(is_admin(&holder) && expires_ms.is_none()) {
                    return Err(AccessRefusal::FirstNotAdmin);
                }
                let id = ApiKeyId::from_random(random()?);
                let key = self.create_key(ground, id, new_key(name, holder, expires_ms)).await?;
                Ok(AccessAnswer::Changed { id: id.to_string(), key: Some(key), created: true })
            }
            AccessChange::RotateKey { key, grace } => {
                scope.check(directory, &key)?;
                let EntryKey::Key(id) = key else { return Err(unknown(&key)) };
                let mut entry = KeyEntry::clone(directory.key(&id).ok_or_else(|| unknown(&key))?);
                entry.generation += 1;
                entry.previous_until_ms = Some(now().plus(grace).0).filter(|_| !grace.is_zero());
                let secret = ApiKey::derive(&self.master()?, id, entry.generation).expose();
                self.put(ground, &key, &entry, false).await?;
                Ok(AccessAnswer::Changed { id: id.to_string(), key: Some(secret), created: false })
            }
            AccessChange::SetPassword { user, password, holder } => {
                self.set_password(ground, scope, user, password, holder).await
            }
            AccessChange::SetCertificates { user, certificates, holder } => {
                self.set_certificates(ground, scope, user, certificates, holder).await
            }
            AccessChange::SetRole { role, rights } => {
                scope.check_operator()?;
                if is_standard_role(&role) {
                    return Err(AccessRefusal::Standard(role));
                }
                if rights.len() > RIGHTS_MAX {
                    return Err(AccessRefusal::TooManyRights);
                }
                let created = !directory.has_role(&role);
                self.put(ground, &EntryKey::Role(role.clone()), &RoleEntry { rights }, false)
                    .await?;
                Ok(changed(role.to_string(), created))
            }
            AccessChange::CreateTenant { tenant, quotas } => {
                scope.check_operator()?;
                let key = EntryKey::Tenant(tenant.clone());
                if directory.tenant(&tenant).is_some() {
                    return Err(AccessRefusal::Exists(shown(&key)));
                }
                self.put(ground, &key, &TenantEntry { created_ms: now().0, quotas }, true).await?;
                self.measure(&tenant, &quotas).await;
                Ok(changed(tenant.to_string(), true))
            }
            AccessChange::SetQuotas { tenant, quotas } => {
                scope.check_operator()?;
                let key = EntryKey::Tenant(tenant.clone());
                let entry = directory.tenant(&tenant).ok_or_else(|| unknown(&key))?;
                let created_ms = entry.created_ms;
                self.put(ground, &key, &TenantEntry { created_ms, quotas }, false).await?;
                self.measure(&tenant, &quotas).await;
                Ok(changed(tenant.to_string(), false))
            }
            AccessChange::Grant { to, roles, rights } => {
                let change = |holder: &mut Holder| {
                    add_missing(&mut holder.roles, roles);
                    add_missing(&mut holder.rights, rights);
                };
                self.change_holder(ground, scope, to, change).await
            }
            AccessChange::Revoke { from, roles, rights } => {
                let change = |holder: &mut Holder| {
                    holder.roles.retain(|role| !roles.contains(role));
                    holder.rights.retain(|right| !rights.contains(right));
                };
                self.change_holder(ground, scope, from, change).await
            }
            AccessChange::Delete(key) => {
                self.delete(ground, scope, &key).await?;
                Ok(changed(key_id(&key), false))
            }
        }
    }

    /// Creates a key with this id, if there is none.
    async fn create_key(
        &self,
        ground: &Ground,
        id: ApiKeyId,
        entry: KeyEntry,
    ) -> Result<Zeroizing<String>, AccessRefusal> {
        let key = ApiKey::derive(&self.master()?, id, entry.generation).expose();
        self.put(ground, &EntryKey::Key(id), &entry, true).await?;
        Ok(key)
    }

    async fn change_holder(
        &self,
        ground: &Ground,
        scope: &Scope,
        key: EntryKey,
        change: impl FnOnce(&mut Holder),
    ) -> Answer {
        let directory = &ground.directory;
        scope.check(directory, &key)?;
        let check = |holder: &Holder| {
            check_holder(directory, holder)?;
            match is_admin(holder) || directory.has_admin_beside(Some(&key)) {
                true => Ok(()),
                false => Err(AccessRefusal::LastAdmin),
            }
        };
        match &key {
            EntryKey::Key(id) => {
                let mut entry = KeyEntry::clone(directory.key(id).ok_or_else(|| unknown(&key))?);
                change(&mut entry.holder);
                check(&entry.holder)?;
                self.put(ground, &key, &entry, false).await?;
            }
            EntryKey::User(name) => {
                let mut entry =
                    UserEntry::clone(directory.user(name).ok_or_else(|| unknown(&key))?);
                change(&mut entry.holder);
                check(&entry.holder)?;
                self.put(ground, &key, &entry, false).await?;
            }
            EntryKey::Role(_) | EntryKey::Tenant(_) => return Err(unknown(&key)),
        }
        Ok(changed(key_id(&key), false))
    }

    async fn delete(
        &self,
        ground: &Ground,
        scope: &Scope,
        key: &EntryKey,
    ) -> Result<(), AccessRefusal> {
        let directory = &ground.directory;
        match key {
            EntryKey::Key(_) | EntryKey::User(_) => {
                scope.check(directory, key)?;
                if !directory.has_admin_beside(Some(key)) {
                    return Err(AccessRefusal::LastAdmin);
                }
            }
            EntryKey::Role(role) => {
                scope.check_operator()?;
                if is_standard_role(role) {
                    return Err(AccessRefusal::Standard(role.clone()));
                }
                if !directory.has_role(role) {
                    return Err(unknown(key));
                }
                if directory.uses_role(role) {
                    return Err(AccessRefusal::InUse(shown(key)));
                }
            }
            EntryKey::Tenant(tenant) => {
                scope.check_operator()?;
                if directory.tenant(tenant).is_none() {
                    return Err(unknown(key));
                }
                if directory.uses_tenant(tenant) {
                    return Err(AccessRefusal::InUse(shown(key)));
                }
            }
        }
        self.write(ground, key, None, None).await
    }

    /// Has a quota of stored bytes know what is stored, before the change is confirmed.
    async fn measure(&self, tenant: &TenantName, quotas: &Quotas) {
        if quotas.stored_bytes.is_some()
            && let Some(storage) = self.core.services.find::<TenantStorage>()
        {
            storage.measure(tenant).await;
        }
    }

    /// The secret of API keys: the one in the data directory, made if there is none.
    fn master(&self) -> Result<MasterSecret, AccessRefusal> {
        if let Some(master) = self.authority.master() {
            return Ok(master.clone());
        }
        if self.core.cores.groups.is_some() {
            // It is the same on each node, and this one has not heard of it yet.
            return Err(ControlRefusal::Engine(Refusal::NoLeader).into());
        }
        let master = key_file::read_or_create(&self.data).map(|secrets| key_file::master(&secrets));
        let master = master.map_err(|error| AccessRefusal::Secret(error.to_string()))?;
        self.authority.set_master(master.clone());
        Ok(master)
    }

    async fn put(
        &self,
        ground: &Ground,
        key: &EntryKey,
        entry: &impl serde::Serialize,
        is_new: bool,
    ) -> Result<(), AccessRefusal> {
        let if_revision = is_new.then_some(0);
        self.write(ground, key, Some(entry_bytes(entry).into()), if_revision).await
    }

    async fn write(
        &self,
        ground: &Ground,
        key: &EntryKey,
        value: Option<Bytes>,
        if_revision: Option<u64>,
    ) -> Result<(), AccessRefusal> {
        let key = format!("{IDENTITY_KEY_PREFIX}{}", key.name());
        let key: ConfigurationKey = key.parse().map_err(ConfigurationRefusal::from)?;
        let if_authority = Some(ground.revision);
        let write = ConfigurationRequest::Write(Write { key, value, if_revision, if_authority });
        let answer = configuration::ask(&self.core.cores, Principal::broker(), write).await;
        answer.map_err(|_| ControlRefusal::ShuttingDown)?.map(drop).map_err(Into::into)
    }
}

/// The directory that a change is decided on.
struct Ground {
    /// The revision of the authority.
    revision: u64,
    directory: Arc<Directory>,
}

/// The keys and users that a principal may manage: those of its tenant, or all without one.
struct Scope(Option<TenantName>);

impl Scope {
    /// Refuses what is not in the scope as if it were not there.
    fn check(&self, directory: &Directory, key: &EntryKey) -> Result<(), AccessRefusal> {
        let holder = match key {
            EntryKey::Key(id) => directory.key(id).map(|entry| &entry.holder),
            EntryKey::User(name) => directory.user(name).map(|entry| &entry.holder),
            EntryKey::Role(_) | EntryKey::Tenant(_) => None,
        };
        match holder {
            Some(holder) if self.has(holder) => Ok(()),
            _ => Err(unknown(key)),
        }
    }

    fn has(&self, holder: &Holder) -> bool {
        self.0.is_none() || holder.tenant == self.0
    }

    /// Has a new holder be of the tenant.
    fn fit(&self, holder: &mut Holder) -> Result<(), AccessRefusal> {
        let Some(own) = &self.0 else { return Ok(()) };
        match holder.tenant.get_or_insert_with(|| own.clone()) == own {
            true => Ok(()),
            false => Err(AccessRefusal::NotForTenants),
        }
    }

    fn check_operator(&self) -> Result<(), AccessRefusal> {
        if self.0.is_none() { Ok(()) } else { Err(AccessRefusal::NotForTenants) }
    }
}

fn check_holder(directory: &Directory, holder: &Holder) -> Result<(), AccessRefusal> {
    if let Some(tenant) = holder.tenant.as_ref().filter(|name| directory.tenant(name).is_none()) {
        return Err(unknown(&EntryKey::Tenant(tenant.clone())));
    }
    if let Some(role) = holder.roles.iter().find(|role| !directory.has_role(role)) {
        return Err(unknown(&EntryKey::Role(role.clone())));
    }
    if holder.roles.len() > ROLES_MAX {
        return Err(AccessRefusal::TooManyRoles);
    }
    if holder.rights.len() > RIGHTS_MAX {
        return Err(AccessRefusal::TooManyRights);
    }
    Ok(())
}

fn list(
    (authority, directory): (&Authority, &Directory),
    scope: &Scope,
    kind: AccessKind,
    after: &str,
    most: usize,
) -> AccessAnswer {
    let all: Vec<ListedEntry> = match kind {
        AccessKind::Keys => directory
            .keys()
            .filter(|(id, entry)| id.as_str() > after && scope.has(&entry.holder))
            .map(|(id, entry)| ListedEntry {
                id: id.to_string(),
                name: entry.name.clone(),
                holder: entry.holder.clone(),
                created_ms: entry.created_ms,
                expires_ms: entry.expires_ms,
                generation: entry.generation,
                last_used_ms: authority.key_uses().at(id, now()).map(|at| at.0),
                ..ListedEntry::default()
            })
            .take(most + 1)
            .collect(),
        AccessKind::Users => directory
            .users()
            .filter(|(name, entry)| name.as_str() > after && scope.has(&entry.holder))
            .map(|(name, entry)| ListedEntry {
                id: name.to_string(),
                holder: entry.holder.clone(),
                created_ms: entry.created_ms,
                generation: entry.generation,
                certificates: entry.certificates.clone(),
                ..ListedEntry::default()
            })
            .take(most + 1)
            .collect(),
        AccessKind::Roles => directory
            .roles()
            .filter(|(name, _)| name.as_str() > after)
            .map(|(id, rights)| ListedEntry {
                id,
                holder: Holder { rights: rights.unwrap_or_default(), ..Holder::default() },
                ..ListedEntry::default()
            })
            .take(most + 1)
            .collect(),
        AccessKind::Tenants => directory
            .tenants()
            .filter(|(name, _)| {
                name.as_str() > after && scope.0.as_ref().is_none_or(|own| own == *name)
            })
            .map(|(name, entry)| ListedEntry {
                id: name.to_string(),
                quotas: Some(entry.quotas),
                stored_bytes: authority.meter(name).and_then(|meter| meter.stored_bytes()),
                created_ms: entry.created_ms,
                ..ListedEntry::default()
            })
            .take(most + 1)
            .collect(),
    };
    let more = all.len() > most;
    AccessAnswer::Page { entries: all.into_iter().take(most).collect(), more }
}

/// A new key.
fn new_key(name: String, holder: Holder, expires_ms: Option<u64>) -> KeyEntry {
    let created_ms = now().0;
    KeyEntry { name, generation: 1, created_ms, expires_ms, previous_until_ms: None, holder }
}

fn add_missing<T: PartialEq>(held: &mut Vec<T>, more: Vec<T>) {
    for one in more {
        if !held.contains(&one) {
            held.push(one);
        }
    }
}

fn changed(id: String, created: bool) -> AccessAnswer {
    AccessAnswer::Changed { id, key: None, created }
}

/// The name of an entry in refusals.
fn shown(key: &EntryKey) -> String {
    key.name().replacen('.', " ", 1)
}

fn unknown(key: &EntryKey) -> AccessRefusal {
    AccessRefusal::Unknown(shown(key))
}

fn key_id(key: &EntryKey) -> String {
    let name = key.name();
    name.split_once('.').map(|(_, id)| id.to_owned()).unwrap_or(name)
}

fn random<const N: usize>() -> Result<[u8; N], AccessRefusal> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(ControlRefusal::NoRandomNumbers)?;
    Ok(bytes)
}
