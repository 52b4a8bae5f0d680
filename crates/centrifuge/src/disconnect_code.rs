//! Why a connection ends, as numbers that clients know: in the close frame of a WebSocket, and in a push elsewhere.

/// The reason of an end. Applications have the numbers from 4000 to 4999 for their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DisconnectCode {
    /// The connection was closed, for no reason that is told.
    ConnectionClosed,
    /// The server stops.
    Shutdown,
    /// The fault is the server's.
    ServerError,
    /// The connection was not refreshed in time.
    Expired,
    /// A subscription was not refreshed in time.
    SubscriptionExpired,
    /// The client reads too slowly.
    Slow,
    /// Writing to the client failed.
    WriteError,
    /// The server lost the client's position in a channel.
    InsufficientState,
    /// The server wants the client to connect anew.
    ForceReconnect,
    /// The client did not answer a ping.
    NoPong,
    /// Requests come too fast.
    TooManyRequests,
    /// What the client knows is not valid any more: clients fetch a new token and subscribe from the start.
    StateInvalidated,
    /// The token is not a good one.
    InvalidToken,
    /// The client does not keep the protocol.
    BadRequest,
    /// The client did not connect in time.
    Stale,
    /// The server wants the client to go away.
    ForceDisconnect,
    /// There are too many connections.
    ConnectionLimit,
    /// There are too many subscriptions in the connection.
    ChannelLimit,
    /// There is data that the client's encoding cannot carry.
    InappropriateProtocol,
    /// The client has not the right.
    PermissionDenied,
    /// The feature is not there.
    NotAvailable,
    /// Too many errors came of the client's requests.
    TooManyErrors,
}

impl DisconnectCode {
    /// All of them.
    pub const ALL: [Self; 22] = [
        Self::ConnectionClosed,
        Self::Shutdown,
        Self::ServerError,
        Self::Expired,
        Self::SubscriptionExpired,
        Self::Slow,
        Self::WriteError,
        Self::InsufficientState,
        Self::ForceReconnect,
        Self::NoPong,
        Self::TooManyRequests,
        Self::StateInvalidated,
        Self::InvalidToken,
        Self::BadRequest,
        Self::Stale,
        Self::ForceDisconnect,
        Self::ConnectionLimit,
        Self::ChannelLimit,
        Self::InappropriateProtocol,
        Self::PermissionDenied,
        Self::NotAvailable,
        Self::TooManyErrors,
    ];

    /// The number: the code of the close frame.
    pub fn code(self) -> u16 {
        match self {
            Self::ConnectionClosed => 3000,
            Self::Shutdown => 3001,
            Self::ServerError => 3004,
            Self::Expired => 3005,
            Self::SubscriptionExpired => 3006,
            Self::Slow => 3008,
            Self::WriteError => 3009,
            Self::InsufficientState => 3010,
            Self::ForceReconnect => 3011,
            Self::NoPong => 3012,
            Self::TooManyRequests => 3013,
            Self::StateInvalidated => 3014,
            Self::InvalidToken => 3500,
            Self::BadRequest => 3501,
            Self::Stale => 3502,
            Self::ForceDisconnect => 3503,
            Self::ConnectionLimit => 3504,
            Self::ChannelLimit => 3505,
            Self::InappropriateProtocol => 3506,
            Self::PermissionDenied => 3507,
            Self::NotAvailable => 3508,
            Self::TooManyErrors => 3509,
        }
    }

    /// A few words for people, short enough for a close frame.
    pub fn reason(self) -> &'static str {
        match self {
            Self::ConnectionClosed => "connection closed",
            Self::Shutdown => "shutdown",
            Self::ServerError => "internal server error",
            Self::Expired => "connection expired",
            Self::SubscriptionExpired => "subscription expired",
            Self::Slow => "slow",
            Self::WriteError => "write error",
            Self::InsufficientState => "insufficient state",
            Self::ForceReconnect => "force reconnect",
            Self::NoPong => "no pong",
            Self::TooManyRequests => "too many requests",
            Self::StateInvalidated => "state invalidated",
            Self::InvalidToken => "invalid token",
            Self::BadRequest => "bad request",
            Self::Stale => "stale",
            Self::ForceDisconnect => "force disconnect",
            Self::ConnectionLimit => "connection limit",
            Self::ChannelLimit => "channel limit",
            Self::InappropriateProtocol => "inappropriate protocol",
            Self::PermissionDenied => "permission denied",
            Self::NotAvailable => "not available",
            Self::TooManyErrors => "too many errors",
        }
    }

    /// Whether clients come back by themselves.
    pub fn reconnects(self) -> bool {
        code_reconnects(self.code())
    }
}

/// Whether clients come back by themselves after a connection was closed with this code, an application's included. They
/// do after a code below 3500 too: these are WebSocket's own and the server's; 1009, a message that is too long, is final.
pub fn code_reconnects(code: u16) -> bool {
    !matches!(code, 1009 | 3500..=3999 | 4500..=4999)
}
