//! `sennit auth key`: API keys.

use std::time::Duration;

use sennit_client::{AccessChanged, AccessEntry, AccessKind, Client, Timestamp};
use serde_json::json;

use super::{
    holder_options::{HolderOptions, cells, holder_json},
    say,
};
use crate::{
    exit::Failure,
    output::{print_json, print_table, print_text, print_to_stderr},
    quantity, time_argument,
};

/// The arguments of `sennit auth key`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Create an API key and print it; it is not shown again
    Create {
        /// What it is for
        name: String,
        #[command(flatten)]
        holder: HolderOptions,
        /// When it ends: a duration from now, or a time [default: never]
        #[arg(long, value_name = "TIME", value_parser = time_argument::future)]
        expires: Option<u64>,
    },
    /// List the API keys, without their secrets, and when each was last used
    List,
    /// Give an API key another secret and print it
    Rotate {
        /// The id of the key
        id: String,
        /// How long the secret before counts as well; 0s ends its connections now
        #[arg(long, value_name = "DURATION", default_value = "24h")]
        #[arg(value_parser = quantity::duration)]
        grace: Duration,
    },
    /// Delete an API key; its connections end
    Delete {
        /// The id of the key
        id: String,
    },
}

impl Args {
    /// Runs the verb.
    pub async fn run(self, client: &Client, as_json: bool) -> Result<(), Failure> {
        let access = client.access();
        match self.verb {
            Verb::Create { name, holder, expires } => {
                let expires = expires.map(Timestamp);
                let changed = access.create_key(&name, holder.holder(), expires).await?;
                show_key(as_json, changed, &format!("key {name} is created"))
            }
            Verb::Rotate { id, grace } => {
                let changed = access.rotate_key(&id, grace).await?;
                show_key(as_json, changed, "the key has another secret")
            }
            Verb::Delete { id } => {
                access.delete(AccessKind::Keys, &id).await?;
                say(as_json, &format!("key {id}"), "is deleted")
            }
            Verb::List => list(&access.list(AccessKind::Keys).await?, as_json),
        }
    }
}

/// Prints a key, which nobody can print again.
fn show_key(as_json: bool, changed: AccessChanged, what: &str) -> Result<(), Failure> {
    let key = changed.key.unwrap_or_default();
    if as_json {
        return print_json(&json!({ "id": changed.id, "key": key }));
    }
    print_to_stderr(&format!("{what}: id {}; keep the key now, it is not shown again", changed.id));
    print_text(&format!("{key}\n"))
}

fn list(keys: &[AccessEntry], as_json: bool) -> Result<(), Failure> {
    if as_json {
        return keys.iter().try_for_each(|key| {
            let mut json = holder_json(&key.holder);
            json["id"] = key.id.as_str().into();
            json["name"] = key.name.as_str().into();
            json["generation"] = key.generation.into();
            json["created_ms"] = key.created_at.0.into();
            json["expires_ms"] = key.expires_at.map(|at| at.0).into();
            json["last_used_ms"] = key.last_used_at.map(|at| at.0).into();
            print_json(&json)
        });
    }
    let rows = keys.iter().map(|key| {
        let expires = key.expires_at.map_or("never".to_owned(), |at| time_argument::show(at.0));
        let used = key.last_used_at.map_or("never".to_owned(), |at| time_argument::show(at.0));
        let created = time_argument::show(key.created_at.0);
        let mut row = vec![key.id.clone(), key.name.clone(), created, used, expires];
        row.extend(cells(&key.holder));
        row
    });
    let heads = ["ID", "NAME", "CREATED", "LAST USED", "EXPIRES", "TENANT", "ROLES", "RIGHTS"];
    print_table(&heads, &rows.collect::<Vec<_>>())
}
