//! The errors that a client reports to its program. It knows no socket and no queue.

use std::{io, sync::Arc, time::Duration};

use sennit_model::{BatchError, Offset};
use sennit_protocol::{DecodeError, ErrorCode, control};
use sennit_tls::TlsFault;

/// An error of the client. It is cheap to clone, because one fault may fail many messages.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// No connection could be made, or the connection was lost and the client may not make another.
    #[error("cannot reach the broker at {address}")]
    Unreachable {
        /// The address as given.
        address: String,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// No connection could be made to any of several addresses.
    #[error("cannot reach a broker: {}", reasons(.tried))]
    NoneReachable {
        /// The addresses as given, each with its error.
        tried: Arc<[(Arc<str>, Error)]>,
    },
    /// There is no secure connection: the broker speaks no TLS, or is not the one that was meant.
    #[error("no secure connection to the broker at {address}: {message}")]
    Tls {
        /// The address as given.
        address: String,
        /// Says what is wrong and what to do.
        message: String,
    },
    /// The broker refused the request. The request changed nothing.
    #[error("{code}: {message} ({hint})")]
    Refused {
        /// The code of the refusal.
        code: ErrorCode,
        /// Says what is wrong with the request.
        message: String,
        /// Says what a correct request looks like.
        hint: String,
        /// Whether the same request may succeed later.
        retryable: bool,
        /// The time that the broker asks the client to wait before it tries again.
        retry_after: Option<Duration>,
    },
    /// The partition's next offset is not the one that was expected. Nothing was appended.
    #[error("the partition's next offset is {next}, not the one that was expected")]
    OffsetMismatch {
        /// The offset that its next message gets.
        next: Offset,
    },
    /// The entry of the configuration has another revision than the one that was expected. Nothing was
    /// changed.
    #[error("{}", revision_mismatch(*.found))]
    RevisionMismatch {
        /// The revision that it has; 0 if there is no entry.
        found: u64,
    },
    /// A higher epoch of this producer has published. This publisher can publish nothing more.
    #[error("this publisher was fenced: another with its producer id and a higher epoch publishes")]
    Fenced,
    /// The connection was lost before the answer came. The request may have been executed or not.
    #[error("the connection was lost before the broker answered: whether it was done is not known")]
    OutcomeUnknown,
    /// No reply to a request came in time. The request may have been worked on or not.
    #[error("no reply came within {after:?}")]
    NoReply {
        /// The time that was waited.
        after: Duration,
    },
    /// A message or a batch goes beyond a limit. It was not sent.
    #[error(transparent)]
    TooLarge(#[from] BatchError),
    /// The topic has no partition with this index.
    #[error(
        "the topic has {partitions} partitions, counted from 0: there is no partition {partition}"
    )]
    UnknownPartition {
        /// The partition asked for.
        partition: u32,
        /// The number of partitions that the topic has.
        partitions: u32,
    },
    /// The client, publisher or consumer was closed.
    #[error("the client is closed")]
    Closed,
    /// The broker sent bytes that are not the protocol.
    #[error("the broker does not speak the protocol: {0}")]
    Protocol(#[from] DecodeError),
    /// The broker sent something that the protocol does not allow at that point.
    #[error("the broker broke the protocol: {0}")]
    Unexpected(String),
}

/// Each address with its reason.
fn reasons(tried: &[(Arc<str>, Error)]) -> String {
    let reason = |(address, error): &(Arc<str>, Error)| match error {
        Error::Unreachable { source, .. } => format!("{address}: {source}"),
        Error::Tls { message, .. } => format!("{address}: {message}"),
        error => format!("{address}: {error}"),
    };
    tried.iter().map(reason).collect::<Vec<_>>().join("; ")
}

fn revision_mismatch(found: u64) -> String {
    match found {
        0 => "there is no such entry, and one was expected".into(),
        found => format!("the entry has revision {found}, not the one that was expected"),
    }
}

