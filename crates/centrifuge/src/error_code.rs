//! Why a request is refused, as numbers that clients know.

/// The reason of a refusal. Applications have the numbers from 400 to 1999 for their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The fault is the server's.
    Internal,
    /// The client has not proved who it is.
    Unauthorized,
    /// There is no such channel.
    UnknownChannel,
    /// The client has not the right.
    PermissionDenied,
    /// There is no such method.
    MethodNotFound,
    /// The client is subscribed to the channel already.
    AlreadySubscribed,
    /// A limit is reached.
    LimitExceeded,
    /// The request is not one that can be served.
    BadRequest,
    /// The feature is not there, or not for this channel.
    NotAvailable,
    /// The token is too old: clients fetch another and try again.
    TokenExpired,
    /// The connection or subscription is too old, and no token was involved.
    Expired,
    /// Requests come too fast.
    TooManyRequests,
    /// The publications after the position that the client named are not there any more.
    UnrecoverablePosition,
    /// The token was revoked.
    TokenRevoked,
}

impl ErrorCode {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Internal,
        Self::Unauthorized,
        Self::UnknownChannel,
        Self::PermissionDenied,
        Self::MethodNotFound,
        Self::AlreadySubscribed,
        Self::LimitExceeded,
        Self::BadRequest,
        Self::NotAvailable,
        Self::TokenExpired,
        Self::Expired,
        Self::TooManyRequests,
        Self::UnrecoverablePosition,
        Self::TokenRevoked,
    ];

    /// The number.
    pub fn code(self) -> u32 {
        match self {
            Self::Internal => 100,
            Self::Unauthorized => 101,
            Self::UnknownChannel => 102,
            Self::PermissionDenied => 103,
            Self::MethodNotFound => 104,
            Self::AlreadySubscribed => 105,
            Self::LimitExceeded => 106,
            Self::BadRequest => 107,
            Self::NotAvailable => 108,
            Self::TokenExpired => 109,
            Self::Expired => 110,
            Self::TooManyRequests => 111,
            Self::UnrecoverablePosition => 112,
            Self::TokenRevoked => 113,
        }
    }

    /// A few words for people.
    pub fn message(self) -> &'static str {
        match self {
            Self::Internal => "internal server error",
            Self::Unauthorized => "unauthorized",
            Self::UnknownChannel => "unknown channel",
            Self::PermissionDenied => "permission denied",
            Self::MethodNotFound => "method not found",
            Self::AlreadySubscribed => "already subscribed",
            Self::LimitExceeded => "limit exceeded",
            Self::BadRequest => "bad request",
            Self::NotAvailable => "not available",
            Self::TokenExpired => "token expired",
            Self::Expired => "expired",
            Self::TooManyRequests => "too many requests",
            Self::UnrecoverablePosition => "unrecoverable position",
            Self::TokenRevoked => "token revoked",
        }
    }

    /// Whether it may go better a little later. Clients subscribe again, and stay connected, only if it is so.
    pub fn is_temporary(self) -> bool {
        matches!(self, Self::Internal | Self::TooManyRequests)
    }
}
