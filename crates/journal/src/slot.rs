//! Slots: the files that hold segments. A slot is filled with zeros once, so that later writes change no metadata,
//! and then used for one segment after another.

use std::path::{Path, PathBuf};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
};

const ZEROS_BYTES: usize = 256 << 10;

/// A slot without a segment that is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) path: PathBuf,
    /// The file is too short and must not be written.
    pub(crate) is_truncated: bool,
    /// Its room is allocated and not written yet, so the first writes take longer.
    pub(crate) is_unwritten: bool,
}

/// How a slot is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotFill {
    /// Filled with zeros: fast to write.
    Written,
    /// Its room is allocated without writing: for slots that are held for a full disk. Filled with
    /// zeros if the file system cannot allocate.
    Allocated,
}

/// Creates the slots of one lane. A lane has one of these; it may run on a thread of its own while
/// the lane writes.
#[derive(Debug)]
pub struct SlotMaker<D> {
    disk: D,
    directory: PathBuf,
    segment_bytes: u64,
    next: u32,
}

impl<D: Disk> SlotMaker<D> {
    pub(crate) fn new(disk: D, directory: PathBuf, segment_bytes: u64, next: u32) -> Self {
        Self { disk, directory, segment_bytes, next }
    }

    /// Creates a slot: creates its file, fills it and syncs it. Takes as long as writing a segment.
    ///
    /// # Errors
    /// [`Fault::StorageFull`] if there is no room, else [`Fault::Io`]. The next call reuses the
    /// unfinished file.
    pub fn make(&mut self) -> Result<Slot, Fault> {
        self.make_with_free_bytes(0, SlotFill::Written)
    }

    /// The number of free bytes on the disk.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn available_bytes(&self) -> Result<u64, Fault> {
        let available = self.disk.available_bytes(&self.directory);
        available.map_err(Fault::io("measure", &self.directory))
    }

    /// Creates a slot if this many bytes of the disk stay free beside it.
    ///
    /// # Errors
    /// Those of [`SlotMaker::make`].
    pub fn make_with_free_bytes(&mut self, left_bytes: u64, fill: SlotFill) -> Result<Slot, Fault> {
        // A slot that is begun and not finished would take the room it needs from others.
        if self.available_bytes()? < self.segment_bytes.saturating_add(left_bytes) {
            return Err(Fault::StorageFull { path: self.directory.clone() });
        }
        let path = self.directory.join(slot_name(self.next));
        match self.disk.create(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Fault::io("create", &path)(error));
            }
            _ => {}
        }
        // Filled as it will be written later: past the system's cache, which it would only crowd.
        let file = self.disk.open_to_write(&path).map_err(Fault::io("open", &path))?;
        let is_unwritten = fill == SlotFill::Allocated
            && file.allocate(self.segment_bytes).map_err(Fault::io("fill", &path))?;
        if !is_unwritten {
            self.write_full(&file, &path)?;
        }
        file.sync().map_err(Fault::io("sync", &path))?;
        self.disk.sync_directory(&self.directory).map_err(Fault::io("sync", &self.directory))?;
        self.next += 1;
        Ok(Slot { path, is_truncated: false, is_unwritten })
    }

    fn write_full(&self, file: &D::File, path: &Path) -> Result<(), Fault> {
        let zeros = crate::block::Blocks::zeroed(ZEROS_BYTES / crate::format::BLOCK_BYTES);
        let mut at = 0;
        while at < self.segment_bytes {
            let length = (self.segment_bytes - at).min(ZEROS_BYTES as u64);
            let zeros = &zeros.as_ref()[..length as usize];
            file.write_at(zeros, at).map_err(Fault::io("fill", path))?;
            at += length;
        }
        Ok(())
    }

    /// Removes the file of a slot that the lane no longer uses.
    ///
    /// # Errors
    /// [`Fault::Io`]; the rest of the file is a spare slot at the next start.
    pub fn remove(&self, slot: &Slot) -> Result<(), Fault> {
        remove_slot(&self.disk, &self.directory, slot)
    }
}

/// Removes the file of a slot that no lane uses, from its lane's directory.
///
/// # Errors
/// [`Fault::Io`]; the rest of the file is a spare slot at the next start.
pub fn remove_slot<D: Disk>(disk: &D, directory: &Path, slot: &Slot) -> Result<(), Fault> {
    // A reader that still has the file open then holds no room of the disk.
    let file = disk.open_to_write(&slot.path).map_err(Fault::io("open", &slot.path))?;
    file.set_length(0).map_err(Fault::io("cut", &slot.path))?;
    disk.remove(&slot.path).map_err(Fault::io("remove", &slot.path))?;
    disk.sync_directory(directory).map_err(Fault::io("sync", directory))
}

pub(crate) fn slot_name(number: u32) -> String {
    format!("slot-{number:05}.journal")
}

/// The number in a slot's name.
pub(crate) fn slot_number(name: &str) -> Option<u32> {
    name.strip_prefix("slot-")?.strip_suffix(".journal")?.parse().ok()
}
