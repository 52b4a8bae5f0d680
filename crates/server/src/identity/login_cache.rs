//! The principals of credentials that were shown before on a thread: a request over HTTP shows them each time, and checking a
//! password takes tens of milliseconds.

use std::{cell::RefCell, collections::HashMap, net::IpAddr, sync::Arc};

use foldhash::fast::RandomState;
use ring::digest::{Context, SHA256};
use sennit_model::Timestamp;

use super::{
    authority::Authority,
    login::{Credential, LoginRefusal, log_in},
    principal::Principal,
};
use crate::runtime::{metrics::CoreMetrics, peer::Peer};

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
    metrics: Arc<CoreMetrics>,
    logins: RefCell<HashMap<Hash, Known, RandomState>>,
}

/// A login that is remembered.
#[derive(Clone, Debug)]
struct Known {
    principal: Principal,
    /// The address that it came from. A password is remembered for that address alone.
    address: IpAddr,
}

impl LoginCache {
    pub(crate) fn new(authority: Authority, metrics: Arc<CoreMetrics>) -> Self {
        let local = Principal::local(authority.clone());
        Self { authority, local, metrics, logins: RefCell::default() }
    }

    /// The principal of these credentials, which came as `text` from this peer.
    ///
    /// # Errors
    /// They are not valid, or not known to be.
    pub(crate) async fn log_in(
        &self,
        text: &[u8],
        credential: impl FnOnce() -> Credential,
        peer: &Peer,
        now: Timestamp,
    ) -> Result<Principal, LoginRefusal> {
        if !self.authority.asks() {
            return Ok(self.local.clone());
        }
        let (kind, shown) = match (text, peer.certificate()) {
            (b"", Some(certificate)) => (b"C", certificate),
            (text, _) => (b"T", text),
        };
        let log_in =
            async || log_in(&self.authority, &credential(), peer, &self.metrics, now).await;
        if shown.is_empty() {
            return log_in().await;
        }
        let mut hashed = Context::new(&SHA256);
        hashed.update(kind);
        hashed.update(shown);
        let mut hash = [0; 32];
        hash.copy_from_slice(hashed.finish().as_ref());
        let known = self.logins.borrow().get(&hash).cloned();
        if let Some(known) = known.filter(|known| self.counts(known, peer, now)) {
            known.principal.note_use(now);
            return Ok(known.principal);
        }
        let principal = log_in().await?;
        let mut logins = self.logins.borrow_mut();
        if logins.len() >= LOGINS_MAX {
            logins.clear();
        }
        logins.insert(hash, Known { principal: principal.clone(), address: peer.address() });
        Ok(principal)
    }

    /// Whether a login that is remembered logs in this peer. A guesser that hits a password here is as slow as elsewhere.
    fn counts(&self, known: &Known, peer: &Peer, now: Timestamp) -> bool {
        let address = peer.address();
        let may_recall = known.principal.user_by_password().is_none_or(|user| {
            known.address == address && self.authority.may_recall(address, user, now)
        });
        may_recall && known.principal.check(now).is_ok()
    }
}
