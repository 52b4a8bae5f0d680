//! The doors of the broker, one for each protocol. They make commands and requests of what clients send, and
//! answers of what comes back.

pub(crate) mod http_router;
pub(crate) mod http_routes;
pub(crate) mod native;
pub(crate) mod status;
pub(crate) mod streams;
