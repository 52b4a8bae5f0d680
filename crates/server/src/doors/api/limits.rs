//! The limits of the HTTP API. docs/reference/http-api.md describes each of them; a refusal names the limit that was reached.

/// Messages that one request publishes.
pub(crate) const PUBLISH_MESSAGES_MAX: usize = 1000;

/// Bytes of a message to connections, which is in no topic.
pub(crate) const SEND_BYTES_MAX: usize = 64 << 10;

/// Connections of a page, unless another number is wanted.
pub(crate) const CONNECTIONS_PAGE: usize = 100;

/// Connections of a page.
pub(crate) const CONNECTIONS_PAGE_MAX: usize = 1000;

/// Bytes of what a connection is told when it ends: what a close frame has room for.
pub(crate) const DISCONNECT_REASON_BYTES_MAX: usize = 123;
