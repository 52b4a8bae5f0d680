//! The behaviour of a reader that falls behind.

/// The behaviour of a reader that had reached the newest message and falls behind by more than
/// [`READER_BEHIND_BYTES_MAX`](crate::limits::READER_BEHIND_BYTES_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenSlow {
    /// The reader receives all messages that are kept, however late.
    #[default]
    Wait,
    /// The reader continues behind the newest message, and receives a gap for those before it.
    Skip,
    /// The reader ends with an error.
    Disconnect,
}
