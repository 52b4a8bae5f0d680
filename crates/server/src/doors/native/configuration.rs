//! Requests of a session about the configuration: bodies are checked and passed on to the first core, answers and
//! refusals become replies. A watch is told what its core knows. It does not know how changes are kept.

use std::{pin::pin, rc::Rc};

use bytes::Bytes;
use sennit_model::{ConfigurationKey, limits::CONFIGURATION_VALUE_BYTES_MAX};
use sennit_protocol::{ErrorCode, Reply, Request, control};
use tokio::sync::oneshot::{self, error::TryRecvError};

use super::{
    outbox::Outbox, pending_request::PendingRequest, refusal_reply::control_reply,
    reply_size::fitting,
};
use crate::broker::{
    configuration::{
        self, ConfigurationAnswer, ConfigurationChange, ConfigurationRefusal, ConfigurationRequest,
        CurrentConfiguration, ListEntries, ToldEntry, Write, may_read,
    },
    control_request::ControlRefusal,
};
use crate::identity::principal::Principal;

/// Most entries on a page.
const PAGE_ENTRIES_MAX: usize = 1000;
/// Most bytes of entries in a frame, unless a single one has more.
const PAGE_BYTES_MAX: usize = 256 << 10;
/// How long a client waits before it sends a change again for which there was no room, in milliseconds.
const BUSY_RETRY_MS: u64 = 250;

impl PendingRequest {
    /// Asks the first core, and tells the client what it says.
    pub(crate) async fn configuration(self, request: Request) {
        let reply = match self.ask_configuration(request).await {
            Ok(answer) => reply(answer),
            Err(refusal) => Reply::Error(refusal_reply(&refusal)),
        };
        self.controls.add_permits(self.permits);
        self.outbox.reply(&fitting(reply, self.outbox.frame_bytes_max()), self.number);
    }

    async fn ask_configuration(
        &self,
        request: Request,
    ) -> Result<ConfigurationAnswer, ConfigurationRefusal> {
        let page_bytes = page_bytes(&self.outbox);
        let request = configuration_request(request, page_bytes)?;
        let answer = configuration::ask(&self.core.cores, self.principal.clone(), request).await;
        answer.unwrap_or_else(|_| {
            Err(ConfigurationRefusal::Broker(Box::new(ControlRefusal::ShuttingDown)))
        })
    }

    /// Tells the client of the entries and their changes, until the watch has `ended`: unsubscribed, or the
    /// session is over.
    pub(crate) async fn watch_configuration(
        self,
        body: control::WatchConfiguration,
        ended: oneshot::Receiver<()>,
    ) {
        self.controls.add_permits(self.permits);
        let number = body.subscription;
        // Each core has it.
        let Some(current) = self.core.services.find::<CurrentConfiguration>() else { return };
        self.outbox.subscription_begins(number);
        let watching = control::WatchingConfiguration { subscription: number };
        self.outbox.reply(&Reply::WatchingConfiguration(watching), self.number);
        let mut ended = pin!(ended);
        tokio::select! {
            biased;
            _ = &mut ended => {}
            () = tell(&current, &self.principal, &self.outbox, body) => {
                if let Err(TryRecvError::Empty) = ended.try_recv() {
                    self.routes.borrow_mut().watches.remove(&number);
                }
                let ended = control::SubscriptionEnded {
                    subscription: number,
                    code: ErrorCode::LimitReached.number(),
                    reason: "an entry is longer than frame_bytes_max of this connection".to_owned(),
                };
                self.outbox.reply(&Reply::SubscriptionEnded(ended), 0);
            }
        }
    }
}

/// How many bytes of entries a frame of the connection may have, so that all of it fits.
fn page_bytes(outbox: &Outbox) -> usize {
    let frame_bytes_max = outbox.frame_bytes_max();
    PAGE_BYTES_MAX.min(frame_bytes_max.saturating_sub(1024))
}

/// Tells of entries and changes as the client takes them, until one does not fit.
async fn tell(
    current: &Rc<CurrentConfiguration>,
    principal: &Principal,
    outbox: &Outbox,
    body: control::WatchConfiguration,
) {
    let control::WatchConfiguration { subscription, prefix, after_revision } = body;
    let bytes_max = page_bytes(outbox);
    let mut reached = after_revision;
    loop {
        // Nothing is taken from the history before the client has room for it: it does not pile up here.
        outbox.wait_for_room().await;
        let may_tell = |key: &ConfigurationKey| may_read(principal, key);
        let next = reached
            .and_then(|reached| current.changes_after(reached, &prefix, may_tell, bytes_max));
        let Some((changes, revision)) = next else {
            match tell_all(current, principal, outbox, subscription, &prefix).await {
                Some(revision) => reached = Some(revision),
                None => return,
            }
            continue;
        };
        if !changes.is_empty() {
            let changes: Vec<_> = changes.into_iter().map(change).collect();
            let told = control::ConfigurationChanges {
                subscription,
                changes,
                revision,
                reset: false,
                more: false,
            };
            if !tell_one(outbox, told) {
                return;
            }
        }
        reached = Some(revision);
        current.wait_after(revision).await;
    }
}

/// Tells all entries of the moment; returns their revision, unless one does not fit.
async fn tell_all(
    current: &CurrentConfiguration,
    principal: &Principal,
    outbox: &Outbox,
    subscription: u32,
    prefix: &str,
) -> Option<u64> {
    let snapshot = current.snapshot();
    let revision = snapshot.revision();
    let bytes_max = page_bytes(outbox);
    let entries = snapshot.entries(prefix);
    let mut entries = entries.filter(|entry| may_read(principal, &entry.key)).peekable();
    loop {
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while let Some(entry) = entries.next_if(|entry| {
            bytes += entry.bytes();
            changes.is_empty() || (bytes <= bytes_max && changes.len() < PAGE_ENTRIES_MAX)
        }) {
            let ToldEntry { key, revision, value } = entry;
            changes.push(change(ConfigurationChange { key, revision, value: Some(value) }));
        }
        let more = entries.peek().is_some();
        let told =
            control::ConfigurationChanges { subscription, changes, revision, reset: true, more };
        if !tell_one(outbox, told) {
            return None;
        }
        if !more {
            return Some(revision);
        }
        outbox.wait_for_room().await;
    }
}

