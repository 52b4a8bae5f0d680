//! `sennit storage`: verifies or repairs a data directory that no broker serves.

use std::path::{Path, PathBuf};

use sennit_server::{
    Damage, Fault, ServeError, ShardRepair, ShardVerdict, repair_storage, verify_storage,
};
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    output::{print_json, print_table, print_to_stderr},
};

const EXAMPLES: &str = "\
Examples:
  sennit storage verify                  the folder ./data
  sennit storage verify --data /var/lib/sennit --json
  sennit storage repair                  what verify finds damaged is given up, or saved";

/// The arguments of `sennit storage`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Read everything and verify its checksums; changes nothing, exit code 1 on damage
    Verify {
        /// The data folder of a broker
        #[arg(long, value_name = "DIR", default_value = "data")]
        data: PathBuf,
        /// Print JSON, one object for each shard
        #[arg(long)]
        json: bool,
    },
    /// Give up the messages that cannot be read, keep all others, and move damaged files to the
    /// quarantine
    ///
    /// Consumers receive a gap for the offsets that are given up. The damaged files are moved to
    /// the folder `quarantine` of the data directory; nothing reads them there.
    Repair {
        /// The data folder of a broker
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
/// The folder cannot be read, or something in it is damaged.
pub fn run(args: &Args) -> Result<(), Failure> {
    match &args.verb {
        Verb::Verify { data, json } => verify(data, *json),
        Verb::Repair { data, json } => repair(data, *json),
    }
}

fn verify(data: &Path, json: bool) -> Result<(), Failure> {
    let mut verdicts = Vec::new();
    let looked = verify_storage(data, |verdict| verdicts.push(verdict));
    let damaged: usize = verdicts.iter().map(|shard| shard.verdict.damage.len()).sum();
    if json {
        verdicts.iter().try_for_each(|shard| print_json(&as_json(shard)))?;
    } else {
        let heads = ["SHARD", "SEGMENTS", "PACKS", "FRAMES", "RECORDS", "BYTES", "DAMAGED"];
        let rows: Vec<_> = verdicts.iter().map(cells).collect();
        print_table(&heads, &rows)?;
        for damage in verdicts.iter().flat_map(|shard| &shard.verdict.damage) {
            let (path, position) = (damage.path.display(), damage.position);
            print_to_stderr(&format!(
                "{path}: {} bytes at {position}: {}",
                damage.bytes, damage.problem
            ));
        }
    }
    // What was found before is worth telling all the same.
    looked.map_err(|error| failure(&error))?;
    match damaged {
        0 => Ok(()),
        count => Err(Failure::new(Exit::Failed, format!("damaged in {count} places"))),
    }
}

fn repair(data: &Path, json: bool) -> Result<(), Failure> {
    let mut repairs = Vec::new();
    let repaired = repair_storage(data, |repair| repairs.push(repair));
    // Also where a later shard is beyond repair: what was given up is given up.
    say_repaired(&repairs, json)?;
    repaired.map_err(|error| match repairs.is_empty() {
        true => failure(&error),
        false => failure(&error).in_part(),
    })
}

fn failure(error: &ServeError) -> Failure {
    let exit = match error {
        ServeError::Directory(Fault::NotADataDirectory { .. }) => Exit::NotFound,
        ServeError::Directory(Fault::InUse { .. } | Fault::UnfinishedRestore { .. }) => {
            Exit::Conflict
        }
        _ => Exit::Failed,
    };
    Failure::new(exit, error.to_string())
}

fn say_repaired(repairs: &[ShardRepair], json: bool) -> Result<(), Failure> {
    if json {
        return repairs.iter().try_for_each(|shard| print_json(&repair_as_json(shard)));
    }
    let heads = ["SHARD", "DAMAGED", "MESSAGES GIVEN UP", "DOUBTFUL PARTITIONS", "FILES SET ASIDE"];
    let rows: Vec<_> = repairs
        .iter()
        .map(|ShardRepair { shard, repaired, set_aside }| {
            let (damaged, files) = (repaired.damage.len() as u64, set_aside.len() as u64);
            let (lost, doubtful) = (repaired.lost_messages, repaired.doubtful_partitions);
            [u64::from(*shard), damaged, lost, doubtful, files].map(|n| n.to_string()).to_vec()
        })
        .collect();
    print_table(&heads, &rows)?;
    for file in repairs.iter().flat_map(|shard| &shard.set_aside) {
        print_to_stderr(&format!("set aside: {}", file.display()));
    }
    Ok(())
}

fn repair_as_json(shard: &ShardRepair) -> serde_json::Value {
    let ShardRepair { shard, repaired, set_aside } = shard;
    json!({
        "shard": shard,
        "damage": damage_as_json(&repaired.damage),
        "messages_given_up": repaired.lost_messages,
        "doubtful_partitions": repaired.doubtful_partitions,
        "set_aside": set_aside.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
    })
}

fn cells(ShardVerdict { shard, verdict }: &ShardVerdict) -> Vec<String> {
    let counts = [verdict.segments, verdict.packs, verdict.frames, verdict.records, verdict.bytes];
    let counts = counts.iter().map(u64::to_string);
    let damaged = verdict.damage.len().to_string();
    std::iter::once(shard.to_string()).chain(counts).chain([damaged]).collect()
}

fn as_json(ShardVerdict { shard, verdict }: &ShardVerdict) -> serde_json::Value {
    json!({
        "shard": shard,
        "segments": verdict.segments,
        "packs": verdict.packs,
        "frames": verdict.frames,
        "records": verdict.records,
        "bytes": verdict.bytes,
        "damage": damage_as_json(&verdict.damage),
    })
}

fn damage_as_json(damage: &[Damage]) -> Vec<serde_json::Value> {
    let each = damage.iter().map(|damage| {
        json!({
            "path": damage.path.display().to_string(),
            "position": damage.position.to_string(),
            "bytes": damage.bytes,
            "what": damage.problem,
        })
    });
    each.collect()
}
