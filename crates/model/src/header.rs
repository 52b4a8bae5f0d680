//! The headers of a message: names and typed values. A name may occur more than once, and the order is kept.
//!
//! Encoded, each header is `kind u8 | name_len u8 | value_len u16 LE | name | value`.

use bytes::{BufMut, Bytes};

use crate::limits::{BROKER_HEADERS_BYTES_MAX, HEADERS_BYTES_MAX};

/// The type of a header's value. All types have the same encoding; the type tells other protocols
/// how to show the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HeaderKind {
    /// UTF-8 text.
    #[default]
    Text = 0,
    /// Bytes.
    Binary = 1,
    /// A number in decimal text, of any size.
    Number = 2,
    /// `true` or `false` in text.
    Boolean = 3,
}

/// A header of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// 1 to 255 bytes of UTF-8.
    pub name: String,
    /// The type of `value`.
    pub kind: HeaderKind,
    /// At most 65,535 bytes.
    pub value: Bytes,
}

impl Header {
    /// A header with a text value.
    pub fn text(name: impl Into<String>, value: impl Into<String>) -> Self {
        Self { name: name.into(), kind: HeaderKind::Text, value: Bytes::from(value.into()) }
    }
}

/// The reason why headers were refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A name is empty or too long.
    #[error("a header name has 1 to 255 bytes, this one has {length}")]
    NameLength {
        /// Its length in bytes.
        length: usize,
    },
    /// The headers together are too long.
    #[error("the headers of a message have at most {HEADERS_BYTES_MAX} bytes, these have {length}")]
    TooLong {
        /// Their encoded length in bytes.
        length: usize,
    },
    /// The bytes end inside a header.
    #[error("header at byte {position} goes beyond the end of the headers")]
    Truncated {
        /// Where the header begins.
        position: usize,
    },
    /// A name is not text.
    #[error("the name of the header at byte {position} is not UTF-8")]
    NameNotText {
        /// Where the header begins.
        position: usize,
    },
    /// A kind is unknown.
    #[error(
        "header at byte {position} has kind {kind}; known are 0 text, 1 binary, 2 number, 3 boolean"
    )]
    Kind {
        /// Where the header begins.
        position: usize,
        /// The kind as given.
        kind: u8,
    },
}

/// Appends encoded `headers` to `out`. They may be [`BROKER_HEADERS_BYTES_MAX`] longer than those
/// of a publisher.
///
/// # Errors
/// [`HeaderError::NameLength`] or [`HeaderError::TooLong`]. `out` then holds a part of the headers,
/// and the caller discards it.
pub fn encode_headers(headers: &[Header], out: &mut Vec<u8>) -> Result<(), HeaderError> {
    let start = out.len();
    for header in headers {
        let name_len = u8::try_from(header.name.len())
            .ok()
            .filter(|&n| n > 0)
            .ok_or(HeaderError::NameLength { length: header.name.len() })?;
        let value_len = u16::try_from(header.value.len())
            .map_err(|_| HeaderError::TooLong { length: header.value.len() })?;
        out.put_u8(header.kind as u8);
        out.put_u8(name_len);
        out.put_u16_le(value_len);
        out.put_slice(header.name.as_bytes());
        out.put_slice(&header.value);
    }
    let length = out.len() - start;
    if length > HEADERS_BYTES_MAX + BROKER_HEADERS_BYTES_MAX {
        return Err(HeaderError::TooLong { length });
    }
    Ok(())
}

/// Iterates over encoded headers, as `(name, kind, value)`. Ends after the first error.
#[derive(Clone, Debug)]
pub struct Headers<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> Headers<'a> {
    /// Iterates over the headers in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    fn read(&mut self) -> Result<(&'a str, HeaderKind, &'a [u8]), HeaderError> {
        let position = self.position;
        let rest = &self.bytes[position..];
        let [kind, name_len, low, high, rest @ ..] = rest else {
            return Err(HeaderError::Truncated { position });
        };
        let name_len = usize::from(*name_len);
        let value_len = usize::from(u16::from_le_bytes([*low, *high]));
        if name_len == 0 {
            return Err(HeaderError::NameLength { length: 0 });
        }
        let (Some(name), Some(value)) =
            (rest.get(..name_len), rest.get(name_len..name_len + value_len))
        else {
            return Err(HeaderError::Truncated { position });
        };
        let name = std::str::from_utf8(name).map_err(|_| HeaderError::NameNotText { position })?;
        let kind = match kind {
            0 => HeaderKind::Text,
            1 => HeaderKind::Binary,
            2 => HeaderKind::Number,
            3 => HeaderKind::Boolean,
            &kind => return Err(HeaderError::Kind { position, kind }),
        };
        self.position = position + 4 + name_len + value_len;
        Ok((name, kind, value))
    }
}

impl<'a> Iterator for Headers<'a> {
    type Item = Result<(&'a str, HeaderKind, &'a [u8]), HeaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.position == self.bytes.len() {
            return None;
        }
        let header = self.read();
        if header.is_err() {
            self.position = self.bytes.len();
        }
        Some(header)
    }
}
