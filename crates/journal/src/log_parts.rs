//! Reads a part of the log again while the lane goes on: what lies between two frames, segment by segment. It may run
//! on another thread than the lane.

use std::ops::Range;

use crate::{
    disk::Disk,
    fault::Fault,
    position::Position,
    reader::Reader,
    scan::{Scan, ScanEnd, ScanItem},
    walk::{WalkItem, emit},
};

impl<D: Disk> Reader<D> {
    /// Divides what lies in the log between the begin of a frame or segment and the end of a later frame into the parts
    /// that lie in one segment each, in order. All of it must be written, and its segments in use.
    ///
    /// # Errors
    /// [`Fault::MissingSegment`] if no slot holds one of the segments, [`Fault::Rot`] if a segment's header is not whole,
    /// because only it says where the log before it ended, or [`Fault::Io`].
    pub fn log_parts(&mut self, log: Range<Position>) -> Result<Vec<Range<Position>>, Fault> {
        let segment_bytes = self.config().segment_bytes;
        let (mut parts, mut end) = (Vec::new(), log.end);
        while end > log.start {
            let segment = Position(end.0 - 1).segment(segment_bytes);
            let start = Position(segment * segment_bytes);
            let missing = self.missing(segment);
            let Some(held) = self.segment(segment)? else { return Err(missing) };
            if !held.is_whole {
                let (path, problem) = (held.open.path.clone(), "the segment's header is not whole");
                return Err(Fault::Rot { path, position: start, problem });
            }
            parts.push(start.max(log.start)..end);
            // A header that names what is not before it is refused at a start.
            end = held.header.previous_end.min(start);
        }
        parts.reverse();
        Ok(parts)
    }

    /// Passes every record of a part that [`Self::log_parts`] has named to `each`, in order. A body shares the memory of
    /// the whole read, some MiB.
    ///
    /// # Errors
    /// [`Fault::MissingSegment`] if the segment is not in use any more, [`Fault::Rot`] if a frame is not whole,
    /// [`Fault::Io`]; the error of `each`.
    pub fn walk_part<E: From<Fault>>(
        &mut self,
        part: &Range<Position>,
        mut each: impl FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        let (config, disk) = (self.config().clone(), self.disk().clone());
        let segment = part.start.segment(config.segment_bytes);
        let missing = self.missing(segment);
        let Some(held) = self.segment(segment)? else { return Err(missing.into()) };
        let (path, ends) = (&held.open.path, ScanEnd::At(part.end));
        let file = held.open.uncached(&disk).unwrap_or(&held.open.file);
        let mut scan = Scan::of_segment(file, path, &config, &held.header, part.start, ends);
        loop {
            let found = scan.step()?;
            if matches!(found, ScanItem::Hole { .. }) && !held.is_current()? {
                // The slot was given to another segment meanwhile.
                return Err(missing.into());
            }
            let mut intact = |item| match item {
                WalkItem::Damage(damage) => Err(damage.into_fault().into()),
                item => each(item),
            };
            if !emit(found, path, &mut intact)? {
                return Ok(());
            }
        }
    }
}
