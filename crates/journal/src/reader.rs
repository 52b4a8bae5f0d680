//! Reads segments and packs back, for consumers that lag. It may run on another thread than the lane.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    block::Blocks,
    container::Container,
    disk::{Disk, DiskFile},
    fault::Fault,
    format::{BLOCK_BYTES, SegmentHeader},
    headless::HeadlessSegment,
    lane_config::LaneConfig,
    open_files::{OpenFile, OpenFiles},
    pack::pack_path,
    position::Position,
    slot::slot_number,
    slot_file::segment_in,
};

/// Shorter reads go through the system's cache.
const UNCACHED_BYTES_MIN: usize = 256 << 10;

/// The open slot of a segment.
pub(crate) struct OpenSegment<'a, F> {
    pub(crate) open: &'a OpenFile<F>,
    /// The segment's header; if it is not whole, the one that its frames imply.
    pub(crate) header: SegmentHeader,
    pub(crate) is_whole: bool,
}

impl<F: DiskFile> OpenSegment<'_, F> {
    /// Returns whether the slot still holds this segment.
    pub(crate) fn is_current(&self) -> Result<bool, Fault> {
        let header = segment_in(&self.open.file, &self.open.path)?;
        Ok(header == self.is_whole.then_some(self.header))
    }
}

/// Reads ranges of the log and of packs. It has at most 32 open files, and each may be open a
/// second time for uncached reads.
#[derive(Debug)]
pub struct Reader<D: Disk> {
    disk: D,
    config: LaneConfig,
    /// The slot of each segment at the last search.
    slots: BTreeMap<u64, PathBuf>,
    /// Segments whose header was not whole when the lane was recovered.
    headless: Arc<BTreeMap<u64, HeadlessSegment>>,
    files: OpenFiles<D::File>,
}

impl<D: Disk> Reader<D> {
    pub(crate) fn new(
        disk: D,
        config: LaneConfig,
        headless: Arc<BTreeMap<u64, HeadlessSegment>>,
    ) -> Self {
        Self { disk, config, slots: BTreeMap::new(), headless, files: OpenFiles::new() }
    }

