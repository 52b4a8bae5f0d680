//! The configuration of the broker: get, set, delete and list its entries. Watches have a file of their own.

use std::sync::Arc;

use bytes::Bytes;
use sennit_model::ConfigurationKey;
use sennit_protocol::{Reply, Request, control};

use crate::{
    client::Client,
    configuration_event::{ConfigurationEntry, checked},
    configuration_watch::ConfigurationWatch,
    connection_handle::ConnectionHandle,
    error::Error,
};

/// The configuration of the broker: a durable map of keys and values. Made by
/// [`Client::configuration`], and cheap to clone.
#[derive(Clone)]
pub struct Configuration {
    connection: Arc<ConnectionHandle>,
}

impl std::fmt::Debug for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Configuration").finish_non_exhaustive()
    }
}

/// A page of entries, by key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigurationPage {
    /// Some of the entries.
    pub entries: Vec<ConfigurationEntry>,
    /// Where the next page begins; empty on the last page.
    pub next_page_token: String,
    /// The revision of the configuration: that of its last change. Pages of different revisions are
    /// of different moments.
    pub revision: u64,
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigurationChanged {
    /// The revision of the change; that of the configuration if there was nothing to delete.
    pub revision: u64,
    /// Whether there was an entry before.
    pub existed: bool,
}

impl Client {
    /// The configuration of the broker.
    #[must_use]
    pub fn configuration(&self) -> Configuration {
        Configuration { connection: Arc::clone(&self.connection) }
    }
}

/// All requests fail with `unknown-kind` by a broker that does not support them. After a lost
/// connection a change fails with [`Error::OutcomeUnknown`]; with the revision that it expected it can be
/// tried again without harm.
impl Configuration {
    /// The entry of a key, if there is one.
    ///
    /// # Errors
    /// See above.
    pub async fn get(&self, key: &ConfigurationKey) -> Result<Option<ConfigurationEntry>, Error> {
        let body = control::GetConfiguration { key: key.to_string() };
        match self.connection.ask(Request::GetConfiguration(body), true).await? {
            Reply::ConfigurationValue(found) => found.entry.map(entry).transpose(),
            other => Err(unexpected(&other)),
        }
    }

    /// Sets the value of a key; with `if_revision` only if the entry has this revision, or, for 0,
    /// if there is none. Once this returns the change is durable, and every core of the broker has it.
    ///
    /// # Errors
    /// [`Error::RevisionMismatch`]; `limit-reached` for a value that is too long, or when the broker has
    /// too many entries; `invalid-config` for a throttle rule that is none; and see above.
    pub async fn set(
        &self,
        key: &ConfigurationKey,
        value: impl Into<Bytes>,
        if_revision: Option<u64>,
    ) -> Result<ConfigurationChanged, Error> {
        let (key, value) = (key.to_string(), value.into());
        let body = control::SetConfiguration { key, value, if_revision };
        self.change(Request::SetConfiguration(body)).await
    }

    /// Deletes the entry of a key; with `if_revision` only if it has this revision.
    ///
    /// # Errors
    /// [`Error::RevisionMismatch`]; and see above.
    pub async fn delete(
        &self,
        key: &ConfigurationKey,
        if_revision: Option<u64>,
    ) -> Result<ConfigurationChanged, Error> {
        let body = control::DeleteConfiguration { key: key.to_string(), if_revision };
        self.change(Request::DeleteConfiguration(body)).await
    }

    /// A page of the entries whose keys begin with `prefix`. It begins where `page_token` of the page
    /// before says, and has at most this many entries, 0 for as many as the broker gives.
    ///
    /// # Errors
    /// See above.
    pub async fn list_page(
        &self,
        prefix: &str,
        page_token: &str,
        page_size: u32,
    ) -> Result<ConfigurationPage, Error> {
        let (prefix, page_token) = (prefix.to_owned(), page_token.to_owned());
        let body = control::ListConfiguration { prefix, page_token, page_size };
        match self.connection.ask(Request::ListConfiguration(body), true).await? {
            Reply::ConfigurationList(list) => Ok(ConfigurationPage {
                entries: list.entries.into_iter().map(entry).collect::<Result<_, _>>()?,
                next_page_token: list.next_page_token,
                revision: list.revision,
            }),
            other => Err(unexpected(&other)),
        }
    }

    /// All entries whose keys begin with `prefix`, by key, with as many requests as there are pages.
    ///
    /// # Errors
    /// See above.
    pub async fn list(&self, prefix: &str) -> Result<Vec<ConfigurationEntry>, Error> {
        let (mut entries, mut page_token) = (Vec::new(), String::new());
        loop {
            let page = self.list_page(prefix, &page_token, 0).await?;
            let is_empty = page.entries.is_empty();
            entries.extend(page.entries);
            page_token = page.next_page_token;
            if page_token.is_empty() || is_empty {
                return Ok(entries);
            }
        }
    }

    /// Watches the entries whose keys begin with `prefix`: first all that there are, or, with
    /// `after_revision`, the changes after that, and then each change in order. The watch goes on over
    /// lost connections.
    ///
    /// # Errors
    /// `limit-reached`, if the client has too many watches; and see above.
    pub async fn watch(
        &self,
        prefix: &str,
        after_revision: Option<u64>,
    ) -> Result<ConfigurationWatch, Error> {
        ConfigurationWatch::start(Arc::clone(&self.connection), prefix, after_revision).await
    }

    async fn change(&self, request: Request) -> Result<ConfigurationChanged, Error> {
        match self.connection.ask(request, false).await? {
            Reply::ConfigurationChanged(changed) => {
                Ok(ConfigurationChanged { revision: changed.revision, existed: changed.existed })
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// An entry that the broker has sent.
pub(crate) fn entry(body: control::ConfigurationEntry) -> Result<ConfigurationEntry, Error> {
    let control::ConfigurationEntry { key, revision, value } = body;
    Ok(ConfigurationEntry { key: checked(&key)?, revision, value })
}

fn unexpected(reply: &Reply) -> Error {
    Error::Unexpected(format!("{} is not the answer to this request", reply.kind()))
}
