//! The number of a live connection on its core, and its id, by which clients and programs know it.

use std::{fmt, str::FromStr};

use crate::runtime::index::CoreIndex;

/// A connection of a core. A slot is used again, with another generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ConnectionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The id of a connection: no other connection has it, as long as the broker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientId {
    pub(crate) core: CoreIndex,
    pub(crate) connection: ConnectionId,
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConnectionId { slot, generation } = self.connection;
        write!(f, "{:04x}{generation:08x}{slot:08x}", self.core.0)
    }
}

/// A text that is no id of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the id of a connection has 20 hexadecimal digits, as clients are told it")]
pub(crate) struct NoClientId;

impl FromStr for ClientId {
    type Err = NoClientId;

    fn from_str(text: &str) -> Result<Self, NoClientId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 20 || !text.bytes().all(is_digit) {
            return Err(NoClientId);
        }
        let number = |part| u32::from_str_radix(part, 16).map_err(|_| NoClientId);
        let core = CoreIndex(number(&text[..4])?);
        let (generation, slot) = (number(&text[4..12])?, number(&text[12..])?);
        Ok(Self { core, connection: ConnectionId { slot, generation } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_as_it_is_written() {
        let connection = ConnectionId { slot: 7, generation: 0xffff_fffe };
        let id = ClientId { core: CoreIndex(3), connection };
        assert_eq!(id.to_string(), "0003fffffffe00000007");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "s", "0003FFFFFFFE00000007", "0003fffffffe0000000", "+003fffffffe00000007"]
        {
            assert_eq!(text.parse::<ClientId>(), Err(NoClientId), "{text}");
        }
    }
}
