//! Offsets of streams as clients hold them: an offset together with the identity of its stream. A stream that is
//! deleted and created anew has the same name and other offsets.

use std::fmt;

use sennit_model::{Incarnation, Offset};

/// What of the text of an offset clients may count in, from one read to the next: the last four digits. They
/// are of no account, so that nothing that was appended is ever cut.
pub(crate) const UNUSED: u64 = 10_000;

/// How many tags there are: with what follows a tag in an offset token, they fit into the integers that a
/// JavaScript number holds.
const TAGS: u64 = 899_999_999_999;

/// The part of a topic's incarnation that the offsets of its stream carry. Two streams of one name have
/// the same tag once in 9e11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IncarnationTag(u64);

impl IncarnationTag {
    /// Of no stream: only the offset 0, which is the beginning of every stream, is written with it.
    pub(crate) const NONE: Self = Self(0);

    /// The tag of an incarnation; never [`IncarnationTag::NONE`].
    pub(crate) fn of(incarnation: Incarnation) -> Self {
        Self(incarnation.0 % TAGS + 1)
    }

    /// The tag of this number, if a stream may have it, or [`IncarnationTag::NONE`].
    pub(crate) fn of_number(number: u64) -> Option<Self> {
        (number <= TAGS).then_some(Self(number))
    }

    /// Its number, [`TAGS`] at most.
    pub(crate) fn number(self) -> u64 {
        self.0
    }

    /// Another one for the same topic, as long as this number says how it is followed.
    pub(crate) fn followed(self, number: u32) -> Self {
        Self(self.0 ^ u64::from(number))
    }
}

/// An offset, and the stream that it was given of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamOffset {
    pub(crate) of: IncarnationTag,
    pub(crate) at: Offset,
}

impl StreamOffset {
    /// The beginning of whichever stream it is used with.
    pub(crate) const BEGINNING: Self = Self { of: IncarnationTag::NONE, at: Offset(0) };

    /// Whether it says where in the stream with that tag it is, as far as tags tell. Of a fork, the
    /// offsets of its source may do so too: `Streams::is_offset_of`.
    pub(crate) fn is_of(self, tag: IncarnationTag) -> bool {
        self.of == tag || self == Self::BEGINNING
    }
}

/// The text by which clients hold it: 16 digits, so that the texts of a stream sort as its offsets do, an
/// underscore, 12 digits that name the stream, and four zeros.
impl fmt::Display for StreamOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016}_{:016}", self.at.0, self.of.number() * UNUSED)
    }
}

/// What a stream answered, and which stream that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identified<T> {
    pub(crate) of: IncarnationTag,
    pub(crate) answer: T,
}

impl<T> Identified<T> {
    /// An offset of that stream.
    pub(crate) fn offset(&self, at: Offset) -> StreamOffset {
        StreamOffset { of: self.of, at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_stream_has_the_tag_of_none() {
        for number in [0, 1, TAGS - 1, TAGS, u64::MAX] {
            let tag = IncarnationTag::of(Incarnation(number));
            assert!((1..=TAGS).contains(&tag.number()), "{number}");
        }
    }

    #[test]
    fn only_the_beginning_needs_no_stream() {
        let tag = IncarnationTag::of(Incarnation(7));
        let other = IncarnationTag::of(Incarnation(8));
        assert!(StreamOffset { of: tag, at: Offset(3) }.is_of(tag));
        assert!(!StreamOffset { of: tag, at: Offset(3) }.is_of(other));
        assert!(!StreamOffset { of: tag, at: Offset(0) }.is_of(other));
        assert!(StreamOffset::BEGINNING.is_of(tag));
        let unnamed = StreamOffset { of: IncarnationTag::NONE, at: Offset(3) };
        assert!(!unnamed.is_of(tag));
    }
}
