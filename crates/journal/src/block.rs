//! Memory in aligned blocks, as direct I/O wants it.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::format::BLOCK_BYTES;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Block([u8; BLOCK_BYTES]);

/// Bytes that begin on a block boundary and are a whole number of blocks.
pub(crate) struct Blocks(Vec<Block>);

impl Blocks {
    /// `count` blocks of zeros.
    pub(crate) fn zeroed(count: usize) -> Self {
        Self(Block::new_vec_zeroed(count).expect("a frame's memory can be had"))
    }

    /// A copy of the first `count` blocks, in memory of just that length.
    pub(crate) fn copy_of_first(&self, count: usize) -> Self {
        Self(self.0[..count].to_vec())
    }

    /// How many blocks there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Makes room for at least `bytes` bytes; what was there stays.
    pub(crate) fn grow(&mut self, bytes: usize) {
        let count = bytes.div_ceil(BLOCK_BYTES);
        if count <= self.0.len() {
            return;
        }
        let mut larger = Self::zeroed(count.max(2 * self.0.len()));
        larger.as_mut()[..self.as_ref().len()].copy_from_slice(self.as_ref());
        *self = larger;
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
