//! One vectored write to a wire: bytes encoded here, and between them long batches, which are sent from where they
//! lie. It knows no frames.

use std::io::{self, IoSlice};

use bytes::Bytes;

/// Shorter batches are copied: that costs less than another slice.
const SHARED_BYTES_MIN: usize = 8 << 10;

/// Most slices of one system call.
pub(crate) const SLICES_MAX: usize = 64;

/// A wire that takes what it can without waiting.
pub(crate) trait TakesNow {
    fn take(&mut self, bytes: &[u8]) -> io::Result<usize>;
    fn take_slices(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// Bytes in the order in which they go out.
#[derive(Debug, Default)]
pub(crate) struct WriteBuffer {
    own: Vec<u8>,
    /// Each goes out before the byte of `own` at this index.
    shared: Vec<(usize, Bytes)>,
    shared_bytes: usize,
}

impl WriteBuffer {
    pub(crate) fn len(&self) -> usize {
        self.own.len() + self.shared_bytes
    }

    /// Where what comes next is encoded.
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends a batch, without copying it if it is long.
    pub(crate) fn push(&mut self, batch: &Bytes) {
        if batch.len() < SHARED_BYTES_MIN {
            return self.own.extend_from_slice(batch);
        }
        self.shared_bytes += batch.len();
        self.shared.push((self.own.len(), batch.clone()));
    }

    /// Forgets everything; keeps memory of its own up to `most` bytes.
    pub(crate) fn clear(&mut self, most: usize) {
        self.shared.clear();
        self.shared_bytes = 0;
        self.own.clear();
        if self.own.capacity() > most {
            self.own = Vec::new();
        }
    }

    /// What is behind the first `taken` bytes.
    pub(crate) fn rest(&self, taken: usize) -> Self {
        let mut rest = Self::default();
        self.each_from(taken, |part| match part {
            Part::Own(bytes) => rest.own.extend_from_slice(bytes),
            Part::Shared(batch, from) => {
                rest.shared_bytes += batch.len() - from;
                rest.shared.push((rest.own.len(), batch.slice(from..)));
            }
        });
        rest
    }

    /// Writes what the wire takes without waiting, behind the first `taken` bytes; returns how
    /// many are taken then.
    pub(crate) fn write_now(
        &self,
        wire: &mut impl TakesNow,
        mut taken: usize,
    ) -> io::Result<usize> {
        while taken < self.len() {
            let written = match self.plain(taken) {
                Some(bytes) => wire.take(bytes),
                None => {
                    let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                    let count = self.slices(taken, &mut slices);
                    wire.take_slices(&slices[..count])
                }
            };
            match written {
                Ok(count) => taken += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(taken)
    }

    /// What is behind the first `taken` bytes, if all of it is one slice of what was made ready here.
    pub(crate) fn plain(&self, taken: usize) -> Option<&[u8]> {
        self.shared.is_empty().then(|| &self.own[taken..])
    }

    /// The first slices behind the first `taken` bytes; says how many.
    pub(crate) fn slices<'a>(
        &'a self,
        taken: usize,
        slices: &mut [IoSlice<'a>; SLICES_MAX],
    ) -> usize {
        let mut count = 0;
        self.each_from(taken, |part| {
            if count < SLICES_MAX {
                slices[count] = IoSlice::new(match part {
                    Part::Own(bytes) => bytes,
                    Part::Shared(batch, from) => &batch[from..],
                });
                count += 1;
            }
        });
        count
    }

    /// The parts behind the first `skip` bytes, none of them empty.
    fn each_from<'a>(&'a self, mut skip: usize, mut each: impl FnMut(Part<'a>)) {
        let own = |start: usize, end: usize, skip: &mut usize, each: &mut dyn FnMut(Part<'a>)| {
            let passed = (*skip).min(end - start);
            *skip -= passed;
            if start + passed < end {
                each(Part::Own(&self.own[start + passed..end]));
            }
        };
        let mut at = 0;
        for (before, batch) in &self.shared {
            own(at, *before, &mut skip, &mut each);
            at = *before;
            let passed = skip.min(batch.len());
            skip -= passed;
            if passed < batch.len() {
                each(Part::Shared(batch, passed));
            }
        }
        own(at, self.own.len(), &mut skip, &mut each);
    }
}

enum Part<'a> {
    Own(&'a [u8]),
    /// A batch from this byte on.
    Shared(&'a Bytes, usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(outgoing: &WriteBuffer, taken: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        outgoing.each_from(taken, |part| match part {
            Part::Own(own) => bytes.extend_from_slice(own),
            Part::Shared(batch, from) => bytes.extend_from_slice(&batch[from..]),
        });
        bytes
    }

    #[test]
    fn what_is_left_is_what_was_not_taken_wherever_the_write_ended() {
        let mut outgoing = WriteBuffer::default();
        let mut all = Vec::new();
        for (n, length) in [(1, 10), (2, SHARED_BYTES_MIN), (3, 3), (4, 2 * SHARED_BYTES_MIN)] {
            outgoing.own().extend_from_slice(&[n, n]);
            let batch = Bytes::from(vec![n; length]);
            outgoing.push(&batch);
            all.extend_from_slice(&[n, n]);
            all.extend_from_slice(&batch);
        }
        assert_eq!((outgoing.len(), outgoing.shared.len()), (all.len(), 2));
        for taken in 0..=all.len() {
            assert_eq!(plain(&outgoing, taken), all[taken..]);
            if taken % 97 == 0 {
                let rest = outgoing.rest(taken);
                assert_eq!(
                    (plain(&rest, 0), rest.len()),
                    (all[taken..].to_vec(), all.len() - taken)
                );
            }
        }
        outgoing.clear(0);
        assert_eq!((outgoing.len(), outgoing.own.capacity()), (0, 0));
    }
}