    /// A reader of the same lane, for another thread.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self::new(self.disk.clone(), self.config.clone(), self.headless.clone())
    }

    pub(crate) fn config(&self) -> &LaneConfig {
        &self.config
    }

    pub(crate) fn disk(&self) -> &D {
        &self.disk
    }

    /// The `length` bytes at `position`, all within one segment in use or one finished pack.
    ///
    /// # Errors
    /// [`Fault::MissingSegment`] if no slot holds the segment, [`Fault::MissingPack`] if there is
    /// no such pack, [`Fault::Rot`] if the pack is too short; else [`Fault::Io`]. A container that
    /// is being removed may cause any of them.
    pub fn read(&mut self, position: Position, length: usize) -> Result<Bytes, Fault> {
        match position.pack() {
            Some((pack, byte)) => self.read_pack(pack, byte, length),
            None => self.read_segment(position, length),
        }
    }

    /// As [`Reader::read`], but long reads bypass the system's cache if possible: the bytes go
    /// directly to their destination, at the disk's speed.
    ///
    /// # Errors
    /// Those of [`Reader::read`].
    pub fn read_uncached(&mut self, position: Position, length: usize) -> Result<Bytes, Fault> {
        if length >= UNCACHED_BYTES_MIN
            && let Some(bytes) = self.try_read_uncached(position, length)?
        {
            return Ok(bytes);
        }
        self.read(position, length)
    }

    /// `None` if the disk does not support it, or if it fails: the cached read then returns the
    /// error.
    fn try_read_uncached(
        &mut self,
        position: Position,
        length: usize,
    ) -> Result<Option<Bytes>, Fault> {
        let (disk, headless) = (self.disk.clone(), self.headless.clone());
        let segment_bytes = self.config.segment_bytes;
        let segment = position.segment(segment_bytes);
        let (open, at, held) = match position.pack() {
            Some((pack, byte)) => (self.pack(pack)?, u64::from(byte), None),
            None => {
                let Some(held) = self.segment(segment)? else { return Ok(None) };
                (held.open, position.in_segment(segment_bytes), Some(held))
            }
        };
        let Some(file) = open.uncached(&disk) else { return Ok(None) };
        let before = (at % BLOCK_BYTES as u64) as usize;
        let mut blocks = Blocks::zeroed((before + length).div_ceil(BLOCK_BYTES));
        if file.read_at(blocks.as_mut(), at - before as u64).is_err() {
            return Ok(None);
        }
        if let Some(held) = held {
            if !held.is_current()? {
                // The slot was given to another segment while it was read: nobody needs this one.
                return Ok(None);
            }
            if !held.is_whole {
                headless[&segment].clear_foreign(blocks.as_mut(), at - before as u64);
            }
        }
        Ok(Some(Bytes::from_owner(blocks).slice(before..before + length)))
    }

    fn read_segment(&mut self, position: Position, length: usize) -> Result<Bytes, Fault> {
        let headless = self.headless.clone();
        let segment_bytes = self.config.segment_bytes;
        let segment = position.segment(segment_bytes);
        let Some(held) = self.segment(segment)? else { return Err(self.missing(segment)) };
        let mut bytes = vec![0; length];
        let at = position.in_segment(segment_bytes);
        held.open.file.read_at(&mut bytes, at).map_err(Fault::io("read", &held.open.path))?;
        if !held.is_current()? {
            // The slot was given to another segment while it was read: nobody needs this one.
            return Err(self.missing(segment));
        }
        if !held.is_whole {
            headless[&segment].clear_foreign(&mut bytes, at);
        }
        Ok(bytes.into())
    }

    pub(crate) fn missing(&self, segment: u64) -> Fault {
        Fault::MissingSegment { path: self.config.directory.clone(), segment }
    }

    fn read_pack(&mut self, pack: u32, byte: u32, length: usize) -> Result<Bytes, Fault> {
        let open = self.pack(pack)?;
        let mut bytes = vec![0; length];
        match open.file.read_at(&mut bytes, byte.into()) {
            Ok(()) => Ok(bytes.into()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let (path, position) = (open.path.clone(), Position::of_pack(pack, byte));
                Err(Fault::Rot { path, position, problem: "the pack is shorter than it was" })
            }
            Err(error) => Err(missing_or("read", &open.path, pack)(error)),
        }
    }

    /// Closes the file of a pack before its removal, so that its room comes free.
    pub fn forget_pack(&mut self, pack: u32) {
        self.files.close(Container::Pack(pack));
    }

    /// The open file of a pack.
    pub(crate) fn pack(&mut self, pack: u32) -> Result<&OpenFile<D::File>, Fault> {
        let container = Container::Pack(pack);
        if self.files.get(container).is_none() {
            let path = pack_path(&self.config, pack);
            let file = self.disk.open_to_read(&path).map_err(missing_or("open", &path, pack))?;
            return Ok(self.files.keep(container, path, file));
        }
        Ok(self.files.get(container).expect("looked for above"))
    }

    /// The open slot that holds a segment now.
    pub(crate) fn segment(
        &mut self,
        segment: u64,
    ) -> Result<Option<OpenSegment<'_, D::File>>, Fault> {
        if let Some(header) = self.open_headless(segment)? {
            let open = self.files.get(Container::Segment(segment));
            return Ok(open.map(|open| OpenSegment { open, header, is_whole: false }));
        }
        let header = self.open_whole(segment)?;
        let open = self.files.get(Container::Segment(segment));
        let held = open.zip(header);
        Ok(held.map(|(open, header)| OpenSegment { open, header, is_whole: true }))
    }

    /// Opens the slot of a segment whose header is not whole; returns the header that its frames
    /// imply. `None` if there is no such slot, or it holds another segment by now.
    fn open_headless(&mut self, segment: u64) -> Result<Option<SegmentHeader>, Fault> {
        let headless = self.headless.clone();
        let Some(HeadlessSegment { path, header, .. }) = headless.get(&segment) else {
            return Ok(None);
        };
        let container = Container::Segment(segment);
        if self.files.get(container).is_none() {
            let Some(file) = unless_removed(self.disk.open_to_read(path), path)? else {
                return Ok(None);
            };
            self.files.keep(container, path.clone(), file);
        }
        let open = self.files.get(container).expect("opened above");
        let is_held = open.path == *path && segment_in(&open.file, path)?.is_none();
        Ok(is_held.then_some(*header))
    }

    /// Opens the slot of a segment whose header is whole, and returns the header.
    fn open_whole(&mut self, segment: u64) -> Result<Option<SegmentHeader>, Fault> {
        let own = LaneIdentity::of(&self.config);
        let container = Container::Segment(segment);
        // A slot that was removed meanwhile may fail to be read: whether it is there is looked for below.
        if let Some(open) = self.files.get(container)
            && let Ok(Some(header)) = own.header(&open.file, &open.path, segment)
        {
            return Ok(Some(header));
        }
        self.files.close(container);
        if let Some(path) = self.slots.get(&segment) {
            let opened = unless_removed(self.disk.open_to_read(path), path)?;
            if let Some(file) = opened
                && let Some(header) = own.header(&file, path, segment)?
            {
                self.files.keep(container, path.clone(), file);
                return Ok(Some(header));
            }
        }
        let Some((path, file, header)) = self.find(segment)? else { return Ok(None) };
        self.files.keep(container, path, file);
        Ok(Some(header))
    }

    /// Searches the headers of all slots.
    fn find(&mut self, wanted: u64) -> Result<Option<(PathBuf, D::File, SegmentHeader)>, Fault> {
        let own = LaneIdentity::of(&self.config);
        let directory = &self.config.directory;
        self.slots.clear();
        let (mut found, mut unreadable) = (None, None);
        for name in self.disk.list(directory).map_err(Fault::io("list", directory))? {
            if slot_number(&name).is_none() {
                continue;
            }
            let path = directory.join(name);
            let Some(file) = unless_removed(self.disk.open_to_read(&path), &path)? else {
                continue;
            };
            // One that is being made has none.
            let header = match segment_in(&file, &path) {
                Ok(header) => header.filter(|header| own.is(header)),
                Err(fault) => {
                    unreadable = Some(fault);
                    continue;
                }
            };
            let Some(header) = header else { continue };
            self.slots.insert(header.segment, path.clone());
            if header.segment == wanted {
                found = Some((path, file, header));
            }
        }
        match (found, unreadable) {
            // It may lie there.
            (None, Some(fault)) => Err(fault),
            (found, _) => Ok(found),
        }
    }
}

