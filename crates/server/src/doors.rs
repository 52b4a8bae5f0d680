//! The doors of the broker, one for each protocol. They convert clients' messages to commands and requests, and
//! answers back.

pub(crate) mod api;
mod http_login;
pub(crate) mod http_router;
pub(crate) mod http_routes;
pub(crate) mod live;
pub(crate) mod native;
mod native_upgrade;
pub(crate) mod status;
pub(crate) mod streams;
