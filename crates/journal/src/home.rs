//! What records lie in: a segment of the lane, or a pack.

/// What records lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// A segment of the lane, by its number.
    Segment(u64),
    /// A pack, by its number.
    Pack(u32),
}
