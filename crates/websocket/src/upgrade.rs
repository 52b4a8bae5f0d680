//! The request that makes a connection a WebSocket (RFC 6455, section 4.2), and the answer to it.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use http::{HeaderName, HeaderValue, Method, Version, header};
use ring::digest;

use crate::{
    deflate_offer::DeflateAnswer,
    header_list::{is_token, parts},
    upgrade_refusal::UpgradeRefusal,
};

/// What a server hashes behind a client's key.
const SUFFIX: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How many bytes a key has before Base64.
const KEY_BYTES: usize = 16;

/// A request that a server may answer with 101. Whether the origin and the path may have it is for others to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    accept: String,
    subprotocols: Vec<String>,
    deflate: Option<DeflateAnswer>,
}

/// What the headers say that matters here.
#[derive(Default)]
struct Said {
    upgrades: bool,
    connection_upgrades: bool,
    versions: usize,
    is_version_right: bool,
    keys: usize,
    accept: Option<String>,
    subprotocols: Vec<String>,
    deflate: Option<DeflateAnswer>,
}

impl Upgrade {
    /// Reads a request. Headers come by their names, in any case, as often as they were sent.
    pub fn of<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        method: &Method,
        version: Version,
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, UpgradeRefusal> {
        if method != Method::GET {
            return Err(UpgradeRefusal::NotGet);
        }
        if version != Version::HTTP_11 {
            return Err(UpgradeRefusal::NotHttp11);
        }
        let mut said = Said::default();
        for (name, value) in headers {
            // Nothing that matters here has bytes beyond ASCII.
            if let Ok(value) = str::from_utf8(value.as_ref()) {
                said.listen(name.as_ref(), value);
            }
        }
        if !said.upgrades {
            return Err(UpgradeRefusal::NoUpgrade);
        }
        if !said.connection_upgrades {
            return Err(UpgradeRefusal::NoConnectionUpgrade);
        }
        if said.versions != 1 || !said.is_version_right {
            return Err(UpgradeRefusal::WrongVersion);
        }
        let accept = said.accept.filter(|_| said.keys == 1).ok_or(UpgradeRefusal::BadKey)?;
        Ok(Self { accept, subprotocols: said.subprotocols, deflate: said.deflate })
    }

    /// The subprotocols that the client speaks, the best one first.
    #[must_use]
    pub fn subprotocols(&self) -> &[String] {
        &self.subprotocols
    }

    /// The value of `Sec-WebSocket-Accept`.
    #[must_use]
    pub fn accept(&self) -> &str {
        &self.accept
    }

    /// How messages may be compressed, if the client offered it in a way that is taken.
    #[must_use]
    pub fn deflate(&self) -> Option<DeflateAnswer> {
        self.deflate
    }

    /// The headers of the answer with the status 101. A subprotocol has to be one of the client's; compression is
    /// [`deflate`](Self::deflate) or nothing.
    #[must_use]
    pub fn answer(
        &self,
        subprotocol: Option<&str>,
        deflate: Option<DeflateAnswer>,
    ) -> Vec<(HeaderName, HeaderValue)> {
        let mut headers = vec![
            (header::UPGRADE, HeaderValue::from_static("websocket")),
            (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        ];
        let mut add = |name, value: &str| {
            headers.extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
        };
        add(header::SEC_WEBSOCKET_ACCEPT, &self.accept);
        if let Some(subprotocol) = subprotocol {
            add(header::SEC_WEBSOCKET_PROTOCOL, subprotocol);
        }
        if let Some(deflate) = deflate {
            add(header::SEC_WEBSOCKET_EXTENSIONS, &deflate.header_value());
        }
        headers
    }
}

impl Said {
    fn listen(&mut self, name: &[u8], value: &str) {
        let is = |header: HeaderName| name.eq_ignore_ascii_case(header.as_str().as_bytes());
        let lists = |token: &str| parts(value, b',').any(|part| part.eq_ignore_ascii_case(token));
        if is(header::UPGRADE) {
            self.upgrades |= lists("websocket");
        } else if is(header::CONNECTION) {
            self.connection_upgrades |= lists("upgrade");
        } else if is(header::SEC_WEBSOCKET_VERSION) {
            self.versions += 1;
            self.is_version_right = value.trim() == "13";
        } else if is(header::SEC_WEBSOCKET_KEY) {
            self.keys += 1;
            self.accept = accept(value.trim());
        } else if is(header::SEC_WEBSOCKET_PROTOCOL) {
            let tokens = parts(value, b',').filter(|part| is_token(part));
            self.subprotocols.extend(tokens.map(str::to_owned));
        } else if is(header::SEC_WEBSOCKET_EXTENSIONS) {
            self.deflate = self.deflate.or_else(|| DeflateAnswer::to(value));
        }
    }
}

/// What a server answers to this key, if it is one.
pub(crate) fn accept(key: &str) -> Option<String> {
    BASE64_STANDARD.decode(key).ok().filter(|bytes| bytes.len() == KEY_BYTES)?;
    // No secret depends on this hash: it proves that the server read the request.
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(key.as_bytes());
    hash.update(SUFFIX.as_bytes());
    Some(BASE64_STANDARD.encode(hash.finish()))
}

#[cfg(test)]
mod tests {
    use http::{Method, Version};

