//! The limits and timeouts of the HTTP port. docs/reference/http.md describes each of them; an answer names the
//! limit that was reached.

use std::time::Duration;

/// Connections that the port serves at once, unless the broker is told otherwise.
pub(crate) const CONNECTIONS_MAX: usize = 65_536;

/// Connections that wait for a place among those; more of them wait to be accepted.
pub(crate) const CONNECTIONS_WAITING_MAX: usize = 1024;

/// Connections of one address (of IPv6: of its first 64 bits), unless the broker is told otherwise. An address is never all that
/// are served.
pub(crate) const CONNECTIONS_PER_ADDRESS_MAX: usize = 16_384;

/// Connections beyond that which are told so; more of them are closed without a word.
pub(crate) const TURNED_AWAY_MAX: usize = 64;

/// How long a connection waits for a place before it is told to come again.
pub(crate) const PLACE_TIMEOUT: Duration = Duration::from_secs(1);

/// Longest head of a request, in bytes, and longest trailer section.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Most header lines of a request.
pub(crate) const HEADERS_MAX: usize = 64;

/// Longest target of a request, in bytes.
pub(crate) const TARGET_BYTES_MAX: usize = 8 << 10;

/// Longest body of a request, in bytes: 16 MiB of messages, and what an encoding adds.
pub(crate) const BODY_BYTES_MAX: usize = 17 << 20;

/// Bytes of bodies and long heads that have come and whose requests are not answered, and of what came behind
/// requests that others wait for, of all connections of a core.
pub(crate) const BODIES_BYTES_MAX: usize = 256 << 20;

/// What of a head does not count there: no more than any request costs.
pub(crate) const HEAD_FREE_BYTES: usize = 1 << 10;

/// Longest extensions of one chunk, and of all chunks of a body, in bytes. Nobody needs any.
pub(crate) const CHUNK_EXTENSION_BYTES_MAX: usize = 256;
pub(crate) const CHUNK_EXTENSIONS_BYTES_MAX: usize = 4 << 10;

/// Requests of a connection that wait for their answers; more of them are not read.
pub(crate) const PIPELINED_MAX: usize = 32;

/// Requests of an HTTP/2 connection that are under way at once.
pub(crate) const STREAMS_MAX: u32 = 128;

/// Bytes of answers of a connection that its client has not taken; while they could become more no further
/// request of it is begun. Eight reads find room at once.
pub(crate) const ANSWERS_BYTES_MAX: usize = 64 << 20;

/// The same of all connections of a core together. While they hold more, pages of streams are short, and a
/// connection begins no further request before its client has taken what it was answered.
pub(crate) const ANSWERS_CORE_BYTES_MAX: usize = 1 << 30;

/// How long a page is then; longer only where one message is.
pub(crate) const SHORT_PAGE_BYTES: u64 = 64 << 10;

/// What the answer to a read holds at most, but for messages of several MiB: two pages of a stream.
pub(crate) const ANSWER_BYTES_EXPECTED: usize = 8 << 20;

/// How long the head of a request may take from its first byte to its last.
pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a body may come to a standstill.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection stays open when nothing is asked.
pub(crate) const IDLE_TIMEOUT: Duration = Duration::from_secs(75);

/// How long a client may take nothing of what it is sent.
pub(crate) const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long answers are still awaited for a client that has said it sends no more, and events are told:
/// it may have gone.
pub(crate) const HALF_CLOSED: Duration = Duration::from_secs(1);

/// How long what a client still sends is read and dropped behind the last answer: a connection that
/// is closed over unread bytes takes the answer with it.
pub(crate) const LINGER: Duration = Duration::from_secs(2);