/// An opened slot; `None` if it was removed, as spare slots may be removed at any time.
fn unless_removed<F>(opened: io::Result<F>, path: &Path) -> Result<Option<F>, Fault> {
    match opened {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        opened => opened.map(Some).map_err(Fault::io("open", path)),
    }
}

/// The numbers in the headers of a lane's own segments.
#[derive(Clone, Copy)]
struct LaneIdentity {
    lane: u32,
    incarnation: u64,
}

impl LaneIdentity {
    fn of(config: &LaneConfig) -> Self {
        let LaneConfig { lane, incarnation, .. } = *config;
        Self { lane, incarnation }
    }

    fn is(self, header: &SegmentHeader) -> bool {
        header.incarnation == self.incarnation && header.lane == self.lane
    }

    /// The header of `segment`, if the slot holds it now.
    fn header(
        self,
        file: &impl DiskFile,
        path: &Path,
        segment: u64,
    ) -> Result<Option<SegmentHeader>, Fault> {
        let header = segment_in(file, path)?;
        Ok(header.filter(|header| self.is(header) && header.segment == segment))
    }
}

/// The cause, for `map_err`: `error` of `action` on a pack's file.
fn missing_or(action: &'static str, path: &Path, pack: u32) -> impl FnOnce(io::Error) -> Fault {
    let path = path.to_owned();
    move |error| {
        if error.kind() == io::ErrorKind::NotFound {
            return Fault::MissingPack { path, pack };
        }
        Fault::io(action, path)(error)
    }
}
