//! Why a connection ends, as numbers that clients know.

/// The reason of an end. `wse-client` comes back by itself unless its credentials are at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CloseCode {
    /// The broker stops. Clients take 1001 for the end of all.
    Drain,
    /// The client has sent what is no message.
    InvalidMessage,
    /// The credentials are missing, wrong, or were taken away.
    AuthFailed,
    /// The credentials have expired.
    AuthExpired,
    /// The client did not answer in time.
    Timeout,
    /// The client reads too slowly.
    Slow,
    /// There are too many connections, or logins.
    RateLimited,
    /// The broker cannot serve for now.
    Overload,
}

impl CloseCode {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Drain,
        Self::InvalidMessage,
        Self::AuthFailed,
        Self::AuthExpired,
        Self::Timeout,
        Self::Slow,
        Self::RateLimited,
        Self::Overload,
    ];

    /// The number.
    pub fn code(self) -> u16 {
        match self {
            Self::Drain => 4300,
            Self::InvalidMessage => 4400,
            Self::AuthFailed => 4401,
            Self::AuthExpired => 4403,
            Self::Timeout => 4408,
            Self::Slow => 4409,
            Self::RateLimited => 4429,
            Self::Overload => 4503,
        }
    }

    /// A few words for people, short enough for a close frame.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Drain => "the broker stops: connect again",
            Self::InvalidMessage => "this is no message of the protocol",
            Self::AuthFailed => "credentials are needed: an API key or a token",
            Self::AuthExpired => "the credentials have expired",
            Self::Timeout => "no answer to a ping",
            Self::Slow => "messages are read too slowly",
            Self::RateLimited => "too many connections or logins: try again later",
            Self::Overload => "the broker cannot serve for now: try again later",
        }
    }

    /// The code by which an error tells the same, in an event before the end.
    pub fn error_code(self) -> &'static str {
        match self {
            Self::Drain => "SERVER_DRAINING",
            Self::InvalidMessage => "INVALID_MESSAGE",
            Self::AuthFailed => "AUTH_FAILED",
            Self::AuthExpired => "AUTH_EXPIRED",
            Self::Timeout => "TIMEOUT",
            Self::Slow => "SLOW_CONSUMER",
            Self::RateLimited => "RATE_LIMITED",
            Self::Overload => "SERVER_ERROR",
        }
    }

    /// Whether `wse-client` comes back by itself.
    pub fn reconnects(self) -> bool {
        !matches!(self, Self::AuthFailed | Self::AuthExpired)
    }
}
