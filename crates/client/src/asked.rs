//! What was asked of the broker and is not answered, and who asks to publish. It knows no socket.

use sennit_protocol::{Reply, Request};
use tokio::time::Instant;

use crate::{link::Answer, publisher_core::SharedPublisher};

/// A question under way, by what its answer is for.
pub(crate) enum Asked {
    /// A program's; `again` says whether it may be asked twice.
    Question { request: Request, again: bool, answer: Answer<Reply> },
    /// A publisher's topic.
    Open(u64),
    /// A consumer.
    Subscribe(u32),
    /// A reader.
    Read(u32),
    /// The end of either.
    Unsubscribe(Option<Answer<()>>),
}

/// A publisher that is known to the broker, or is to be.
pub(crate) struct Publishing {
    pub(crate) core: SharedPublisher,
    /// Whoever waits for the first opening.
    pub(crate) answer: Option<Answer<()>>,
    /// Its last handle is gone.
    pub(crate) dropped: bool,
    pub(crate) open_at: Option<Instant>,
}
