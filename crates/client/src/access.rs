//! Keys, users, roles, rights and tenants of a broker: create, change, list, and ask what somebody may.

use std::{fmt, sync::Arc, time::Duration};

use sennit_model::Timestamp;
use sennit_protocol::{
    Reply, Request,
    control::{self, change_access::Change},
};

use crate::{client::Client, connection_handle::ConnectionHandle, error::Error};

/// An API key or a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrincipalName {
    /// The id of an API key.
    Key(String),
    /// The name of a user.
    User(String),
}

/// The tenant, the roles and the rights of a key or user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// The tenant; `None` for the broker's operator.
    pub tenant: Option<String>,
    /// The names of roles.
    pub roles: Vec<String>,
    /// Rights: `[deny] VERB[,VERB...] [PATTERN]`.
    pub rights: Vec<String>,
}

/// A change that is durable, and in force for all connections.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessChanged {
    /// The id of the key, or the name.
    pub id: String,
    /// The whole API key, if it is new. The broker does not tell it again.
    pub key: Option<String>,
    /// Whether something was created that did not exist before.
    pub created: bool,
}

impl fmt::Debug for AccessChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, created) = (&self.id, self.created);
        f.debug_struct("AccessChanged").field("id", id).field("created", &created).finish()
    }
}

/// The kinds of what is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// API keys.
    Keys,
    /// Users.
    Users,
    /// Roles, those that every broker has included.
    Roles,
    /// Tenants.
    Tenants,
}

/// A key, user, role or tenant, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessEntry {
    /// The id of a key, the name of the others.
    pub id: String,
    /// The purpose of a key, for people.
    pub name: String,
    /// What it may.
    pub holder: Holder,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// How often the secret of a key, or the password of a user, was set.
    pub generation: u64,
    /// The names of client certificates that log a user in, such as `cn:billing`.
    pub certificates: Vec<String>,
    /// The quotas of a tenant.
    pub quotas: Quotas,
    /// When a key was last used, to the minute: `None` if it never was, or nothing is known of it.
    pub last_used_at: Option<Timestamp>,
    /// Bytes that a tenant stores which has a quota of them. A little old.
    pub stored_bytes: Option<u64>,
}

/// The quotas of a tenant. `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Messages published in a second.
    pub messages_per_second: Option<u64>,
    /// Bytes published in a second: keys, headers and payloads, as encoded.
    pub bytes_per_second: Option<u64>,
    /// Bytes of messages that are kept in its topics and streams.
    pub stored_bytes: Option<u64>,
    /// Topics and streams.
    pub topics: Option<u64>,
    /// Connections of the native protocol at once.
    pub connections: Option<u64>,
}

/// Whether somebody may do something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RightDecision {
    /// Whether it may.
    pub is_allowed: bool,
    /// The reason, with the right that decided.
    pub reason: String,
}

/// The keys, users, roles, rights and tenants of a broker. Made by [`Client::access`]. All requests but
/// [`Access::decide`] about oneself need the right `identity`, and fail with `forbidden` without it.
#[derive(Clone)]
pub struct Access {
    connection: Arc<ConnectionHandle>,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access").finish_non_exhaustive()
    }
}

impl Client {
    /// The keys, users, roles, rights and tenants of the broker.
    #[must_use]
    pub fn access(&self) -> Access {
        Access { connection: Arc::clone(&self.connection) }
    }
}

impl Access {
    /// Creates an API key.
    ///
    /// # Errors
    /// `principal-conflict` if it is the first of the broker and no admin; `unknown-principal` for a role or tenant that
    /// is not there; `invalid-right`.
    pub async fn create_key(
        &self,
        name: &str,
        holder: Holder,
        expires_at: Option<Timestamp>,
    ) -> Result<AccessChanged, Error> {
        let (name, holder) = (name.to_owned(), Some(wire(holder)));
        let expires_ms = expires_at.map(|at| at.0);
        self.change(Change::CreateKey(control::NewKey { name, holder, expires_ms })).await
    }

