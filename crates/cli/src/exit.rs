//! The exit codes of failed verbs, and their error texts, which say what would be right. The program's help has the
//! table of codes.

use std::{fmt, io, process::ExitCode};

use sennit_client::{Error, ErrorCode};

/// The reason of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It failed.
    Failed = 1,
    /// The command line was wrong.
    Usage = 2,
    /// The named thing does not exist.
    NotFound = 3,
    /// It exists already, with other settings.
    Conflict = 4,
    /// The credentials or the right for it are missing.
    Forbidden = 5,
    /// No answer came, or not in time.
    Unreachable = 6,
    /// A part of the work was done.
    Partial = 7,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// The failure of a verb.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    text: String,
}

impl Failure {
    /// A failure with a text of one line for people: what was wrong and what would be right.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    /// The same failure, after some of the work was done.
    #[must_use]
    pub fn in_part(self) -> Self {
        Self { exit: Exit::Partial, ..self }
    }

    /// The same failure, with `what` before its text.
    #[must_use]
    pub fn about(self, what: impl fmt::Display) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sennit: {}", self.text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match &error {
            Error::Refused { code, .. } => exit_of(*code),
            Error::OffsetMismatch { .. } | Error::RevisionMismatch { .. } => Exit::Conflict,
            Error::Unreachable { .. }
            | Error::NoneReachable { .. }
            | Error::Tls { .. }
            | Error::NoReply { .. }
            | Error::Closed => Exit::Unreachable,
            _ => Exit::Failed,
        };
        let mut text = error.to_string();
        if let Error::Refused { hint, .. } = &error
            && !hint.is_empty()
            && !text.contains(hint.as_str())
        {
            text = format!("{text}; {hint}");
        }
        let mut cause = std::error::Error::source(&error);
        while let Some(deeper) = cause {
            let said = deeper.to_string();
            if !text.contains(&said) {
                text = format!("{text}: {said}");
            }
            cause = deeper.source();
        }
        Self { exit, text }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        let exit = match error.kind() {
            io::ErrorKind::NotFound => Exit::NotFound,
            io::ErrorKind::TimedOut | io::ErrorKind::ConnectionRefused => Exit::Unreachable,
            _ => Exit::Failed,
        };
        Self { exit, text: error.to_string() }
    }
}

fn exit_of(code: ErrorCode) -> Exit {
    match code {
        ErrorCode::UnknownTopic
        | ErrorCode::UnknownGroup
        | ErrorCode::UnknownCursor
        | ErrorCode::UnknownPrincipal
        | ErrorCode::UnknownSubscription => Exit::NotFound,
        ErrorCode::Unauthorized | ErrorCode::Forbidden => Exit::Forbidden,
        ErrorCode::TopicExists
        | ErrorCode::PrincipalConflict
        | ErrorCode::CursorHeld
        | ErrorCode::SettingFixed
        | ErrorCode::OffsetMismatch
        | ErrorCode::RevisionMismatch
        | ErrorCode::TopicsApart
        | ErrorCode::SubscriptionExists => Exit::Conflict,
        ErrorCode::InvalidName
        | ErrorCode::InvalidKey
        | ErrorCode::InvalidConfig
        | ErrorCode::InvalidFilter
        | ErrorCode::InvalidRight
        | ErrorCode::NotDeadLetters
        | ErrorCode::TopicReserved => Exit::Usage,
        ErrorCode::ShuttingDown
        | ErrorCode::Busy
        | ErrorCode::TooManyLogins
        | ErrorCode::TlsRequired => Exit::Unreachable,
        _ => Exit::Failed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_end_with_the_code_that_the_help_names() {
        assert_eq!(exit_of(ErrorCode::UnknownTopic) as u8, 3);
        assert_eq!(exit_of(ErrorCode::TopicExists) as u8, 4);
        assert_eq!(exit_of(ErrorCode::Busy) as u8, 6);
        assert_eq!(exit_of(ErrorCode::Internal) as u8, 1);
    }
}
