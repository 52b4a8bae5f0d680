//! `sennit cluster`: the nodes of a cluster, as one of them sees the others. It uses HTTP.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    connect_options::block_on,
    exit::{Exit, Failure},
    http::ConnectOptions,
    output::{print_json, print_table},
};

const EXAMPLES: &str = "\
Examples:
  sennit cluster status
  sennit cluster status --json

`status` ends with 0 if the node hears all its peers, with 1 if it does not, and with 3 if the broker
has no peers.";

/// Where a node tells of its peers.
const PATH: &str = "/v1/admin/cluster";

/// The arguments of `sennit cluster`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print which peers a node hears, how far they are, and how far their clocks are ahead
    Status,
}

/// Runs the verb.
///
/// # Errors
/// The broker cannot be reached, has no peers, or does not hear all of them.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, json: as_json, verb: Verb::Status } = args;
    let answer = block_on(async {
        let http = &mut connect.connect().await?;
        http.ask("GET", PATH, &[], Bytes::new()).await
    })?;
    let status: Value = serde_json::from_slice(&answer.body)
        .map_err(|error| Failure::new(Exit::Failed, format!("the answer is no JSON: {error}")))?;
    let peers = status["peers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if as_json {
        print_json(&status)?;
    } else {
        let heads = ["NODE", "ADDRESS", "STATE", "LINKS", "ROUND TRIP", "SKEW", "UNSENT", "REASON"];
        print_table(&heads, &peers.iter().map(row).collect::<Vec<_>>())?;
    }
    let silent: Vec<_> = peers.iter().filter(|peer| peer["heard"] != true).collect();
    if silent.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = silent.iter().map(|peer| peer["node"].to_string()).collect();
    let text = format!("node {} does not hear {}", status["node"], names.join(", "));
    Err(Failure::new(Exit::Failed, text))
}

/// The cells of a peer.
fn row(peer: &Value) -> Vec<String> {
    let text = |name: &str| peer[name].as_str().unwrap_or("-").to_owned();
    let state = if peer["heard"] == true { "heard" } else { "silent" };
    vec![
        peer["node"].to_string(),
        text("address"),
        state.to_owned(),
        format!("{}/{}", peer["links_up"], peer["links"]),
        format!("{} us", peer["round_trip_us"]),
        format!("{} ms", peer["skew_ms"]),
        peer["unsent_bytes"].to_string(),
        text("refusal"),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_silent_peer_is_shown_with_the_reason() {
        let peer = json!({
            "node": 2, "address": "a:4439", "heard": false, "links": 0, "links_up": 0,
            "round_trip_us": 0, "skew_ms": -3, "unsent_bytes": 7, "refusal": "another cluster",
        });
        let cells = ["2", "a:4439", "silent", "0/0", "0 us", "-3 ms", "7", "another cluster"];
        assert_eq!(row(&peer), cells);
    }
}