/// Tells the client, unless no frame of the connection holds it.
fn tell_one(outbox: &Outbox, told: control::ConfigurationChanges) -> bool {
    let reply = fitting(Reply::ConfigurationChanges(told), outbox.frame_bytes_max());
    let fits = !matches!(reply, Reply::Error(_));
    if fits {
        outbox.reply(&reply, 0);
    }
    fits
}

fn change(change: ConfigurationChange) -> control::ConfigurationChange {
    let ConfigurationChange { key, revision, value } = change;
    let (key, deleted) = (key.to_string(), value.is_none());
    control::ConfigurationChange { key, revision, deleted, value: value.unwrap_or_default() }
}

fn entry(entry: ToldEntry) -> control::ConfigurationEntry {
    let ToldEntry { key, revision, value } = entry;
    control::ConfigurationEntry { key: key.to_string(), revision, value }
}

/// The request that a frame carries.
fn configuration_request(
    request: Request,
    page_bytes: usize,
) -> Result<ConfigurationRequest, ConfigurationRefusal> {
    let key = |text: &str| text.parse::<ConfigurationKey>();
    Ok(match request {
        Request::GetConfiguration(body) => ConfigurationRequest::Get { key: key(&body.key)? },
        Request::SetConfiguration(body) if body.value.len() > CONFIGURATION_VALUE_BYTES_MAX => {
            key(&body.key)?;
            return Err(ConfigurationRefusal::ValueTooLong(body.value.len()));
        }
        Request::SetConfiguration(body) => ConfigurationRequest::Write(Write {
            key: changed_key(&body.key)?,
            // A copy: the frame's memory is that of all that was read with it.
            value: Some(Bytes::copy_from_slice(&body.value)),
            if_revision: body.if_revision,
            if_authority: None,
        }),
        Request::DeleteConfiguration(body) => ConfigurationRequest::Write(Write {
            key: changed_key(&body.key)?,
            value: None,
            if_revision: body.if_revision,
            if_authority: None,
        }),
        Request::ListConfiguration(body) => {
            let entries_max = match body.page_size as usize {
                0 => PAGE_ENTRIES_MAX,
                wanted => wanted.min(PAGE_ENTRIES_MAX),
            };
            ConfigurationRequest::List(ListEntries {
                prefix: body.prefix,
                after: body.page_token,
                entries_max,
                bytes_max: page_bytes,
            })
        }
        other => {
            let message = format!("{:?} is not for the configuration", other.kind());
            tracing::error!(message);
            return Err(ConfigurationRefusal::Broker(Box::new(ControlRefusal::WrongAnswer)));
        }
    })
}

/// A key whose entry a client may change.
fn changed_key(text: &str) -> Result<ConfigurationKey, ConfigurationRefusal> {
    let key: ConfigurationKey = text.parse()?;
    if key.is_of_hooks() { Err(ConfigurationRefusal::OfHooks) } else { Ok(key) }
}

fn reply(answer: ConfigurationAnswer) -> Reply {
    match answer {
        ConfigurationAnswer::Entry { entry: found, revision } => {
            let entry = found.map(entry);
            Reply::ConfigurationValue(control::ConfigurationValue { entry, revision })
        }
        ConfigurationAnswer::Page { entries, more, revision } => {
            let last = entries.last().filter(|_| more);
            let next_page_token = last.map(|entry| entry.key.to_string()).unwrap_or_default();
            let entries = entries.into_iter().map(entry).collect();
            let list = control::ConfigurationList { entries, next_page_token, revision };
            Reply::ConfigurationList(list)
        }
        ConfigurationAnswer::Changed { revision, existed } => {
            Reply::ConfigurationChanged(control::ConfigurationChanged { revision, existed })
        }
    }
}

/// The error that tells a client of a refusal.
pub(super) fn refusal_reply(refusal: &ConfigurationRefusal) -> control::Error {
    let code = match refusal {
        ConfigurationRefusal::Broker(refusal) => return control_reply(refusal),
        ConfigurationRefusal::Key(_)
        | ConfigurationRefusal::OfHooks
        | ConfigurationRefusal::OfIdentity => ErrorCode::InvalidKey,
        ConfigurationRefusal::Throttle(_) => ErrorCode::InvalidConfig,
        ConfigurationRefusal::ValueTooLong(_)
        | ConfigurationRefusal::TooManyThrottles
        | ConfigurationRefusal::TooManyEntries
        | ConfigurationRefusal::TooManyBytes(_) => ErrorCode::LimitReached,
        ConfigurationRefusal::Revision { .. } => ErrorCode::RevisionMismatch,
        ConfigurationRefusal::Busy | ConfigurationRefusal::OtherDirectory => ErrorCode::Busy,
        ConfigurationRefusal::Unreadable => ErrorCode::Internal,
    };
    let mut error = control::Error::new(code, refusal.to_string());
    match refusal {
        ConfigurationRefusal::Revision { found, .. } => error.revision = Some(*found),
        ConfigurationRefusal::Busy | ConfigurationRefusal::OtherDirectory => {
            error.retry_after_ms = BUSY_RETRY_MS;
        }
        _ => {}
    }
    error
}
