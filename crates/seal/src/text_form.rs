//! The form of a sealed message in JSON, `{"sealed":"BASE64URL"}`, for clients that publish JSON only.

use std::borrow::Cow;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

use crate::{envelope::MAGIC, open_error::OpenError};

const BEFORE: &str = "{\"sealed\":\"";
const BEHIND: &str = "\"}";

/// The JSON form of a sealed message.
#[must_use]
pub fn text_of(message: &[u8]) -> String {
    [BEFORE, &BASE64_URL_SAFE_NO_PAD.encode(message), BEHIND].concat()
}

/// Whether a payload looks like a sealed message. Whether it is one, says who opens it.
#[must_use]
pub fn is_sealed(payload: &[u8]) -> bool {
    payload.first() == Some(&MAGIC) || sealed_text(payload).is_some()
}

/// The bytes of a sealed message in either form.
pub(crate) fn bytes_of(payload: &[u8]) -> Result<Cow<'_, [u8]>, OpenError> {
    match sealed_text(payload) {
        None => Ok(payload.into()),
        Some(text) => {
            let decoded = BASE64_URL_SAFE_NO_PAD.decode(text.as_bytes());
            decoded.map(Cow::Owned).map_err(|_| OpenError::NotBase64)
        }
    }
}

/// The text of a JSON object with the one member `sealed`.
fn sealed_text(payload: &[u8]) -> Option<String> {
    if !payload.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    let value: serde_json::Value = serde_json::from_slice(payload).ok()?;
    let object = value.as_object().filter(|object| object.len() == 1)?;
    object.get("sealed")?.as_str().map(str::to_owned)
}
