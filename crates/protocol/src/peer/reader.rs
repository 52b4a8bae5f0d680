//! Splits the bytes of a link into frames, and joins the pieces of their bodies. Each class has at most one body under
//! way, so that no more than three are in memory, each in a place that was made for it.

use bytes::{Buf, Bytes, BytesMut};

use super::{
    PIECE_BYTES_MAX,
    error::PeerError,
    frame::{Content, PeerFrame},
    header::PeerHeader,
    kind::{Class, PeerKind},
};

/// Splits the bytes of a link into frames. Room is made for the rest of one piece, and once the first piece of a body is
/// there, for the whole: at most [`BODY_BYTES_MAX`](super::BODY_BYTES_MAX) in each class.
#[derive(Debug, Default)]
pub struct PeerReader {
    is_greeted: bool,
    /// The bodies under way, by [`Class::index`].
    partial: [Option<Partial>; Class::ALL.len()],
}

/// A frame of whose body some pieces have come.
#[derive(Debug)]
struct Partial {
    header: PeerHeader,
    fixed: Bytes,
    body: BytesMut,
}

impl PeerReader {
    /// A reader for a connection without a greeting: nothing else is accepted.
    #[must_use]
    pub fn before_greeting() -> Self {
        Self::default()
    }

    /// The greeting has come: from now on all other kinds are accepted, and no greeting.
    pub fn set_greeted(&mut self) {
        self.is_greeted = true;
    }

    /// Removes the next frame from `input`; `None` while none is whole. A body that came in one piece shares the memory of
    /// `input`, others are copied once.
    ///
    /// # Errors
    /// A [`PeerError`]. The link cannot be read further.
    pub fn next_frame(&mut self, input: &mut BytesMut) -> Result<Option<PeerFrame>, PeerError> {
        while let Some((header, fixed, piece)) = self.next_piece(input)? {
            if let Some(whole) = self.join(header, fixed, piece)? {
                return Ok(Some(whole));
            }
        }
        Ok(None)
    }

    /// Removes the next head with its piece of a body.
    fn next_piece(
        &self,
        input: &mut BytesMut,
    ) -> Result<Option<(PeerHeader, Bytes, Bytes)>, PeerError> {
        let Some(&bytes) = input.first_chunk() else { return Ok(None) };
        let header = PeerHeader::decode(&bytes)?;
        if header.kind.is_greeting() == self.is_greeted {
            return Err(PeerError::Order { kind: header.kind });
        }
        let fixed = header.fixed_bytes();
        let piece = header.body_bytes().min(PIECE_BYTES_MAX);
        let needed = PeerHeader::BYTES + fixed + piece;
        if input.len() < needed {
            input.reserve(needed - input.len());
            return Ok(None);
        }
        input.advance(PeerHeader::BYTES);
        let fixed = input.split_to(fixed).freeze();
        header.matches(&bytes, &fixed)?;
        Ok(Some((header, fixed, input.split_to(piece).freeze())))
    }

    /// Adds a piece to the body that is under way in its class; the frame, if that is whole.
    fn join(
        &mut self,
        header: PeerHeader,
        fixed: Bytes,
        piece: Bytes,
    ) -> Result<Option<PeerFrame>, PeerError> {
        let place = &mut self.partial[header.class.index()];
        let PeerHeader { kind, class, number, .. } = header;
        let (header, fixed, body) = match place.take() {
            None if kind == PeerKind::Piece => {
                return Err(PeerError::Piece { kind, class, at: 0, length: 0 });
            }
            None if piece.len() == header.body_bytes() => (header, fixed, piece),
            None => {
                let mut body = BytesMut::with_capacity(header.body_bytes());
                body.extend_from_slice(&piece);
                *place = Some(Partial { header, fixed, body });
                return Ok(None);
            }
            Some(mut partial) => {
                let (at, length) = (partial.body.len(), partial.header.body_bytes());
                let continues = kind == PeerKind::Piece
                    && number == at as u64
                    && header.group == partial.header.group
                    && piece.len() <= length - at;
                if !continues {
                    return Err(PeerError::Piece { kind, class, at, length });
                }
                partial.body.extend_from_slice(&piece);
                if partial.body.len() < length {
                    *place = Some(partial);
                    return Ok(None);
                }
                (partial.header, partial.fixed, partial.body.freeze())
            }
        };
        let PeerHeader { class, group, number, .. } = header;
        let content = Content::of_parts(&header, fixed, body)?;
        Ok(Some(PeerFrame { class, group, number, content }))
    }
}
