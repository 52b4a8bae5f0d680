//! Connections without a WebSocket: one begins with the request whose answer it is, and its commands come by requests that
//! name its session.

use std::io;

use sennit_centrifuge::Command;

use super::LiveConnections;
use crate::{
    doors::live::{
        answer_pipe::{PipeEvent, PipeWriter},
        connection::{Greeting, Phase},
        connection_id::ConnectionId,
        dialect::ClientRequest,
        emulated_session::{SessionSecret, named},
        format::Format,
        link::{EmulatedLink, Link},
    },
    identity::principal::Principal,
};

/// A connection that begins.
#[derive(Debug)]
pub(crate) struct EmulatedArrival {
    pub(crate) pipe: PipeWriter,
    pub(crate) format: Format,
    /// What its request has brought.
    pub(crate) commands: Vec<Command>,
    /// On whose behalf it asks, if it has shown credentials; nobody otherwise.
    pub(crate) principal: Principal,
    pub(crate) greeting: Greeting,
}

/// Why commands are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmulationRefusal {
    /// No connection has this session.
    UnknownSession,
    /// What its client has asked before waits still.
    TooMuchWaits,
}

impl LiveConnections {
    /// Takes a connection in.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(crate) fn welcome_emulated(&mut self, arrival: EmulatedArrival) -> io::Result<()> {
        let EmulatedArrival { pipe, format, commands, principal, greeting } = arrival;
        let secret = SessionSecret::new()?;
        let slot = self.free_slot();
        let link = Link::Emulated(Box::new(EmulatedLink::new(
            pipe,
            secret,
            format.carrier,
            greeting.peer.address(),
        )));
        let id = self.enter(slot, (link, format.dialect), (principal, greeting));
        let events = self.pipe_events.clone();
        if let Some(connection) = self.get(id) {
            let commands = commands.into_iter().map(Box::new).map(ClientRequest::Centrifuge);
            connection.requests.extend(commands);
            if let Link::Emulated(link) = &connection.link {
                link.tell(id, events);
            }
        }
        self.to_read.push(slot);
        Ok(())
    }

    /// The session and the node by which the client of a connection without a WebSocket sends commands.
    pub(super) fn session_of(&mut self, id: ConnectionId) -> (String, String) {
        let node = format!("{:x}", self.core.index.0);
        match self.get(id).map(|connection| &connection.link) {
            Some(Link::Emulated(link)) => (link.secret.id(id), node),
            _ => Default::default(),
        }
    }

    /// Takes commands that have come in a request.
    ///
    /// # Errors
    /// The session is none of this core, or too much of its client waits.
    pub(crate) fn emulate(
        &mut self,
        session: &str,
        message: Vec<u8>,
    ) -> Result<(), EmulationRefusal> {
        let (id, shown) = named(session).ok_or(EmulationRefusal::UnknownSession)?;
        let connection = self.get(id).ok_or(EmulationRefusal::UnknownSession)?;
        let is_ending = matches!(connection.phase, Phase::Ending);
        match &mut connection.link {
            Link::Emulated(link) if link.secret.is(shown) => {
                // Its answer says why it ends.
                if !is_ending && !link.add(message) {
                    return Err(EmulationRefusal::TooMuchWaits);
                }
            }
            _ => return Err(EmulationRefusal::UnknownSession),
        }
        connection.is_readable = true;
        self.to_read.push(id.slot);
        Ok(())
    }

    /// Takes what the answers say that are connections.
    pub(super) fn take_pipe_events(&mut self) {
        for (id, event) in self.pipe_events.take() {
            let Some(connection) = self.get(id) else { continue };
            match event {
                PipeEvent::Room => {
                    connection.is_blocked = false;
                    self.to_flush.add(id);
                }
                PipeEvent::Gone => self.part(id.slot),
            }
        }
    }
}
