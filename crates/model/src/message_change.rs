//! A change of a published message: headers that are set or removed, its delay and its time to live. It does not
//! know who decides on it.

use std::time::Duration;

use crate::HeaderKind;

/// What becomes different in a message; nothing by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageChange<'a> {
    /// Headers to set or remove. Of several with one name the last counts.
    pub headers: &'a [HeaderChange<'a>],
    /// The message's delay from now on; as it was without.
    pub delay: Option<Duration>,
    /// The message's time to live from now on; as it was without.
    pub time_to_live: Option<Duration>,
}

/// A header to set or remove. All headers of this name that the message had are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderChange<'a> {
    /// 1 to 255 bytes.
    pub name: &'a str,
    /// The new value and its type; `None` to remove the header.
    pub value: Option<(HeaderKind, &'a [u8])>,
}
