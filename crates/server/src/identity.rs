//! The identity of callers: a `principal` is carried with each request from its connection to the place where its rights
//! are checked; the `authority` knows which credentials count and what each principal may at the moment. It knows no
//! protocol and no request.

pub(crate) mod authority;
pub(crate) mod key_set_fetch;
pub(crate) mod login;
pub(crate) mod login_cache;
pub(crate) mod principal;
pub(crate) mod tenant_meter;
#[cfg_attr(not(test), expect(dead_code, reason = "no door takes tokens yet"))]
pub(crate) mod token_issuer;
