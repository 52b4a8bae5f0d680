//! `sennit backup`: receives the archive of a broker, checks it on the way, and reports success once it is durable.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    pin::Pin,
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use hyper::header;
use indicatif::ProgressBar;
use sennit_server::{ArchiveError, ArchiveSummary, check_archive};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::{
    exit::{Exit, Failure},
    http::{ConnectOptions, StreamedAnswer},
    interrupt::{interrupted, signal_name},
    output::{print_json, print_to_stderr, progress_of_bytes},
    quantity,
};

const EXAMPLES: &str = "\
Examples:
  sennit backup --to sennit.backup
  sennit backup --to - | zstd > sennit.backup.zst
  sennit backup --to sennit.backup --rate 20MiB
  sennit restore sennit.backup --data new-data

The broker goes on meanwhile. All that was confirmed before the command began is in the archive, and
the broker's own keys: the file is as secret as the data directory, and for its owner alone. One backup
runs at a time; when the disk gets full it is given up, and the broker goes on.";

/// The longest pause between two reads, so that the broker does not drop the connection.
const REST_MAX: Duration = Duration::from_secs(5);

/// Bytes of one write to the file.
const WRITE_BYTES: usize = 1 << 20;

/// The arguments of `sennit backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write, or - for standard output
    #[arg(long, value_name = "FILE|-")]
    to: PathBuf,
    #[command(flatten)]
    connect: ConnectOptions,
    /// The most bytes to read in a second, so that the broker's disk has time for others
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    rate: Option<u64>,
    /// Replace an existing file once the new one is complete
    #[arg(long)]
    overwrite: bool,
    /// Print the summary as a JSON object; to standard error if the backup goes to standard output
    #[arg(long)]
    json: bool,
}

/// Writes a backup.
///
/// # Errors
/// The broker cannot be reached or makes no backup now, the file cannot be written, the archive is
/// incomplete, or a signal ended the verb. No file is left then.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.to == Path::new("-") {
        let (archive, mut out) = (Archive::ask(&args.connect)?, io::stdout().lock());
        let summary = archive.write(&mut out, args.rate)?;
        out.flush()?;
        print_to_stderr(&if args.json {
            summary_json(&summary, "-").to_string()
        } else {
            summary_text(&summary, "standard output")
        });
        return Ok(());
    }
    let file_name = args.to.display().to_string();
    if args.to.exists() && !args.overwrite {
        let text =
            format!("{file_name} is there already; choose another name, or give --overwrite");
        return Err(Failure::new(Exit::Conflict, text));
    }
    let archive = Archive::ask(&args.connect)?;
    let part = temporary_path(&args.to);
    let written = write_file(archive, &part, args);
    if written.is_err() {
        // It is of no use to anybody. If it cannot be removed it still has the name of a part.
        let _ = fs::remove_file(&part);
    }
    let summary = written?;
    if args.json {
        print_json(&summary_json(&summary, &file_name))
    } else {
        print_to_stderr(&summary_text(&summary, &file_name));
        Ok(())
    }
}

fn summary_json(summary: &ArchiveSummary, file: &str) -> Value {
    let ArchiveSummary { shards, files, bytes } = summary;
    json!({ "file": file, "shards": shards, "files": files, "bytes": bytes })
}

fn summary_text(summary: &ArchiveSummary, place: &str) -> String {
    let ArchiveSummary { shards, files, bytes } = summary;
    format!("backed up {shards} shards, {files} files, {bytes} bytes to {place}")
}

/// The path of the file until it is complete.
fn temporary_path(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".part");
    PathBuf::from(name)
}

/// Writes the archive to `part`, syncs it, and renames it.
fn write_file(archive: Archive, part: &Path, args: &Args) -> Result<ArchiveSummary, Failure> {
    let file = &args.to;
    let about = |path: &Path| {
        let path = path.display().to_string();
        move |error: io::Error| Failure::from(error).about(path)
    };
    let mut out = BufWriter::with_capacity(WRITE_BYTES, create(part).map_err(about(part))?);
    let summary = archive.write(&mut out, args.rate)?;
    let out = out.into_inner().map_err(|error| about(part)(error.into_error()))?;
    out.sync_all().map_err(about(part))?;
    fs::rename(part, file).map_err(about(file))?;
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(about(folder))?;
    Ok(summary)
}

