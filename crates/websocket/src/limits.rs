//! The limits of frames and of their compression, with their reasons.

/// Most payload of a control frame, in bytes (RFC 6455, section 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// Longest head of a frame, in bytes: two, eight of a length, four of a mask.
pub const FRAME_HEAD_BYTES_MAX: usize = 14;

/// Longest reason of a close, in bytes: a control frame's payload without the code.
pub const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

/// Most streams of DEFLATE in one message. A sender needs one; each costs a reset of the inflater.
pub const DEFLATE_STREAMS_MAX: usize = 16;

/// Most bytes of a compressed message whose content may have `message_bytes_max`. What cannot be compressed
/// grows: 5 bytes for each block of at least 8 KiB, and an empty block.
#[must_use]
pub fn compressed_bytes_max(message_bytes_max: usize) -> usize {
    message_bytes_max.saturating_add(message_bytes_max / 1024).saturating_add(64)
}
