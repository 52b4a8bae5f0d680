//! `sennit storage`: looks at a data directory while no broker serves it.

use std::path::PathBuf;

use sennit_server::{ShardVerdict, verify_storage};
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    output::{print_json, print_table, talk},
};

const EXAMPLES: &str = "\
Examples:
  sennit storage verify                  the folder ./data
  sennit storage verify --data /var/lib/sennit --json";

/// The arguments of `sennit storage`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Read everything and hold it against its checksums; changes nothing, exit code 1 on damage
    Verify {
        /// The folder that a broker was given
        #[arg(long, value_name = "DIR", default_value = "data")]
        data: PathBuf,
        /// Print JSON, one object for each shard
        #[arg(long)]
        json: bool,
    },
}

/// Runs the verb.
///
/// # Errors
/// The folder cannot be looked at, or something in it is damaged.
pub fn run(args: &Args) -> Result<(), Failure> {
    let Verb::Verify { data, json } = &args.verb;
    let mut verdicts = Vec::new();
    verify_storage(data, |verdict| verdicts.push(verdict))
        .map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
    let damaged: usize = verdicts.iter().map(|shard| shard.verdict.damage.len()).sum();
    if *json {
        verdicts.iter().try_for_each(|shard| print_json(&as_json(shard)))?;
    } else {
        let heads = ["SHARD", "SEGMENTS", "PACKS", "FRAMES", "RECORDS", "BYTES", "DAMAGED"];
        let rows: Vec<_> = verdicts.iter().map(cells).collect();
        print_table(&heads, &rows)?;
        for damage in verdicts.iter().flat_map(|shard| &shard.verdict.damage) {
            let (path, position) = (damage.path.display(), damage.position);
            talk(&format!("{path}: {} bytes at {position}: {}", damage.bytes, damage.what));
        }
    }
    match damaged {
        0 => Ok(()),
        count => Err(Failure::new(Exit::Failed, format!("damaged in {count} places"))),
    }
}

fn cells(ShardVerdict { shard, verdict }: &ShardVerdict) -> Vec<String> {
    let counts = [verdict.segments, verdict.packs, verdict.frames, verdict.records, verdict.bytes];
    let counts = counts.iter().map(u64::to_string);
    let damaged = verdict.damage.len().to_string();
    std::iter::once(shard.to_string()).chain(counts).chain([damaged]).collect()
}

fn as_json(ShardVerdict { shard, verdict }: &ShardVerdict) -> serde_json::Value {
    let damage = verdict.damage.iter().map(|damage| {
        json!({
            "path": damage.path.display().to_string(),
            "position": damage.position.to_string(),
            "bytes": damage.bytes,
            "what": damage.what,
        })
    });
    json!({
        "shard": shard,
        "segments": verdict.segments,
        "packs": verdict.packs,
        "frames": verdict.frames,
        "records": verdict.records,
        "bytes": verdict.bytes,
        "damage": damage.collect::<Vec<_>>(),
    })
}
