//! The client's end, for tests, workloads and the command line: the request, the check of its answer, and masked frames.
//! Random bytes are arguments. Frames of a server are read by [`Decoder::of_client`](crate::Decoder::of_client).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{StatusCode, header};

use crate::{
    close_code::CloseCode, deflate_offer::DeflateAnswer, frame, frame_head::FrameHead,
    header_list::parts, mask, opcode::Opcode, upgrade,
};

/// A request for a WebSocket.
#[derive(Clone, Debug)]
pub struct UpgradeRequest<'a> {
    /// `host:port`, as in the URL.
    pub host: &'a str,
    /// The path with its query, from the slash on.
    pub target: &'a str,
    /// 16 random bytes, new for each request.
    pub key: [u8; 16],
    /// The subprotocols that the client speaks, the best one first.
    pub subprotocols: &'a [&'a str],
    /// Whether messages may be compressed.
    pub offers_deflate: bool,
    /// Further headers, such as `Authorization`, `Cookie` or `Origin`.
    pub headers: &'a [(&'a str, &'a str)],
}

/// What client and server agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgreedUpgrade {
    /// The server's choice of the client's subprotocols.
    pub subprotocol: Option<String>,
    /// Whether messages may be compressed.
    pub is_deflate: bool,
}

/// Why an answer does not make the connection a WebSocket (RFC 6455, section 4.1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpgradeFault {
    /// Another status than 101.
    #[error("the server answers with the status {0}, not 101")]
    Status(StatusCode),
    /// No `Upgrade: websocket` with `Connection: Upgrade`.
    #[error("the server does not answer with `Upgrade: websocket` and `Connection: Upgrade`")]
    NoUpgrade,
    /// The wrong answer to the key.
    #[error(
        "the server's `Sec-WebSocket-Accept` does not fit the key: it is no WebSocket server, or a cache answers"
    )]
    WrongAccept,
    /// A subprotocol that was not offered.
    #[error("the server chose the subprotocol {0:?}, which was not offered")]
    UnknownSubprotocol(String),
    /// An extension that was not offered, or compression with context, which this client does not do.
    #[error("the server chose the extension {0:?}, which was not offered")]
    UnknownExtension(String),
}

impl UpgradeRequest<'_> {
    /// Appends the request to `out`, as HTTP/1.1 has it. Hosts, targets and headers are taken as they are: they may not
    /// contain line ends.
    pub fn put(&self, out: &mut Vec<u8>) {
        let mut line = |name: &str, value: &str| {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(value.as_bytes());
            out.extend_from_slice(b"\r\n");
        };
        line(&format!("GET {} HTTP/1.1", self.target), "");
        line("Host: ", self.host);
        line("Upgrade: ", "websocket");
        line("Connection: ", "Upgrade");
        line("Sec-WebSocket-Version: ", "13");
        line("Sec-WebSocket-Key: ", &self.key_text());
        if !self.subprotocols.is_empty() {
            line("Sec-WebSocket-Protocol: ", &self.subprotocols.join(", "));
        }
        if self.offers_deflate {
            let offer =
                "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
            line("Sec-WebSocket-Extensions: ", offer);
        }
        for (name, value) in self.headers {
            line(&format!("{name}: "), value);
        }
        line("", "");
    }

    /// Checks the answer.
    pub fn check<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        status: StatusCode,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<AgreedUpgrade, UpgradeFault> {
        if status != StatusCode::SWITCHING_PROTOCOLS {
            return Err(UpgradeFault::Status(status));
        }
        let (mut upgrades, mut connection_upgrades, mut accepts) = (false, false, false);
        let mut agreed = AgreedUpgrade { subprotocol: None, is_deflate: false };
        for (name, value) in headers {
            let value = String::from_utf8_lossy(value.as_ref());
            let value = value.trim();
            let is = |header: http::HeaderName| {
                name.as_ref().eq_ignore_ascii_case(header.as_str().as_bytes())
            };
            if is(header::UPGRADE) {
                upgrades |= value.eq_ignore_ascii_case("websocket");
            } else if is(header::CONNECTION) {
                let mut tokens = parts(value, b',');
                connection_upgrades |= tokens.any(|token| token.eq_ignore_ascii_case("upgrade"));
            } else if is(header::SEC_WEBSOCKET_ACCEPT) {
                accepts = upgrade::accept(&self.key_text()).is_some_and(|right| right == value);
            } else if is(header::SEC_WEBSOCKET_PROTOCOL) {
                if !self.subprotocols.contains(&value) {
                    return Err(UpgradeFault::UnknownSubprotocol(value.to_owned()));
                }
                agreed.subprotocol = Some(value.to_owned());
            } else if is(header::SEC_WEBSOCKET_EXTENSIONS) {
                agreed.is_deflate = self.offers_deflate && DeflateAnswer::is_answer(value);
                if !agreed.is_deflate {
                    return Err(UpgradeFault::UnknownExtension(value.to_owned()));
                }
            }
        }
        if !upgrades || !connection_upgrades {
            return Err(UpgradeFault::NoUpgrade);
        }
        if accepts { Ok(agreed) } else { Err(UpgradeFault::WrongAccept) }
    }

    fn key_text(&self) -> String {
        BASE64_STANDARD.encode(self.key)
    }
}

/// Appends a frame with a whole message that is not compressed. `mask` is random and new for each frame.
pub fn put_frame(opcode: Opcode, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    put_fragment(FrameHead::whole(opcode, payload.len()), payload, mask, out);
}

/// Appends a close.
pub fn put_close(code: CloseCode, reason: &str, mask: [u8; 4], out: &mut Vec<u8>) {
    put_frame(Opcode::Close, &frame::close_payload(code, reason), mask, out);
}

/// Appends a frame with this head: a part of a message, or a compressed one. Its mask and length are set here.
pub fn put_fragment(head: FrameHead, payload: &[u8], mask: [u8; 4], out: &mut Vec<u8>) {
    FrameHead { mask: Some(mask), payload_len: payload.len() as u64, ..head }.put(out);
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(masked) = out.get_mut(start..) {
        mask::apply(mask, 0, masked);
    }
}
