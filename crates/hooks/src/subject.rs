//! What a run of a script is about, and what it may ask of the broker.

use std::time::Duration;

use bytes::Bytes;
use sennit_model::{MessageView, Messages};

/// The configuration, as scripts read it.
pub trait Settings {
    /// The value of a key, if there is one.
    fn get(&self, key: &str) -> Option<Bytes>;
}

impl<F: Fn(&str) -> Option<Bytes>> Settings for F {
    fn get(&self, key: &str) -> Option<Bytes> {
        self(key)
    }
}

/// A failed attempt of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How many attempts have failed, this one included.
    pub attempts: u32,
    /// How long ago the message was published.
    pub age: Duration,
    /// Why it has failed, as far as anybody has said so.
    pub reason: String,
}

/// What a run is about.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    /// A message, encoded as in a checked batch.
    Message { encoded: Bytes, producer: u64, failure: Option<Failure> },
    /// Nothing: the script is only looked at.
    Nothing,
}

impl Subject {
    /// The message, if it is about one.
    pub(crate) fn message(&self) -> Option<MessageView<'_>> {
        match self {
            Self::Message { encoded, .. } => Messages::of_checked(encoded).next(),
            Self::Nothing => None,
        }
    }
}
