//! A backup of a running broker: all lanes are pinned, cut, and copied into an archive that leaves through the HTTP
//! port. At the cuts the journal looks as a crash could have left it (docs/decisions/0010).

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc as std_mpsc,
    },
    task::{Context, Poll},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use bytes::Bytes;
use sennit_journal::{
    Cut, CutFile, DirectorySettings, Fault,
    disk::{Access, RealDisk},
};
use tokio::sync::{mpsc, oneshot};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::{
    archive::{
        Contents, TAR_END, entry_bytes, entry_header, entry_name, first_entries, last_entry,
        padding,
    },
    key_file::{self, Secrets},
};
use crate::runtime::{
    index::{IndexVec, ShardIndex},
    lane_thread::NoCut,
    shard_files::{LaneFiles, ShardFiles},
};

/// Bytes of one read.
const PIECE_BYTES: usize = 256 << 10;
/// Pieces that wait for the connection: all that a backup holds in memory, 4 MiB.
const PIECES: usize = 16;
/// Who takes nothing for so long has gone.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked whether the connection takes more.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Why there is no backup now.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoBackup {
    #[error("a backup is under way; there is one at a time")]
    UnderWay,
    #[error("the broker does not serve yet, or is about to stop")]
    NotServing,
    #[error("the disk is full: what a backup pins cannot be spared")]
    StorageFull,
    #[error("what is to be copied cannot be read: {0}")]
    Disk(#[from] Fault),
    #[error("the broker's own keys cannot be read: {0}")]
    Keys(io::Error),
    #[error("no thread can be started: {0}")]
    System(io::Error),
}

/// Makes backups, one at a time.
#[derive(Debug)]
pub(crate) struct Backups {
    settings: DirectorySettings,
    /// The data directory, where the broker's own keys lie.
    data: PathBuf,
    shard_files: Arc<ShardFiles>,
    is_under_way: AtomicBool,
    /// Dropped when no thread of a backup runs any more.
    _ended: std_mpsc::Sender<()>,
}

impl Backups {
    pub(crate) fn new(
        settings: DirectorySettings,
        data: PathBuf,
        shard_files: Arc<ShardFiles>,
        ended: std_mpsc::Sender<()>,
    ) -> Arc<Self> {
        let is_under_way = AtomicBool::new(false);
        Arc::new(Self { settings, data, shard_files, is_under_way, _ended: ended })
    }

    /// Begins a backup. All that was confirmed before is in it. It goes on while its archive is
    /// taken, and ends when that is dropped.
    pub(crate) async fn begin(self: Arc<Self>) -> Result<Archive, NoBackup> {
        if self.is_under_way.swap(true, SeqCst) {
            return Err(NoBackup::UnderWay);
        }
        let (answer, answered) = oneshot::channel();
        // Where no thread can be started the pins are dropped with what it would have run.
        thread::Builder::new()
            .name("backup".to_owned())
            .spawn({
                let pins = Pins { backups: self.clone(), is_broken: Arc::default() };
                move || run(&pins, answer)
            })
            .map_err(NoBackup::System)?;
        answered.await.unwrap_or(Err(NoBackup::NotServing))
    }
}

/// Dropped, it lets everything go, and the next backup may begin.
struct Pins {
    backups: Arc<Backups>,
    /// Set when a lane needed what was pinned.
    is_broken: Arc<AtomicBool>,
}

