//! Why a message is refused. No error repeats a value of the message: it may be a secret.

/// What is wrong with a message, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("command {command}{}: {problem}", self.at_field())]
pub struct DecodeError {
    /// Which command, or reply, of the message: the first is 0.
    pub command: usize,
    /// The field, as `connect.subs`; empty if the whole is meant.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl DecodeError {
    fn at_field(&self) -> String {
        if self.field.is_empty() { String::new() } else { format!(", field `{}`", self.field) }
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// The message is longer than allowed.
    #[error("the message has {bytes} bytes, at most {bytes_max} are allowed")]
    MessageTooLong {
        /// Its length.
        bytes: usize,
        /// `message_bytes_max` of the limits.
        bytes_max: usize,
    },
    /// There are more commands in the message than allowed.
    #[error("a message may have at most {commands_max} commands")]
    TooManyCommands {
        /// `commands_max` of the limits.
        commands_max: usize,
    },
    /// The line is not JSON.
    #[error("it is not JSON from byte {at} of its line on")]
    NotJson {
        /// The first byte, counted from 1, that no JSON has there.
        at: usize,
    },
    /// The bytes are not a Protobuf message.
    #[error("it is not Protobuf: a varint, a key or a group is malformed")]
    NotProtobuf,
    /// The message ends within a command or field.
    #[error("{bytes} bytes are announced, and {left} are left in the message")]
    Cut {
        /// The length before it.
        bytes: u64,
        /// As many bytes follow.
        left: usize,
    },
    /// A field has a value of another type.
    #[error("the value should be {expected}")]
    WrongValue {
        /// What is expected there.
        expected: &'static str,
    },
    /// A text is not UTF-8.
    #[error("the text is not UTF-8")]
    NotText,
    /// Objects and lists within each other, deeper than allowed.
    #[error("nested too deep, at most {depth_max} objects and lists within each other are allowed")]
    TooDeep {
        /// `depth_max` of the limits.
        depth_max: usize,
    },
    /// A map or list has more entries than allowed.
    #[error("too many entries, at most {entries_max} are allowed")]
    TooManyEntries {
        /// `entries_max` of the limits.
        entries_max: usize,
    },
    /// A command with more than one request, or a reply with more than one result.
    #[error("there are several requests or results in it, and one is allowed")]
    Several,
}
