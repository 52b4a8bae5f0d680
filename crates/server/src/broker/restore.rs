//! Restores a data directory from the archive of a backup. The directory becomes valid only when everything is
//! there, durable, and matches its checksums.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use sennit_journal::{
    DirectorySettings, DiskFile, Fault, FileName, NodeIdentity, UnfinishedDirectory,
    disk::{Access, RealDisk},
};

use super::{
    archive::{ArchiveError, ArchiveSummary, Piece, read_archive},
    key_file,
    storage_check::{ShardVerdict, lane_config, verify_lane},
};
use crate::runtime::{error::ServeError, random_id::random_id};

/// Bytes of zeros that are written at once behind what the archive holds of a slot.
const ZEROS: &[u8] = &[0; 256 << 10];

/// What was restored.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// What the archive held.
    pub archive: ArchiveSummary,
    /// What each shard's lane holds, by shard.
    pub verdicts: Vec<ShardVerdict>,
}

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The archive is no whole backup.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The directory cannot be filled.
    #[error(transparent)]
    Directory(#[from] Fault),
    /// What was unpacked cannot be looked at, or the system has no random numbers.
    #[error(transparent)]
    Verify(#[from] ServeError),
    /// A file cannot be written.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The archive is as it was made, but what it was made of was damaged.
    #[error(
        "the archive is whole, but the broker's data was damaged in {places} places when it was \
         backed up; the first is {first}"
    )]
    Damaged {
        /// How many.
        places: usize,
        /// One of them.
        first: String,
    },
}

/// Fills the folder `data`, which is new or empty, with what `archive` holds, and looks at all of it
/// again. Where that fails the folder, and those above it, are left as they were found. With `keep_damaged`, damage that the
/// backed up data had already is no failure: it is in the verdicts.
///
/// # Errors
/// A [`RestoreError`].
pub fn restore(
    archive: impl Read,
    data: &Path,
    keep_damaged: bool,
) -> Result<Restored, RestoreError> {
    let directory = UnfinishedDirectory::begin(data)?;
    let mut unpacking =
        Unpacking { directory, data, settings: None, lanes: Vec::new(), file: None };
    let restored = unpacking.all(archive, keep_damaged);
    let Unpacking { directory, settings, lanes, file, .. } = unpacking;
    drop(file);
    let made = restored.and_then(|restored| {
        let settings = settings.ok_or(ArchiveError::NotABackup("it is empty".to_owned()))?;
        directory.finish(of_new_cluster(settings)?)?;
        Ok(restored)
    });
    if made.is_err() {
        // As far as it goes; what is left says that it is no whole restore.
        lanes.iter().for_each(|lane| drop(fs::remove_dir_all(lane)));
        let _ = fs::remove_file(data.join(key_file::NAME));
        directory.abandon();
    }
    made
}

/// The settings of a directory that is restored from one with these. Where that belonged to a node
/// of a cluster, this belongs to the same node of a new cluster: the old node may still run.
fn of_new_cluster(settings: DirectorySettings) -> Result<DirectorySettings, ServeError> {
    let Some(NodeIdentity { id, .. }) = settings.node else { return Ok(settings) };
    let node = NodeIdentity { cluster: random_id()?, id, start_epoch: 0, peers: 0 };
    Ok(DirectorySettings { node: Some(node), ..settings })
}

struct Unpacking<'a> {
    directory: UnfinishedDirectory,
    data: &'a Path,
    settings: Option<DirectorySettings>,
    /// The lanes' folders.
    lanes: Vec<PathBuf>,
    /// What is being written, and its path, its bytes so far, and how many it is to have.
    file: Option<(File, PathBuf, u64, u64)>,
}

impl Unpacking<'_> {
    fn all(&mut self, archive: impl Read, keep_damaged: bool) -> Result<Restored, RestoreError> {
        let archive = read_archive(archive, |piece| self.take(piece))?;
        let Some(settings) = self.settings else { return Ok(Restored::default()) };
        for directory in self.lanes.iter().map(PathBuf::as_path).chain([self.data]) {
            let synced = File::open(directory).and_then(|opened| opened.sync_all());
            synced.map_err(failed(directory))?;
        }
        let disk = RealDisk::new(Access::Buffered);
        let mut verdicts = Vec::new();
        for shard in 0..settings.shards {
            let lane = lane_config(self.directory.lane_directory(shard), shard, &settings);
            verdicts.push(ShardVerdict { shard, verdict: verify_lane(&disk, &lane)? });
        }
        let mut damage = verdicts.iter().flat_map(|shard| &shard.verdict.damage);
        let places = damage.clone().count();
        if let Some(first) = damage.next()
            && !keep_damaged
        {
            let first = first.clone().into_fault().to_string();
            return Err(RestoreError::Damaged { places, first });
        }
        Ok(Restored { archive, verdicts })
    }

    fn take(&mut self, piece: Piece<'_>) -> Result<(), RestoreError> {
        match piece {
            Piece::Settings(settings) => {
                for shard in 0..settings.shards {
                    let lane = self.directory.lane_directory(shard);
                    fs::create_dir(&lane).map_err(failed(&lane))?;
                    self.lanes.push(lane);
                }
                self.settings = Some(settings);
            }
            Piece::Keys(secrets) => {
                let path = self.data.join(key_file::NAME);
                key_file::write(self.data, &secrets).map_err(failed(&path))?;
            }
            Piece::Begin { lane, name } => {
                let path = self.directory.lane_directory(lane).join(name.to_string());
                let file = OpenOptions::new().write(true).create_new(true).open(&path);
                // A slot is written full: nothing that is written into it later may find no room.
                let length = match (name, &self.settings) {
                    (FileName::Slot(_), Some(settings)) => settings.segment_bytes,
                    _ => 0,
                };
                self.file = Some((file.map_err(failed(&path))?, path, 0, length));
            }
            Piece::Bytes(bytes) => {
                if let Some((file, path, written, _)) = &mut self.file {
                    file.write_all(bytes).map_err(failed(path))?;
                    *written += bytes.len() as u64;
                }
            }
            Piece::End => {
                if let Some((mut file, path, mut written, length)) = self.file.take() {
                    while written < length {
                        let zeros = &ZEROS[..(length - written).min(ZEROS.len() as u64) as usize];
                        file.write_all(zeros).map_err(failed(&path))?;
                        written += zeros.len() as u64;
                    }
                    file.sync_all().map_err(failed(&path))?;
                    // What is looked at afterwards is what the disk has, not what the system remembers.
                    file.forget_cached().map_err(failed(&path))?;
                }
            }
        }
        Ok(())
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = path.to_owned();
    move |error| RestoreError::Write { path, error }
}
