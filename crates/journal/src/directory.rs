//! The data directory: for one process at a time, with the settings of its FORMAT file.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the lock and the format file are the real disk's"
)]

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{fault::Fault, format_file::DirectorySettings};

/// The names of files in the directory.
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_NEW: &str = "FORMAT.new";
const LOCK_FILE: &str = "LOCK";
/// Exists while a restore fills the directory.
const RESTORING: &str = "RESTORING";
const RESTORING_TEXT: &[u8] =
    b"A restore fills this folder, or was killed while it did. If none runs, remove the folder.\n";

/// A data directory that is locked for this process until it is dropped.
#[derive(Debug)]
pub struct DataDirectory {
    path: PathBuf,
    settings: DirectorySettings,
    _lock: File,
}

impl DataDirectory {
    /// Opens a data directory, or creates one with the `wanted` settings. An existing directory
    /// keeps its settings and its format; of those that are wanted, only the id of the node is
    /// compared, if there is one. If the call fails, it has created no file and no directory.
    ///
    /// # Errors
    /// [`Fault::InUse`] if another process has it, [`Fault::NewerFormat`],
    /// [`Fault::NotADataDirectory`], [`Fault::UnfinishedRestore`], [`Fault::Impossible`] if these
    /// settings are not possible, [`Fault::NotOfACluster`] or [`Fault::OtherNode`] if a node is
    /// wanted that is not its own, or [`Fault::Io`] with the path.
    pub fn open(path: &Path, wanted: DirectorySettings) -> Result<Self, Fault> {
        // Before the lock file is made, and again once nobody else can change the answer.
        settings_of(path, &wanted)?;
        let (lock, created) = lock(path)?;
        let opened = settings_of(path, &wanted).and_then(|held| match held {
            Some(settings) => Ok(settings),
            None => write(&wanted, path).map(|()| wanted),
        });
        let settings = opened.inspect_err(|_| created.remove_all())?;
        // A restore that was killed after its last step but one.
        let _ = fs::remove_file(path.join(RESTORING));
        Ok(Self { path: path.to_owned(), settings, _lock: lock })
    }

    /// Opens an existing data directory.
    ///
    /// # Errors
    /// As [`DataDirectory::open`]; [`Fault::NotADataDirectory`] if there is none.
    pub fn open_existing(path: &Path) -> Result<Self, Fault> {
        if !path.join(FORMAT_FILE).exists() {
            refuse_unfinished_restore(path)?;
            let reason = "it has no FORMAT file".to_owned();
            return Err(Fault::NotADataDirectory { path: path.to_owned(), reason });
        }
        // It has settings of its own, which stand.
        let any = DirectorySettings { shards: 1, segment_bytes: 0, incarnation: 0, node: None };
        Self::open(path, any)
    }

    /// The settings of the directory.
    #[must_use]
    pub fn settings(&self) -> &DirectorySettings {
        &self.settings
    }

    /// Raises the start epoch of the node with so many peers, if the directory belongs to one, and makes it durable. A
    /// broker does so before it serves: an epoch is never used by two starts.
    ///
    /// # Errors
    /// [`Fault::NeedsPeers`] if it has had peers and has none now: it would decide alone what a group has to.
    /// [`Fault::Io`]: the directory is as it was, or has the raised epoch.
    pub fn begin_start(&mut self, peers: u16) -> Result<(), Fault> {
        let mut settings = self.settings;
        let Some(node) = &mut settings.node else { return Ok(()) };
        if peers == 0 && node.peers > 0 {
            let (path, node, peers) = (self.path.clone(), node.id, node.peers);
            return Err(Fault::NeedsPeers { path, node, peers });
        }
        node.peers = peers;
        node.start_epoch = node.start_epoch.saturating_add(1);
        write(&settings, &self.path)?;
        self.settings = settings;
        Ok(())
    }

    /// The folder of a shard's lane.
    #[must_use]
    pub fn lane_directory(&self, shard: u32) -> PathBuf {
        lane_directory(&self.path, shard)
    }

    /// Moves a file of a lane to the folder `quarantine`, where nothing reads it, and returns its
    /// new path.
    ///
    /// # Errors
    /// [`Fault::Io`].
    pub fn move_to_quarantine(&self, file: &Path) -> Result<PathBuf, Fault> {
        let quarantine = self.path.join("quarantine");
        fs::create_dir_all(&quarantine).map_err(Fault::io("create", &quarantine))?;
        let lane = file.parent().unwrap_or(&self.path);
        let parts = [lane, file].map(|path| path.file_name().unwrap_or_default().to_string_lossy());
        let name = parts.join("-");
        let numbered = (1..).map(|n| quarantine.join(format!("{name}.{n}")));
        let free = std::iter::once(quarantine.join(&name)).chain(numbered);
        let to = free.into_iter().find(|path| !path.exists()).unwrap_or_default();
        fs::rename(file, &to).map_err(Fault::io("set aside", file))?;
        for directory in [&quarantine, lane, &self.path] {
            let opened = File::open(directory).and_then(|directory| directory.sync_all());
            opened.map_err(Fault::io("sync", directory))?;
        }
        Ok(to)
    }
}

