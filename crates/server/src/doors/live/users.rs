//! The live connections of each user on a core: those who have shown credentials. It knows no rights.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::connection_id::ConnectionId;

/// Connections by the names of their users.
#[derive(Debug, Default)]
pub(crate) struct Users(HashMap<Box<str>, Vec<ConnectionId>, RandomState>);

impl Users {
    /// A connection is of a user. One without a name is nobody's.
    pub(crate) fn add(&mut self, user: &str, connection: ConnectionId) {
        if user.is_empty() {
            return;
        }
        match self.0.get_mut(user) {
            Some(held) => held.push(connection),
            None => drop(self.0.insert(user.into(), vec![connection])),
        }
    }

    /// A connection has gone.
    pub(crate) fn remove(&mut self, user: &str, connection: ConnectionId) {
        let Some(held) = self.0.get_mut(user) else { return };
        held.retain(|of| *of != connection);
        if held.is_empty() {
            self.0.remove(user);
        }
    }

    /// The connections of a user.
    pub(crate) fn connections(&self, user: &str) -> &[ConnectionId] {
        self.0.get(user).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_the_connections_that_are_there() {
        let mut users = Users::default();
        let id = |slot| ConnectionId { slot, generation: 1 };
        for (user, slot) in [("ada", 1), ("", 2), ("bob", 3), ("ada", 4)] {
            users.add(user, id(slot));
        }
        assert_eq!(users.connections("ada"), [id(1), id(4)]);
        assert!(users.connections("").is_empty(), "nobody's");
        users.remove("ada", id(1));
        users.remove("ada", id(3));
        assert_eq!(users.connections("ada"), [id(4)]);
        users.remove("ada", id(4));
        assert!(users.0.keys().map(|user| &**user).eq(["bob"]), "nothing stays behind");
    }
}
