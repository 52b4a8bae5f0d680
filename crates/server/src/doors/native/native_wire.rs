//! The two halves of a native connection's wire: as it is, or with a WebSocket on it, whose binary messages carry the bytes
//! of the protocol. Where a message ends means nothing. It knows no frames of the native protocol.

use std::{
    any::Any,
    cell::RefCell,
    io::{self, IoSlice},
    rc::Rc,
};

use bytes::{Buf as _, BufMut, BytesMut};
use sennit_websocket::{CloseCode, Decoder, DecoderLimits, Incoming, Inflater, Opcode, frame};

use crate::runtime::{
    wire::{EagerWire, Wire, WireAtRest, WireReader, WireWriter},
    write_buffer::{SLICES_MAX, TakesNow},
};

/// Longest message of a client, and of the broker, in bytes. Frames of the protocol may be longer: they lie in several.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Bytes of a read.
const READ_BYTES: usize = 16 << 10;

/// Control frames that wait until they may go out, in bytes: the latest pong is enough.
const CONTROL_BYTES_MAX: usize = 4 << 10;

/// A WebSocket on a wire. It moves with the wire.
#[derive(Debug)]
pub(crate) struct WebSocketLayer {
    decoder: Decoder,
    /// What has come in messages and was not read.
    unread: BytesMut,
    /// What goes out before anything else: the head of the message that has begun, control frames before it.
    pending: Vec<u8>,
    /// Bytes that the message that has begun lacks.
    owed: usize,
    /// Control frames that wait until no message is under way.
    control: Vec<u8>,
    /// Whether nothing more is read, and with which code this end closes.
    ended: Option<CloseCode>,
    /// Its place among the connections of the HTTP port: it is given back with the layer.
    _place: Box<dyn Any + Send>,
}

impl WebSocketLayer {
    /// One behind its upgrade; `unread` came behind that.
    pub(crate) fn new(place: impl Any + Send, unread: &[u8]) -> Self {
        let limits = DecoderLimits { message_bytes_max: MESSAGE_BYTES_MAX };
        let mut layer = Self {
            decoder: Decoder::of_server(limits, false),
            unread: BytesMut::new(),
            pending: Vec::new(),
            owed: 0,
            control: Vec::new(),
            ended: None,
            _place: Box::new(place),
        };
        layer.decode(unread);
        layer
    }

    /// Takes what has come.
    fn decode(&mut self, mut input: &[u8]) {
        // Compression is not offered: it has nothing to do.
        let mut inflater = Inflater::new();
        while self.ended.is_none() {
            match self.decoder.next(&mut input, &mut inflater) {
                Ok(None) => break,
                Ok(Some(Incoming::Binary(bytes))) => self.unread.extend_from_slice(&bytes),
                Ok(Some(Incoming::Text(_))) => self.ended = Some(CloseCode::UNSUPPORTED),
                Ok(Some(Incoming::Ping(payload))) => {
                    if self.control.len() > CONTROL_BYTES_MAX {
                        self.control.clear();
                    }
                    frame::put_frame(Opcode::Pong, &payload, &mut self.control);
                }
                Ok(Some(Incoming::Pong(_))) => {}
                Ok(Some(Incoming::Close(close))) => {
                    self.ended = Some(close.code.unwrap_or(CloseCode::NORMAL));
                }
                Err(fault) => {
                    tracing::debug!(%fault, "a native client broke its WebSocket");
                    self.ended = Some(fault.close_code());
                }
            }
        }
    }

    /// Reads what was in messages; `None` if nothing was, and 0 at the end.
    fn read(&mut self, into: &mut impl BufMut) -> Option<usize> {
        let count = self.unread.len().min(into.remaining_mut());
        if count == 0 {
            return self.ended.map(|_| 0);
        }
        into.put_slice(&self.unread[..count]);
        self.unread.advance(count);
        if self.unread.is_empty() {
            self.unread = BytesMut::new();
        }
        Some(count)
    }

