//! `sennit live connections`: which live connections there are.

use bytes::Bytes;
use serde_json::Value;

use crate::{
    exit::Failure,
    http::ConnectOptions,
    output::{print_json, print_table},
};

use super::api::{body_json, query};

const EXAMPLES: &str = "\
Examples:
  sennit live connections
  sennit live connections --of-user ada
  sennit live connections --json | jq -r 'select(.unsent_bytes > 0).id'

It needs the right `live` (docs/reference/http-api.md). Pages are asked for one after the other: a
connection that comes or goes meanwhile may be missing.";

/// The arguments of `sennit live connections`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only those of this user: a user's name, a token's subject or the id of a key
    #[arg(long, value_name = "NAME")]
    of_user: Option<String>,
    /// Print JSON, a line for each connection
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the verb.
    ///
    /// # Errors
    /// The broker's refusal, or it cannot be reached.
    pub async fn run(self, connect: &ConnectOptions) -> Result<(), Failure> {
        let http = &mut connect.connect().await?;
        let mut rows = Vec::new();
        let mut from: Option<String> = None;
        loop {
            let asked = [
                ("user", self.of_user.as_deref()),
                ("from", from.as_deref()),
                ("limit", Some("1000")),
            ];
            let path = format!("/api/v1/live/connections{}", query(&asked));
            let page = body_json(&http.ask("GET", &path, &[], Bytes::new()).await?)?;
            for connection in page["connections"].as_array().into_iter().flatten() {
                if self.json {
                    print_json(connection)?;
                } else {
                    rows.push(row(connection));
                }
            }
            from = page["next"].as_str().map(str::to_owned);
            if from.is_none() {
                break;
            }
        }
        if self.json {
            return Ok(());
        }
        print_table(&["ID", "USER", "ADDRESS", "PROTOCOL", "UNSENT", "CHANNELS"], &rows)
    }
}

fn row(connection: &Value) -> Vec<String> {
    let text = |name: &str| match &connection[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    let channels = connection["channels"].as_array().into_iter().flatten();
    let channels: Vec<_> = channels.filter_map(Value::as_str).collect();
    let columns = ["id", "user", "address", "protocol", "unsent_bytes"];
    columns.iter().map(|name| text(name)).chain([channels.join(" ")]).collect()
}
