//! Keeps when API keys were last used: an entry of the configuration for each key, written once an hour at most, off the
//! way of logins. What a crash takes is less than that hour.

use std::{pin::Pin, rc::Rc, time::Duration};

use bytes::Bytes;
use sennit_identity::{ApiKeyId, LAST_USE_ENTRY_PREFIX};
use sennit_model::{ConfigurationKey, IDENTITY_KEY_PREFIX, Offset, TopicId, TopicName};
use tokio::{sync::oneshot, task::spawn_local, time::timeout};

use super::{
    configuration::{self, Answer, ConfigurationRequest, Write},
    topic_listener::TopicListener,
};
use crate::{
    identity::{authority::Authority, principal::Principal},
    runtime::{clock::now, core::CoreHandle},
};

/// How long after one look the next is at the latest: at connections that are open, and for keys that were deleted.
const LOOK_EVERY: Duration = Duration::from_secs(600);

/// The store of last uses, on the first core.
#[derive(Debug)]
pub(crate) struct KeyUseStore {
    core: CoreHandle,
    authority: Authority,
}

impl TopicListener for KeyUseStore {
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async move {
            spawn_local(async move {
                loop {
                    self.keep().await;
                    let _ = timeout(LOOK_EVERY, self.authority.key_uses().wait_until_due()).await;
                }
            });
        })
    }

    fn appeared(self: Rc<Self>, _name: &TopicName, _topic: TopicId, _from: Offset) {}

    fn gone(self: Rc<Self>, _name: &TopicName, _topic: TopicId) {}
}

impl KeyUseStore {
    /// Nothing is kept before the start.
    pub(crate) fn new(core: CoreHandle, authority: Authority) -> Rc<Self> {
        Rc::new(Self { core, authority })
    }

    /// Keeps what has to be kept by now. All of it is asked for before the first answer, so that it is one append.
    async fn keep(&self) {
        let uses = self.authority.key_uses();
        let Some(directory) = self.authority.directory() else { return };
        let gone = uses.forget_deleted(&directory);
        let deleted: Vec<_> = gone.iter().filter_map(|key| self.write(key, None)).collect();
        let due: Vec<_> = uses
            .due(now())
            .into_iter()
            .filter_map(|(key, at, entry)| Some((key, at, self.write(&key, Some(entry.into()))?)))
            .collect();
        for (key, at, answer) in due {
            match answer.await {
                Ok(Ok(_)) => uses.kept(&key, at),
                Ok(Err(refusal)) => {
                    tracing::debug!(%refusal, "when a key was last used is kept later");
                }
                // The broker stops.
                Err(_) => return,
            }
        }
        for answer in deleted {
            let _ = answer.await;
        }
    }

    fn write(&self, key: &ApiKeyId, value: Option<Bytes>) -> Option<oneshot::Receiver<Answer>> {
        let key = format!("{IDENTITY_KEY_PREFIX}{LAST_USE_ENTRY_PREFIX}{key}");
        let key: ConfigurationKey = key.parse().ok()?;
        let write = ConfigurationRequest::Write(Write {
            key,
            value,
            if_revision: None,
            if_authority: None,
        });
        Some(configuration::ask(&self.core.cores, Principal::broker(), write))
    }
}