/// A directory that a restore fills, locked for this process. It is not a data directory before
/// [`UnfinishedDirectory::finish`]; until then a file in it marks it as unfinished, for the case
/// that the process is killed.
#[derive(Debug)]
pub struct UnfinishedDirectory {
    path: PathBuf,
    created: CreatedFiles,
    _lock: File,
}

impl UnfinishedDirectory {
    /// Creates the directory, or takes an empty one. If the call fails, it has changed nothing.
    ///
    /// # Errors
    /// [`Fault::InUse`] if another process has it, [`Fault::NotEmpty`],
    /// [`Fault::UnfinishedRestore`], or [`Fault::Io`].
    pub fn begin(path: &Path) -> Result<Self, Fault> {
        refuse_what_is_not_empty(path)?;
        let (lock, created) = lock(path)?;
        let marker = path.join(RESTORING);
        let begun = refuse_what_is_not_empty(path).and_then(|()| {
            let written = File::create(&marker).and_then(|mut file| {
                file.write_all(RESTORING_TEXT)?;
                file.sync_all()?;
                File::open(path)?.sync_all()
            });
            written.map_err(|error| {
                let _ = fs::remove_file(&marker);
                Fault::io("write", &marker)(error)
            })
        });
        begun.inspect_err(|_| created.remove_all())?;
        Ok(Self { path: path.to_owned(), created, _lock: lock })
    }

    /// Removes everything that [`Self::begin`] has created: the directory, its parents, and its
    /// files. The caller removes its own files first.
    pub fn abandon(self) {
        // As far as it goes: while the marker is there, the directory says what it is.
        let _ = fs::remove_file(self.path.join(RESTORING));
        self.created.remove_all();
    }

    /// The folder of a shard's lane.
    #[must_use]
    pub fn lane_directory(&self, shard: u32) -> PathBuf {
        lane_directory(&self.path, shard)
    }

    /// Turns the directory into a data directory with these settings. Its contents must be durable.
    ///
    /// # Errors
    /// [`Fault::Impossible`] if these settings are not possible, or [`Fault::Io`]; the directory is
    /// then still unfinished.
    pub fn finish(&self, settings: DirectorySettings) -> Result<(), Fault> {
        let impossible = |reason| Fault::Impossible { path: self.path.clone(), reason };
        settings.check().map_err(impossible)?;
        write(&settings, &self.path)?;
        // Where this fails, whoever opens the directory tries again.
        let _ = fs::remove_file(self.path.join(RESTORING));
        Ok(())
    }
}

fn lane_directory(path: &Path, shard: u32) -> PathBuf {
    path.join(format!("lane-{shard}"))
}

/// The settings of the directory at `path`; `None` if it has to be created as `wanted`.
fn settings_of(
    path: &Path,
    wanted: &DirectorySettings,
) -> Result<Option<DirectorySettings>, Fault> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Fault::io("look at", path)(error)),
    };
    if metadata.as_ref().is_some_and(|metadata| !metadata.is_dir()) {
        let reason = "it is a file".to_owned();
        return Err(Fault::NotADataDirectory { path: path.to_owned(), reason });
    }
    if metadata.is_some() {
        let format_path = path.join(FORMAT_FILE);
        match fs::read_to_string(&format_path) {
            Ok(text) => {
                let held = DirectorySettings::parse(&text, path)?;
                refuse_another_node(&held, wanted, path)?;
                return Ok(Some(held));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => refuse_foreign_files(path)?,
            Err(error) => return Err(Fault::io("read", &format_path)(error)),
        }
    }
    let impossible = |reason| Fault::Impossible { path: path.to_owned(), reason };
    wanted.check().map_err(impossible)?;
    Ok(None)
}

/// Refuses a directory that belongs to another node than the wanted one, or to no cluster. Without
/// a wanted node, each directory is right.
fn refuse_another_node(
    held: &DirectorySettings,
    wanted: &DirectorySettings,
    path: &Path,
) -> Result<(), Fault> {
    let Some(wanted) = wanted.node else { return Ok(()) };
    let path = path.to_owned();
    match held.node {
        None => Err(Fault::NotOfACluster { path, wanted: wanted.id }),
        Some(held) if held.id != wanted.id => {
            Err(Fault::OtherNode { path, found: held.id, wanted: wanted.id })
        }
        Some(_) => Ok(()),
    }
}

/// The files and directories that locking has created.
#[derive(Debug, Default)]
struct CreatedFiles {
    /// The outermost is the last.
    directories: Vec<PathBuf>,
    lock: Option<PathBuf>,
}

