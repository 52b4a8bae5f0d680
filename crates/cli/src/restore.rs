//! `sennit restore`: fills a new folder with what a backup holds.

use std::{
    fs::File,
    io::{self, BufReader},
    path::{Path, PathBuf},
};

use sennit_server::{Fault, RestoreError, Restored, restore};
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    output::{print_json, progress_of_bytes, talk},
};

const EXAMPLES: &str = "\
Examples:
  sennit restore sennit.backup --data new-data
  zstd -dc sennit.backup.zst | sennit restore - --data new-data
  sennit serve --data new-data

Nothing is left in the folder if the archive is cut, damaged, or of a newer format. A broker that was
restored knows nothing of what happened after the backup: start clients anew that knew the old one.";

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
    /// Restore although the data was damaged already when it was backed up
    #[arg(long)]
    keep_damaged: bool,
    /// Print what was restored as a JSON object
    #[arg(long)]
    json: bool,
}

/// Restores a backup.
///
/// # Errors
/// The folder is not empty or cannot be written, or the archive is no whole backup.
pub fn run(args: &Args) -> Result<(), Failure> {
    let restored = if args.file == Path::new("-") {
        restore(io::stdin().lock(), &args.data, args.keep_damaged)
    } else {
        let about = |error: io::Error| Failure::from(error).about(args.file.display());
        let file = File::open(&args.file).map_err(about)?;
        let progress = progress_of_bytes(file.metadata().map_err(about)?.len());
        let reader = progress.wrap_read(BufReader::with_capacity(1 << 20, file));
        let restored = restore(reader, &args.data, args.keep_damaged);
        progress.finish_and_clear();
        restored
    };
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

fn exit_of(error: &RestoreError) -> Exit {
    match error {
        RestoreError::Directory(Fault::NotEmpty { .. } | Fault::InUse { .. }) => Exit::Conflict,
        _ => Exit::Failed,
    }
}

fn say(restored: &Restored, args: &Args) -> Result<(), Failure> {
    let archive = restored.archive;
    let (shards, files, bytes) = (archive.shards, archive.files, archive.bytes);
    let records: u64 = restored.verdicts.iter().map(|shard| shard.verdict.records).sum();
    let damage = || restored.verdicts.iter().flat_map(|shard| &shard.verdict.damage);
    for damage in damage() {
        talk(&damage.clone().into_fault().to_string());
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
    talk(&format!("restored {shards} shards, {files} files, {records} records to {data}"));
    Ok(())
}
