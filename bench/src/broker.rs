//! The measured broker: a running one, or one in a process of its own, which can be killed and restarted.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{ChildStderr, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{children::Running, options::Options, usage::is_ready};

/// How often a broker that starts is asked whether it is ready.
const READY_LOOK: Duration = Duration::from_millis(1);

/// How long a broker may take to start.
const READY_TIMEOUT: Duration = Duration::from_secs(600);

/// Where a broker is, and what may be asked of the kernel about it.
pub struct Broker {
    /// Its address.
    pub server: String,
    /// Where its metrics are.
    pub http: String,
    /// Its process, if it is on this machine and known.
    pub pid: Option<u32>,
    /// Where its journal is, if known.
    pub data: Option<PathBuf>,
    own: Option<Own>,
}

struct Own {
    child: Running,
    data: PathBuf,
    flags: Vec<String>,
    log: Log,
    /// Removed with the broker.
    _data: Option<FreshFolder>,
}

/// What `sennit serve --json` prints.
#[derive(Deserialize)]
struct Addresses {
    listen: String,
    http: String,
}

/// What a broker's log says of its journals, summed over its shards since it was last started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Shards that have told.
    pub shards: u32,
    /// Records that were replayed.
    pub records: u64,
    /// Bytes of them.
    pub bytes: u64,
}

type Log = Arc<Mutex<Recovered>>;

/// A broker that was told to start, and from when on that is measured.
pub struct Starting {
    begun: Instant,
    ready: Receiver<Result<Duration>>,
}

impl Starting {
    /// When it was told.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits until `/readyz` has said so; how long that took.
    ///
    /// # Errors
    /// It never did.
    pub fn ready(&self) -> Result<Duration> {
        self.ready.recv().context("nobody looks whether the broker is ready")?
    }
}

impl Broker {
    /// The broker that `options` name, started if they say so.
    ///
    /// # Errors
    /// It does not start.
    pub fn of(options: &Options) -> Result<Self> {
        if options.serve {
            return Self::start(options, &[]);
        }
        Ok(Self {
            server: options.server.clone(),
            http: options.http.clone(),
            pid: options.pid,
            data: options.data.clone(),
            own: None,
        })
    }

    /// A broker of our own, told `flags` besides what `options` say.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(options: &Options, flags: &[&str]) -> Result<Self> {
        let (data, kept) = match &options.data {
            Some(data) => (data.clone(), None),
            None => {
                let fresh = fresh_folder()?;
                (fresh.path().to_owned(), Some(fresh))
            }
        };
        let mut flags: Vec<String> = flags.iter().map(|&flag| flag.to_owned()).collect();
        if let Some(shards) = options.shards {
            flags.extend(["--shards".to_owned(), shards.to_string()]);
        }
        let log = Log::default();
        let (mut child, said) = spawn(&data, ["127.0.0.1:0"; 2], &flags, &log)?;
        let addresses = addresses(&mut child, said)?;
        Ok(Self {
            server: addresses.listen,
            http: addresses.http,
            pid: Some(child.id()),
            data: Some(data.clone()),
            own: Some(Own { child, data, flags, log, _data: kept }),
        })
    }

    /// Ends it without warning, and waits until the kernel has cleared it away.
    ///
    /// # Errors
    /// It is not ours.
    pub fn kill(&mut self) -> Result<()> {
        let own = self.own.as_mut().context("only a broker of our own is killed")?;
        Ok(own.child.kill()?)
    }

    /// Starts it again after [`Self::kill`]: the same folder, the same addresses. Returns at once.
    ///
    /// # Errors
    /// It is not ours, or the process does not start.
    pub fn start_again(&mut self) -> Result<Starting> {
        let own = self.own.as_mut().context("only a broker of our own is started again")?;
        *own.log.lock().unwrap_or_else(PoisonError::into_inner) = Recovered::default();
        let begun = Instant::now();
        let (child, said) = spawn(&own.data, [&self.server, &self.http], &own.flags, &own.log)?;
        own.child = child;
        self.pid = Some(own.child.id());
        let (sender, ready) = mpsc::channel();
        let http = self.http.clone();
        thread::spawn(move || {
            let ready = wait_until_ready(&http, begun);
            // Nobody waits any more if the run was given up.
            let _ = sender.send(ready);
            // Read to its end, so that the broker never writes to a pipe without a reader.
            BufReader::new(said).lines().map_while(Result::ok).for_each(drop);
        });
        Ok(Starting { begun, ready })
    }

    /// What its log has said of its journals since it was started last.
    #[must_use]
    pub fn recovered(&self) -> Recovered {
        self.own.as_ref().map_or_else(Recovered::default, |own| {
            *own.log.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// The folder whose disk the broker writes to, as well as it is known.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| PathBuf::from("."))
    }
}

fn spawn(
    data: &Path,
    [listen, http]: [&str; 2],
    flags: &[String],
    log: &Log,
) -> Result<(Running, ChildStdout)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--json", "--log-json", "--listen", listen, "--http", http]);
    // However this process ends, its end of that pipe closes, and the broker ends too.
    command.arg("--until-stdin-ends");
    command.arg("--data").arg(data).args(flags);
    if std::env::var_os("RUST_LOG").is_none() {
        command.env("RUST_LOG", "warn,sennit_server::core_thread=info");
    }
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = Running::spawn(piped)?;
    let said = child.child().stdout.take().context("the broker has a standard output")?;
    let logged = child.child().stderr.take().context("the broker has a standard error")?;
    let log = Arc::clone(log);
    thread::spawn(move || read_log(logged, &log));
    Ok((child, said))
}

