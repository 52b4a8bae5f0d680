//! Memory in aligned blocks, as direct I/O wants it.

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
    /// No blocks yet, and room for `count` of them.
    pub(crate) fn with_room(count: usize) -> Self {
        Self(Vec::with_capacity(count))
    }

    /// `count` blocks of zeros.
    pub(crate) fn zeroed(count: usize) -> Self {
        Self(vec![ZEROS; count])
    }

    /// A copy of the first `count` blocks, in memory of just that length.
    pub(crate) fn copy_of_first(&self, count: usize) -> Self {
        Self(self.0[..count].to_vec())
    }

    /// How many blocks there is memory for.
    pub(crate) fn room(&self) -> usize {
        self.0.capacity()
    }

    /// Has at least `bytes` bytes; what was there stays. A block is zeroed when it is first
    /// needed, not before: then it is in the processor's cache for what is copied there next.
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
