//! A frame as the pieces in which it is sent: its head with the first piece of the body, then the others.

use bytes::{BufMut, Bytes};

use super::{
    PIECE_BYTES_MAX,
    frame::PeerFrame,
    header::PeerHeader,
    kind::{Class, PeerKind},
};

/// A frame that is being sent.
#[derive(Clone, Debug)]
pub struct Pieces {
    class: Class,
    group: u32,
    /// The header and the fixed part, until they are sent.
    head: Vec<u8>,
    /// What is left of the body.
    body: Bytes,
    /// How much of the body is sent.
    sent: usize,
}

impl Pieces {
    /// The pieces of a frame.
    ///
    /// # Panics
    /// If the frame is longer than its kind and class allow.
    #[must_use]
    pub fn new(frame: PeerFrame) -> Self {
        let PeerFrame { class, group, number, content } = frame;
        let kind = content.kind();
        let (fixed, body) = content.into_parts();
        let length = fixed.len() + body.len();
        let (least, most) = kind.lengths(class);
        assert!((least..=most).contains(&length), "a {kind} frame of {length} bytes");
        let mut head = Vec::with_capacity(PeerHeader::BYTES + fixed.len());
        let length = length as u32;
        PeerHeader { length, kind, class, group, number }.encode(&fixed, &mut head);
        Self { class, group, head, body, sent: 0 }
    }

    /// Number of bytes that the next piece takes, at most [`PIECE_BYTES_MAX`] and a head.
    #[must_use]
    pub fn next_bytes(&self) -> usize {
        let head = if self.head.is_empty() { PeerHeader::BYTES } else { self.head.len() };
        head + self.body.len().min(PIECE_BYTES_MAX)
    }

    /// Number of bytes of the frame that are not sent, heads of further pieces left out.
    #[must_use]
    pub fn left_bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// Returns whether all of it is sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    /// Appends the head of the next piece to `out`, and returns the part of the body that has to follow.
    pub fn next_piece(&mut self, out: &mut impl BufMut) -> Bytes {
        let piece = self.body.split_to(self.body.len().min(PIECE_BYTES_MAX));
        if self.head.is_empty() {
            let (class, group, number) = (self.class, self.group, self.sent as u64);
            let (kind, length) = (PeerKind::Piece, piece.len() as u32);
            PeerHeader { length, kind, class, group, number }.encode(&[], out);
        } else {
            out.put_slice(&std::mem::take(&mut self.head));
        }
        self.sent += piece.len();
        piece
    }
}