impl Error {
    /// Returns whether the same call may succeed later. After [`Error::OutcomeUnknown`] the first
    /// call may already have been executed.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Refused { retryable, .. } => *retryable,
            Self::NoneReachable { tried } => tried.iter().any(|(_, error)| error.is_retryable()),
            Self::Unreachable { .. } | Self::OutcomeUnknown | Self::NoReply { .. } => true,
            Self::Fenced
            | Self::Tls { .. }
            | Self::OffsetMismatch { .. }
            | Self::RevisionMismatch { .. }
            | Self::TooLarge(_)
            | Self::UnknownPartition { .. }
            | Self::Closed
            | Self::Protocol(_)
            | Self::Unexpected(_) => false,
        }
    }

    /// The broker's error code, if the broker refused the request.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::OffsetMismatch { .. } => Some(ErrorCode::OffsetMismatch),
            Self::RevisionMismatch { .. } => Some(ErrorCode::RevisionMismatch),
            Self::Fenced => Some(ErrorCode::ProducerFenced),
            _ => None,
        }
    }

    /// The time that the broker asks the client to wait before the same call.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Refused { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// Returns whether a node answered that no replica leads the group.
    pub(crate) fn is_without_leader(&self) -> bool {
        match self {
            Self::NoneReachable { tried } => {
                tried.iter().any(|(_, error)| error.is_without_leader())
            }
            error => error.code() == Some(ErrorCode::NoLeader),
        }
    }

    /// Returns whether no replica leads the group, or whether a leader that is gone was asked: the next one knows.
    pub(crate) fn asks_for_leader(&self) -> bool {
        self.code() == Some(ErrorCode::NoLeader) || matches!(self, Self::OutcomeUnknown)
    }

    /// Returns whether the broker does not know the topic, or has deleted it.
    pub(crate) fn is_unknown_topic(&self) -> bool {
        self.code() == Some(ErrorCode::UnknownTopic)
    }

    pub(crate) fn tls(address: &str, fault: &TlsFault) -> Self {
        let message = match fault.is_not_tls() {
            true => "the broker does not speak TLS there: leave out --tls".to_owned(),
            false => fault.to_string(),
        };
        Self::Tls { address: address.into(), message }
    }

    /// The error of a client that has tried each of its addresses: that of the only one, a refusal for good, which all
    /// nodes would repeat, or all of them.
    pub(crate) fn of_addresses(mut tried: Vec<(Arc<str>, Self)>) -> Self {
        let is_final =
            |(_, error): &(_, Self)| matches!(error, Self::Refused { retryable: false, .. });
        match tried.iter().position(is_final) {
            Some(at) => tried.swap_remove(at).1,
            None if tried.len() == 1 => tried.swap_remove(0).1,
            None => Self::NoneReachable { tried: tried.into() },
        }
    }

    pub(crate) fn unreachable(address: &str, source: io::Error) -> Self {
        Self::Unreachable { address: address.into(), source: Arc::new(source) }
    }
}

impl From<control::Error> for Error {
    fn from(error: control::Error) -> Self {
        match error.error_code() {
            Some(ErrorCode::OffsetMismatch) if let Some(next) = error.next_offset => {
                Self::OffsetMismatch { next: Offset(next) }
            }
            Some(ErrorCode::RevisionMismatch) if let Some(found) = error.revision => {
                Self::RevisionMismatch { found }
            }
            Some(ErrorCode::ProducerFenced) => Self::Fenced,
            Some(ErrorCode::OutcomeUnknown) => Self::OutcomeUnknown,
            code => Self::Refused {
                // A newer broker's code; its text says what this version cannot.
                code: code.unwrap_or(ErrorCode::Internal),
                message: error.message,
                hint: error.hint,
                retryable: error.retryable,
                retry_after: (error.retry_after_ms > 0)
                    .then(|| Duration::from_millis(error.retry_after_ms)),
            },
        }
    }
}
