//! Reads back what lies in segments, for consumers that lag. It may live on another thread than
//! the lane.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use bytes::Bytes;

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, SegmentHeader},
    lane_config::LaneConfig,
    position::Position,
    slot::slot_number,
};

/// Reads ranges of the log.
#[derive(Debug)]
pub struct Reader<D: Disk> {
    disk: D,
    config: LaneConfig,
    files: BTreeMap<u64, (PathBuf, D::File)>,
}

impl<D: Disk> Reader<D> {
    pub(crate) fn new(disk: D, config: LaneConfig) -> Self {
        Self { disk, config, files: BTreeMap::new() }
    }

    /// The `length` bytes at `position`, all within one segment that is in use.
    ///
    /// # Errors
    /// [`Fault::MissingSegment`] if no slot holds the segment, else [`Fault::Io`].
    pub fn read(&mut self, position: Position, length: usize) -> Result<Bytes, Fault> {
        let segment = position.segment(self.config.segment_bytes);
        if !self.is_current(segment)? {
            self.find(segment)?;
        }
        let Some((path, file)) = self.files.get(&segment) else {
            let path = self.config.directory.clone();
            return Err(Fault::MissingSegment { path, segment });
        };
        let mut bytes = vec![0; length];
        let at = position.in_segment(self.config.segment_bytes);
        file.read_at(&mut bytes, at).map_err(Fault::io("read", path))?;
        if !self.is_current(segment)? {
            // The slot was given to another segment while it was read: nobody needs this one.
            let path = self.config.directory.clone();
            return Err(Fault::MissingSegment { path, segment });
        }
        Ok(bytes.into())
    }

    /// Whether the slot that held the segment when it was last looked at still does: its header
    /// says so.
    fn is_current(&self, segment: u64) -> Result<bool, Fault> {
        let Some((path, file)) = self.files.get(&segment) else { return Ok(false) };
        let header = segment_in(file, path)?;
        Ok(header.is_some_and(|header| self.is_own(&header) && header.segment == segment))
    }

    fn is_own(&self, header: &SegmentHeader) -> bool {
        header.incarnation == self.config.incarnation && header.lane == self.config.lane
    }

    /// Looks through the headers of all slots.
    fn find(&mut self, wanted: u64) -> Result<(), Fault> {
        let directory = &self.config.directory;
        self.files.clear();
        for name in self.disk.list(directory).map_err(Fault::io("list", directory))? {
            if slot_number(&name).is_none() {
                continue;
            }
            let path = directory.join(name);
            let file = self.disk.open_to_read(&path).map_err(Fault::io("open", &path))?;
            if file.length().map_err(Fault::io("measure", &path))? < self.config.segment_bytes {
                // It is being made.
                continue;
            }
            if let Some(header) = segment_in(&file, &path)?
                && self.is_own(&header)
            {
                self.files.insert(header.segment, (path, file));
                if header.segment == wanted {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// The header of the segment that a slot holds; `None` if there is none that is whole.
pub(crate) fn segment_in(
    file: &impl DiskFile,
    path: &Path,
) -> Result<Option<SegmentHeader>, Fault> {
    let mut block = [0; BLOCK_BYTES];
    file.read_at(&mut block, 0).map_err(Fault::io("read", path))?;
    Ok(SegmentHeader::decode(&block))
}