impl CreatedFiles {
    /// Removes them. A directory that is no longer empty stays.
    fn remove_all(&self) {
        let _ = self.lock.as_ref().map(fs::remove_file);
        self.directories.iter().for_each(|directory| drop(fs::remove_dir(directory)));
    }
}

/// Creates the directory if it does not exist, and locks it for this process.
fn lock(path: &Path) -> Result<(File, CreatedFiles), Fault> {
    let is_missing =
        |above: &&Path| !above.as_os_str().is_empty() && fs::symlink_metadata(above).is_err();
    let directories = path.ancestors().take_while(is_missing).map(Path::to_owned).collect();
    let mut created = CreatedFiles { directories, lock: None };
    let locked = fs::create_dir_all(path)
        .map_err(Fault::io("create the directory", path))
        .and_then(|()| lock_file(path, &mut created));
    match locked {
        Ok(lock) => Ok((lock, created)),
        Err(fault) => {
            created.remove_all();
            Err(fault)
        }
    }
}

fn lock_file(path: &Path, created: &mut CreatedFiles) -> Result<File, Fault> {
    let lock_path = path.join(LOCK_FILE);
    let mut options = OpenOptions::new();
    let options = options.truncate(false).write(true);
    let lock = match options.open(&lock_path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let lock = options.create(true).open(&lock_path);
            created.lock = lock.is_ok().then(|| lock_path.clone());
            lock
        }
        opened => opened,
    };
    let lock = lock.map_err(Fault::io("open", &lock_path))?;
    let in_use = || Fault::InUse { path: path.to_owned() };
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|error| {
        // It is another's, whoever made the file.
        created.lock = None;
        if error == rustix::io::Errno::WOULDBLOCK {
            return in_use();
        }
        Fault::io("lock", &lock_path)(error.into())
    })?;
    // Another process may have removed the file that it had made, between our opening and locking it.
    let [held, named] = [lock.metadata(), fs::metadata(&lock_path)]
        .map(|metadata| metadata.ok().map(|metadata| (metadata.dev(), metadata.ino())));
    if held.is_none() || held != named {
        created.lock = None;
        return Err(in_use());
    }
    Ok(lock)
}

/// The name of a file in the directory that is not one of `besides`.
fn first_file(path: &Path, besides: &[&str]) -> Result<Option<String>, Fault> {
    for entry in fs::read_dir(path).map_err(Fault::io("list", path))? {
        let name = entry.map_err(Fault::io("list", path))?.file_name();
        if !besides.iter().any(|besides| name == *besides) {
            return Ok(Some(name.display().to_string()));
        }
    }
    Ok(None)
}

/// Refuses a directory that has files and no format file: it belongs to another program.
fn refuse_foreign_files(path: &Path) -> Result<(), Fault> {
    refuse_unfinished_restore(path)?;
    // The last is there where the directory is a file system of its own.
    match first_file(path, &[LOCK_FILE, FORMAT_NEW, "lost+found"])? {
        None => Ok(()),
        Some(name) => {
            let reason = format!("it has no FORMAT file but holds {name}");
            Err(Fault::NotADataDirectory { path: path.to_owned(), reason })
        }
    }
}

/// Refuses a directory that is not empty.
fn refuse_what_is_not_empty(path: &Path) -> Result<(), Fault> {
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    refuse_unfinished_restore(path)?;
    match first_file(path, &[LOCK_FILE, "lost+found"])? {
        None => Ok(()),
        Some(found) => Err(Fault::NotEmpty { path: path.to_owned(), found }),
    }
}

/// Refuses a directory with the marker and without a format file: a restore did not finish.
fn refuse_unfinished_restore(path: &Path) -> Result<(), Fault> {
    if path.join(RESTORING).exists() && !path.join(FORMAT_FILE).exists() {
        return Err(Fault::UnfinishedRestore { path: path.to_owned() });
    }
    Ok(())
}

fn write(settings: &DirectorySettings, path: &Path) -> Result<(), Fault> {
    let text = settings.to_string();
    let (new, format_path) = (path.join(FORMAT_NEW), path.join(FORMAT_FILE));
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    let renamed = written
        .map_err(Fault::io("write", &new))
        .and_then(|()| fs::rename(&new, &format_path).map_err(Fault::io("rename", &new)));
    renamed.inspect_err(|_| drop(fs::remove_file(&new)))?;
    let sync = |directory: &Path| File::open(directory).and_then(|opened| opened.sync_all());
    sync(path).map_err(Fault::io("sync", path))?;
    // The parent of a plain name is the empty path.
    let above = path.parent().filter(|above| !above.as_os_str().is_empty());
    let above = above.unwrap_or(Path::new("."));
    match sync(above) {
        // A directory above may be for passing through only; then it is not ours to sync.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced.map_err(Fault::io("sync", above)),
    }
}
