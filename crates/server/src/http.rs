//! The HTTP port. In reading order: the `port` accepts and hands a connection to a core; a `connection`
//! finds out which HTTP it speaks; `http1` is the one of our own, from bytes (`head_end`, `http1_head`,
//! `http1_body`, `http1_requests`) to answers (`http1_answers`) and what the socket leaves of them (`unsent`), within `limits` and by its
//! `http1_clock`, each request when it is its `turn`; `http2` is hyper's, with `http2_answers`. Neither begins more than what its client takes of answers has room for (`answer_weight`), nor all of a core together more than it has (`answer_room`). Both give whole requests (`request`) to the `door` of their thread, which looks
//! whether a browser may send them (`browser_guard` with `allowed_hosts`, `allowed_origins` and `browser_headers`), finds their route (`routes`), and get a `response` with a body of `answer`; `streams` is the largest of the rooms behind it. Who connects over what is the `hall`'s to know. A connection of `http1` may go
//! to the core of its streams: `moving`; one that waits for a stream leaves its task for the `lot`: `parking`.

pub(crate) mod allowed_hosts;
pub(crate) mod allowed_origins;
pub(crate) mod answer;
pub(crate) mod answer_room;
mod answer_weight;
mod bad_request;
pub(crate) mod body;
pub(crate) mod browser_guard;
mod browser_headers;
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
pub(crate) mod parking_lot_entry;
pub(crate) mod port;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod route;
mod socket;
pub(crate) mod thread_context;
mod unsent;

pub use self::allowed_origins::{HttpOrigin, HttpOriginError};
pub use self::bad_request::Refused;
pub use self::host_name::{HostName, HostNameError};
pub use self::http1_requests::{Received, RequestDecoder};
pub use self::request::{Headers, Request};
