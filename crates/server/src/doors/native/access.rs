//! Requests of a session about keys, users, roles and tenants: bodies are checked and passed on to the first core,
//! answers and refusals become replies. It does not know how they are kept.

use std::time::Duration;

use sennit_identity::{
    ApiKeyError, CertificateNameError, EntryKey, Holder, IdentityNameError, Quotas, Right,
    RightError, RoleName, UnknownVerb, Zeroizing,
};
use sennit_protocol::{ErrorCode, Reply, Request, control};

use super::{
    configuration, pending_request::PendingRequest, refusal_reply::control_reply,
    reply_size::fitting,
};
use crate::{
    access::{
        self, AccessAnswer, AccessChange, AccessKind, AccessRefusal, AccessRequest, DecidedRight,
        ListedEntry,
    },
    broker::control_request::ControlRefusal,
};

/// Most entries on a page.
const PAGE_ENTRIES_MAX: usize = 1000;

/// The reason why a body is no request, or the refusal.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Name(#[from] IdentityNameError),
    #[error(transparent)]
    Key(#[from] ApiKeyError),
    #[error(transparent)]
    Right(#[from] RightError),
    #[error(transparent)]
    Certificate(#[from] CertificateNameError),
    #[error(transparent)]
    Verb(#[from] UnknownVerb),
    #[error("{0}")]
    Body(&'static str),
    #[error(transparent)]
    Refused(#[from] AccessRefusal),
}

impl PendingRequest {
    /// Asks the first core, and tells the client what it says.
    pub(crate) async fn access(self, request: Request) {
        self.guard.asks_for_change();
        let reply = match self.ask_access(request).await {
            Ok(answer) => reply(answer),
            Err(fault) => Reply::Error(fault_reply(&fault)),
        };
        self.controls.add_permits(self.permits);
        self.outbox.reply(&fitting(reply, self.outbox.frame_bytes_max()), self.number);
        self.guard.is_told();
    }

    async fn ask_access(&self, request: Request) -> Result<AccessAnswer, Fault> {
        let request = access_request(request)?;
        let answer = access::ask(&self.core.cores, self.principal.clone(), request).await;
        let answer = answer.unwrap_or_else(|_| Err(ControlRefusal::ShuttingDown.into()));
        Ok(answer?)
    }
}

/// The request that a frame carries.
fn access_request(request: Request) -> Result<AccessRequest, Fault> {
    Ok(match request {
        Request::ChangeAccess(body) => {
            let change = body.change.ok_or(Fault::Body("the change is missing"))?;
            AccessRequest::Change(access_change(change)?)
        }
        Request::ListAccess(body) => {
            let kind = match body.kind() {
                control::AccessKind::Keys => AccessKind::Keys,
                control::AccessKind::Users => AccessKind::Users,
                control::AccessKind::Roles => AccessKind::Roles,
                control::AccessKind::Tenants => AccessKind::Tenants,
                control::AccessKind::Unspecified => {
                    return Err(Fault::Body("kind is none: 1 keys, 2 users, 3 roles, 4 tenants"));
                }
            };
            let most = match body.page_size as usize {
                0 => PAGE_ENTRIES_MAX,
                wanted => wanted.min(PAGE_ENTRIES_MAX),
            };
            AccessRequest::List { kind, after: body.page_token, most }
        }
        Request::DecideRight(body) => {
            let who = body.principal.map(principal).transpose()?;
            AccessRequest::Decide { who, verb: body.verb.parse()?, name: body.name }
        }
        other => {
            tracing::error!(kind = ?other.kind(), "this is not about keys, users, roles or tenants");
            return Err(AccessRefusal::from(ControlRefusal::WrongAnswer).into());
        }
    })
}

fn access_change(change: control::change_access::Change) -> Result<AccessChange, Fault> {
    use control::change_access::Change;
    let key = |id: &str| id.parse().map(EntryKey::Key);
    Ok(match change {
        Change::CreateKey(body) => AccessChange::CreateKey {
            name: body.name,
            holder: holder(body.holder)?,
            expires_ms: body.expires_ms,
        },
        Change::RotateKey(body) => {
            let grace = Duration::from_millis(body.grace_ms);
            AccessChange::RotateKey { key: key(&body.key_id)?, grace }
        }
        Change::DeleteKey(id) => AccessChange::Delete(key(&id)?),
        Change::SetPassword(body) => AccessChange::SetPassword {
            user: body.user.parse()?,
            password: Zeroizing::new(body.password),
            holder: holder(body.holder)?,
        },
        Change::SetCertificates(body) => {
            let certificates = body.certificates.iter().map(|name| name.parse());
            AccessChange::SetCertificates {
                user: body.user.parse()?,
                certificates: certificates.collect::<Result<_, CertificateNameError>>()?,
                holder: holder(body.holder)?,
            }
        }
        Change::DeleteUser(name) => AccessChange::Delete(EntryKey::User(name.parse()?)),
        Change::SetRole(body) => {
            AccessChange::SetRole { role: body.role.parse()?, rights: rights(&body.rights)? }
        }
        Change::DeleteRole(name) => AccessChange::Delete(EntryKey::Role(name.parse()?)),
        Change::CreateTenant(body) => {
            AccessChange::CreateTenant { tenant: body.tenant.parse()?, quotas: quotas(body.quotas) }
        }
        Change::SetQuotas(body) => {
            AccessChange::SetQuotas { tenant: body.tenant.parse()?, quotas: quotas(body.quotas) }
        }
        Change::DeleteTenant(name) => AccessChange::Delete(EntryKey::Tenant(name.parse()?)),
        Change::Grant(body) => {
            let (to, roles, rights) = grant(body)?;
            AccessChange::Grant { to, roles, rights }
        }
        Change::Revoke(body) => {
            let (from, roles, rights) = grant(body)?;
            AccessChange::Revoke { from, roles, rights }
        }
    })
}

fn grant(body: control::Grant) -> Result<(EntryKey, Vec<RoleName>, Vec<Right>), Fault> {
    let whose = body.principal.ok_or(Fault::Body("the principal is missing"))?;
    Ok((principal(whose)?, roles(&body.roles)?, rights(&body.rights)?))
}

fn principal(body: control::PrincipalName) -> Result<EntryKey, Fault> {
    match (&*body.key_id, &*body.user) {
        ("", "") => Err(Fault::Body("the principal is missing: key_id or user")),
        (id, "") => Ok(EntryKey::Key(id.parse()?)),
        ("", user) => Ok(EntryKey::User(user.parse()?)),
        _ => Err(Fault::Body("a principal has a key_id or a user, not both")),
    }
}

fn holder(body: Option<control::Holder>) -> Result<Holder, Fault> {
    let body = body.unwrap_or_default();
    let tenant = Some(&body.tenant).filter(|name| !name.is_empty());
    let tenant = tenant.map(|name| name.parse()).transpose()?;
    Ok(Holder { tenant, roles: roles(&body.roles)?, rights: rights(&body.rights)? })
}

fn quotas(body: Option<control::Quotas>) -> Quotas {
    let control::Quotas {
        messages_per_second,
        bytes_per_second,
        stored_bytes,
        topics,
        connections,
    } = body.unwrap_or_default();
    Quotas { messages_per_second, bytes_per_second, stored_bytes, topics, connections }
}

fn roles(names: &[String]) -> Result<Vec<RoleName>, IdentityNameError> {
    names.iter().map(|name| name.parse()).collect()
}

fn rights(texts: &[String]) -> Result<Vec<Right>, RightError> {
    texts.iter().map(|text| text.parse()).collect()
}

fn reply(answer: AccessAnswer) -> Reply {
    match answer {
        AccessAnswer::Changed { id, key, created } => {
            let key = key.map(|key| key.to_string()).unwrap_or_default();
            Reply::AccessChanged(control::AccessChanged { id, key, created })
        }
        AccessAnswer::Page { entries, more } => {
            let last = entries.last().filter(|_| more);
            let next_page_token = last.map(|last| last.id.clone()).unwrap_or_default();
            let entries = entries.into_iter().map(entry).collect();
            Reply::AccessList(control::AccessList { entries, next_page_token })
        }
        AccessAnswer::Decision(DecidedRight { is_allowed, reason }) => {
            Reply::RightDecision(control::RightDecision { allowed: is_allowed, reason })
        }
    }
}

fn entry(entry: ListedEntry) -> control::AccessEntry {
    let ListedEntry {
        id,
        name,
        holder,
        created_ms,
        expires_ms,
        generation,
        last_used_ms,
        certificates,
        quotas,
        stored_bytes,
    } = entry;
    let certificates = certificates.iter().map(ToString::to_string).collect();
    let quotas = quotas.map(|quotas| {
        let Quotas { messages_per_second, bytes_per_second, stored_bytes, topics, connections } =
            quotas;
        control::Quotas { messages_per_second, bytes_per_second, stored_bytes, topics, connections }
    });
    let Holder { tenant, roles, rights } = holder;
    let holder = control::Holder {
        tenant: tenant.map(|tenant| tenant.to_string()).unwrap_or_default(),
        roles: roles.iter().map(ToString::to_string).collect(),
        rights: rights.iter().map(ToString::to_string).collect(),
    };
    let holder = Some(holder);
    control::AccessEntry {
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
    }
}

fn fault_reply(fault: &Fault) -> control::Error {
    let code = match fault {
        Fault::Name(_) | Fault::Right(_) | Fault::Verb(_) | Fault::Certificate(_) => {
            ErrorCode::InvalidRight
        }
        Fault::Key(_) => ErrorCode::UnknownPrincipal,
        Fault::Body(_) => ErrorCode::InvalidConfig,
        Fault::Refused(refusal) => match refusal {
            AccessRefusal::Missing(_) => ErrorCode::Forbidden,
            AccessRefusal::Configuration(refusal) => return configuration::refusal_reply(refusal),
            AccessRefusal::Control(refusal) => return control_reply(refusal),
            AccessRefusal::Right(_)
            | AccessRefusal::Name(_)
            | AccessRefusal::Verb(_)
            | AccessRefusal::Certificate(_)
            | AccessRefusal::Password(_)
            | AccessRefusal::NoCredential
            | AccessRefusal::KeyName
            | AccessRefusal::Expired => ErrorCode::InvalidRight,
            AccessRefusal::Unknown(_) => ErrorCode::UnknownPrincipal,
            AccessRefusal::Exists(_)
            | AccessRefusal::Standard(_)
            | AccessRefusal::InUse(_)
            | AccessRefusal::CertificateTaken(..)
            | AccessRefusal::FirstNotAdmin
            | AccessRefusal::LastAdmin => ErrorCode::PrincipalConflict,
            AccessRefusal::NotForTenants => ErrorCode::Forbidden,
            AccessRefusal::TooManyRoles
            | AccessRefusal::TooManyRights
            | AccessRefusal::TooManyCertificates => ErrorCode::LimitReached,
            AccessRefusal::Secret(_) => ErrorCode::Internal,
        },
    };
    control::Error::new(code, fault.to_string())
}
