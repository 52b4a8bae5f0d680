//! The identity of callers. Each request carries its principal from the connection to the place where its rights
//! are checked. It knows no protocol and no request.

pub(crate) mod principal;
