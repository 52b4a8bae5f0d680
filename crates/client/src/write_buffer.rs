//! Frames that are encoded and not written yet. Short parts are copied into one buffer; a large batch is written
//! from where it lies.

use std::{collections::VecDeque, io::IoSlice};

use bytes::{Buf, Bytes, BytesMut};
use sennit_model::Batch;
use sennit_protocol::{PublishHead, Request};

/// Batches up to this size are copied behind the header of their frame, which is cheaper than a
/// slice of their own.
const COPIED_BYTES_MAX: usize = 8 << 10;

/// The number of slices for one write.
const SLICES_MAX: usize = 32;

/// Frames that are encoded and not written yet.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    whole: VecDeque<Bytes>,
    tail: BytesMut,
    bytes: usize,
}

impl WriteBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.bytes
    }

    /// Appends the frames that `encode` writes.
    pub(crate) fn append(&mut self, encode: impl FnOnce(&mut BytesMut)) {
        let before = self.tail.len();
        encode(&mut self.tail);
        self.bytes += self.tail.len() - before;
    }

    pub(crate) fn request(&mut self, request: &Request, number: u64) {
        self.append(|out| request.encode(number, out));
    }

    pub(crate) fn publish(&mut self, head: &PublishHead, batch: &Batch, number: u64) {
        let bytes = batch.bytes();
        self.append(|out| head.encode(bytes.len(), number, out));
        if bytes.len() <= COPIED_BYTES_MAX {
            self.append(|out| out.extend_from_slice(bytes));
        } else {
            self.whole.push_back(self.tail.split().freeze());
            self.whole.push_back(bytes.clone());
            self.bytes += bytes.len();
        }
    }

    /// The next bytes for one write.
    pub(crate) fn slices(&self) -> Vec<IoSlice<'_>> {
        let whole = self.whole.iter().take(SLICES_MAX).map(|bytes| IoSlice::new(bytes));
        let tail_fits = self.whole.len() < SLICES_MAX && !self.tail.is_empty();
        whole.chain(tail_fits.then(|| IoSlice::new(&self.tail))).collect()
    }

    /// Removes the first `written` bytes, which the socket has taken.
    pub(crate) fn written(&mut self, written: usize) {
        let mut left = written;
        self.bytes -= written;
        while let Some(first) = self.whole.front_mut() {
            if left < first.len() {
                first.advance(left);
                return;
            }
            left -= first.len();
            self.whole.pop_front();
        }
        self.tail.advance(left);
    }

    /// Removes everything, because the connection was lost.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use sennit_model::{BatchBuilder, Message};

    use super::*;

    #[test]
    fn what_is_written_in_pieces_is_what_was_put_in() {
        let mut write_buffer = WriteBuffer::default();
        let mut expected = BytesMut::new();
        for length in [10, COPIED_BYTES_MAX + 1, 3, 100_000, 7] {
            let mut builder = BatchBuilder::new();
            builder.push(&Message::new(vec![b'x'; length])).unwrap();
            let batch = builder.take().unwrap();
            let head = PublishHead { count: 1, ..PublishHead::default() };
            write_buffer.publish(&head, &batch, 5);
            head.encode(batch.bytes().len(), 5, &mut expected);
            expected.extend_from_slice(batch.bytes());
            write_buffer.request(&Request::Ping, 6);
            Request::Ping.encode(6, &mut expected);
        }
        let mut sent = Vec::new();
        for step in (1..).map(|n| n * 97) {
            let all: Vec<u8> =
                write_buffer.slices().iter().flat_map(|slice| slice.to_vec()).collect();
            let taken = step.min(all.len());
            sent.extend_from_slice(&all[..taken]);
            write_buffer.written(taken);
            if write_buffer.is_empty() {
                break;
            }
        }
        assert_eq!(sent, expected);
    }
}