    use super::{Upgrade, UpgradeRefusal};

    const REQUEST: [(&str, &str); 4] = [
        ("Upgrade", "websocket"),
        ("Connection", "keep-alive, Upgrade"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Version", "13"),
    ];

    fn read(headers: &[(&str, &str)]) -> Result<Upgrade, UpgradeRefusal> {
        Upgrade::of(&Method::GET, Version::HTTP_11, headers.iter().copied())
    }

    /// The request with other values of `name`: none, one or several.
    fn with(name: &'static str, values: &[&'static str]) -> Result<Upgrade, UpgradeRefusal> {
        let mut headers = REQUEST.to_vec();
        headers.retain(|(there, _)| *there != name);
        headers.extend(values.iter().map(|value| (name, *value)));
        read(&headers)
    }

    #[test]
    fn the_example_of_the_rfc_is_answered_as_there() {
        let upgrade = read(&REQUEST).expect("a good request");
        assert_eq!(upgrade.accept(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(upgrade.deflate(), None);
        assert!(upgrade.subprotocols().is_empty());
    }

    #[test]
    fn names_and_tokens_of_headers_are_in_any_case() {
        let headers = REQUEST.map(|(name, value)| (name.to_ascii_uppercase(), value));
        assert!(Upgrade::of(&Method::GET, Version::HTTP_11, headers).is_ok());
        assert!(with("Upgrade", &["WebSocket"]).is_ok());
        assert!(with("Connection", &["UPGRADE"]).is_ok());
        assert!(with("Connection", &["keep-alive", "upgrade"]).is_ok());
    }

    #[test]
    fn each_thing_that_is_wrong_has_its_refusal() {
        let post = Upgrade::of(&Method::POST, Version::HTTP_11, REQUEST);
        assert_eq!(post, Err(UpgradeRefusal::NotGet));
        for version in [Version::HTTP_10, Version::HTTP_2] {
            let old = Upgrade::of(&Method::GET, version, REQUEST);
            assert_eq!(old, Err(UpgradeRefusal::NotHttp11));
        }
        for values in [&[][..], &["h2c"], &["websockets"]] {
            assert_eq!(with("Upgrade", values), Err(UpgradeRefusal::NoUpgrade));
        }
        for values in [&[][..], &["close"]] {
            let refusal = UpgradeRefusal::NoConnectionUpgrade;
            assert_eq!(with("Connection", values), Err(refusal));
        }
        for values in [&[][..], &["8"], &["13, 8"], &["13", "13"]] {
            let refusal = UpgradeRefusal::WrongVersion;
            assert_eq!(with("Sec-WebSocket-Version", values), Err(refusal));
        }
        let key = "dGhlIHNhbXBsZSBub25jZQ==";
        for values in [&[][..], &["abc"], &["dGhlIHNhbXBsZSBub25j"], &[key, key]] {
            assert_eq!(with("Sec-WebSocket-Key", values), Err(UpgradeRefusal::BadKey));
        }
    }

    #[test]
    fn a_refusal_says_what_would_be_right() {
        let version = UpgradeRefusal::WrongVersion;
        assert_eq!(version.status().as_u16(), 426);
        let headers = version.headers();
        assert!(headers.iter().any(|(n, v)| n == "sec-websocket-version" && v == "13"));
        assert_eq!(UpgradeRefusal::NotGet.status().as_u16(), 405);
        assert_eq!(UpgradeRefusal::BadKey.status().as_u16(), 400);
        assert!(UpgradeRefusal::BadKey.to_string().contains("Sec-WebSocket-Key"));
    }

    #[test]
    fn subprotocols_keep_their_order_over_lines() {
        let upgrade = with("Sec-WebSocket-Protocol", &["b, a", "c d", "e"]).expect("good");
        assert_eq!(upgrade.subprotocols(), ["b", "a", "e"]);
    }

    #[test]
    fn the_answer_has_what_was_agreed() {
        let upgrade =
            with("Sec-WebSocket-Extensions", &["x-webkit-deflate-frame", "permessage-deflate"]);
        let upgrade = upgrade.expect("a good request");
        let headers = upgrade.answer(Some("json"), upgrade.deflate());
        let get = |name: &str| {
            let found = headers.iter().find(|(there, _)| there == name);
            found.map(|(_, value)| value.to_str().expect("ASCII"))
        };
        assert_eq!(get("sec-websocket-protocol"), Some("json"));
        let deflate = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        assert_eq!(get("sec-websocket-extensions"), Some(deflate));
        assert_eq!(get("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        assert_eq!(upgrade.answer(None, None).len(), 3);
    }
}