    /// Gives an API key another secret. The one before counts for `grace` as well.
    ///
    /// # Errors
    /// `unknown-principal`.
    pub async fn rotate_key(&self, id: &str, grace: Duration) -> Result<AccessChanged, Error> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let rotation = control::KeyRotation { key_id: id.to_owned(), grace_ms };
        self.change(Change::RotateKey(rotation)).await
    }

    /// Creates a user who may do what `holder` says, or gives one that is there another password.
    ///
    /// # Errors
    /// `invalid-right` for a password that is too short; as [`Access::create_key`].
    pub async fn set_password(
        &self,
        user: &str,
        password: &str,
        holder: Holder,
    ) -> Result<AccessChanged, Error> {
        let (user, password) = (user.to_owned(), password.to_owned());
        let holder = Some(wire(holder));
        self.change(Change::SetPassword(control::UserPassword { user, password, holder })).await
    }

    /// Sets all rights of a role.
    ///
    /// # Errors
    /// `invalid-right`; `principal-conflict` for a role that every broker has.
    pub async fn set_role(&self, role: &str, rights: Vec<String>) -> Result<AccessChanged, Error> {
        let role = role.to_owned();
        self.change(Change::SetRole(control::RoleRights { role, rights })).await
    }

    /// Creates a tenant.
    ///
    /// # Errors
    /// `principal-conflict` if it is there.
    pub async fn create_tenant(
        &self,
        tenant: &str,
        quotas: Quotas,
    ) -> Result<AccessChanged, Error> {
        self.change(Change::CreateTenant(of_tenant(tenant, quotas))).await
    }

    /// Sets all quotas of a tenant.
    ///
    /// # Errors
    /// `unknown-principal`.
    pub async fn set_quotas(&self, tenant: &str, quotas: Quotas) -> Result<AccessChanged, Error> {
        self.change(Change::SetQuotas(of_tenant(tenant, quotas))).await
    }

    /// Deletes a key, user, role or tenant. Connections of a key or user end.
    ///
    /// # Errors
    /// `unknown-principal`; `principal-conflict` for the last admin, and for what is in use.
    pub async fn delete(&self, kind: AccessKind, id: &str) -> Result<AccessChanged, Error> {
        let id = id.to_owned();
        let change = match kind {
            AccessKind::Keys => Change::DeleteKey(id),
            AccessKind::Users => Change::DeleteUser(id),
            AccessKind::Roles => Change::DeleteRole(id),
            AccessKind::Tenants => Change::DeleteTenant(id),
        };
        self.change(change).await
    }

    /// Creates a user whom client certificates log in, who may do what `holder` says; or has them log in one that is there,
    /// instead of those before. A certificate is named by its common name, an alternative name, or its fingerprint:
    /// `cn:NAME`, `dns:HOST`, `uri:URI`, `email:ADDRESS` or `sha256:DIGITS`.
    ///
    /// # Errors
    /// `principal-conflict` for a name that logs in another user; `invalid-right` for a text that is no such name;
    /// `forbidden` for a client of a tenant; as [`Access::create_key`].
    pub async fn set_certificates(
        &self,
        user: &str,
        certificates: Vec<String>,
        holder: Holder,
    ) -> Result<AccessChanged, Error> {
        let (user, holder) = (user.to_owned(), Some(wire(holder)));
        let change = control::UserCertificates { user, certificates, holder };
        self.change(Change::SetCertificates(change)).await
    }

    /// Gives roles and rights to a key or user.
    ///
    /// # Errors
    /// `unknown-principal`; `invalid-right`; `limit-reached`.
    pub async fn grant(
        &self,
        to: &PrincipalName,
        roles: Vec<String>,
        rights: Vec<String>,
    ) -> Result<AccessChanged, Error> {
        let principal = Some(principal(to));
        self.change(Change::Grant(control::Grant { principal, roles, rights })).await
    }

    /// Takes roles and rights from a key or user. Subscriptions that needed them end.
    ///
    /// # Errors
    /// `unknown-principal`; `principal-conflict` for the last admin.
    pub async fn revoke(
        &self,
        from: &PrincipalName,
        roles: Vec<String>,
        rights: Vec<String>,
    ) -> Result<AccessChanged, Error> {
        let principal = Some(principal(from));
        self.change(Change::Revoke(control::Grant { principal, roles, rights })).await
    }

    /// Lists all of a kind, by id or name.
    ///
    /// # Errors
    /// `forbidden`.
    pub async fn list(&self, kind: AccessKind) -> Result<Vec<AccessEntry>, Error> {
        let kind = match kind {
            AccessKind::Keys => control::AccessKind::Keys,
            AccessKind::Users => control::AccessKind::Users,
            AccessKind::Roles => control::AccessKind::Roles,
            AccessKind::Tenants => control::AccessKind::Tenants,
        };
        let (mut all, mut page_token) = (Vec::new(), String::new());
        loop {
            let body = control::ListAccess { kind: kind.into(), page_token, page_size: 0 };
            match self.connection.ask(Request::ListAccess(body), true).await? {
                Reply::AccessList(list) => {
                    all.extend(list.entries.into_iter().map(entry));
                    page_token = list.next_page_token;
                }
                other => return Err(unexpected(&other)),
            }
            if page_token.is_empty() {
                return Ok(all);
            }
        }
    }

    /// Asks whether a key or user may do something to a topic or a key of the configuration, or to the broker if `name` is
    /// empty; whether this client may, without a principal.
    ///
    /// # Errors
    /// `unknown-principal`; `invalid-right` for a verb that is none.
    pub async fn decide(
        &self,
        who: Option<&PrincipalName>,
        verb: &str,
        name: &str,
    ) -> Result<RightDecision, Error> {
        let (verb, name) = (verb.to_owned(), name.to_owned());
        let body = control::DecideRight { principal: who.map(principal), verb, name };
        match self.connection.ask(Request::DecideRight(body), true).await? {
            Reply::RightDecision(control::RightDecision { allowed, reason }) => {
                Ok(RightDecision { is_allowed: allowed, reason })
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn change(&self, change: Change) -> Result<AccessChanged, Error> {
        let body = control::ChangeAccess { change: Some(change) };
        match self.connection.ask(Request::ChangeAccess(body), false).await? {
            Reply::AccessChanged(control::AccessChanged { id, key, created }) => {
                let key = Some(key).filter(|key| !key.is_empty());
                Ok(AccessChanged { id, key, created })
            }
            other => Err(unexpected(&other)),
        }
    }
}

fn principal(name: &PrincipalName) -> control::PrincipalName {
    let (key_id, user) = match name {
        PrincipalName::Key(id) => (id.clone(), String::new()),
        PrincipalName::User(name) => (String::new(), name.clone()),
    };
    control::PrincipalName { key_id, user }
}

fn of_tenant(tenant: &str, quotas: Quotas) -> control::TenantQuotas {
    let Quotas { messages_per_second, bytes_per_second, stored_bytes, topics, connections } =
        quotas;
    let quotas = control::Quotas {
        messages_per_second,
        bytes_per_second,
        stored_bytes,
        topics,
        connections,
    };
    control::TenantQuotas { tenant: tenant.to_owned(), quotas: Some(quotas) }
}

fn wire(holder: Holder) -> control::Holder {
    let Holder { tenant, roles, rights } = holder;
    control::Holder { tenant: tenant.unwrap_or_default(), roles, rights }
}

fn entry(entry: control::AccessEntry) -> AccessEntry {
    let control::AccessEntry {
        id,
        name,
        holder,
        created_ms,
        expires_ms,
        generation,
        quotas,
        certificates,
        stored_bytes,
        last_used_ms,
    } = entry;
    let quotas = quotas.map(|quotas| Quotas {
        messages_per_second: quotas.messages_per_second,
        bytes_per_second: quotas.bytes_per_second,
        stored_bytes: quotas.stored_bytes,
        topics: quotas.topics,
        connections: quotas.connections,
    });
    let control::Holder { tenant, roles, rights } = holder.unwrap_or_default();
    let tenant = Some(tenant).filter(|tenant| !tenant.is_empty());
    AccessEntry {
        id,
        name,
        holder: Holder { tenant, roles, rights },
        created_at: Timestamp(created_ms),
        expires_at: expires_ms.map(Timestamp),
        generation,
        certificates,
        last_used_at: last_used_ms.map(Timestamp),
        quotas: quotas.unwrap_or_default(),
        stored_bytes,
    }
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{} to a request about access", reply.kind()))
}
