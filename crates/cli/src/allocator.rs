//! The allocator of the binary. Frames of megabytes are allocated on one thread and freed on another; glibc would
//! return their memory to the system each time.

#![expect(unsafe_code, reason = "the allocator is written in C")]

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys as mi;

/// mimalloc. Most allocations need no more than mimalloc's own alignment. These are requested
/// without an alignment, because with one they get more memory than they need and take three times
/// as long.
pub(crate) struct Allocator;

/// Every block of at least this size is aligned to it: mimalloc's `MI_MAX_ALIGN_SIZE`.
const OWN_ALIGN: usize = 16;

/// Returns whether a block has its alignment without a request.
const fn is_plain(layout: Layout) -> bool {
    layout.align() <= OWN_ALIGN && layout.align() <= layout.size()
}

// SAFETY: all of it is mimalloc's, which keeps the promises of `malloc`; a block that has to be aligned
// beyond its own is asked for as such, and may be freed as any other.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: these may be called with any size, and with any power of two.
        let block = unsafe {
            if is_plain(layout) {
                mi::mi_malloc(layout.size())
            } else {
                mi::mi_malloc_aligned(layout.size(), layout.align())
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        let block = unsafe {
            if is_plain(layout) {
                mi::mi_zalloc(layout.size())
            } else {
                mi::mi_zalloc_aligned(layout.size(), layout.align())
            }
        };
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller has it from here, and needs it no more.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller has it from here; what comes back is aligned as it was.
        let block = unsafe {
            if is_plain(layout) && layout.align() <= size {
                mi::mi_realloc(block.cast(), size)
            } else {
                mi::mi_realloc_aligned(block.cast(), size, layout.align())
            }
        };
        block.cast()
    }
}

/// Returns the memory that this thread has freed. mimalloc otherwise keeps it until the thread does
/// something else.
pub(crate) fn give_back() {
    // SAFETY: it may be called at any time, from any thread.
    unsafe { mi::mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_aligned_and_keeps_what_it_holds_as_it_grows_and_shrinks() {
        for align in [1, 2, 4, 8, 16, 32, 128, 4096] {
            for size in [1, 7, 8, 15, 16, 24, 200, 1025, 5000, 1 << 20] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: each block is freed once, with the layout that it has then.
                unsafe {
                    let mut block = Allocator.alloc_zeroed(layout);
                    assert_eq!(block.addr() % align, 0, "{layout:?}");
                    assert!((0..size).all(|at| *block.add(at) == 0), "{layout:?}");
                    block.write_bytes(7, size);
                    let mut of = layout;
                    for size_now in [size * 3, size.div_ceil(2)] {
                        block = Allocator.realloc(block, of, size_now);
                        of = Layout::from_size_align(size_now, align).unwrap();
                        assert_eq!(block.addr() % align, 0, "{of:?}");
                        assert!((0..size.div_ceil(2)).all(|at| *block.add(at) == 7), "{of:?}");
                    }
                    Allocator.dealloc(block, of);
                    let other = Allocator.alloc(layout);
                    assert_eq!(other.addr() % align, 0, "{layout:?}");
                    Allocator.dealloc(other, layout);
                }
            }
        }
    }
}
