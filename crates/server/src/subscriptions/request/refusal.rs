//! Refusals of requests about subscriptions, each with the protocol's code. It knows no statuses.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::identity::principal::MissingRight;

use super::{glob::GlobError, limits::WEBHOOK_URL_BYTES_MAX};

/// Why something was not done. It has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum SubscriptionRefusal {
    /// The request is not as it has to be.
    #[error("{0}")]
    Invalid(Box<str>),
    /// The webhook's address is not one to be called.
    #[error(transparent)]
    UrlRejected(#[from] UrlRejected),
    /// The principal lacks the right; rights are checked where the request arrives.
    #[error(transparent)]
    #[serde(skip)]
    Missing(#[from] MissingRight),
    /// There is no such subscription.
    #[error("there is no such subscription")]
    Unknown,
    /// There is one of this id, with other settings.
    #[error("a subscription of this id is there, with other settings")]
    Exists,
    /// The token was not given, or is not of this broker or this subscription.
    #[error("a token of this subscription is needed: Authorization: Bearer TOKEN")]
    TokenInvalid,
    /// The token's time is over.
    #[error("the token has expired")]
    TokenExpired,
    /// Somebody else has woken since, or nobody holds the wake any more.
    #[error("the wake is over; the subscription is at generation {generation}")]
    Fenced {
        /// The generation in force.
        generation: u64,
    },
    /// Somebody works.
    #[error("{holder:?} has claimed it")]
    AlreadyClaimed {
        /// Who.
        holder: Box<str>,
        /// The generation of their wake.
        generation: u64,
    },
    /// There is nothing to be done.
    #[error("there is nothing to be done")]
    NoPendingWork,
    /// What was acked does not lie in the stream.
    #[error("{stream}: {detail}")]
    InvalidOffset {
        /// The stream.
        stream: Box<str>,
        /// What is wrong.
        detail: Box<str>,
    },
    /// A limit is reached.
    #[error("{name} is {limit}")]
    Limit {
        /// The limit's name.
        name: Box<str>,
        /// What it is.
        limit: usize,
    },
    /// The broker cannot do it now; what became of it is not known.
    #[error("the broker cannot keep that now: {0}")]
    Unavailable(Box<str>),
}

/// Why an address is not called.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub(crate) enum UrlRejected {
    /// It is no address of a webhook.
    #[error("webhook.url is an absolute https address without user and fragment")]
    Malformed,
    /// It is too long.
    #[error("WEBHOOK_URL_BYTES_MAX is {WEBHOOK_URL_BYTES_MAX}")]
    TooLong,
    /// It is not TLS.
    #[error("webhook.url has to begin with https:")]
    NotTls,
    /// It does not lie in the public internet.
    #[error("{0} is not in the public internet")]
    NotPublic(IpAddr),
}

impl SubscriptionRefusal {
    pub(crate) fn invalid(detail: impl Into<Box<str>>) -> Self {
        Self::Invalid(detail.into())
    }

    /// The code that the protocol gives it.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "INVALID_REQUEST",
            Self::UrlRejected(_) => "WEBHOOK_URL_REJECTED",
            Self::Missing(_) => "FORBIDDEN",
            Self::Unknown => "SUBSCRIPTION_NOT_FOUND",
            Self::Exists => "SUBSCRIPTION_ALREADY_EXISTS",
            Self::TokenInvalid => "TOKEN_INVALID",
            Self::TokenExpired => "TOKEN_EXPIRED",
            Self::Fenced { .. } => "FENCED",
            Self::AlreadyClaimed { .. } => "ALREADY_CLAIMED",
            Self::NoPendingWork => "NO_PENDING_WORK",
            Self::InvalidOffset { .. } => "INVALID_OFFSET",
            Self::Limit { .. } => "LIMIT_REACHED",
            Self::Unavailable(_) => "UNAVAILABLE",
        }
    }
}

impl From<GlobError> for SubscriptionRefusal {
    fn from(error: GlobError) -> Self {
        Self::invalid(format!("pattern: {error}"))
    }
}
