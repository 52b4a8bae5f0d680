//! The walls between crates: compares the dependency table of ARCHITECTURE.md with Cargo's metadata, and checks the
//! bans below the waterline.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::tree::{cargo_metadata, read, root};

/// Crates in which time, randomness and disk are arguments.
const BELOW_THE_WATERLINE: [&str; 6] =
    ["model", "protocol", "journal", "engine", "shard", "replication"];

/// What the `clippy.toml` of each of them must ban.
const BANNED: [&str; 6] = [
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::fs::File::open",
    "std::fs::File::create",
    "std::fs::OpenOptions",
    "std::collections::HashMap",
];

/// Who names whom.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The rows of the table under a heading: what the first column names -> what the second one lists.
pub fn table(page: &str, heading: &str) -> Graph {
    page.lines()
        .skip_while(|line| line.trim() != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with('|'))
        .skip(2) // the table's heading and the line below it
        .map(|row| {
            let cells: Vec<_> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [name, edges, ..] = cells[..] else { panic!("not a row of two cells: {row}") };
            let edges = edges.split(',').map(|edge| edge.trim().trim_matches('`'));
            let edges = edges.filter(|edge| !["", "-"].contains(edge)).map(str::to_owned);
            (name.trim_matches('`').to_owned(), edges.collect())
        })
        .collect()
}

/// The normal dependencies among the workspace's crates, as Cargo sees them.
fn cargo_graph() -> Graph {
    let metadata = cargo_metadata();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let short = |name: String| match name.strip_prefix("sennit-") {
        Some(short) => short.to_owned(),
        None => "cli".to_owned(),
    };
    let packages = list(&metadata["packages"]);
    let members: BTreeSet<_> = packages.iter().map(name).collect();
    packages
        .iter()
        .map(|package| {
            let edges = list(&package["dependencies"])
                .iter()
                .filter(|dependency| dependency["kind"].is_null())
                .map(name)
                .filter(|dependency| members.contains(dependency))
                .map(short)
                .collect();
            (short(name(package)), edges)
        })
        .collect()
}

#[test]
fn a_dependency_table_is_read_row_by_row() {
    let page = "# Page\n| x | y |\n|---|---|\n| no | no |\n\n## Dependency table\nWords.\n\n\
        | crate | may depend on | never knows |\n|---|---|---|\n| `model` | - | files |\n\
        | cli | `client`, model | |\n\n## Next\n| no | no |\n";
    let table = table(page, "## Dependency table");
    let names: Vec<_> = table.iter().map(|(name, edges)| (name.as_str(), edges.len())).collect();
    assert_eq!(names, [("cli", 2), ("model", 0)]);
    assert!(table["cli"].contains("client") && table["cli"].contains("model"));
}

#[test]
fn the_walls_are_where_the_map_says() {
    let table = table(&read(&root().join("ARCHITECTURE.md")), "## Dependency table");
    let cargo = cargo_graph();
    let crates = |graph: &Graph| graph.keys().cloned().collect::<Vec<_>>();
    assert_eq!(crates(&table), crates(&cargo), "ARCHITECTURE.md (left) against Cargo (right)");
    for (name, edges) in &cargo {
        assert_eq!(&table[name], edges, "{name}: ARCHITECTURE.md (left) against Cargo (right)");
    }
}

#[test]
fn every_guest_is_named_with_its_job() {
    let page = read(&root().join("docs/decisions/0005-dependencies.md"));
    let metadata = cargo_metadata();
    let packages = metadata["packages"].as_array().expect("Cargo lists packages");
    let guests: BTreeSet<_> = packages
        .iter()
        .flat_map(|package| package["dependencies"].as_array().expect("a list"))
        .filter_map(|dependency| dependency["name"].as_str())
        .filter(|name| !name.starts_with("sennit"))
        .collect();
    assert!(guests.len() > 5, "Cargo names only {guests:?}");
    for guest in guests {
        let named = page
            .lines()
            .filter_map(|line| line.strip_prefix('|')?.split('|').next())
            .any(|cell| cell.contains(&format!("`{guest}`")));
        assert!(named, "docs/decisions/0005-dependencies.md has no row for {guest}");
    }
}

/// Guests that one crate alone names, because it is their wall: none of their types shows in its interface.
const WALLED_GUESTS: [(&str, &str); 2] = [("raft", "replication"), ("slog", "replication")];

#[test]
fn a_walled_guest_is_named_by_one_crate() {
    let metadata = cargo_metadata();
    let packages = metadata["packages"].as_array().expect("Cargo lists packages");
    for (guest, host) in WALLED_GUESTS {
        let names_it = |package: &&Value| {
            let dependencies = package["dependencies"].as_array().expect("a list");
            dependencies.iter().any(|dependency| dependency["name"] == guest)
        };
        let hosts: Vec<_> = packages
            .iter()
            .filter(names_it)
            .filter_map(|package| package["name"].as_str())
            .collect();
        assert_eq!(hosts, [format!("sennit-{host}")], "the crates that name {guest}");
    }
}

#[test]
fn time_randomness_and_disk_are_banned_below_the_waterline() {
    for name in BELOW_THE_WATERLINE {
        let bans = read(&root().join("crates").join(name).join("clippy.toml"));
        for banned in BANNED {
            let entry = format!("path = \"{banned}\"");
            let found = bans.lines().any(|line| {
                line.trim_start().contains(&entry) && !line.trim_start().starts_with('#')
            });
            assert!(found, "crates/{name}/clippy.toml does not ban {banned}");
        }
    }
}
