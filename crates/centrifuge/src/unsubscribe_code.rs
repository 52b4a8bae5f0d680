//! Why a subscription ends, as numbers that clients know.

/// The reason of an end that the server tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnsubscribeCode {
    /// The server ended it, for good.
    Server,
    /// The server lost the client's position: the client subscribes again and recovers.
    InsufficientState,
    /// It was not refreshed in time: the client subscribes again with a new token.
    Expired,
    /// What the client knows is not valid any more: it subscribes again with a new token, and from the start.
    StateInvalidated,
}

impl UnsubscribeCode {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::Server, Self::InsufficientState, Self::Expired, Self::StateInvalidated];

    /// The number.
    pub fn code(self) -> u32 {
        match self {
            Self::Server => 2000,
            Self::InsufficientState => 2500,
            Self::Expired => 2501,
            Self::StateInvalidated => 2502,
        }
    }

    /// A few words for people.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Server => "server unsubscribe",
            Self::InsufficientState => "insufficient state",
            Self::Expired => "subscription expired",
            Self::StateInvalidated => "state invalidated",
        }
    }

    /// Whether clients subscribe again by themselves.
    pub fn resubscribes(self) -> bool {
        self.code() >= 2500
    }
}
