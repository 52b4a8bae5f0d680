//! `sennit live publish`: publishes to a channel as browsers do, pipelined, and ends when all is confirmed.

use std::{collections::VecDeque, path::Path};

use bytes::Bytes;
use sennit_centrifuge::{Answer, Data, PublishRequest, Request};
use serde_json::json;

use crate::{
    delimiter::Delimiter,
    exit::{Exit, Failure},
    http::ConnectOptions,
    line_reader::{self, LineError},
    output::{print_json, print_to_stderr},
    seal_options::{PayloadSealer, SealOptions},
};

use super::{channel_topic::topic_of, connection::LiveConnection, refusal::refused};

const EXAMPLES: &str = "\
Examples:
  sennit live publish news '{\"title\":\"hello\"}'
  sennit live publish news 'first line' 'second line'
  tail -f app.log | sennit live publish logs
  sennit live publish news - < publications.ndjson
  sennit live publish news 'for us only' --seal news.keys

A missing channel is created as a topic in memory, as for browsers. `sennit publish` reaches the same
topic with keys, headers and delays, and tries again by itself.";

/// Publications that wait for their confirmation; the broker reads no further than 256.
const UNCONFIRMED_MAX: usize = 128;

/// The arguments of `sennit live publish`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The channel's name
    channel: String,
    /// The publications; without any, or for -, one is read from each line of standard input
    #[arg(value_name = "DATA")]
    data: Vec<String>,
    /// Print a summary as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    seal: SealOptions,
}

impl Args {
    /// Runs the verb.
    ///
    /// # Errors
    /// [`Exit::Partial`] if some publications were confirmed and one was not; the text names the first.
    pub async fn run(self, connect: &ConnectOptions) -> Result<(), Failure> {
        let sealer = self.seal.sealer(&topic_of(&self.channel))?;
        let authorization = connect.authorization()?;
        let connection = LiveConnection::open(connect, authorization.as_deref()).await?;
        let channel = self.channel.clone();
        let mut run =
            Run { connection, channel, sealer, waiting: VecDeque::new(), sent: 0, confirmed: 0 };
        let mut published = if self.data.is_empty() || self.data == ["-"] {
            run.publish_lines().await
        } else {
            run.publish_all(self.data.into_iter().map(Bytes::from)).await
        };
        // Publications that went before a refusal are still waited for, so that the count is right.
        while !run.waiting.is_empty()
            && !matches!(&published, Err(failure) if failure.exit == Exit::Unreachable)
        {
            published = run.settle().await.and(published);
        }
        let Run { channel, confirmed, .. } = run;
        if self.json {
            print_json(&json!({ "channel": channel, "confirmed": confirmed }))?;
        } else if published.is_ok() {
            let publications = if confirmed == 1 { "publication" } else { "publications" };
            print_to_stderr(&format!("{confirmed} {publications} confirmed in {channel}"));
        }
        published.map_err(|failure| if confirmed > 0 { failure.in_part() } else { failure })
    }
}

/// A publish under way.
struct Run {
    connection: LiveConnection,
    channel: String,
    sealer: Option<PayloadSealer>,
    /// The numbers of the commands that are not answered, oldest first.
    waiting: VecDeque<u32>,
    sent: u64,
    confirmed: u64,
}

impl Run {
    async fn publish_lines(&mut self) -> Result<(), Failure> {
        let mut source = line_reader::read(Path::new("-"), &Delimiter::default())?;
        while let Some(block) = source.recv().await {
            let next = self.sent + 1;
            let lines = block.map_err(|broken| match broken {
                LineError::TooLong => {
                    Failure::new(Exit::Failed, "it is longer than a message may be")
                }
                LineError::Source(error) => error.into(),
            });
            let lines = lines.map_err(|failure| failure.about(format!("line {next}")))?;
            self.publish_all(lines).await?;
            // A pipe behind this sees each line soon, and a person those that were refused.
            while !self.waiting.is_empty() {
                self.settle().await?;
            }
        }
        Ok(())
    }

    async fn publish_all(&mut self, data: impl IntoIterator<Item = Bytes>) -> Result<(), Failure> {
        for data in data {
            if self.waiting.len() >= UNCONFIRMED_MAX {
                self.settle().await?;
            }
            let data = match &self.sealer {
                Some(sealer) => sealer.seal(&data)?,
                None => data,
            };
            let request = PublishRequest {
                channel: self.channel.clone(),
                data: Data::of_payload(data),
                kind: 0,
            };
            let number = self.connection.send(Request::Publish(request)).await;
            self.sent += 1;
            self.waiting.push_back(number.map_err(|failure| self.not_confirmed(failure))?);
        }
        Ok(())
    }

    /// Waits for the oldest answer.
    async fn settle(&mut self) -> Result<(), Failure> {
        let Some(&number) = self.waiting.front() else { return Ok(()) };
        let answer = self.connection.answer_to(number).await;
        let answer = answer.map_err(|failure| self.not_confirmed(failure))?;
        let settled = match answer {
            Ok(Answer::Publish) => Ok(()),
            Ok(_) => {
                Err(Failure::new(Exit::Failed, "the broker answers something that was not asked"))
            }
            Err(error) => Err(refused(&error)),
        };
        let settled = settled.map_err(|failure| self.not_confirmed(failure));
        self.waiting.pop_front();
        self.confirmed += u64::from(settled.is_ok());
        settled
    }

    /// A failure of the oldest publication without an answer.
    fn not_confirmed(&self, failure: Failure) -> Failure {
        let number = self.sent - self.waiting.len() as u64 + 1;
        failure.about(format!("publication {} was not confirmed", number.min(self.sent)))
    }
}
