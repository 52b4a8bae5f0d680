//! The connection of a link before it is one: its options, and the two first frames.

use std::{io, time::Duration};

use bytes::{Buf, BytesMut};
use sennit_protocol::peer::{PeerError, PeerFrame, PeerReader, Pieces};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::timeout,
};

use crate::runtime::{clock::wall, wire::Wire};

/// How much the system may hold of what it has not sent: the rest waits in our queue, where urgent frames overtake it.
const NOT_SENT_BYTES: u32 = 256 << 10;

/// How long the other node may take to say its first frame.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no link.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkFault {
    /// The connection failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The other end has closed the connection.
    #[error("the other end has closed the connection")]
    Closed,
    /// The other end says nothing.
    #[error("nothing has come for {} ms", .0.as_millis())]
    Silent(Duration),
    /// The other end does not speak the protocol between nodes.
    #[error(transparent)]
    Protocol(#[from] PeerError),
    /// Another connection has taken the link's place, or it could not take what had to be sent.
    #[error("it was ended by this node")]
    Ended,
    /// The link is refused, by either side.
    #[error("{0}")]
    Refused(String),
}

/// Sets the options of a link's connection.
pub(super) fn prepare(wire: &Wire) {
    wire.set_nodelay();
    wire.set_not_sent_bytes(NOT_SENT_BYTES);
}

/// Sends a frame before the link has a queue.
pub(super) async fn send_first(wire: &mut Wire, frame: PeerFrame) -> io::Result<()> {
    let (mut pieces, mut head) = (Pieces::new(frame), BytesMut::new());
    let body = pieces.next_piece(&mut head);
    wire.write_all_buf(&mut head.chain(body)).await
}

/// The first frame of the other end. What came behind it stays in `input`.
pub(super) async fn receive_first(
    wire: &mut Wire,
    reader: &mut PeerReader,
    input: &mut BytesMut,
) -> Result<PeerFrame, LinkFault> {
    let receive = async {
        loop {
            if let Some(frame) = reader.next_frame(input)? {
                reader.set_greeted();
                return Ok(frame);
            }
            if wire.read_buf(input).await? == 0 {
                return Err(LinkFault::Closed);
            }
        }
    };
    timeout(GREETING_TIMEOUT, receive).await.unwrap_or(Err(LinkFault::Silent(GREETING_TIMEOUT)))
}

/// The wall clock, as frames tell it: in ms since 1970.
pub(super) fn wall_ms() -> u64 {
    u64::try_from(wall().as_millis()).unwrap_or(u64::MAX)
}
