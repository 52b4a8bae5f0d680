//! Requests without an answer yet, and the publishers of a client. It knows no socket.

use sennit_protocol::{Reply, Request};
use tokio::time::Instant;

use crate::{connection_handle::ReplySender, publisher_core::SharedPublisher};

/// A request under way, by the purpose of its answer.
#[expect(clippy::large_enum_variant, reason = "requests of a program are few, and short-lived")]
pub(crate) enum PendingRequest {
    /// A program's request.
    Call(PendingCall),
    /// Opens a publisher's topic.
    OpenPublisher(u64),
    /// Subscribes a consumer.
    Subscribe(u32),
    /// Starts a reader.
    Read(u32),
    /// Ends a consumer or reader.
    Unsubscribe(Option<ReplySender<()>>),
}

/// A program's request under way.
pub(crate) struct PendingCall {
    pub(crate) request: Request,
    /// Whether the client may send it twice.
    pub(crate) resend: bool,
    pub(crate) answer: ReplySender<Reply>,
    /// The time at which it is sent again, after a refusal that changed nothing; `None` while it may be on the wire.
    pub(crate) again_at: Option<Instant>,
}

/// A publisher that the broker knows, or that the client is about to open.
pub(crate) struct PublisherEntry {
    pub(crate) core: SharedPublisher,
    /// Receives the result of the first opening.
    pub(crate) answer: Option<ReplySender<()>>,
    /// The program has dropped the last handle.
    pub(crate) dropped: bool,
    pub(crate) open_at: Option<Instant>,
}
