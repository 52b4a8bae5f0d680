//! The body of a frame that another lane has sealed: it is checked here, and gets another header in this lane.

use bytes::Bytes;

use crate::format::{crc32c, records};

/// The reason why bytes are not the body of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The checksum is another one.
    #[error("the body has checksum {found:#010x}, not {expected:#010x}")]
    Checksum {
        /// The checksum that was named.
        expected: u32,
        /// That of the bytes.
        found: u32,
    },
    /// A record is cut off.
    #[error("record {number} of the body is cut off")]
    Record {
        /// Its number, from 0.
        number: u32,
    },
    /// No frame is as long.
    #[error("the body has {length} bytes, and a segment takes {limit}")]
    TooLong {
        /// The length in bytes.
        length: usize,
        /// The maximum.
        limit: usize,
    },
}

/// A body of whole records.
#[derive(Clone, Debug)]
pub struct ReceivedBody {
    pub(crate) bytes: Bytes,
    pub(crate) checksum: u32,
    pub(crate) record_count: u32,
}

impl ReceivedBody {
    /// Checks a body against its checksum. O(bytes).
    ///
    /// # Errors
    /// A [`BodyError`] if the bytes were changed on the way, or never were a body.
    pub fn check(bytes: Bytes, expected: u32) -> Result<Self, BodyError> {
        let found = crc32c(&bytes);
        if found != expected {
            return Err(BodyError::Checksum { expected, found });
        }
        let mut number = 0;
        for record in records(&bytes) {
            record.ok_or(BodyError::Record { number })?;
            number += 1;
        }
        Ok(Self { bytes, checksum: found, record_count: number })
    }

    /// The length in bytes.
    #[must_use]
    pub fn length(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("a segment has fewer bytes")
    }

    /// The number of records.
    #[must_use]
    pub fn record_count(&self) -> u32 {
        self.record_count
    }

    /// The records in order: kind, offset of its body from the begin of this one, and body.
    pub fn records(&self) -> impl Iterator<Item = (u8, u64, Bytes)> {
        let found = records(&self.bytes).flatten();
        found.map(|(kind, start, end)| (kind, start as u64, self.bytes.slice(start..end)))
    }
}