fn addresses(child: &mut Running, said: ChildStdout) -> Result<Addresses> {
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(addresses) => Ok(addresses),
        Err(_) => bail!("the broker did not start: {}", child.child().wait()?),
    }
}

/// Notes what was recovered, and passes on everything else.
fn read_log(logged: ChildStderr, log: &Log) {
    #[derive(Deserialize)]
    struct Line {
        fields: Fields,
    }
    #[derive(Deserialize)]
    struct Fields {
        message: String,
        records: u64,
        bytes: u64,
    }
    for line in BufReader::new(logged).lines().map_while(Result::ok) {
        match serde_json::from_str::<Line>(&line) {
            Ok(Line { fields }) if fields.message == "recovered" => {
                let mut sum = log.lock().unwrap_or_else(PoisonError::into_inner);
                sum.shards += 1;
                sum.records += fields.records;
                sum.bytes += fields.bytes;
            }
            _ => {
                // Whoever reads it has gone, or it is said.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
    }
}

fn wait_until_ready(http: &str, begun: Instant) -> Result<Duration> {
    while begun.elapsed() < READY_TIMEOUT {
        if is_ready(http) {
            return Ok(begun.elapsed());
        }
        thread::sleep(READY_LOOK);
    }
    bail!("the broker was not ready after {READY_TIMEOUT:?}")
}

/// A folder that is removed with all that is in it.
pub struct FreshFolder {
    folder: Option<TempDir>,
    /// What was made to hold it.
    above: Option<PathBuf>,
}

impl FreshFolder {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.as_ref().map_or(Path::new("."), TempDir::path)
    }
}

impl From<TempDir> for FreshFolder {
    fn from(folder: TempDir) -> Self {
        Self { folder: Some(folder), above: None }
    }
}

impl Drop for FreshFolder {
    fn drop(&mut self) {
        drop(self.folder.take());
        // It stays if somebody keeps something in it.
        let _ = self.above.take().map(std::fs::remove_dir);
    }
}

/// A fresh folder on a disk: below ./bench-results where that can be made, else where temporary
/// files go.
pub fn fresh_folder() -> Result<FreshFolder> {
    let results = Path::new("bench-results");
    let is_new = !results.exists();
    let made = std::fs::create_dir_all(results)
        .and_then(|()| tempfile::Builder::new().prefix("data-").tempdir_in(results));
    Ok(match made {
        Ok(folder) => {
            FreshFolder { folder: Some(folder), above: is_new.then(|| results.to_owned()) }
        }
        Err(_) => tempfile::tempdir()?.into(),
    })
}

/// A folder that is there, and on whose disk `folder` lies or will lie: itself, or what is above it.
#[must_use]
pub fn nearest_folder(folder: &Path) -> &Path {
    let above = folder.ancestors().find(|above| above.is_dir());
    above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Bytes that the files below `folder` take on its disk.
#[must_use]
pub fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}

/// Whether `folder` lies in memory, where a sync costs nothing and a figure means nothing.
#[must_use]
pub fn lies_in_memory(folder: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    const RAMFS: u64 = 0x8584_58f6;
    rustix::fs::statfs(folder).is_ok_and(|statfs| [TMPFS, RAMFS].contains(&(statfs.f_type as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_folder_is_there_and_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(nearest_folder(folder.path()), folder.path());
        assert_eq!(nearest_folder(&folder.path().join("one/two")), folder.path());
        assert_eq!(nearest_folder(Path::new("no-such-folder")), Path::new("."));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_in_memory_is_told_from_one_on_disk() {
        assert!(!lies_in_memory(Path::new("/proc")));
        if Path::new("/dev/shm").is_dir() {
            assert!(lies_in_memory(Path::new("/dev/shm")));
        }
    }
}
