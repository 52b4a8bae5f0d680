//! The identity of callers. Each request carries its principal from the connection to the place where its rights
//! are checked. It knows no protocol and no request.

pub(crate) mod key_set_fetch;
pub(crate) mod principal;
#[cfg_attr(not(test), expect(dead_code, reason = "no door takes tokens yet"))]
pub(crate) mod token_issuer;
