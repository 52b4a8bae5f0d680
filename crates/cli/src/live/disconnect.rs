//! `sennit live disconnect`: has live connections end.

use bytes::Bytes;

use crate::{
    exit::Failure,
    http::ConnectOptions,
    output::{print_json, print_to_stderr},
};

use super::api::{body_json, query};

const EXAMPLES: &str = "\
Examples:
  sennit live disconnect 00010000002a00000007
  sennit live disconnect --of-user ada
  sennit live disconnect --of-user ada --code 4000 --reason 'sign in again'

Clients stay away after code 3503. After 3011, or 4000 to 4499, they come back; after 4500 to 4999 they
do not. To keep somebody out, delete the key or user: `sennit auth`.";

/// The arguments of `sennit live disconnect`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The id of a connection
    #[arg(value_name = "ID", required_unless_present = "of_user", conflicts_with = "of_user")]
    id: Option<String>,
    /// All connections of this user: a user's name, a token's subject or the id of a key
    #[arg(long, value_name = "NAME")]
    of_user: Option<String>,
    /// The code that clients are told
    #[arg(long, value_name = "CODE", default_value_t = 3503)]
    code: u16,
    /// The words that clients are told
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Runs the verb.
    ///
    /// # Errors
    /// The broker's refusal, there is no such connection, or the broker cannot be reached.
    pub async fn run(self, connect: &ConnectOptions) -> Result<(), Failure> {
        let code = self.code.to_string();
        let told = [
            ("user", self.of_user.as_deref()),
            ("code", Some(&*code)),
            ("reason", self.reason.as_deref()),
        ];
        let one = self.id.as_deref().map(|id| format!("/{id}")).unwrap_or_default();
        let path = format!("/api/v1/live/connections{one}{}", query(&told));
        let http = &mut connect.connect().await?;
        let answer = body_json(&http.ask("DELETE", &path, &[], Bytes::new()).await?)?;
        if self.json {
            return print_json(&answer);
        }
        let count = answer["disconnected"].as_u64().unwrap_or_default();
        let noun = if count == 1 { "connection" } else { "connections" };
        print_to_stderr(&format!("{count} {noun} disconnected"));
        Ok(())
    }
}