    /// Offers `sink` bytes of the protocol, in a message of their own or in the one that has begun, behind what waits; says
    /// how many of them it took.
    fn take(
        &mut self,
        slices: &[IoSlice<'_>],
        sink: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.owed == 0 {
            self.pending.append(&mut self.control);
            let offered = slices.iter().map(|slice| slice.len()).sum::<usize>();
            self.owed = offered.min(MESSAGE_BYTES_MAX);
            if self.owed > 0 {
                frame::put_header(Opcode::Binary, false, self.owed, &mut self.pending);
            }
        }
        let mut out = [IoSlice::new(&[]); SLICES_MAX];
        out[0] = IoSlice::new(&self.pending);
        let mut left = self.owed;
        for (place, slice) in out[1..].iter_mut().zip(slices) {
            let part = &slice[..slice.len().min(left)];
            *place = IoSlice::new(part);
            left -= part.len();
        }
        let taken = sink(&out)?;
        let before = taken.min(self.pending.len());
        self.pending.drain(..before);
        self.owed -= taken - before;
        Ok(taken - before)
    }

    /// Offers `sink` what waits beside the protocol, if it may go out now.
    fn send_control(&mut self, sink: impl FnOnce(&[IoSlice<'_>]) -> io::Result<usize>) {
        if self.owed == 0 && !(self.control.is_empty() && self.pending.is_empty()) {
            // What it does not take goes before what is written next.
            let _ = self.take(&[], sink);
        }
    }
}

type SharedLayer = Option<Rc<RefCell<WebSocketLayer>>>;

/// The half that is read.
#[derive(Debug)]
pub(crate) struct NativeReader {
    wire: WireReader,
    layer: SharedLayer,
}

/// The half that is written.
#[derive(Debug)]
pub(crate) struct NativeWriter {
    wire: WireWriter,
    layer: SharedLayer,
}

/// The halves of a wire.
pub(crate) fn halves(
    wire: Wire,
    layer: Option<Box<WebSocketLayer>>,
) -> (NativeReader, NativeWriter) {
    let (reading, writing) = wire.into_split();
    let layer = layer.map(|layer| Rc::new(RefCell::new(*layer)));
    (NativeReader { wire: reading, layer: layer.clone() }, NativeWriter { wire: writing, layer })
}

impl NativeReader {
    /// Waits until there is something to read, or the end. What there is may be less than a message.
    pub(crate) async fn readable(&self) -> io::Result<()> {
        if let Some(layer) = &self.layer {
            let layer = layer.borrow();
            if !layer.unread.is_empty() || layer.ended.is_some() {
                return Ok(());
            }
        }
        self.wire.readable().await
    }

    /// Reads what has come, and says how much; `None` if that is nothing, or less than a message or a record of TLS.
    pub(crate) async fn read_now(&mut self, into: &mut impl BufMut) -> io::Result<Option<usize>> {
        let Some(layer) = &self.layer else { return self.wire.read_now(into).await };
        if let Some(count) = layer.borrow_mut().read(into) {
            return Ok(Some(count));
        }
        let mut room = Vec::with_capacity(READ_BYTES);
        match self.wire.read_now(&mut (&mut room).limit(READ_BYTES)).await? {
            Some(1..) => {}
            nothing => return Ok(nothing),
        }
        let mut layer = layer.borrow_mut();
        layer.decode(&room);
        Ok(layer.read(into))
    }

    /// Whether the client has asked something of the WebSocket itself that the writer has to answer.
    pub(crate) fn owes_control(&self) -> bool {
        self.layer.as_ref().is_some_and(|layer| !layer.borrow().control.is_empty())
    }

    /// The wire again, of its two halves, with what is on it; `None` if they are not of one wire.
    pub(crate) fn reunite(
        self,
        writing: NativeWriter,
    ) -> Option<(WireAtRest, Option<Box<WebSocketLayer>>)> {
        drop(writing.layer);
        let layer = match self.layer {
            Some(layer) => Some(Box::new(Rc::try_unwrap(layer).ok()?.into_inner())),
            None => None,
        };
        Some((self.wire.reunite(writing.wire)?.deregister().ok()?, layer))
    }
}

impl NativeWriter {
    /// Waits until the system says that the wire takes something.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        self.wire.writable().await
    }

    /// The wire for a write before the system reports that it is writable.
    pub(crate) fn eager(&mut self) -> EagerNativeWire<'_> {
        EagerNativeWire { wire: self.wire.eager(), layer: self.layer.as_deref() }
    }

    /// Sends what the WebSocket has to say beside the protocol.
    pub(crate) fn send_control(&mut self) {
        if let Some(layer) = &self.layer {
            layer.borrow_mut().send_control(|slices| self.wire.take_slices(slices));
        }
    }

    /// Says that all was said.
    pub(crate) fn say_goodbye(mut self) {
        if let Some(layer) = &self.layer {
            let mut layer = layer.borrow_mut();
            let code = layer.ended.unwrap_or(CloseCode::NORMAL);
            frame::put_close(code, "", &mut layer.control);
        }
        self.send_control();
        self.wire.say_goodbye();
    }
}

impl TakesNow for NativeWriter {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &self.layer {
            None => self.wire.take(bytes),
            Some(_) => self.take_slices(&[IoSlice::new(bytes)]),
        }
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match &self.layer {
            None => self.wire.take_slices(slices),
            Some(layer) => layer.borrow_mut().take(slices, |slices| self.wire.take_slices(slices)),
        }
    }
}

/// The half that is written, for writes before the system reports that it is writable.
#[derive(Debug)]
pub(crate) struct EagerNativeWire<'a> {
    wire: EagerWire<'a>,
    layer: Option<&'a RefCell<WebSocketLayer>>,
}

