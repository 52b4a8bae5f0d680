//! What programs do with live connections: they see which there are, and have them end. It knows no HTTP.

use std::net::SocketAddr;

use sennit_centrifuge::DisconnectCode;
use sennit_model::Timestamp;
use sennit_websocket::CloseCode;
use tokio::sync::oneshot;

use super::LiveConnections;
use crate::{
    doors::live::{
        connection::{Connection, Phase},
        connection_id::{ClientId, ConnectionId},
        dialect::Dialect,
        limits::PAGE_CHANNELS_BYTES_MAX,
        target::Target,
    },
    runtime::{core::Cores, index::CoreIndex},
};

/// A connection, as programs see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConnectionView {
    pub(crate) id: ClientId,
    /// Empty if it has shown no credentials.
    pub(crate) user: String,
    pub(crate) address: Option<SocketAddr>,
    pub(crate) dialect: Dialect,
    pub(crate) since: Timestamp,
    pub(crate) channels: Vec<String>,
    /// Bytes that wait for its socket, but for those in rings.
    pub(crate) unsent: usize,
}

impl LiveConnections {
    /// Has the live connections of a core do something, and returns what they say; `None` if the core has none.
    pub(crate) async fn ask<T: Send + 'static>(
        cores: &Cores,
        core: CoreIndex,
        act: impl FnOnce(&mut Self) -> T + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = oneshot::channel();
        Self::call(cores, core, move |live| {
            let _ = sender.send(act(live));
        });
        answer.await.ok()
    }

    /// The connections of this core that are meant, and are connected.
    pub(super) fn meant(&self, target: &Target) -> Vec<ConnectionId> {
        let is_connected = |id: &ConnectionId| {
            let held = self.connections.get(id.slot as usize).and_then(Option::as_ref);
            held.is_some_and(|held| held.id == *id && matches!(held.phase, Phase::Connected))
        };
        match target {
            Target::User(user) => {
                let connections = self.users.connections(user).iter().copied();
                connections.filter(is_connected).collect()
            }
            Target::Connection(id) if id.core == self.core.index => {
                Some(id.connection).filter(is_connected).into_iter().collect()
            }
            Target::Connection(_) => Vec::new(),
            Target::All => {
                let ids = self.connections.iter().flatten().map(|connection| connection.id);
                ids.filter(is_connected).collect()
            }
        }
    }

    /// Has them end with this code; says how many there are.
    pub(crate) fn end_meant(&mut self, target: &Target, code: u16, reason: &str) -> usize {
        let meant = self.meant(target);
        for id in &meant {
            let Some(connection) = self.get(*id) else { continue };
            match (connection.dialect, code) {
                // Clients of WSE know other codes.
                (Dialect::Wse, 3503) => connection.end(DisconnectCode::ForceDisconnect),
                (Dialect::Wse, 3011) => connection.end(DisconnectCode::ForceReconnect),
                _ => connection.close(CloseCode::of(code), reason),
            }
            self.to_flush.add(*id);
        }
        meant.len()
    }

    /// The connections that are meant, from this slot on, so many at most; and where to go on, if there are more.
    pub(crate) fn list(
        &self,
        target: &Target,
        from: u32,
        most: usize,
    ) -> (Vec<ConnectionView>, Option<u32>) {
        let mut meant = match target {
            Target::All => Vec::new(),
            target => self.meant(target),
        };
        meant.sort_unstable_by_key(|id| id.slot);
        let slots: Box<dyn Iterator<Item = u32>> = match target {
            Target::All => Box::new(from..self.connections.len() as u32),
            _ => Box::new(meant.into_iter().map(|id| id.slot).filter(move |slot| *slot >= from)),
        };
        let (mut views, mut bytes) = (Vec::new(), 0);
        for slot in slots {
            let Some(connection) = self.connections.get(slot as usize).and_then(Option::as_ref)
            else {
                continue;
            };
            if !matches!(connection.phase, Phase::Connected) {
                continue;
            }
            if views.len() >= most || bytes >= PAGE_CHANNELS_BYTES_MAX {
                return (views, Some(slot));
            }
            let view = self.view(connection);
            bytes += view.channels.iter().map(String::len).sum::<usize>();
            views.push(view);
        }
        (views, None)
    }

    fn view(&self, connection: &Connection) -> ConnectionView {
        let channels = connection.subscriptions.iter().map(|held| held.channel.to_string());
        ConnectionView {
            id: ClientId { core: self.core.index, connection: connection.id },
            user: connection.principal.user_name(),
            address: connection.link.peer_address(),
            dialect: connection.dialect,
            since: connection.since,
            channels: channels.collect(),
            unsent: connection.unsent().len(),
        }
    }
}
