//! What lies between a live connection and its client: a WebSocket, or the answer to a request, beside which its commands
//! come in others. It knows no commands.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    rc::Rc,
};

use sennit_websocket::Decoder;

use super::{
    answer_pipe::{PipeEvents, PipeWriter},
    connection_id::ConnectionId,
    emulated_session::SessionSecret,
    format::Carrier,
    limits::{WAITING_BYTES_MAX, WAITING_MESSAGE_BYTES},
};
use crate::{
    http::port_place::PortPlace,
    runtime::{peer::Peer, wire::WireAtRest, write_buffer::TakesNow},
};

/// The way to a client and back.
#[derive(Debug)]
pub(crate) enum Link {
    /// A WebSocket, with its place among the connections of the port.
    WebSocket { wire: WireAtRest, decoder: Decoder, _place: PortPlace },
    /// An answer that goes on.
    Emulated(Box<EmulatedLink>),
}

/// The way to a client that has no WebSocket.
#[derive(Debug)]
pub(crate) struct EmulatedLink {
    /// None once the answer is to end.
    pipe: Option<PipeWriter>,
    pub(crate) secret: SessionSecret,
    pub(crate) carrier: Carrier,
    /// The address of the client; its port is not known.
    address: IpAddr,
    /// Messages of its client that wait for those before them.
    waiting: VecDeque<Vec<u8>>,
    waiting_bytes: usize,
}

impl EmulatedLink {
    pub(crate) fn new(
        pipe: PipeWriter,
        secret: SessionSecret,
        carrier: Carrier,
        address: IpAddr,
    ) -> Self {
        Self {
            pipe: Some(pipe),
            secret,
            carrier,
            address,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
        }
    }

    /// From now on what its answer tells is told of this connection.
    pub(crate) fn tell(&self, connection: ConnectionId, events: Rc<PipeEvents>) {
        if let Some(pipe) = &self.pipe {
            pipe.tell(connection, events);
        }
    }

    /// Has a message of its client wait its turn; false if too much does.
    pub(crate) fn add(&mut self, message: Vec<u8>) -> bool {
        let bytes = self.waiting_bytes + message.len() + WAITING_MESSAGE_BYTES;
        if bytes > WAITING_BYTES_MAX && !self.waiting.is_empty() {
            return false;
        }
        self.waiting_bytes = bytes;
        self.waiting.push_back(message);
        true
    }

    /// The message that waits longest.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let message = self.waiting.pop_front()?;
        self.waiting_bytes -= message.len() + WAITING_MESSAGE_BYTES;
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        Some(message)
    }
}

impl Link {
    /// The address of the client, as far as it is known.
    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        match self {
            Self::WebSocket { wire, .. } => wire.peer_address(),
            Self::Emulated(link) => Some(SocketAddr::new(link.address, 0)),
        }
    }

    /// The peer, by its address: a certificate counts at the handshake alone.
    pub(crate) fn peer(&self) -> Peer {
        Peer::new(self.peer_address().map(|address| address.ip()), None)
    }

    /// Whether bytes that it has not taken need not be offered again.
    pub(crate) fn is_plain(&self) -> bool {
        match self {
            Self::WebSocket { wire, .. } => wire.is_plain(),
            Self::Emulated(_) => true,
        }
    }

    /// Nothing more is written; says whether its client is to be waited for, which ends it.
    pub(crate) fn shut_down(&mut self) -> io::Result<bool> {
        match self {
            Self::WebSocket { wire, .. } => wire.shut_down().map(|()| true),
            Self::Emulated(link) => {
                link.pipe = None;
                Ok(false)
            }
        }
    }
}

impl TakesNow for Link {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::WebSocket { wire, .. } => wire.take(bytes),
            Self::Emulated(link) => match &mut link.pipe {
                Some(pipe) => pipe.take(bytes),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::WebSocket { wire, .. } => wire.take_slices(slices),
            Self::Emulated(link) => match &mut link.pipe {
                Some(pipe) => pipe.take_slices(slices),
                None => Err(io::ErrorKind::BrokenPipe.into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doors::live::answer_pipe::pipe;

    #[test]
    fn so_much_of_a_client_waits_and_no_more() {
        let (writer, _reader) = pipe();
        let mut link = EmulatedLink::new(
            writer,
            SessionSecret::new().unwrap(),
            Carrier::Events,
            IpAddr::from([127, 0, 0, 1]),
        );
        assert!(link.add(vec![b'x'; 3 * WAITING_BYTES_MAX]), "any one message may wait");
        assert!(!link.add(Vec::new()));
        assert_eq!(link.next().map(|message| message.len()), Some(3 * WAITING_BYTES_MAX));
        let count = (0..).take_while(|_| link.add(Vec::new())).count();
        assert_eq!(count, WAITING_BYTES_MAX / WAITING_MESSAGE_BYTES);
        for _ in 0..count {
            assert!(link.next().is_some());
        }
        assert_eq!((link.next(), link.waiting_bytes), (None, 0));
    }
}
