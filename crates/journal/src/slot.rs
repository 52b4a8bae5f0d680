//! Slots: the files that hold segments. A slot is written full of zeros once, so that later writes
//! change no metadata, and then used for one segment after the other.

use std::path::PathBuf;

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
};

const ZEROS_BYTES: usize = 256 << 10;

/// A slot without a segment that anybody needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) path: PathBuf,
    /// It was cut off, and is not to be written to.
    pub(crate) is_cut: bool,
}

/// Makes slots of one lane. There is one of these per lane; it may work on a thread of its own
/// while the lane goes on writing.
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

    /// Makes a slot: creates its file, writes it full and syncs it. Takes as long as writing
    /// a segment takes.
    ///
    /// # Errors
    /// [`Fault::StorageFull`] if there is no room, else [`Fault::Io`]. What was left of the file is
    /// used at the next try.
    pub fn make(&mut self) -> Result<Slot, Fault> {
        self.make_beside(0)
    }

    /// Whether there is room for a slot, and for so many bytes beside it.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn has_room_beside(&self, left_bytes: u64) -> Result<bool, Fault> {
        let available = self.disk.available_bytes(&self.directory);
        let available = available.map_err(Fault::io("measure", &self.directory))?;
        Ok(available >= self.segment_bytes.saturating_add(left_bytes))
    }

    /// Makes a slot where room for so many bytes is left beside it.
    ///
    /// # Errors
    /// Those of [`SlotMaker::make`].
    pub fn make_beside(&mut self, left_bytes: u64) -> Result<Slot, Fault> {
        // A slot that is begun and not finished would take the room it needs from others.
        if !self.has_room_beside(left_bytes)? {
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
        let zeros = crate::block::Blocks::zeroed(ZEROS_BYTES / crate::format::BLOCK_BYTES);
        let mut at = 0;
        while at < self.segment_bytes {
            let length = (self.segment_bytes - at).min(ZEROS_BYTES as u64);
            let zeros = &zeros.as_ref()[..length as usize];
            file.write_at(zeros, at).map_err(Fault::io("fill", &path))?;
            at += length;
        }
        file.sync().map_err(Fault::io("sync", &path))?;
        self.disk.sync_directory(&self.directory).map_err(Fault::io("sync", &self.directory))?;
        self.next += 1;
        Ok(Slot { path, is_cut: false })
    }
}

impl<D: Disk> SlotMaker<D> {
    /// Removes the file of a slot that the lane uses no more.
    ///
    /// # Errors
    /// [`Fault::Io`]; what is left of the file is a spare slot at the next start.
    pub fn remove(&self, slot: &Slot) -> Result<(), Fault> {
        // Whoever still has it open holds nothing of the disk then.
        let file = self.disk.open_to_write(&slot.path).map_err(Fault::io("open", &slot.path))?;
        file.set_length(0).map_err(Fault::io("cut", &slot.path))?;
        self.disk.remove(&slot.path).map_err(Fault::io("remove", &slot.path))?;
        self.disk.sync_directory(&self.directory).map_err(Fault::io("sync", &self.directory))
    }
}

pub(crate) fn slot_name(number: u32) -> String {
    format!("slot-{number:05}.journal")
}

/// The number in a slot's name.
pub(crate) fn slot_number(name: &str) -> Option<u32> {
    name.strip_prefix("slot-")?.strip_suffix(".journal")?.parse().ok()
}
