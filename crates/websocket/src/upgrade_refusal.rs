//! Why a request does not make its connection a WebSocket.

use http::{HeaderName, HeaderValue, StatusCode, header};

/// What is wrong with a request (RFC 6455, section 4.2.1). Its text says what would be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeRefusal {
    /// Another method.
    #[error("a WebSocket is asked for with GET")]
    NotGet,
    /// HTTP/1.0, which knows no upgrade, or HTTP/2, which has another way.
    #[error("a WebSocket is asked for over HTTP/1.1")]
    NotHttp11,
    /// No `Upgrade: websocket`.
    #[error("here is a WebSocket: the request needs the header `Upgrade: websocket`")]
    NoUpgrade,
    /// No `Connection: Upgrade`.
    #[error("the request needs the header `Connection: Upgrade`")]
    NoConnectionUpgrade,
    /// Another version of the protocol.
    #[error("the request needs the header `Sec-WebSocket-Version: 13`")]
    WrongVersion,
    /// No key, several, or one that is not 16 bytes in Base64.
    #[error("the request needs one header `Sec-WebSocket-Key`, with 16 random bytes in Base64")]
    BadKey,
}

impl UpgradeRefusal {
    /// The status of the answer.
    #[must_use]
    pub const fn status(self) -> StatusCode {
        match self {
            Self::NotGet => StatusCode::METHOD_NOT_ALLOWED,
            Self::NoUpgrade | Self::WrongVersion => StatusCode::UPGRADE_REQUIRED,
            Self::NotHttp11 | Self::NoConnectionUpgrade | Self::BadKey => StatusCode::BAD_REQUEST,
        }
    }

    /// The headers with which the answer says what would be right. An answer with the status 426 has `Upgrade`, and so
    /// `Connection: upgrade`.
    #[must_use]
    pub fn headers(self) -> Vec<(HeaderName, HeaderValue)> {
        let value = HeaderValue::from_static;
        match self {
            Self::NotGet => vec![(header::ALLOW, value("GET"))],
            Self::NoUpgrade | Self::WrongVersion => vec![
                (header::UPGRADE, value("websocket")),
                (header::CONNECTION, value("upgrade")),
                (header::SEC_WEBSOCKET_VERSION, value("13")),
            ],
            Self::NotHttp11 | Self::NoConnectionUpgrade | Self::BadKey => Vec::new(),
        }
    }
}