/// Creates a file that only its owner can read, because a backup contains all data and keys of the
/// broker.
fn create(part: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(part)?;
    // What somebody left of another one may be for others as well.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// An archive that a broker has begun to send.
struct Archive {
    runtime: Runtime,
    answer: StreamedAnswer,
    /// How long it is.
    bytes: u64,
    /// Where it comes from.
    http: String,
    /// Done once a signal has come.
    interrupted: Pin<Box<dyn Future<Output = ()>>>,
}

impl Archive {
    fn ask(connect: &ConnectOptions) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (http, answer) = runtime.block_on(async {
            let mut connection = connect.connect().await?;
            let http = connection.address.clone();
            let begun = connection.begin("GET", "/v1/admin/backup", &[], Bytes::new()).await;
            let begun = begun.map_err(|refused| match refused.exit {
                Exit::NotFound => {
                    let text = format!("{http} knows no backups: is it the HTTP port of a broker?");
                    Failure::new(Exit::Failed, text)
                }
                _ => refused.about(format!("{http} makes no backup")),
            })?;
            Ok::<_, Failure>((http, begun))
        })?;
        let length = answer.answer.header(header::CONTENT_LENGTH.as_str());
        let bytes = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        Ok(Self { runtime, answer, bytes, http, interrupted: Box::pin(interrupted()) })
    }

    /// Writes all of it to `out` while it is looked through.
    fn write(mut self, out: &mut impl Write, rate: Option<u64>) -> Result<ArchiveSummary, Failure> {
        let (bytes, http) = (self.bytes, self.http.clone());
        let body = Body { archive: &mut self, left: Bytes::new(), failed: None, is_stopped: false };
        let progress = progress_of_bytes(bytes);
        let started_at = Instant::now();
        let mut copy = Copy { body, out, failed: None, progress, bytes: 0, started_at, rate };
        let checked = check_archive(&mut copy).and_then(|summary| {
            io::copy(&mut copy, &mut io::sink()).map_err(ArchiveError::Read)?;
            Ok(summary)
        });
        copy.progress.finish_and_clear();
        if let Some(error) = copy.failed {
            return Err(Failure::from(error).about("the backup cannot be written"));
        }
        if copy.body.is_stopped {
            let (came, name) = (copy.bytes, signal_name());
            let text = format!("ended by {name} after {came} of {bytes} bytes");
            return Err(Failure::new(Exit::Failed, text));
        }
        if let Some(failed) = copy.body.failed {
            let came = copy.bytes;
            return Err(failed.about(format!(
                "{http} ended the backup after {came} of {bytes} bytes, its log may say why"
            )));
        }
        checked.map_err(|error| Failure::new(Exit::Failed, error.to_string()).about(http))
    }
}

/// The bytes that the broker sends, as they come.
struct Body<'a> {
    archive: &'a mut Archive,
    left: Bytes,
    /// The reason why no more come.
    failed: Option<Failure>,
    /// Whether a signal has ended it.
    is_stopped: bool,
}

impl Read for Body<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        if self.is_stopped {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while self.left.is_empty() {
            let Archive { runtime, answer, interrupted, .. } = &mut *self.archive;
            let next = async {
                tokio::select! {
                    piece = answer.piece() => Some(piece),
                    () = interrupted => None,
                }
            };
            match runtime.block_on(next) {
                None => {
                    self.is_stopped = true;
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Some(Ok(None)) => return Ok(0),
                Some(Ok(Some(piece))) => self.left = piece,
                Some(Err(failure)) => {
                    self.failed = Some(failure);
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
        let count = self.left.len().min(bytes.len());
        self.left.copy_to_slice(&mut bytes[..count]);
        Ok(count)
    }
}

/// Writes what is read.
struct Copy<'a, W> {
    body: Body<'a>,
    out: &'a mut W,
    failed: Option<io::Error>,
    progress: ProgressBar,
    bytes: u64,
    started_at: Instant,
    /// Bytes a second, at most.
    rate: Option<u64>,
}

impl<W> Copy<'_, W> {
    /// Rests until so much may have come. What is not taken the broker does not read.
    fn keep_pace(&self) {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(self.started_at.elapsed()).min(REST_MAX));
        }
    }
}

impl<W: Write> Read for Copy<'_, W> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(bytes)?;
        if let Err(error) = self.out.write_all(&bytes[..count]) {
            let cause = io::Error::new(error.kind(), error.to_string());
            self.failed = Some(error);
            return Err(cause);
        }
        self.bytes += count as u64;
        self.progress.set_position(self.bytes);
        self.keep_pace();
        Ok(count)
    }
}
