//! The session of a connection whose commands come in requests of their own: by its id each of them finds its connection,
//! and nobody can guess it.

use std::{fmt, io};

use super::connection_id::ConnectionId;

/// Digits of an id: those of the generation and of the slot, and those of the secret.
const GENERATION: usize = 8;
const SLOT: usize = 16;
const SECRET: usize = 48;

/// What nobody can guess of an id: 128 bits from the system.
#[derive(Clone, Copy)]
pub(crate) struct SessionSecret(u128);

/// It is as good as credentials, and no text of logs.
impl fmt::Debug for SessionSecret {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("SessionSecret(..)")
    }
}

impl SessionSecret {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn new() -> io::Result<Self> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(u128::from_ne_bytes(bytes)))
    }

    /// Whether it is this one, in a time that tells nothing of it.
    pub(crate) fn is(self, other: Self) -> bool {
        self.0 ^ other.0 == 0
    }

    /// The id of the session of this connection.
    pub(crate) fn id(self, connection: ConnectionId) -> String {
        format!("{:08x}{:08x}{:032x}", connection.generation, connection.slot, self.0)
    }
}

/// The connection that an id names, and the secret that it shows; nothing if it is no id.
pub(crate) fn named(id: &str) -> Option<(ConnectionId, SessionSecret)> {
    if id.len() != SECRET || !id.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let generation = u32::from_str_radix(&id[..GENERATION], 16).ok()?;
    let slot = u32::from_str_radix(&id[GENERATION..SLOT], 16).ok()?;
    let secret = u128::from_str_radix(&id[SLOT..], 16).ok()?;
    Some((ConnectionId { slot, generation }, SessionSecret(secret)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_names_its_connection_and_shows_its_secret() {
        let connection = ConnectionId { slot: 7, generation: u32::MAX };
        let secret = SessionSecret::new().unwrap();
        let (named_one, shown) = named(&secret.id(connection)).unwrap();
        assert_eq!(named_one, connection);
        assert!(shown.is(secret) && !shown.is(SessionSecret::new().unwrap()));
        assert!(!format!("{secret:?}").contains(&secret.id(connection)[SLOT..]));
    }

    #[test]
    fn what_is_no_id_names_nobody() {
        let id = SessionSecret(5).id(ConnectionId { slot: 1, generation: 1 });
        for wrong in ["", &id[1..], &format!("{id}0"), &id.replace('5', "+"), &"é".repeat(24)] {
            assert!(named(wrong).is_none(), "{wrong}");
        }
    }
}
