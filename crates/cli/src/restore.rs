//! `sennit restore`: fills a new folder from a backup.

use std::{
    fs::File,
    io::{self, BufReader, Read},
    os::fd::AsFd,
    path::{Path, PathBuf},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use sennit_server::{Fault, RestoreError, Restored, restore};
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    interrupt::{FirstSignal, first_signal, signal_name},
    output::{print_json, print_to_stderr, progress_of_bytes},
};

const EXAMPLES: &str = "\
Examples:
  sennit restore sennit.backup --data new-data
  zstd -dc sennit.backup.zst | sennit restore - --data new-data
  sennit serve --data new-data

Nothing is left of the folder if the archive is cut, damaged, or of a newer format, or if Ctrl-C
ends the command. If it is killed, the folder says that it holds part of a restore: remove it. A
broker that was restored knows nothing of what happened after the backup: start clients anew that
knew the old one.";

/// Bytes of one read of the archive.
const READ_BYTES: usize = 1 << 20;

/// The delay of a signal while no bytes come from standard input.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The arguments of `sennit restore`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The archive that `sennit backup` wrote, or - for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// The folder to fill: a new or an empty one
    #[arg(long, value_name = "DIR", default_value = "data")]
    data: PathBuf,
    /// Restore although the data was already damaged at the time of the backup
    #[arg(long)]
    keep_damaged: bool,
    /// Print the summary as a JSON object
    #[arg(long)]
    json: bool,
}

/// Restores a backup.
///
/// # Errors
/// The folder is not empty or cannot be written, or the archive is not a complete backup.
pub fn run(args: &Args) -> Result<(), Failure> {
    let mut is_stopped = false;
    let restored = if args.file == Path::new("-") {
        // As long as what standard input keeps for itself, or longer: else the wait is for what is here.
        let archive = Stoppable::new(io::stdin(), &mut is_stopped);
        let archive = BufReader::with_capacity(READ_BYTES, archive);
        restore(archive, &args.data, args.keep_damaged)
    } else {
        let about = |error: io::Error| Failure::from(error).about(args.file.display());
        let file = File::open(&args.file).map_err(about)?;
        let progress = progress_of_bytes(file.metadata().map_err(about)?.len());
        let archive = BufReader::with_capacity(READ_BYTES, Stoppable::new(file, &mut is_stopped));
        let restored = restore(progress.wrap_read(archive), &args.data, args.keep_damaged);
        progress.finish_and_clear();
        restored
    };
    if is_stopped && restored.is_err() {
        return Err(Failure::new(Exit::Failed, format!("ended by {}", signal_name())));
    }
    let restored = restored.map_err(|error| {
        let failure = Failure::new(exit_of(&error), error.to_string());
        match error {
            RestoreError::Archive(_) | RestoreError::Damaged { .. } => {
                failure.about(args.file.display())
            }
            _ => failure,
        }
    })?;
    say(&restored, args)
}

/// Reads until a signal comes, even while no bytes come.
struct Stoppable<'a, R> {
    source: R,
    signal: FirstSignal,
    is_stopped: &'a mut bool,
}

impl<'a, R> Stoppable<'a, R> {
    fn new(source: R, is_stopped: &'a mut bool) -> Self {
        Self { source, signal: first_signal(|| {}), is_stopped }
    }
}

impl<R: Read + AsFd> Read for Stoppable<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.signal.has_come() {
                *self.is_stopped = true;
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut source = [PollFd::new(&self.source, PollFlags::IN)];
            match poll(&mut source, Some(&LOOK_EVERY)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                // What cannot be waited for can be read.
                Ok(_) | Err(_) => return self.source.read(bytes),
            }
        }
    }
}

fn exit_of(error: &RestoreError) -> Exit {
    match error {
        RestoreError::Directory(
            Fault::NotEmpty { .. } | Fault::InUse { .. } | Fault::UnfinishedRestore { .. },
        ) => Exit::Conflict,
        _ => Exit::Failed,
    }
}

fn say(restored: &Restored, args: &Args) -> Result<(), Failure> {
    let archive = restored.archive;
    let (shards, files, bytes) = (archive.shards, archive.files, archive.bytes);
    let records: u64 = restored.verdicts.iter().map(|shard| shard.verdict.records).sum();
    let damage = || restored.verdicts.iter().flat_map(|shard| &shard.verdict.damage);
    for damage in damage() {
        print_to_stderr(&damage.clone().into_fault().to_string());
    }
    if args.json {
        return print_json(&json!({
            "data": args.data.display().to_string(),
            "shards": shards,
            "files": files,
            "bytes": bytes,
            "records": records,
            "damaged": damage().count(),
        }));
    }
    let data = args.data.display();
    print_to_stderr(&format!(
        "restored {shards} shards, {files} files, {records} records to {data}"
    ));
    Ok(())
}
