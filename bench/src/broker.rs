//! The measured broker: a running one, or one in a process of its own, which can be killed and restarted.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{ChildStderr, ChildStdout, Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tempfile::TempDir;

use crate::{
    children::ChildProcess,
    connect::{pinned, with_key},
    options::Options,
    usage::is_ready,
};

/// The time between two checks whether a starting broker is ready.
const READY_LOOK: Duration = Duration::from_millis(1);

/// Time within which a broker starts.
const READY_TIMEOUT: Duration = Duration::from_secs(600);

/// A broker's addresses, and its process and data directory if they are known.
pub struct Broker {
    /// Its address.
    pub server: String,
    /// The address of its HTTP port, which has its metrics.
    pub http: String,
    /// Its process, if it runs on this machine and is known.
    pub pid: Option<u32>,
    /// Its data directory, if it is known.
    pub data: Option<PathBuf>,
    own: Option<OwnBroker>,
}

struct OwnBroker {
    child: ChildProcess,
    data: PathBuf,
    flags: Vec<String>,
    log: SharedRecovered,
    /// A new data directory, which is removed with the broker.
    _data: Option<FreshFolder>,
}

/// The output of `sennit serve --json`.
#[derive(Deserialize)]
struct Addresses {
    listen: String,
    http: String,
    #[serde(default)]
    tls: Option<Known>,
    #[serde(default)]
    admin_key: Option<String>,
}

/// By what a broker with TLS is known.
#[derive(Deserialize)]
struct Known {
    fingerprint: String,
}

/// The replay of a broker since its last start, from its log: the sum over its shards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The number of shards that have reported their replay.
    pub shards: u32,
    /// The number of replayed records.
    pub records: u64,
    /// The bytes of replayed records.
    pub bytes: u64,
}

type SharedRecovered = Arc<Mutex<Recovered>>;

/// A broker that starts, and the instant from which the start is measured.
pub struct StartingBroker {
    begun: Instant,
    ready: Receiver<Result<Duration>>,
}

impl StartingBroker {
    /// The instant at which the process was started.
    #[must_use]
    pub fn begun(&self) -> Instant {
        self.begun
    }

    /// Waits until `/readyz` reports success. Returns the duration.
    ///
    /// # Errors
    /// The broker does not become ready.
    pub fn ready(&self) -> Result<Duration> {
        self.ready.recv().context("nobody looks whether the broker is ready")?
    }
}

impl Broker {
    /// The broker of `options`. Starts it if they say so.
    ///
    /// # Errors
    /// The broker does not start.
    pub fn of(options: &Options) -> Result<Self> {
        if options.serve {
            return Self::start(options, &[]);
        }
        Ok(Self {
            server: match &options.tls_fingerprint {
                Some(fingerprint) => pinned(fingerprint, &options.server),
                None => options.server.clone(),
            },
            http: options.http.clone(),
            pid: options.pid,
            data: options.data.clone(),
            own: None,
        })
    }

    /// The same broker. Dropped, it goes on.
    #[must_use]
    pub fn reached(&self) -> Self {
        self.reached_at(self.server.clone())
    }

    /// The same broker, reached at another address or with another key. Dropped, it goes on.
    #[must_use]
    pub fn reached_at(&self, server: String) -> Self {
        let (http, pid, data) = (self.http.clone(), self.pid, self.data.clone());
        Self { server, http, pid, data, own: None }
    }

