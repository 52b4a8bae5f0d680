//! `sennit live presence`: who is subscribed to a channel, or how many they are.

use sennit_centrifuge::{Answer, ChannelRequest, PresenceStatsResult, ReplyError, Request};
use serde_json::json;

use crate::{
    exit::{Exit, Failure},
    http::ConnectOptions,
    output::{print_json, print_table},
};

use super::{
    client_info::{client_json, client_row},
    connection::LiveConnection,
    refusal::refused,
};

const EXAMPLES: &str = "\
Examples:
  sennit live presence news
  sennit live presence news --counts
  sennit live presence news --json";

/// The arguments of `sennit live presence`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The channel's name
    channel: String,
    /// Print how many connections and users there are, and not which
    #[arg(long)]
    counts: bool,
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
        let authorization = connect.authorization()?;
        let mut connection = LiveConnection::open(connect, authorization.as_deref()).await?;
        let about = |failure: Failure| failure.about(&self.channel);
        let request = ChannelRequest { channel: self.channel.clone() };
        let request = match self.counts {
            true => Request::PresenceStats(request),
            false => Request::Presence(request),
        };
        let answer = connection.ask(request).await?;
        match answer.map_err(|error: ReplyError| about(refused(&error)))? {
            Answer::PresenceStats(counts) => self.print_counts(&counts),
            Answer::Presence(result) => {
                let clients = result.presence.values();
                if self.json {
                    return clients.map(client_json).try_for_each(|client| print_json(&client));
                }
                let rows: Vec<_> = clients.map(client_row).collect();
                print_table(&["CLIENT", "USER", "INFO"], &rows)
            }
            _ => {
                let text = "the broker answers something that was not asked";
                Err(about(Failure::new(Exit::Failed, text)))
            }
        }
    }

    fn print_counts(&self, counts: &PresenceStatsResult) -> Result<(), Failure> {
        let PresenceStatsResult { clients, users } = counts;
        if self.json {
            let channel = &self.channel;
            return print_json(&json!({ "channel": channel, "clients": clients, "users": users }));
        }
        print_table(&["CLIENTS", "USERS"], &[vec![clients.to_string(), users.to_string()]])
    }
}
