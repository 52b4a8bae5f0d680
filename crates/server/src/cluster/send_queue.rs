//! The frames that wait to be sent on a link, by class. It has no socket: it gives bytes for one write after the other,
//! each no longer than a piece, so that a frame of a more urgent class waits for no more than that.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};
use sennit_protocol::peer::{
    Class, PIECE_BYTES_MAX, PeerFrame, PeerHeader, PeerKind, Pieces, RAFT_MESSAGE_BYTES,
};

/// Unsent bytes of the ordinary class beyond which appends are dropped. The group's leader is told so, and asks later how
/// far the follower is.
pub(crate) const APPEND_BYTES_MAX: usize = 32 << 20;

/// Unsent bytes beyond which nothing but the urgent class is taken.
pub(crate) const UNSENT_BYTES_MAX: usize = 64 << 20;

/// Unsent bytes of the urgent class beyond which nothing is taken: the other node has stopped reading long ago.
pub(crate) const URGENT_BYTES_MAX: usize = 4 << 20;

/// Most bytes of one write: a piece and its head.
pub(crate) const WRITE_BYTES_MAX: usize = PIECE_BYTES_MAX + PeerHeader::BYTES + RAFT_MESSAGE_BYTES;

/// Shorter parts of bodies are copied behind their heads: that costs less than another slice.
const COPIED_BYTES_MAX: usize = 8 << 10;

/// Why a frame is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotSent {
    /// There is no link, or so much waits that the frame would come too late to be of use.
    #[error("the node cannot be reached now")]
    Unreachable,
    /// As much waits as may. The sender has to hold back until it is less.
    #[error("too much waits to be sent to the node")]
    Full,
}

/// The frames of a link that are not sent.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// By [`Class::index`].
    waiting: [VecDeque<Pieces>; Class::ALL.len()],
    unsent_bytes: [usize; Class::ALL.len()],
}

impl SendQueue {
    /// Adds a frame behind those of its class.
    ///
    /// # Errors
    /// [`NotSent`]; nothing of it is sent then.
    pub(crate) fn push(&mut self, frame: PeerFrame) -> Result<(), NotSent> {
        let index = frame.class.index();
        let [urgent, ordinary, _] = self.unsent_bytes;
        match frame.class {
            Class::Urgent if urgent >= URGENT_BYTES_MAX => return Err(NotSent::Unreachable),
            Class::Urgent => {}
            _ if self.unsent_bytes() >= UNSENT_BYTES_MAX => return Err(NotSent::Full),
            _ if frame.content.kind() == PeerKind::Raft && ordinary >= APPEND_BYTES_MAX => {
                return Err(NotSent::Unreachable);
            }
            _ => {}
        }
        let pieces = Pieces::new(frame);
        self.unsent_bytes[index] += pieces.left_bytes();
        self.waiting[index].push_back(pieces);
        Ok(())
    }

    /// Number of bytes that are not sent, heads of further pieces left out.
    pub(crate) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.iter().sum()
    }

    /// Removes the bytes of the next write: pieces, the most urgent first. None if nothing waits.
    pub(crate) fn next_write(&mut self) -> Option<impl Buf + use<>> {
        let mut head = BytesMut::new();
        let mut last = Bytes::new();
        while let Some(index) = self.next_class() {
            let Some(pieces) = self.waiting[index].front_mut() else { break };
            if !head.is_empty() && head.len() + pieces.next_bytes() > WRITE_BYTES_MAX {
                break;
            }
            let before = pieces.left_bytes();
            let body = pieces.next_piece(&mut head);
            self.unsent_bytes[index] -= before - pieces.left_bytes();
            if pieces.is_sent() {
                self.waiting[index].pop_front();
            }
            if body.len() > COPIED_BYTES_MAX {
                last = body;
                break;
            }
            head.extend_from_slice(&body);
        }
        (!head.is_empty()).then(|| head.chain(last))
    }

    fn next_class(&self) -> Option<usize> {
        self.waiting.iter().position(|waiting| !waiting.is_empty())
    }
}

#[cfg(test)]
mod tests;
