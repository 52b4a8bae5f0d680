//! `sennit live send`: sends a message that is in no topic to live connections.

use std::io::Read as _;

use bytes::Bytes;
use serde_json::{Value, json, value::RawValue};

use crate::{
    exit::{Exit, Failure},
    http::ConnectOptions,
    output::{print_json, print_to_stderr},
};

use super::api::body_json;

const EXAMPLES: &str = "\
Examples:
  sennit live send --to-user ada '{\"invited\":\"chat:42\"}'
  sennit live send --to-all 'the shop closes in ten minutes'
  sennit live send --to-connection 00010000002a00000007 - < message.json

Data that is JSON is sent as it is, anything else as a text. The message is not kept: who is away never
gets it. A connection whose client takes nothing misses it: exit code 7 if others have it.";

/// The arguments of `sennit live send`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("target").required(true))]
pub struct Args {
    /// To all connections of this user: a user's name, a token's subject or the id of a key
    #[arg(long, value_name = "NAME", group = "target")]
    to_user: Option<String>,
    /// To the connection of this id
    #[arg(long, value_name = "ID", group = "target")]
    to_connection: Option<String>,
    /// To all that are connected
    #[arg(long, group = "target")]
    to_all: bool,
    /// The data; - for standard input
    data: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the verb.
    ///
    /// # Errors
    /// The broker's refusal, it cannot be reached, or a connection has missed the message.
    pub async fn run(self, connect: &ConnectOptions) -> Result<(), Failure> {
        let mut data = self.data;
        if data == "-" {
            data.clear();
            std::io::stdin().read_to_string(&mut data)?;
        }
        let is_json = serde_json::from_str::<&RawValue>(&data).is_ok();
        let (name, data) =
            if is_json { ("data", data) } else { ("text", Value::from(data).to_string()) };
        let (of, target) = match (self.to_user, self.to_connection) {
            (Some(user), _) => ("user", json!(user)),
            (None, Some(connection)) => ("connection", json!(connection)),
            (None, None) => ("all", json!(self.to_all)),
        };
        // As it is written: numbers keep their digits.
        let body = format!("{{\"{of}\":{target},\"{name}\":{data}}}");
        let http = &mut connect.connect().await?;
        let answer = http.ask("POST", "/api/v1/live/send", &[], Bytes::from(body)).await?;
        let answer = body_json(&answer)?;
        let [reached, missed] =
            ["reached", "missed"].map(|name| answer[name].as_u64().unwrap_or_default());
        if self.json {
            print_json(&answer)?;
        } else {
            print_to_stderr(&format!("{reached} reached, {missed} missed"));
        }
        if missed == 0 {
            return Ok(());
        }
        let exit = if reached == 0 { Exit::Failed } else { Exit::Partial };
        Err(Failure::new(exit, format!("{missed} connections take nothing, and have missed it")))
    }
}
