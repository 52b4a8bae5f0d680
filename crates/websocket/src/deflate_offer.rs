//! Whether messages are compressed (RFC 7692, section 7.1): what a client offers, and the one answer that a server has.
//!
//! A server keeps no context between messages and asks for none, so that one compressed frame serves many connections,
//! and an inflater all of a core.

use crate::{
    header_list::{is_token, parts},
    window_bits::WindowBits,
};

const EXTENSION: &str = "permessage-deflate";

/// That a connection's messages may be compressed, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateAnswer {
    /// The window of what the server sends. A message that it covers may come from a frame that many share.
    pub window: WindowBits,
    /// Whether the client asked for a window, and is told of it.
    is_window_told: bool,
}

impl DeflateAnswer {
    /// The answer to the first offer in a value of `Sec-WebSocket-Extensions` that can be taken.
    pub(crate) fn to(offers: &str) -> Option<Self> {
        parts(offers, b',').find_map(Self::to_offer)
    }

    /// The value of `Sec-WebSocket-Extensions` in the server's answer.
    #[must_use]
    pub fn header_value(&self) -> String {
        let mut value =
            format!("{EXTENSION}; server_no_context_takeover; client_no_context_takeover");
        if self.is_window_told {
            value.push_str(&format!("; server_max_window_bits={}", self.window));
        }
        value
    }

    /// An offer with a parameter that is unknown, wrong or there twice is declined as a whole.
    fn to_offer(offer: &str) -> Option<Self> {
        let parameters = parameters(offer)?;
        let mut answer = Self { window: WindowBits::MAX, is_window_told: false };
        for (index, &(name, value)) in parameters.iter().enumerate() {
            if parameters.iter().take(index).any(|(earlier, _)| *earlier == name) {
                return None;
            }
            match (name, value) {
                ("server_no_context_takeover" | "client_no_context_takeover", None)
                | ("client_max_window_bits", None) => {}
                ("client_max_window_bits", Some(bits)) => {
                    window_bits(bits)?;
                }
                ("server_max_window_bits", Some(bits)) => {
                    answer = Self { window: window_bits(bits)?, is_window_told: true };
                }
                _ => return None,
            }
        }
        Some(answer)
    }

    /// What a client may make of a server's answer, if it offered compression without context: its messages can be
    /// inflated each by itself.
    #[cfg(feature = "client")]
    pub(crate) fn is_answer(value: &str) -> bool {
        let mut extensions = parts(value, b',');
        let (Some(answer), None) = (extensions.next(), extensions.next()) else { return false };
        let Some(parameters) = parameters(answer) else { return false };
        let is_known = |(name, value): &(&str, Option<&str>)| match *name {
            "server_no_context_takeover" | "client_no_context_takeover" => value.is_none(),
            "server_max_window_bits" => value.is_some_and(|bits| window_bits(bits).is_some()),
            _ => false,
        };
        parameters.iter().all(is_known)
            && parameters.iter().any(|(name, _)| *name == "server_no_context_takeover")
    }
}

/// The parameters of an offer of this extension, in order.
fn parameters(offer: &str) -> Option<Vec<(&str, Option<&str>)>> {
    let mut parts = parts(offer, b';');
    if !parts.next()?.eq_ignore_ascii_case(EXTENSION) {
        return None;
    }
    parts.map(parameter).collect()
}

/// The name and the value of a parameter. A value may be quoted.
fn parameter(text: &str) -> Option<(&str, Option<&str>)> {
    let Some((name, value)) = text.split_once('=') else { return Some((text, None)) };
    let value = value.trim();
    let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
    let value = quoted.unwrap_or(value);
    is_token(value).then_some((name.trim(), Some(value)))
}

/// A window as a parameter has it: 8 to 15, without a leading zero.
fn window_bits(text: &str) -> Option<WindowBits> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| is_plain).and_then(WindowBits::of)
}

#[cfg(test)]
mod tests {
    use super::DeflateAnswer;

    fn answer(offers: &str) -> Option<String> {
        DeflateAnswer::to(offers).map(|answer| answer.header_value())
    }

    const PLAIN: &str =
        "permessage-deflate; server_no_context_takeover; client_no_context_takeover";

    #[test]
    fn what_browsers_offer_is_taken_without_context() {
        for offer in [
            "permessage-deflate",
            "permessage-deflate; client_max_window_bits",
            "Permessage-Deflate;client_max_window_bits=10; server_no_context_takeover",
            r#"permessage-deflate; client_max_window_bits="12""#,
        ] {
            assert_eq!(answer(offer).as_deref(), Some(PLAIN), "{offer}");
        }
    }

    #[test]
    fn a_window_that_is_asked_for_is_kept() {
        for bits in 8..=15 {
            let offer = format!("permessage-deflate; server_max_window_bits={bits}");
            let expected = format!("{PLAIN}; server_max_window_bits={bits}");
            assert_eq!(answer(&offer), Some(expected));
            let taken = DeflateAnswer::to(&offer).map(|answer| answer.window.bits());
            assert_eq!(taken, Some(bits));
        }
    }

    #[test]
    fn an_offer_that_says_something_wrong_is_declined_and_the_next_is_taken() {
        for offer in [
            "permessage-deflate; server_max_window_bits",
            "permessage-deflate; server_max_window_bits=7",
            "permessage-deflate; server_max_window_bits=16",
            "permessage-deflate; server_max_window_bits=+9",
            "permessage-deflate; server_max_window_bits=09",
            "permessage-deflate; client_max_window_bits=0",
            "permessage-deflate; server_no_context_takeover=1",
            "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
            "permessage-deflate; something",
            "permessage-bzip2",
            "",
        ] {
            assert_eq!(answer(offer), None, "{offer}");
            let fallback = format!("{offer}, permessage-deflate");
            assert_eq!(answer(&fallback).as_deref(), Some(PLAIN), "{fallback}");
        }
    }
}
