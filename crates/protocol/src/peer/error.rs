//! The reasons why bytes from another node are no frame. After any of them the link is closed.

use super::kind::{Class, PeerKind};

/// The reason why bytes from another node are no frame.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// The kind is unknown to the version that both nodes speak.
    #[error("frame kind {kind} between nodes is unknown to this version")]
    Kind {
        /// The kind as received.
        kind: u8,
    },
    /// The class does not exist, or frames of this kind never have it.
    #[error("a {kind} frame between nodes has class {class}")]
    Class {
        /// The kind of the frame.
        kind: PeerKind,
        /// The class as received.
        class: u8,
    },
    /// A flag is unknown to the version that both nodes speak.
    #[error("a {kind} frame between nodes has flags {flags:#06x}; they are 0 in this version")]
    Flags {
        /// The kind of the frame.
        kind: PeerKind,
        /// The flags as received.
        flags: u16,
    },
    /// The length is not possible for the kind and the class. Nothing was allocated for it.
    #[error(
        "a {kind} frame between nodes announces {length} bytes; {least} to {most} are possible"
    )]
    Length {
        /// The kind of the frame.
        kind: PeerKind,
        /// The length as received, in bytes.
        length: u32,
        /// The shortest possible.
        least: usize,
        /// The longest possible.
        most: usize,
    },
    /// The header or the fixed part was damaged on its way.
    #[error("the head of a {kind} frame between nodes does not match its checksum")]
    HeadChecksum {
        /// The kind of the frame.
        kind: PeerKind,
    },
    /// The body was damaged on its way.
    #[error("the body of a {kind} frame between nodes does not match its checksum")]
    BodyChecksum {
        /// The kind of the frame.
        kind: PeerKind,
    },
    /// Greetings come first, and once.
    #[error(
        "a {kind} frame between nodes came at the wrong time: a greeting comes first, and once"
    )]
    Order {
        /// The kind of the frame.
        kind: PeerKind,
    },
    /// A piece does not continue the body that is under way in its class, or a frame came before that was whole.
    #[error("a {kind} frame of class {class:?} came at byte {at} of a body of {length} bytes")]
    Piece {
        /// The kind of the frame.
        kind: PeerKind,
        /// Its class.
        class: Class,
        /// The number of bytes of the body that have come.
        at: usize,
        /// The length of the body; 0 where none is under way.
        length: usize,
    },
    /// A field of a greeting has a value that no node sends.
    #[error("{field} of a greeting between nodes cannot be {value}")]
    Field {
        /// The field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The body of a greeting does not match the schema.
    #[error("a greeting between nodes does not follow the schema: {0}")]
    Schema(#[from] prost::DecodeError),
}