impl Pins {
    /// Pins everything and says what every lane holds, and which packs are in use, by shard.
    fn cut(&self) -> Result<Vec<(Cut, BTreeSet<u32>)>, NoBackup> {
        let shard_files = self.backups.shard_files.all().ok_or(NoBackup::NotServing)?;
        // Before any cut: a pack to which it refers must still be there when packs are listed.
        shard_files.iter().for_each(|door| door.packs.set(true));
        let cut = |door: &&LaneFiles| {
            let packs = door.packs_in_use().ok_or(NoBackup::NotServing)?;
            let cut = door.lane.pin(&self.is_broken).map_err(|no_cut| match no_cut {
                NoCut::Ended => NoBackup::NotServing,
                NoCut::StorageFull => NoBackup::StorageFull,
            })?;
            Ok((cut, packs))
        };
        // The catalogue, which leads, last: what follows it may be behind, and is brought in line
        // at a start. A partition that the catalogue does not know yet would be dropped then.
        let doors = shard_files.iter_indexed();
        let followers = doors.filter(|(shard, _)| *shard != ShardIndex::CATALOGUE);
        let followers: Vec<_> =
            followers.map(|(_, door)| cut(door)).collect::<Result<_, NoBackup>>()?;
        let mut cuts = vec![cut(&shard_files[ShardIndex::CATALOGUE])?];
        cuts.extend(followers);
        Ok(cuts)
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let doors = self.backups.shard_files.all();
        for door in doors.iter().flat_map(IndexVec::iter) {
            door.lane.unpin();
            door.packs.set(false);
        }
        self.backups.is_under_way.store(false, SeqCst);
    }
}

/// A file to be copied, and what its entry is called.
struct Source {
    name: String,
    file: CutFile,
}

/// What is to be copied: the broker's own keys, if it has any, and files.
struct Sources {
    keys: Option<Secrets>,
    files: Vec<Source>,
}

/// All of a backup, on a thread of its own.
fn run(pins: &Pins, answer: oneshot::Sender<Result<Archive, NoBackup>>) {
    let disk = RealDisk::new(Access::Buffered);
    let begun = Instant::now();
    let sources = match sources(pins, &disk) {
        Ok(sources) => sources,
        Err(error) => {
            let _ = answer.send(Err(error));
            return;
        }
    };
    let (pieces, taken) = mpsc::channel(PIECES);
    let bytes = archive_bytes(&pins.backups.settings, &sources);
    tracing::info!(files = sources.files.len(), bytes, "a backup begins");
    if answer.send(Ok(Archive { left: bytes, pieces: taken })).is_err() {
        return;
    }
    let mut copy = Copy { pins, pieces, gathered: Vec::with_capacity(PIECE_BYTES) };
    match copy.all(&disk, &sources) {
        Ok(()) => tracing::info!(bytes, seconds = begun.elapsed().as_secs_f32(), "backed up"),
        Err(error) => {
            // Whoever takes the archive sees that it has no end.
            tracing::warn!(%error, "a backup was given up");
        }
    }
}

fn sources(pins: &Pins, disk: &RealDisk) -> Result<Sources, NoBackup> {
    let mut files = Vec::new();
    for (lane, (cut, packs)) in (0..).zip(pins.cut()?) {
        let found = cut.files(disk, &packs)?;
        for missing in found.missing {
            if !missing.is_gone() {
                return Err(missing.fault.into());
            }
            let (path, fault) = (missing.path.display(), &missing.fault);
            tracing::error!(shard = lane, %path, %fault, "damaged: a backup goes on without it");
        }
        for file in found.files {
            files.push(Source { name: entry_name(lane, file.name), file });
        }
    }
    // Behind the cuts: what those have of subscriptions was told only once there were keys.
    let keys = key_file::read(&pins.backups.data).map_err(NoBackup::Keys)?;
    Ok(Sources { keys, files })
}

/// How long the archive will be.
fn archive_bytes(settings: &DirectorySettings, sources: &Sources) -> u64 {
    let mut contents = Contents::default();
    let mut bytes = TAR_END.len() as u64;
    for (name, text) in first_entries(settings) {
        contents.push(name, text.len() as u64, 0);
        bytes += entry_bytes(text.len() as u64);
    }
    if sources.keys.is_some() {
        contents.push(key_file::NAME, key_file::BYTES as u64, 0);
        bytes += entry_bytes(key_file::BYTES as u64);
    }
    for Source { name, file } in &sources.files {
        contents.push(name, file.bytes, 0);
        bytes += entry_bytes(file.bytes);
    }
    bytes + entry_bytes(last_entry(&contents).1.len() as u64)
}

