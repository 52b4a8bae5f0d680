//! Makes messages of what a socket received, in pieces of any size. A connection that is between messages keeps no
//! buffer: the caller reads into one that all connections of a core share, and what is unfinished is moved aside.

use crate::{
    close_code::CloseCode,
    fault::Fault,
    frame_head::{End, FrameHead},
    inflater::Inflater,
    limits::{CONTROL_BYTES_MAX, compressed_bytes_max},
    opcode::Opcode,
    unfinished::{FrameInProgress, MessageInProgress, Unfinished},
    utf8,
};

/// What a connection may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecoderLimits {
    /// Most bytes of a message, as sent and when inflated.
    pub message_bytes_max: usize,
}

/// What a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole message of text.
    Text(String),
    /// A whole message of bytes.
    Binary(Vec<u8>),
    /// A ping, to be answered by a pong with the same payload: the latest suffices.
    Ping(Vec<u8>),
    /// A pong.
    Pong(Vec<u8>),
    /// The end of what the peer sends, to be answered by a close. Nothing is decoded behind it.
    Close(Close),
}

/// What a peer said when it closed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Close {
    /// Why, if it said so.
    pub code: Option<CloseCode>,
    /// The same in words, maybe none.
    pub reason: String,
}

/// Decodes what one connection receives. Its own size is 24 bytes; whatever is unfinished lies on the heap, and takes at
/// most `message_bytes_max` and a few hundred bytes, a compressed one twice that while it is inflated.
#[derive(Debug)]
pub struct Decoder {
    limits: DecoderLimits,
    sender: End,
    is_deflate: bool,
    has_ended: bool,
    unfinished: Option<Box<Unfinished>>,
}

impl Decoder {
    /// For a server: decodes what a client sends. `is_deflate` says that compression was negotiated.
    #[must_use]
    pub fn of_server(limits: DecoderLimits, is_deflate: bool) -> Self {
        Self::of_sender(End::Client, limits, is_deflate)
    }

    /// For a client: decodes what a server sends, which has no masks.
    #[must_use]
    pub fn of_client(limits: DecoderLimits, is_deflate: bool) -> Self {
        Self::of_sender(End::Server, limits, is_deflate)
    }

    fn of_sender(sender: End, limits: DecoderLimits, is_deflate: bool) -> Self {
        Self { limits, sender, is_deflate, has_ended: false, unfinished: None }
    }

    /// The next message, ping, pong or close in `input`, which moves on behind it. `None` says that all of `input` was
    /// taken and more has to come: the caller keeps nothing of it. A pause in the middle of a message is allowed.
    ///
    /// Nothing is decoded behind a close or a fault; what comes then is taken and dropped.
    pub fn next(
        &mut self,
        input: &mut &[u8],
        inflater: &mut Inflater,
    ) -> Result<Option<Incoming>, Fault> {
        if self.has_ended || input.is_empty() {
            *input = &[];
            return Ok(None);
        }
        let mut unfinished = self.unfinished.take();
        // Most messages lie whole in the input, and need nothing on the heap but their own bytes.
        let mut on_stack = Unfinished::default();
        let state = unfinished.as_deref_mut().unwrap_or(&mut on_stack);
        let outcome = self.decode(state, input, inflater);
        if matches!(outcome, Err(_) | Ok(Some(Incoming::Close(_)))) {
            self.has_ended = true;
            *input = &[];
        } else if !state.is_empty() {
            self.unfinished = Some(unfinished.unwrap_or_else(|| Box::new(on_stack)));
        }
        outcome
    }

    /// Whether a close or a fault has come: nothing is decoded any more.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether a message or a frame has begun and not ended.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        self.unfinished.is_some()
    }

    /// Bytes on the heap: none between messages.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.unfinished.as_ref().map_or(0, |unfinished| unfinished.held_bytes())
    }

    fn decode(
        &self,
        state: &mut Unfinished,
        input: &mut &[u8],
        inflater: &mut Inflater,
    ) -> Result<Option<Incoming>, Fault> {
        loop {
            let mut frame = match state.frame.take() {
                Some(frame) => frame,
                None => match state.read_head(input, self.sender, self.is_deflate)? {
                    Some(head) => self.begin(head, state)?,
                    None => return Ok(None),
                },
            };
            if frame.head.opcode.is_control() {
                if frame.take(input, &mut state.control, CONTROL_BYTES_MAX) {
                    let payload = std::mem::take(&mut state.control);
                    return control(frame.head.opcode, payload).map(Some);
                }
            } else if let Some(mut message) = state.message.take() {
                let bytes_max = self.bytes_max(message.is_compressed);
                let is_whole = frame.take(input, &mut message.bytes, bytes_max);
                if is_whole && frame.head.is_final {
                    return self.whole(message, inflater).map(Some);
                }
                message.check()?;
                state.message = Some(message);
                if is_whole {
                    continue;
                }
            }
            state.frame = Some(frame);
            return Ok(None);
        }
    }

    /// Most bytes of a message as it is sent.
    fn bytes_max(&self, is_compressed: bool) -> usize {
        let bytes_max = self.limits.message_bytes_max;
        if is_compressed { compressed_bytes_max(bytes_max) } else { bytes_max }
    }

    /// Begins a frame, and its message if it is the first one.
    fn begin(&self, head: FrameHead, state: &mut Unfinished) -> Result<FrameInProgress, Fault> {
        if !head.opcode.is_control() {
            let message = match (head.opcode, &mut state.message) {
                (Opcode::Continuation, Some(message)) => message,
                (Opcode::Continuation, None) => return Err(Fault::NothingToContinue),
                (_, Some(_)) => return Err(Fault::MessageUnfinished),
                (opcode, none) => {
                    none.insert(MessageInProgress::new(opcode == Opcode::Text, head.is_compressed))
                }
            };
            let room = self.bytes_max(message.is_compressed) - message.bytes.len();
            if head.payload_len > room as u64 {
                let bytes_max = self.limits.message_bytes_max;
                return Err(Fault::MessageTooLarge { bytes_max });
            }
        }
        // A payload that memory has room for has a length that fits in a `usize`.
        let len = usize::try_from(head.payload_len).unwrap_or(usize::MAX);
        Ok(FrameInProgress { head, received: 0, len })
    }

    /// A message that has come whole.
    fn whole(
        &self,
        message: MessageInProgress,
        inflater: &mut Inflater,
    ) -> Result<Incoming, Fault> {
        let MessageInProgress { is_text, is_compressed, mut bytes, .. } = message;
        if is_compressed {
            bytes = inflater.inflate(&bytes, self.limits.message_bytes_max)?;
        }
        Ok(if is_text { Incoming::Text(utf8::text(bytes)?) } else { Incoming::Binary(bytes) })
    }
}

/// A control frame that has come whole.
fn control(opcode: Opcode, payload: Vec<u8>) -> Result<Incoming, Fault> {
    match opcode {
        Opcode::Ping => return Ok(Incoming::Ping(payload)),
        Opcode::Pong => return Ok(Incoming::Pong(payload)),
        _ => {}
    }
    let close = match payload.split_first_chunk() {
        Some((number, reason)) => {
            let number = u16::from_be_bytes(*number);
            let code = CloseCode::of(number).ok_or(Fault::CloseCode(number))?;
            Close { code: Some(code), reason: utf8::text(reason.to_vec())? }
        }
        None if payload.is_empty() => Close::default(),
        None => return Err(Fault::CloseOfOneByte),
    };
    Ok(Incoming::Close(close))
}
