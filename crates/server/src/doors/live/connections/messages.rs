//! Messages to live connections that are in no topic: each goes to those that it is meant for, some connections at a time, and it is
//! told how many have got it. One whose client takes nothing does not get it.

use sennit_centrifuge::{Data, Push, PushKind};
use tokio::sync::oneshot;

use super::LiveConnections;
use crate::doors::live::{
    connection::Phase,
    connection_id::ConnectionId,
    limits::{CONNECTIONS_AT_ONCE_MAX, SENDS_WAITING_MAX, UNSENT_BYTES_MAX},
    push_frames::PushFrames,
    target::Target,
};

/// What became of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Connections that have it, or whose sockets will.
    pub(crate) reached: u64,
    /// Connections whose clients take nothing: they do not get it.
    pub(crate) missed: u64,
}

/// More messages are on their way than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("SENDS_WAITING_MAX is {SENDS_WAITING_MAX}: a core has as many messages to send")]
pub(crate) struct TooManySends;

/// A message that is sent.
#[derive(Debug)]
pub(super) struct Send {
    frames: PushFrames,
    left: Left,
    sent: Sent,
    answer: oneshot::Sender<Result<Sent, TooManySends>>,
}

/// Whom it is sent to yet.
#[derive(Debug)]
enum Left {
    /// All from this slot on.
    From(u32),
    /// These.
    These(Vec<ConnectionId>),
}

impl LiveConnections {
    /// Begins to send a message; the answer comes when all have been offered it.
    pub(crate) fn send(
        &mut self,
        target: &Target,
        data: Data,
        answer: oneshot::Sender<Result<Sent, TooManySends>>,
    ) {
        if self.sends.len() >= SENDS_WAITING_MAX {
            let _ = answer.send(Err(TooManySends));
            return;
        }
        let left = match target {
            Target::All => Left::From(0),
            target => Left::These(self.meant(target)),
        };
        let frames =
            PushFrames::new(Push { channel: String::new(), kind: PushKind::Message(data) });
        self.sends.push_back(Send { frames, left, sent: Sent::default(), answer });
    }

    /// Sends to some connections; says whether there are more.
    pub(super) fn send_some(&mut self) -> bool {
        let mut turns = CONNECTIONS_AT_ONCE_MAX;
        while turns > 0
            && let Some(mut send) = self.sends.pop_front()
        {
            while turns > 0
                && let Some(id) = self.next_of(&mut send.left)
            {
                turns -= 1;
                self.send_one(id, &mut send);
            }
            if turns == 0 {
                self.sends.push_front(send);
                return true;
            }
            // Whoever asked may have gone.
            let _ = send.answer.send(Ok(send.sent));
        }
        !self.sends.is_empty()
    }

    fn next_of(&mut self, left: &mut Left) -> Option<ConnectionId> {
        match left {
            Left::These(ids) => ids.pop(),
            Left::From(slot) => loop {
                let at = *slot;
                if at as usize >= self.connections.len() {
                    return None;
                }
                *slot += 1;
                if let Some(connection) = self.at(at) {
                    return Some(connection.id);
                }
            },
        }
    }

    fn send_one(&mut self, id: ConnectionId, send: &mut Send) {
        let Some(connection) = self.get(id) else { return };
        if !matches!(connection.phase, Phase::Connected) {
            return;
        }
        let frame = send.frames.frame(connection.format());
        let waiting = connection.unsent().len();
        // The first may be as long as it is.
        if waiting > 0 && waiting + frame.len() > UNSENT_BYTES_MAX {
            send.sent.missed += 1;
            return;
        }
        connection.out().extend_from_slice(frame);
        send.sent.reached += 1;
        // At once: what waits for a socket that takes it does not add up.
        self.flush(id);
    }
}
