//! The bounds of what is decoded. The defaults suit a server that reads commands; each has a name that errors say.

/// Bounds of one message that is decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message.
    pub message_bytes_max: usize,
    /// Commands, or replies, in a message. Clients send the subscribes of a reconnect in one message.
    pub commands_max: usize,
    /// Objects and lists within each other, in a command and in the data of an application.
    pub depth_max: usize,
    /// Entries of one map or list: the subscriptions of a connect, its headers, tags, publications.
    pub entries_max: usize,
}

impl Limits {
    /// Bytes of a message of commands, if nothing else is said.
    pub const MESSAGE_BYTES_MAX: usize = 65_536;
    /// Commands of a message, if nothing else is said.
    pub const COMMANDS_MAX: usize = 4_096;
    /// The greatest depth that may be set. Decoding nests calls that deep, and JSON parsers of clients go not much deeper.
    pub const DEPTH_MAX: usize = 100;
    /// Entries of a map or list, if nothing else is said.
    pub const ENTRIES_MAX: usize = 1_024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: Self::MESSAGE_BYTES_MAX,
            commands_max: Self::COMMANDS_MAX,
            depth_max: Self::DEPTH_MAX,
            entries_max: Self::ENTRIES_MAX,
        }
    }
}