impl TakesNow for EagerNativeWire<'_> {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.layer {
            None => self.wire.take(bytes),
            Some(_) => self.take_slices(&[IoSlice::new(bytes)]),
        }
    }

    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self.layer {
            None => self.wire.take_slices(slices),
            Some(layer) => layer.borrow_mut().take(slices, |slices| self.wire.take_slices(slices)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sennit_websocket::client::put_frame;
    use tokio::sync::Semaphore;

    use super::*;

    fn layer(unread: &[u8]) -> WebSocketLayer {
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        WebSocketLayer::new(place, unread)
    }

    fn client_frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put_frame(opcode, payload, [1, 2, 3, 4], &mut bytes);
        bytes
    }

    /// Writes all of this to a wire that takes so many bytes at once; what it has got.
    fn written(layer: &mut WebSocketLayer, parts: &[&[u8]], at_once: usize) -> Vec<u8> {
        let whole = parts.concat();
        let (mut out, mut at) = (Vec::new(), 0);
        while at < whole.len() || layer.owed > 0 || !layer.pending.is_empty() {
            let slices = [IoSlice::new(&whole[at..])];
            let taken = layer.take(&slices, |slices| {
                let bytes: Vec<u8> =
                    slices.iter().flat_map(|slice| slice.iter().copied()).collect();
                let now = bytes.len().min(at_once);
                out.extend_from_slice(&bytes[..now]);
                Ok(now)
            });
            at += taken.unwrap();
        }
        out
    }

    /// The payloads of binary messages, and how many control frames lie between them.
    fn read(bytes: &[u8]) -> (Vec<u8>, usize) {
        let limits = DecoderLimits { message_bytes_max: MESSAGE_BYTES_MAX };
        let mut decoder = Decoder::of_client(limits, false);
        let (mut input, mut payload, mut control) = (bytes, Vec::new(), 0);
        while let Some(incoming) = decoder.next(&mut input, &mut Inflater::new()).unwrap() {
            match incoming {
                Incoming::Binary(bytes) => payload.extend(bytes),
                _ => control += 1,
            }
        }
        assert!(!decoder.is_in_message());
        (payload, control)
    }

    #[test]
    fn what_is_written_lies_in_whole_messages_however_little_the_wire_takes() {
        let bytes: Vec<u8> = (0..3000_u32).map(|number| number as u8).collect();
        for at_once in [1, 2, 7, 100, 5000] {
            let mut layer = layer(&[]);
            assert_eq!(read(&written(&mut layer, &[&bytes], at_once)), (bytes.clone(), 0));
        }
        let long = vec![7; 2 * MESSAGE_BYTES_MAX + 5];
        assert_eq!(read(&written(&mut layer(&[]), &[&long], 64 << 10)).0, long);
    }

    #[test]
    fn a_pong_waits_for_the_end_of_the_message_that_is_under_way() {
        let mut layer = layer(&[]);
        let bytes = [5; 500];
        let mut out = Vec::new();
        let part = |slices: &[IoSlice<'_>], most: usize, out: &mut Vec<u8>| {
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
            out.extend_from_slice(&all[..all.len().min(most)]);
            Ok(all.len().min(most))
        };
        let taken = layer.take(&[IoSlice::new(&bytes)], |slices| part(slices, 100, &mut out));
        layer.decode(&client_frame(Opcode::Ping, b"there?"));
        layer.send_control(|_| panic!("a message is under way"));
        let rest = &bytes[taken.unwrap()..];
        layer.take(&[IoSlice::new(rest)], |slices| part(slices, 1000, &mut out)).unwrap();
        layer.send_control(|slices| part(slices, 1000, &mut out));
        assert_eq!(read(&out), (bytes.to_vec(), 1));
    }

    #[test]
    fn what_comes_in_messages_is_read_as_one_stream_up_to_the_end() {
        let mut input = client_frame(Opcode::Binary, b"one");
        input.extend(client_frame(Opcode::Binary, b" two"));
        input.extend(client_frame(Opcode::Close, &1000_u16.to_be_bytes()));
        let mut layer = layer(&input);
        let mut first = Vec::new();
        assert_eq!(layer.read(&mut (&mut first).limit(5)), Some(5));
        let mut rest = Vec::new();
        assert_eq!(layer.read(&mut rest), Some(2));
        assert_eq!([first, rest].concat(), b"one two");
        assert_eq!(layer.read(&mut Vec::<u8>::new()), Some(0));
        assert_eq!(layer.ended, Some(CloseCode::NORMAL));
    }

    #[test]
    fn text_is_no_part_of_the_protocol() {
        let mut layer = layer(&client_frame(Opcode::Text, b"hello"));
        assert_eq!(layer.read(&mut Vec::<u8>::new()), Some(0));
        assert_eq!(layer.ended, Some(CloseCode::UNSUPPORTED));
    }
}
