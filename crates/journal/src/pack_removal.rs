//! Removes a pack in steps. Freeing a long file at once can keep a disk busy for long, and commits would wait.

use std::{io, path::PathBuf};

use crate::{
    disk::{Disk, DiskFile},
    fault::Fault,
    lane_config::LaneConfig,
    pack::pack_path,
};

/// Bytes that one step frees.
pub const REMOVAL_STEP_BYTES: u64 = 16 << 20;

/// The removal of a pack.
#[derive(Debug)]
pub struct PackRemoval<D: Disk> {
    disk: D,
    directory: PathBuf,
    path: PathBuf,
    /// The file, and its remaining bytes; `None` once it is removed.
    file: Option<(D::File, u64)>,
}

/// Starts to remove a pack to which nothing durable refers; [`PackRemoval::step`] does the work.
/// The pack may be incomplete or missing.
///
/// # Errors
/// [`Fault::Io`].
pub fn remove_pack<D: Disk>(
    disk: &D,
    config: &LaneConfig,
    number: u32,
) -> Result<PackRemoval<D>, Fault> {
    let path = pack_path(config, number);
    let file = match disk.open_to_write(&path) {
        Ok(file) => {
            let left = file.length().map_err(Fault::io("measure", &path))?;
            Some((file, left))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Fault::io("open", &path)(error)),
    };
    Ok(PackRemoval { disk: disk.clone(), directory: config.directory.clone(), path, file })
}

impl<D: Disk> PackRemoval<D> {
    /// Cuts up to [`REMOVAL_STEP_BYTES`] off the file's end, or removes the rest of it. Returns
    /// true once the removal is durable. After a crash the rest is not whole; start its removal
    /// again.
    ///
    /// # Errors
    /// [`Fault::Io`]; the step can be tried again.
    pub fn step(&mut self) -> Result<bool, Fault> {
        if let Some((file, left)) = &mut self.file {
            if *left > REMOVAL_STEP_BYTES {
                let cut = *left - REMOVAL_STEP_BYTES;
                file.set_length(cut).map_err(Fault::io("cut", &self.path))?;
                *left = cut;
                return Ok(false);
            }
            match self.disk.remove(&self.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Fault::io("remove", &self.path)(error));
                }
                _ => self.file = None,
            }
        }
        let directory = &self.directory;
        self.disk.sync_directory(directory).map_err(Fault::io("sync", directory))?;
        Ok(true)
    }
}
