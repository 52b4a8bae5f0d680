//! `sennit request`: publishes a request, waits for its reply and prints it.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use bytes::Bytes;
use sennit_model::{Header, Message, TopicName};
use serde_json::json;

use crate::{
    connect_options::{ConnectOptions, block_on},
    exit::Failure,
    format::Format,
    header_argument::header,
    output::ignore_broken_pipe,
    quantity::duration,
};

const EXAMPLES: &str = "\
Examples:
  sennit reply upper --exec 'tr a-z A-Z'        in one terminal
  sennit request upper 'hello'                  in another
  sennit request prices --key EURUSD --timeout 500ms '{}'
  sennit request images --raw < cat.png > thumbnail.png

If no reply comes in time the exit code is 6. The request expires then; one that is worked on already
may still be done, and its reply is dropped.";

/// The arguments of `sennit request`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectOptions,
    /// The topic's name
    topic: TopicName,
    /// The request; without it, all of standard input is the request
    body: Option<String>,
    /// How long to wait for the reply
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    timeout: Duration,
    /// The request's key
    #[arg(long, short, value_name = "KEY")]
    key: Option<String>,
    /// A header of the request, name=value; may be given several times
    #[arg(long, short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    header: Vec<Header>,
    #[command(flatten)]
    format: Format,
}

/// Runs the verb.
///
/// # Errors
/// No reply in time, or the broker's refusal.
pub fn run(args: Args) -> Result<(), Failure> {
    let payload = match args.body {
        Some(body) => Bytes::from(body),
        None => {
            let mut body = Vec::new();
            io::stdin().lock().read_to_end(&mut body)?;
            Bytes::from(body)
        }
    };
    let key = args.key.map(Bytes::from).unwrap_or_default();
    let message = Message { key, headers: args.header, payload, ..Message::default() };
    block_on(async {
        let client = args.connect.client().await?;
        let reply = client.request(&args.topic, message, args.timeout).await;
        let printed =
            reply.map_err(|error| Failure::from(error).about(&args.topic)).and_then(|reply| {
                let mut out = Vec::new();
                args.format.message_format().message(&reply.message(), || json!({}), &mut out);
                ignore_broken_pipe(io::stdout().write_all(&out))
            });
        client.close().await;
        printed
    })
}
