//! Reads from the file of a slot, which may be shorter than a slot.

use std::{io, path::Path};

use crate::{
    disk::DiskFile,
    fault::Fault,
    format::{BLOCK_BYTES, SegmentHeader},
};

/// The header of the segment in a slot; `None` if it is not whole.
pub(crate) fn segment_in(
    file: &impl DiskFile,
    path: &Path,
) -> Result<Option<SegmentHeader>, Fault> {
    let mut block = [0; BLOCK_BYTES];
    read_padded(file, path, &mut block, 0)?;
    Ok(SegmentHeader::decode(&block))
}

/// Fills `bytes` from `offset`; with zeros behind the end of the file.
pub(crate) fn read_padded(
    file: &impl DiskFile,
    path: &Path,
    bytes: &mut [u8],
    offset: u64,
) -> Result<(), Fault> {
    let Err(error) = file.read_at(bytes, offset) else { return Ok(()) };
    if error.kind() != io::ErrorKind::UnexpectedEof {
        return Err(Fault::io("read", path)(error));
    }
    let length = file.length().map_err(Fault::io("measure", path))?;
    let held = length.saturating_sub(offset).min(bytes.len() as u64) as usize;
    let (held, rest) = bytes.split_at_mut(held);
    rest.fill(0);
    match held.is_empty() {
        true => Ok(()),
        false => file.read_at(held, offset).map_err(Fault::io("read", path)),
    }
}
