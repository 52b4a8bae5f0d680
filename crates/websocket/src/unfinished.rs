//! What a connection keeps of a frame, and of a message, that has not come whole. Memory grows with what came, never
//! with a length that was merely announced.

use crate::{
    fault::Fault,
    frame_head::{End, FrameHead},
    limits::FRAME_HEAD_BYTES_MAX,
    mask, utf8,
};

/// A part of a message or frame.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    /// The first bytes of a head.
    head: [u8; FRAME_HEAD_BYTES_MAX],
    head_len: usize,
    /// The frame whose payload comes.
    pub(crate) frame: Option<FrameInProgress>,
    /// The payload of a control frame.
    pub(crate) control: Vec<u8>,
    /// The message whose frames come.
    pub(crate) message: Option<MessageInProgress>,
}

/// A frame whose payload comes.
#[derive(Debug)]
pub(crate) struct FrameInProgress {
    pub(crate) head: FrameHead,
    /// How many bytes of its payload came.
    pub(crate) received: usize,
    /// How many it has.
    pub(crate) len: usize,
}

/// A message whose frames come.
#[derive(Debug)]
pub(crate) struct MessageInProgress {
    pub(crate) is_text: bool,
    pub(crate) is_compressed: bool,
    pub(crate) bytes: Vec<u8>,
    /// How many of the bytes are whole characters.
    checked: usize,
}

impl Unfinished {
    /// Whether there is nothing to keep.
    pub(crate) fn is_empty(&self) -> bool {
        self.head_len == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// Bytes on the heap.
    pub(crate) fn held_bytes(&self) -> usize {
        let message = self.message.as_ref().map_or(0, |message| message.bytes.capacity());
        size_of::<Self>() + self.control.capacity() + message
    }

    /// The next head, if it has come whole. Takes from `input` what belongs to it.
    pub(crate) fn read_head(
        &mut self,
        input: &mut &[u8],
        sender: End,
        may_be_compressed: bool,
    ) -> Result<Option<FrameHead>, Fault> {
        let read = |bytes: &[u8]| FrameHead::read(bytes, sender, may_be_compressed);
        if self.head_len == 0
            && let Some((head, len)) = read(input)?
        {
            *input = input.get(len..).unwrap_or_default();
            return Ok(Some(head));
        }
        while let Some((&byte, rest)) = input.split_first() {
            let Some(place) = self.head.get_mut(self.head_len) else { break };
            *place = byte;
            self.head_len += 1;
            *input = rest;
            if let Some((head, _)) = read(&self.head[..self.head_len])? {
                self.head_len = 0;
                return Ok(Some(head));
            }
        }
        Ok(None)
    }
}

impl FrameInProgress {
    /// Moves what `input` has of the payload to `bytes`, which may grow to `bytes_max`, and takes the mask off.
    /// Returns whether the payload is whole.
    pub(crate) fn take(
        &mut self,
        input: &mut &[u8],
        bytes: &mut Vec<u8>,
        bytes_max: usize,
    ) -> bool {
        let missing = self.len - self.received;
        let (part, rest) = input.split_at(missing.min(input.len()));
        *input = rest;
        let end = if self.head.is_final { bytes.len() + missing } else { bytes_max };
        if bytes.capacity() - bytes.len() < part.len() {
            let room = (bytes.len() + part.len()).max(2 * bytes.capacity().min(end / 2));
            bytes.reserve_exact(room - bytes.len());
        }
        let start = bytes.len();
        bytes.extend_from_slice(part);
        if let (Some(mask), Some(added)) = (self.head.mask, bytes.get_mut(start..)) {
            mask::apply(mask, self.received, added);
        }
        self.received += part.len();
        self.received == self.len
    }
}

impl MessageInProgress {
    pub(crate) fn new(is_text: bool, is_compressed: bool) -> Self {
        Self { is_text, is_compressed, bytes: Vec::new(), checked: 0 }
    }

    /// Refuses text that is wrong already, though not all of it has come.
    pub(crate) fn check(&mut self) -> Result<(), Fault> {
        if self.is_text && !self.is_compressed {
            utf8::check(&self.bytes, &mut self.checked)?;
        }
        Ok(())
    }
}
