//! The transport of HTTP: it makes requests of bytes and bytes of answers. A `handler` answers the requests; the
//! transport knows no stream and no backup.
//!
//! In reading order: the `port` accepts a connection, if there is a `port_place` for it and its address (`addresses`), and hands it to a core; a `connection` finds out which HTTP it
//! speaks. `http1` is our own: bytes (`head_end`, `http1_head`, `http1_body`, `http1_requests`) become requests, and
//! answers become bytes (`http1_answers`, `unsent`), within `limits`, by its `http1_clock`, and at once where
//! `concurrency` allows it. `http2` is hyper's, with `http2_answers`. A connection holds no more of answers than it has
//! room for (`answer_weight`), nor do all of a core together (`answer_room`). A `request` reaches the handler with its
//! `route`; the `browser_guard` says whether a page may send it (`allowed_hosts`, `allowed_origins`,
//! `browser_headers`); a `response` has a `body`. `thread_state` is what the connections of a thread share. A
//! connection of `http1` moves to the core of its streams (`core_affinity`); one that waits for a stream leaves its
//! task (`parking`, `parking_entry`), as does one that goes on at another door (`upgrade`). The `client` sends requests to servers elsewhere, by their `client_url`.

pub(crate) mod addresses;
pub(crate) mod allowed_hosts;
pub(crate) mod allowed_origins;
pub(crate) mod answer;
pub(crate) mod answer_room;
mod answer_weight;
mod bad_request;
pub(crate) mod body;
pub(crate) mod browser_guard;
pub(crate) mod browser_headers;
pub(crate) mod client;
pub(crate) mod client_url;
pub(crate) mod closing;
pub(crate) mod concurrency;
mod connection;
mod core_affinity;
mod date;
pub(crate) mod handler;
mod head_end;
mod host_name;
mod http1;
pub(crate) mod http1_answers;
mod http1_body;
mod http1_clock;
mod http1_head;
mod http1_requests;
mod http2;
mod http2_answers;
pub(crate) mod limits;
mod overloaded;
pub(crate) mod parking;
pub(crate) mod parking_entry;
pub(crate) mod port;
pub(crate) mod port_place;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod route;
mod socket;
pub(crate) mod thread_state;
mod unsent;
pub(crate) mod upgrade;

pub use self::allowed_origins::{HttpOrigin, HttpOriginError};
pub use self::bad_request::Refused;
pub use self::host_name::{HostName, HostNameError};
pub use self::http1_requests::{Received, RequestDecoder};
pub use self::request::{Headers, Request};
