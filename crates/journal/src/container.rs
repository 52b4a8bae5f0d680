//! The containers of records: segments of the lane, and packs.

/// A container of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Container {
    /// A segment of the lane, by its number.
    Segment(u64),
    /// A pack, by its number.
    Pack(u32),
}
