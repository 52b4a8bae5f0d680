//! What becomes of a reader that does not keep up. It does not know how that is noticed.

/// What becomes of a reader that had come to the newest message and falls behind by more than
/// [`READER_BEHIND_BYTES_MAX`](crate::limits::READER_BEHIND_BYTES_MAX).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenSlow {
    /// It gets everything that is kept, as late as it comes.
    #[default]
    Wait,
    /// It goes on behind the newest message, and is told what it was spared.
    Skip,
    /// It ends, and is told why.
    Disconnect,
}
