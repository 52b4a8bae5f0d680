//! How much of a replica's log may be uncommitted. A start keeps in memory what no frame says to be committed, so
//! there is a limit, and a leader decides nothing more long before it. What counts is what the frames say: an entry says
//! the commit that was known when its frame began.

/// Bytes of uncommitted entries with which a leader refuses publishes.
pub(crate) const PUBLISHED_BYTES_MAX: u64 = 64 << 20;

/// Bytes of uncommitted entries with which a leader decides nothing any more, nor runs timers: an atomic publish was the
/// last of those that it took.
pub(crate) const DECIDED_BYTES_MAX: u64 = 96 << 20;

/// Most bytes of entries in a lane that no frame says are committed. A leader stops so long before that the last command
/// or the last timers do not reach it; a replica takes no entry with which there would be more.
pub const UNCOMMITTED_BYTES_MAX: u64 = 128 << 20;
