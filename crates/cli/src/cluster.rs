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

`status` ends with 0 if the node hears all its peers and knows who leads each group, with 1 if it does
not, and with 3 if the broker has no peers.";

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
    /// Print which peers a node hears, how far they are, how far their clocks are ahead, and who leads each group
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
    let list = |name: &str| status[name].as_array().map(Vec::as_slice).unwrap_or_default();
    let (peers, groups) = (list("peers"), list("groups"));
    if as_json {
        print_json(&status)?;
    } else {
        let heads = ["NODE", "ADDRESS", "STATE", "LINKS", "ROUND TRIP", "SKEW", "UNSENT", "REASON"];
        print_table(&heads, &peers.iter().map(row).collect::<Vec<_>>())?;
        let heads = ["GROUP", "LEADER", "TERM", "HERE", "UNCOMMITTED", "BEHIND"];
        print_table(&heads, &groups.iter().map(group_row).collect::<Vec<_>>())?;
    }
    let of = |all: &[Value], name: &str, is_missing: fn(&Value) -> bool| {
        let missing = all.iter().filter(|one| is_missing(one)).map(|one| one[name].to_string());
        missing.collect::<Vec<_>>().join(", ")
    };
    let silent = of(peers, "node", |peer| peer["heard"] != true);
    if !silent.is_empty() {
        let text = format!("node {} does not hear {silent}", status["node"]);
        return Err(Failure::new(Exit::Failed, text));
    }
    let unled = of(groups, "group", |group| group["leader"].is_null());
    if !unled.is_empty() {
        let text = format!("node {} knows no leader of group {unled}", status["node"]);
        return Err(Failure::new(Exit::Failed, text));
    }
    Ok(())
}

/// The cells of a group. Only its leader knows how far the others are behind.
fn group_row(group: &Value) -> Vec<String> {
    let replicas = group["replicas"].as_array().map(Vec::as_slice).unwrap_or_default();
    let behind = replicas.iter().map(|replica| {
        let silent = if replica["heard"] == true { "" } else { ", silent" };
        format!("{}: {}{silent}", replica["node"], replica["lag_entries"])
    });
    let behind: Vec<_> = behind.collect();
    vec![
        group["group"].to_string(),
        group["leader"].as_u64().map_or_else(|| "-".to_owned(), |leader| leader.to_string()),
        group["term"].to_string(),
        group["role"].as_str().unwrap_or("-").to_owned(),
        group["commit_lag"].to_string(),
        if behind.is_empty() { "-".to_owned() } else { behind.join("; ") },
    ]
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

    #[test]
    fn a_leader_shows_who_is_behind_and_a_group_without_one_says_so() {
        let mut group = json!({
            "group": 2, "role": "leader", "term": 7, "leader": 3, "preferred": 3, "commit_lag": 1,
            "replicas": [
                { "node": 1, "lag_entries": 0, "heard": true },
                { "node": 2, "lag_entries": 9, "heard": false },
            ],
        });
        assert_eq!(group_row(&group), ["2", "3", "7", "leader", "1", "1: 0; 2: 9, silent"]);
        (group["leader"], group["replicas"]) = (Value::Null, json!([]));
        assert_eq!(group_row(&group), ["2", "-", "7", "leader", "1", "-"]);
    }
}
