//! `sennit backup`: takes the archive that a broker makes of all it holds, looks whether it is
//! whole while it comes, and says so only when it is durable.

use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt, Empty};
use hyper::{Request, Response, StatusCode, body::Incoming, header};
use hyper_util::rt::TokioIo;
use indicatif::ProgressBar;
use sennit_server::{ArchiveError, ArchiveSummary, check_archive};
use serde_json::json;
use tokio::{net::TcpStream, runtime::Runtime, time::timeout};

use crate::{
    exit::{Exit, Failure},
    output::{print_json, progress_of_bytes, talk},
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

/// How long the broker may take to say or send something.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest rest between two reads: the broker must not take us for gone.
const REST_MAX: Duration = Duration::from_secs(5);

/// Bytes that are written to the file at once.
const WRITE_BYTES: usize = 1 << 20;

/// The arguments of `sennit backup`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The file to write, or - for standard output
    #[arg(long, value_name = "FILE|-")]
    to: PathBuf,
    /// The broker's HTTP address, host and port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:4437", env = "SENNIT_HTTP")]
    http: String,
    /// Take so many bytes a second at most, so that the broker's disk has time for others
    #[arg(long, value_name = "SIZE", value_parser = quantity::size)]
    rate: Option<u64>,
    /// Replace the file if it is there, once the new one is whole
    #[arg(long)]
    overwrite: bool,
    /// Print what was backed up as a JSON object
    #[arg(long)]
    json: bool,
}

/// Writes a backup.
///
/// # Errors
/// The broker cannot be reached or makes no backup now, the file cannot be written, or what came is
/// not whole. No file is left then.
pub fn run(args: &Args) -> Result<(), Failure> {
    if args.to == Path::new("-") {
        let (archive, mut out) = (Archive::ask(&args.http)?, io::stdout().lock());
        let summary = archive.write(&mut out, args.rate)?;
        out.flush()?;
        talk(&said(&summary, "standard output"));
        return Ok(());
    }
    let shown = args.to.display().to_string();
    if args.to.exists() && !args.overwrite {
        let text = format!("{shown} is there already; choose another name, or give --overwrite");
        return Err(Failure::new(Exit::Conflict, text));
    }
    let archive = Archive::ask(&args.http)?;
    let part = part_of(&args.to);
    let written = write_file(archive, &part, args);
    if written.is_err() {
        // It is of no use to anybody. If it cannot be removed it still has the name of a part.
        let _ = fs::remove_file(&part);
    }
    let summary = written?;
    if args.json {
        let ArchiveSummary { shards, files, bytes } = summary;
        print_json(&json!({ "file": shown, "shards": shards, "files": files, "bytes": bytes }))
    } else {
        talk(&said(&summary, &shown));
        Ok(())
    }
}

fn said(summary: &ArchiveSummary, place: &str) -> String {
    let ArchiveSummary { shards, files, bytes } = summary;
    format!("backed up {shards} shards, {files} files, {bytes} bytes to {place}")
}

/// Where the file grows until it is whole.
fn part_of(file: &Path) -> PathBuf {
    let mut name = OsString::from(file);
    name.push(".part");
    PathBuf::from(name)
}

/// Writes the archive to `part`, syncs it, and gives it its name.
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

/// A file for its owner alone: what is in it is all that the broker knows, its own keys too.
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
    body: Incoming,
    /// How long it is.
    bytes: u64,
    /// Where it comes from.
    http: String,
}

