//! The end of parking: the client has gone, or sends something, or takes its answer slowly, or the broker stops. A
//! connection whose client is there returns to a task. It knows no requests.

use std::time::Duration;

use tokio::task::spawn_local;

use super::{
    ParkedConnections, READERS_AT_ONCE_MAX,
    readers::{Patience, Reader},
};
use crate::{
    doors::streams::{ReadPosition, WaitingRead},
    http::{parking::Back, port},
    runtime::write_buffer::WriteBuffer,
};

impl ParkedConnections {
    /// Lets those go whose clients have gone, and sends back whose have said something; says whether there
    /// may be more.
    pub(super) fn take_socket_events(&mut self) -> bool {
        let mut events = std::mem::take(&mut self.socket_events);
        let has_more = self.sockets.take(&mut events);
        for event in events.drain(..) {
            if event.is_gone {
                self.part(event.number);
                continue;
            }
            self.hear(event.number);
        }
        self.socket_events = events;
        has_more
    }

    /// Sends a connection back whose client has said something.
    pub(super) fn hear(&mut self, reader: u32) {
        let Some(held) = self.readers.get(reader) else { return };
        let patience = held.patience;
        let position = self.readers.position_of(reader).map(|held| held.position.clone());
        let wait = position.and_then(|position| self.wait(reader, position, patience, false));
        self.go_back(reader, WriteBuffer::default(), wait, true);
    }

    /// Ends a connection.
    pub(super) fn part(&mut self, reader: u32) {
        if self.readers.get(reader).is_some() {
            self.leave(reader);
            drop(self.readers.let_go(reader));
            self.thread_state.metrics.http_connections.less(1);
        }
    }

    /// Gives a connection a task again: what its socket has not taken, and what it waits for still.
    pub(super) fn send_back(&mut self, reader: u32, rest: WriteBuffer, wait: Option<WaitingRead>) {
        self.go_back(reader, rest, wait, false);
    }

    fn go_back(
        &mut self,
        reader: u32,
        rest: WriteBuffer,
        wait: Option<WaitingRead>,
        is_heard: bool,
    ) {
        if self.readers.get(reader).is_none() {
            return;
        }
        self.leave(reader);
        let Reader { wire, place, moves, manner, .. } = self.readers.let_go(reader);
        self.sockets.remove(&wire);
        // Counted before the task begins: a broker that stops waits for it.
        let open_connection = self.thread_state.enter();
        let wait = wait.map(WaitingRead::offered);
        let back = Back { open_connection, is_heard, rest, wait, manner, moves };
        spawn_local(port::come_back(wire, place, back, self.http.clone()));
    }

    /// The broker stops: sends some of them back, to be told; says whether there are more.
    pub(super) fn send_all_back(&mut self) -> bool {
        for _ in 0..READERS_AT_ONCE_MAX {
            let Some(reader) = self.readers.anybody() else { return false };
            let patience = self.readers.get(reader).map(|held| held.patience).unwrap_or_default();
            let position = self.readers.position_of(reader).map(|held| held.position.clone());
            let wait = position.and_then(|position| self.wait(reader, position, patience, true));
            self.send_back(reader, WriteBuffer::default(), wait);
        }
        self.readers.anybody().is_some()
    }

    /// What a reader waits for, to be waited for elsewhere; `None` if there is no such reader.
    pub(super) fn wait(
        &self,
        reader: u32,
        position: ReadPosition,
        patience: Patience,
        stays: bool,
    ) -> Option<WaitingRead> {
        let principal = self.readers.get(reader)?.principal.clone();
        let Patience { cursor, until, said_at } = patience;
        let instant = |moment| self.began + Duration::from_millis(moment);
        let (until, said_at) = (instant(until), instant(said_at));
        Some(WaitingRead { principal, position, cursor, until, said_at, stays })
    }
}
