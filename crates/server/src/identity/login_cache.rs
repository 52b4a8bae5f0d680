//! The principals of credentials that were shown before on a thread: a request over HTTP shows them each time, and checking a
//! password takes tens of milliseconds.

use std::{cell::RefCell, collections::HashMap};

use foldhash::fast::RandomState;
use ring::digest::{SHA256, digest};
use sennit_model::Timestamp;

use super::{
    authority::Authority,
    login::{Credential, LoginRefusal, log_in},
    principal::Principal,
};

/// Most credentials that a thread remembers; then it begins anew.
const LOGINS_MAX: usize = 4096;

/// The hash of credentials. Nothing of what was shown is kept.
type Hash = [u8; 32];

/// The logins that a thread remembers.
#[derive(Debug)]
pub(crate) struct LoginCache {
    authority: Authority,
    /// Of all who are not asked: they share one.
    local: Principal,
    logins: RefCell<HashMap<Hash, Principal, RandomState>>,
}

impl LoginCache {
    pub(crate) fn new(authority: Authority) -> Self {
        let local = Principal::local(authority.clone());
        Self { authority, local, logins: RefCell::default() }
    }

    /// The principal of these credentials, which came as `text`.
    ///
    /// # Errors
    /// They are not valid, or not known to be.
    pub(crate) async fn log_in(
        &self,
        text: &[u8],
        credential: impl FnOnce() -> Credential,
        now: Timestamp,
    ) -> Result<Principal, LoginRefusal> {
        if !self.authority.asks() {
            return Ok(self.local.clone());
        }
        if text.is_empty() {
            return log_in(&self.authority, &credential(), now).await;
        }
        let mut hash = [0; 32];
        hash.copy_from_slice(digest(&SHA256, text).as_ref());
        let known = self.logins.borrow().get(&hash).cloned();
        if let Some(known) = known.filter(|known| known.check(now).is_ok()) {
            return Ok(known);
        }
        let principal = log_in(&self.authority, &credential(), now).await?;
        let mut logins = self.logins.borrow_mut();
        if logins.len() >= LOGINS_MAX {
            logins.clear();
        }
        logins.insert(hash, principal.clone());
        Ok(principal)
    }
}