impl Archive {
    fn ask(http: &str) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let response = runtime.block_on(async { timeout(PATIENCE, get(http)).await });
        let late = |_| Failure::new(Exit::Unreachable, format!("{http} does not answer"));
        let response = response.map_err(late)??;
        let status = response.status();
        let length = response.headers().get(header::CONTENT_LENGTH);
        let bytes = length.and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
        let mut archive =
            Self { runtime, body: response.into_body(), bytes, http: http.to_owned() };
        if status == StatusCode::OK {
            return Ok(archive);
        }
        let mut detail = Vec::new();
        let mut body = Body { archive: &mut archive, left: Bytes::new(), failed: None };
        // What cannot be read is not said.
        let _ = body.by_ref().take(4096).read_to_end(&mut detail);
        Err(refusal(http, status, &detail))
    }

    /// Writes all of it to `out` while it is looked through.
    fn write(mut self, out: &mut impl Write, rate: Option<u64>) -> Result<ArchiveSummary, Failure> {
        let (bytes, http) = (self.bytes, self.http.clone());
        let body = Body { archive: &mut self, left: Bytes::new(), failed: None };
        let progress = progress_of_bytes(bytes);
        let begun = Instant::now();
        let mut copy = Copy { body, out, failed: None, progress, bytes: 0, begun, rate };
        let checked = check_archive(&mut copy).and_then(|summary| {
            io::copy(&mut copy, &mut io::sink()).map_err(ArchiveError::Read)?;
            Ok(summary)
        });
        copy.progress.finish_and_clear();
        if let Some(error) = copy.failed {
            return Err(Failure::from(error).about("the backup cannot be written"));
        }
        if let Some(why) = copy.body.failed {
            let came = copy.bytes;
            let text = format!(
                "{http} ended the backup after {came} of {bytes} bytes, its log may say why: {why}"
            );
            return Err(Failure::new(Exit::Unreachable, text));
        }
        checked.map_err(|error| Failure::new(Exit::Failed, error.to_string()).about(http))
    }
}

async fn get(http: &str) -> Result<Response<Incoming>, Failure> {
    let unreachable = |error: &dyn std::fmt::Display| {
        Failure::new(Exit::Unreachable, format!("no broker answers at {http}: {error}"))
    };
    let stream = TcpStream::connect(http).await.map_err(|error| unreachable(&error))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| unreachable(&error))?;
    tokio::spawn(async move {
        // What goes wrong with it is seen where its bytes are read.
        let _ = connection.await;
    });
    let request = Request::get("/v1/admin/backup")
        .header(header::HOST, http)
        .body(Empty::<Bytes>::new())
        .map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    sender.send_request(request).await.map_err(|error| unreachable(&error))
}

fn refusal(http: &str, status: StatusCode, body: &[u8]) -> Failure {
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("is this the HTTP port of a broker?");
    let exit = match status {
        StatusCode::CONFLICT => Exit::Conflict,
        StatusCode::SERVICE_UNAVAILABLE => Exit::Unreachable,
        _ => Exit::Failed,
    };
    Failure::new(exit, format!("{http} makes no backup ({}): {detail}", status.as_u16()))
}

/// The bytes that the broker sends, as they come.
struct Body<'a> {
    archive: &'a mut Archive,
    left: Bytes,
    /// Why no more come.
    failed: Option<String>,
}

impl Read for Body<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.left.is_empty() {
            let Archive { runtime, body, .. } = &mut *self.archive;
            let why = match runtime.block_on(async { timeout(PATIENCE, body.frame()).await }) {
                Ok(None) => return Ok(0),
                Ok(Some(Ok(frame))) => {
                    self.left = frame.into_data().unwrap_or_default();
                    continue;
                }
                Ok(Some(Err(error))) => error.to_string(),
                Err(_) => format!("nothing came for {} s", PATIENCE.as_secs()),
            };
            self.failed = Some(why);
            return Err(io::ErrorKind::UnexpectedEof.into());
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
    begun: Instant,
    /// Bytes a second, at most.
    rate: Option<u64>,
}

impl<W> Copy<'_, W> {
    /// Rests until so much may have come. What is not taken the broker does not read.
    fn keep_pace(&self) {
        if let Some(rate) = self.rate {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
            std::thread::sleep(due.saturating_sub(self.begun.elapsed()).min(REST_MAX));
        }
    }
}

impl<W: Write> Read for Copy<'_, W> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.body.read(bytes)?;
        if let Err(error) = self.out.write_all(&bytes[..count]) {
            let said = io::Error::new(error.kind(), error.to_string());
            self.failed = Some(error);
            return Err(said);
        }
        self.bytes += count as u64;
        self.progress.set_position(self.bytes);
        self.keep_pace();
        Ok(count)
    }
}
