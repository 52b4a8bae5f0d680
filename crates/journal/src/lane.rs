//! The lane: writes frames into slots and syncs them. A lane has one writer and one order.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    path::PathBuf,
};

use crate::{
    cut::Cut,
    disk::{Disk, DiskFile},
    fault::Fault,
    frame::Frame,
    headless::segments_of,
    lane_config::LaneConfig,
    position::Position,
    slot::Slot,
};

/// Writes frames and syncs them.
#[derive(Debug)]
pub struct Lane<D: Disk> {
    disk: D,
    config: LaneConfig,
    /// The slots of the segments in use.
    segments: BTreeMap<u64, Slot>,
    spare: VecDeque<Slot>,
    current: Option<(u64, PathBuf, D::File)>,
    /// Everything that was written since the start before this position is durable.
    end: Position,
    fenced: bool,
}

impl<D: Disk> Lane<D> {
    pub(crate) fn new(
        disk: D,
        config: LaneConfig,
        segments: BTreeMap<u64, Slot>,
        spare: VecDeque<Slot>,
    ) -> Self {
        let (current, end) = (None, Position::default());
        Self { disk, config, segments, spare, current, end, fenced: false }
    }

    /// Writes adjacent `frames` and syncs them. Returns their end: the log before it is durable.
    ///
    /// # Errors
    /// [`Fault::NoSpareSlot`] before anything was written. After any other fault the lane is
    /// fenced: the last write may be durable or not, and the lane writes no more.
    pub fn append(&mut self, frames: &[Frame]) -> Result<Position, Fault> {
        if self.fenced {
            return Err(Fault::Fenced);
        }
        if let Some(frame) = frames.get(self.fits(frames)) {
            let segment = frame.position.segment(self.config.segment_bytes);
            return Err(Fault::NoSpareSlot { segment });
        }
        let written = self.write(frames);
        self.fenced = written.is_err();
        written
    }

    /// The number of adjacent `frames` that can be written, before the first segment without a
    /// slot.
    #[must_use]
    pub fn fits(&self, frames: &[Frame]) -> usize {
        let mut begins = (0..).zip(frames).filter(|(_, frame)| frame.first_of_segment);
        begins.nth(self.spare.len()).map_or(frames.len(), |(index, _)| index)
    }

    fn write(&mut self, frames: &[Frame]) -> Result<Position, Fault> {
        let mut end = Position::default();
        for frame in frames {
            if frame.first_of_segment {
                // The new segment says where the log ended before it; that has to be true first.
                self.sync()?;
                self.open_segment(frame.position.segment(self.config.segment_bytes))?;
            }
            let (segment, path, file) =
                self.current.as_ref().expect("the first frame of a life begins a segment");
            assert_eq!(*segment, frame.position.segment(self.config.segment_bytes));
            assert!(self.end.max(end) <= frame.position, "a frame is written over another");
            let at = frame.position.in_segment(self.config.segment_bytes);
            file.write_at(&frame.bytes, at).map_err(Fault::io("write", path))?;
            end = frame.end;
        }
        self.sync()?;
        self.end = end;
        Ok(end)
    }

    fn sync(&self) -> Result<(), Fault> {
        match &self.current {
            Some((_, path, file)) => file.sync().map_err(Fault::io("sync", path)),
            None => Ok(()),
        }
    }

    fn open_segment(&mut self, segment: u64) -> Result<(), Fault> {
        let slot = self.spare.pop_front().expect("counted before writing");
        let file = self.disk.open_to_write(&slot.path).map_err(Fault::io("open", &slot.path))?;
        self.current = Some((segment, slot.path.clone(), file));
        self.segments.insert(segment, slot);
        Ok(())
    }

    /// Adds a slot for later segments. Slots that were written before are used first.
    pub fn add_spare(&mut self, slot: Slot) {
        let at = if slot.is_unwritten { self.spare.len() } else { self.written_spare_count() };
        self.spare.insert(at, slot);
    }

    /// Turns the slot of a segment that is no longer needed into a spare slot.
    ///
    /// # Panics
    /// If the segment is being written.
    pub fn release(&mut self, segment: u64) {
        assert_ne!(self.current.as_ref().map(|held| held.0), Some(segment), "being written");
        let slot = self.segments.remove(&segment).filter(|slot| !slot.is_truncated);
        if let Some(slot) = slot {
            self.add_spare(Slot { is_unwritten: false, ..slot });
        }
    }

    /// Removes and returns the spare slots beyond `keep`.
    pub fn take_surplus(&mut self, keep: usize) -> Vec<Slot> {
        self.spare.split_off(keep.min(self.spare.len())).into()
    }

    /// Removes the spare slots that have frames of one of these segments. It reads every spare
    /// slot.
    pub fn exclude_spares(&mut self, segments: &BTreeSet<u64>) {
        let Self { disk, config, .. } = self;
        self.spare.retain(|Slot { path, .. }| {
            let file = disk.open_to_read(path).map_err(Fault::io("open", path));
            let held = file.and_then(|file| segments_of(&file, path, config));
            // A slot that cannot be read may hold them.
            held.is_ok_and(|held| held.is_disjoint(segments))
        });
    }

    /// A cut of the lane. A copy of it equals the disk after a crash now. It stays valid until one
    /// of its segments is released or one of its packs is removed.
    #[must_use]
    pub fn cut(&self) -> Cut {
        let segments = self.segments.iter().map(|(&number, slot)| (number, slot.path.clone()));
        let current = self.current.as_ref().map(|(segment, ..)| (*segment, self.end));
        Cut::new(self.config.clone(), segments.collect(), current)
    }

    /// Returns whether a slot holds this segment.
    #[must_use]
    pub fn holds(&self, segment: u64) -> bool {
        self.segments.contains_key(&segment)
    }

    /// The segments in use.
    pub fn segments(&self) -> impl Iterator<Item = u64> {
        self.segments.keys().copied()
    }

    /// The number of free bytes on the lane's disk.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn available_bytes(&self) -> Result<u64, Fault> {
        let directory = &self.config.directory;
        self.disk.available_bytes(directory).map_err(Fault::io("measure", directory))
    }

    /// The number of spare slots.
    #[must_use]
    pub fn spare_count(&self) -> usize {
        self.spare.len()
    }

    /// The number of spare slots that were written before.
    #[must_use]
    pub fn written_spare_count(&self) -> usize {
        self.spare.iter().take_while(|slot| !slot.is_unwritten).count()
    }
}
