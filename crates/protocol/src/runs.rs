//! Runs: the fixed-size entries at the end of a confirm, settle or settled frame. They are decoded in place.

use std::{fmt, marker::PhantomData};

use bytes::{BufMut, Bytes, BytesMut};

use crate::{decode_error::DecodeError, kind::Kind};

/// An entry of fixed size.
pub trait Run: Copy {
    /// Its encoded length, in bytes.
    const BYTES: usize;

    /// Appends it to `out`, which must have room or grow.
    fn encode(&self, out: &mut impl BufMut);

    /// Reads it from exactly [`Self::BYTES`] bytes, whatever they hold.
    fn decode(bytes: &[u8]) -> Self;

    /// Checks the bytes that [`Self::decode`] reads.
    ///
    /// # Errors
    /// [`DecodeError::Field`] for the first field that is out of bounds.
    fn check(bytes: &[u8], kind: Kind) -> Result<(), DecodeError>;
}

/// Checked runs, encoded. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct Runs<T> {
    bytes: Bytes,
    run: PhantomData<T>,
}

impl<T: Run> Runs<T> {
    /// Removes `count` runs from the front of `body` and checks them, without copying.
    pub(crate) fn take(kind: Kind, count: u32, body: &mut Bytes) -> Result<Self, DecodeError> {
        let needed = u64::from(count) * T::BYTES as u64;
        let Some(length) = usize::try_from(needed).ok().filter(|&n| n <= body.len()) else {
            return Err(DecodeError::Length { kind, needed, received: body.len() });
        };
        let runs = Self { bytes: body.split_to(length), run: PhantomData };
        for run in runs.bytes.chunks_exact(T::BYTES) {
            T::check(run, kind)?;
        }
        Ok(runs)
    }

    /// The number of runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / T::BYTES
    }

    /// Returns whether there are no runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Iterates over the runs.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> {
        self.bytes.chunks_exact(T::BYTES).map(T::decode)
    }
}

impl<T: Run> FromIterator<T> for Runs<T> {
    fn from_iter<I: IntoIterator<Item = T>>(runs: I) -> Self {
        let runs = runs.into_iter();
        let mut bytes = BytesMut::with_capacity(runs.size_hint().0.saturating_mul(T::BYTES));
        for run in runs {
            run.encode(&mut bytes);
        }
        Self { bytes: bytes.freeze(), run: PhantomData }
    }
}

impl<T> Default for Runs<T> {
    fn default() -> Self {
        Self { bytes: Bytes::new(), run: PhantomData }
    }
}

impl<T: Run + fmt::Debug> fmt::Debug for Runs<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The count field of `runs` runs.
pub(crate) fn count_field(runs: usize) -> u32 {
    u32::try_from(runs).expect("a frame has fewer than 2^32 runs")
}
