//! Memory in aligned blocks, as direct I/O needs it.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::format::BLOCK_BYTES;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

const ZEROS: Block = Block([0; BLOCK_BYTES]);

/// Bytes that begin on a block boundary and are a whole number of blocks.
#[derive(Default)]
pub(crate) struct Blocks(Vec<Block>);

impl Blocks {
    /// No blocks, and capacity for `count` of them.
    pub(crate) fn with_capacity(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// `count` blocks of zeros.
    pub(crate) fn zeroed(count: usize) -> Self {
        Self(vec![ZEROS; count])
    }

    /// A copy of the first `count` blocks, without spare capacity.
    pub(crate) fn copy_prefix(&self, count: usize) -> Self {
        Self(self.0[..count].to_vec())
    }

    /// The capacity in blocks.
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Grows to at least `bytes` bytes and keeps the contents. A block is zeroed when it is first
    /// needed, so that it is in the processor's cache when data is copied there.
    pub(crate) fn grow(&mut self, bytes: usize) {
        let count = bytes.div_ceil(BLOCK_BYTES);
        if count > self.0.len() {
            self.0.resize(count, ZEROS);
        }
    }
}

impl AsRef<[u8]> for Blocks {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl AsMut<[u8]> for Blocks {
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}
