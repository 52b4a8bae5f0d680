//! `sennit live`: live connections from the command line: subscribe to channels, publish to them, see who is there.

mod api;
mod channel_topic;
mod client_info;
mod connection;
mod connections;
mod disconnect;
mod presence;
mod publication_printer;
mod publish;
mod refusal;
mod send;
mod start;
mod subscribe;
mod subscriber;
mod upgrade;

use crate::{connect_options::block_on, exit::Failure, http::ConnectOptions};

const EXAMPLES: &str = "\
Examples:
  sennit live subscribe news                     what is published from now on, until Ctrl-C
  sennit live subscribe news weather --json
  sennit live subscribe news --from earliest     all that is kept, then what is new
  sennit live publish news '{\"title\":\"hello\"}'
  sennit live presence news
  sennit live connections --of-user ada
  sennit live send --to-user ada 'the shop closes in ten minutes'
  sennit live disconnect --of-user ada

A channel is a topic, and the broker is reached at its HTTP port, as browsers reach it
(docs/reference/live.md).";

/// The arguments of `sennit live`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    /// Print what is published in channels, as it comes; after a cut go on where it was
    Subscribe(subscribe::Args),
    /// Publish to a channel, and wait until it is confirmed
    Publish(publish::Args),
    /// Print who is subscribed to a channel, and how many they are
    Presence(presence::Args),
    /// List live connections
    Connections(connections::Args),
    /// Have live connections end
    Disconnect(disconnect::Args),
    /// Send a message that is in no topic to live connections
    Send(send::Args),
}

/// Runs the verb.
///
/// # Errors
/// The broker cannot be reached, or refuses.
pub fn run(args: Args) -> Result<(), Failure> {
    let Args { connect, verb } = args;
    block_on(async {
        match verb {
            Verb::Subscribe(args) => args.run(&connect).await,
            Verb::Publish(args) => args.run(&connect).await,
            Verb::Presence(args) => args.run(&connect).await,
            Verb::Connections(args) => args.run(&connect).await,
            Verb::Disconnect(args) => args.run(&connect).await,
            Verb::Send(args) => args.run(&connect).await,
        }
    })
}