struct Copy<'a> {
    pins: &'a Pins,
    pieces: mpsc::Sender<Bytes>,
    gathered: Vec<u8>,
}

impl Copy<'_> {
    fn all(&mut self, disk: &RealDisk, sources: &Sources) -> io::Result<()> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time = since.as_secs();
        let mut contents = Contents::default();
        for (name, text) in first_entries(&self.pins.backups.settings) {
            self.entry(name, text.as_bytes(), time)?;
            contents.push(name, text.len() as u64, xxh3_64(text.as_bytes()));
        }
        if let Some(secrets) = &sources.keys {
            let bytes = key_file::encode(secrets);
            self.entry(key_file::NAME, &bytes, time)?;
            contents.push(key_file::NAME, bytes.len() as u64, xxh3_64(&bytes));
        }
        for Source { name, file } in &sources.files {
            self.push(entry_header(name, file.bytes, time)?.as_bytes())?;
            let checksum = self.file(disk, file)?;
            self.push(padding(file.bytes))?;
            contents.push(name, file.bytes, checksum);
        }
        let (name, text) = last_entry(&contents);
        self.entry(name, text.as_bytes(), time)?;
        self.push(&TAR_END)?;
        self.flush()
    }

    /// An entry whose bytes are at hand.
    fn entry(&mut self, name: &str, bytes: &[u8], time: u64) -> io::Result<()> {
        let length = bytes.len() as u64;
        self.push(entry_header(name, length, time)?.as_bytes())?;
        self.push(bytes)?;
        self.push(padding(length))
    }

    /// Copies what the cut holds of a file, and says what its checksum is.
    fn file(&mut self, disk: &RealDisk, source: &CutFile) -> io::Result<u64> {
        let mut checksum = Xxh3::new();
        source.read(disk, &mut |piece| {
            self.is_pinned()?;
            checksum.update(piece);
            self.push(piece)
        })?;
        Ok(checksum.digest())
    }

    /// What was read so far is of the cut.
    fn is_pinned(&self) -> io::Result<()> {
        if self.pins.is_broken.load(SeqCst) {
            return Err(io::Error::other("the disk is full, the journal needs what was pinned"));
        }
        Ok(())
    }

    fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let room = PIECE_BYTES - self.gathered.len();
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.gathered.extend_from_slice(now);
            bytes = later;
            if self.gathered.len() == PIECE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.gathered, Vec::with_capacity(PIECE_BYTES));
        self.send(piece.into())
    }

    /// Waits until the connection takes it, as long as it takes anything.
    fn send(&self, mut piece: Bytes) -> io::Result<()> {
        let begun = Instant::now();
        loop {
            match self.pieces.try_send(piece) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Closed(_)) => {
                    return Err(io::Error::other("whoever asked for it has gone"));
                }
                Err(mpsc::error::TrySendError::Full(back)) => piece = back,
            }
            if begun.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(io::Error::other(format!("nothing of it was taken for {seconds} s")));
            }
            self.is_pinned()?;
            thread::sleep(LOOK_AGAIN);
        }
    }
}

/// The archive on its way out.
#[derive(Debug)]
pub(crate) struct Archive {
    left: u64,
    pieces: mpsc::Receiver<Bytes>,
}

impl Archive {
    /// Bytes that are still to come.
    pub(crate) fn bytes(&self) -> u64 {
        self.left
    }

    /// The next piece; `None` at the end.
    pub(crate) fn poll_piece(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let piece = std::task::ready!(self.pieces.poll_recv(context));
        Poll::Ready(match piece {
            Some(piece) => {
                self.left = self.left.saturating_sub(piece.len() as u64);
                Some(Ok(piece))
            }
            None if self.left > 0 => Some(Err(io::ErrorKind::UnexpectedEof.into())),
            None => None,
        })
    }
}