    /// Starts a broker with `flags` in addition to `options`.
    ///
    /// # Errors
    /// The broker does not start.
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
        if options.serve_tls {
            flags.extend(["--tls".to_owned(), "self".to_owned()]);
        }
        if options.serve_auth {
            flags.push("--init-admin".to_owned());
        }
        let log = SharedRecovered::default();
        let (mut child, stdout) = spawn(&data, ["127.0.0.1:0"; 2], &flags, &log)?;
        let addresses = addresses(&mut child, stdout)?;
        Ok(Self {
            server: {
                let server = match &addresses.tls {
                    Some(tls) => pinned(&tls.fingerprint, &addresses.listen),
                    None => addresses.listen,
                };
                addresses.admin_key.map(|key| with_key(&key, &server)).unwrap_or(server)
            },
            http: addresses.http,
            pid: Some(child.id()),
            data: Some(data.clone()),
            own: Some(OwnBroker { child, data, flags, log, _data: kept }),
        })
    }

    /// Kills the broker, and waits for the end of its process.
    ///
    /// # Errors
    /// This process did not start the broker.
    pub fn kill(&mut self) -> Result<()> {
        let own = self.own.as_mut().context("only a broker of our own is killed")?;
        Ok(own.child.kill()?)
    }

    /// Starts the broker again after [`Self::kill`], with the same folder and addresses. Returns immediately.
    ///
    /// # Errors
    /// This process did not start the broker, or the new process does not start.
    pub fn start_again(&mut self) -> Result<StartingBroker> {
        let own = self.own.as_mut().context("only a broker of our own is started again")?;
        *own.log.lock().unwrap_or_else(PoisonError::into_inner) = Recovered::default();
        let begun = Instant::now();
        let listen = self.server.rsplit(['@', '#']).next().unwrap_or_default();
        let (child, stdout) = spawn(&own.data, [listen, &self.http], &own.flags, &own.log)?;
        own.child = child;
        self.pid = Some(own.child.id());
        let (sender, ready) = mpsc::channel();
        let http = self.http.clone();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        // A run that was stopped does not wait for it.
        thread::spawn(move || drop(sender.send(wait_until_ready(&http, begun, &has_ended))));
        thread::spawn(move || {
            // This reads the pipe to its end, so that the broker never writes to a pipe without a reader.
            BufReader::new(stdout).lines().map_while(Result::ok).for_each(drop);
            ended.store(true, Relaxed);
        });
        Ok(StartingBroker { begun, ready })
    }

    /// The replay since the last start, from the broker's log.
    #[must_use]
    pub fn recovered(&self) -> Recovered {
        self.own.as_ref().map_or_else(Recovered::default, |own| {
            *own.log.lock().unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// A folder on the disk that the broker writes to, as far as it is known.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.data.clone().unwrap_or_else(|| PathBuf::from("."))
    }
}

fn spawn(
    data: &Path,
    [listen, http]: [&str; 2],
    flags: &[String],
    log: &SharedRecovered,
) -> Result<(ChildProcess, ChildStdout)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve", "--json", "--log-json", "--listen", listen, "--http", http]);
    // However this process ends, its end of that pipe closes, and the broker ends too.
    command.arg("--until-stdin-ends");
    command.arg("--data").arg(data).args(flags);
    if std::env::var_os("RUST_LOG").is_none() {
        command.env("RUST_LOG", "warn,sennit_server::core_thread=info");
    }
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = ChildProcess::spawn(piped)?;
    let stdout = child.child().stdout.take().context("the broker has a standard output")?;
    let logged = child.child().stderr.take().context("the broker has a standard error")?;
    let log = Arc::clone(log);
    thread::spawn(move || read_log(logged, &log));
    Ok((child, stdout))
}

fn addresses(child: &mut ChildProcess, stdout: ChildStdout) -> Result<Addresses> {
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(addresses) => Ok(addresses),
        Err(_) => bail!("the broker did not start: {}", child.child().wait()?),
    }
}

/// Reads the replay from log lines, and passes on all other lines.
fn read_log(logged: ChildStderr, log: &SharedRecovered) {
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
                // A closed standard error is no error.
                let _ = writeln!(std::io::stderr(), "{line}");
            }
        }
    }
}

fn wait_until_ready(http: &str, begun: Instant, has_ended: &AtomicBool) -> Result<Duration> {
    while begun.elapsed() < READY_TIMEOUT {
        if is_ready(http) {
            return Ok(begun.elapsed());
        }
        ensure!(!has_ended.load(Relaxed), "the broker ended before it was ready");
        thread::sleep(READY_LOOK);
    }
    bail!("the broker was not ready after {READY_TIMEOUT:?}")
}

/// A folder that is removed with its contents.
pub struct FreshFolder {
    folder: Option<TempDir>,
    /// A parent folder that was created for it.
    above: Option<PathBuf>,
}

impl FreshFolder {
    /// The path.
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
        // A folder that is not empty stays.
        let _ = self.above.take().map(std::fs::remove_dir);
    }
}

/// Creates a folder on a disk: below ./bench-results if possible, otherwise in the folder for temporary files.
pub fn fresh_folder() -> Result<FreshFolder> {
    let results = Path::new("bench-results");
    let is_new = !results.exists();
    let created = std::fs::create_dir_all(results)
        .and_then(|()| tempfile::Builder::new().prefix("data-").tempdir_in(results));
    Ok(match created {
        Ok(folder) => {
            FreshFolder { folder: Some(folder), above: is_new.then(|| results.to_owned()) }
        }
        Err(_) => tempfile::tempdir()?.into(),
    })
}

/// The nearest existing folder on the disk of `folder`: `folder` itself or one above it.
#[must_use]
pub fn nearest_folder(folder: &Path) -> &Path {
    let above = folder.ancestors().find(|above| above.is_dir());
    above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The disk space of all files below `folder`, in bytes.
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

/// Whether `folder` lies in memory. A sync costs nothing there, so measurements mean nothing.
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
