//! The identity of callers: a `principal` is carried with each request from its connection to the place where its rights
//! are checked; the `authority` knows which credentials count and what each principal may at the moment. A `login` makes a
//! principal of credentials; `login_cache` and `verified_passwords` remember those that were good. A `certificate_owner` is
//! the user whom a client certificate logs in. A `token_issuer` of a `token_config` checks tokens, with keys of a `key_set_fetch` if they are at a URL; a `token_owner`
//! has the rights of its claims. It knows no protocol and no request.

pub(crate) mod authority;
mod certificate_owner;
pub(crate) mod key_set_fetch;
pub(crate) mod key_uses;
pub(crate) mod login;
pub(crate) mod login_cache;
pub(crate) mod principal;
pub(crate) mod tenant_meter;
pub(crate) mod token_config;
pub(crate) mod token_issuer;
mod token_owner;
mod verified_passwords;

pub use self::{
    key_set_fetch::{KeySetUrl, KeySetUrlError},
    token_config::{TokenConfig, TokenConfigError, TokenKeySource},
};
