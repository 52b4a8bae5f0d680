//! `sennit live subscribe`: prints publications as they come, over a connection that comes back by itself.

use std::num::NonZeroU64;

use crate::{
    exit::{Exit, Failure},
    format::Format,
    http::{ConnectOptions, RetryTimer},
    interrupt::interrupted,
    output::print_to_stderr,
    stdout_closed::stdout_closed,
    unseal_options::UnsealOptions,
};

use super::{
    connection::LiveConnection,
    publication_printer::PublicationPrinter,
    start::Start,
    subscriber::{End, PresenceOptions, Subscriber},
};

const EXAMPLES: &str = "\
Examples:
  sennit live subscribe news
  sennit live subscribe news weather             the channel, a tab and the payload on each line
  sennit live subscribe news --from earliest --count 10
  sennit live subscribe news --from 7:42         behind the publication that was at this position
  sennit live subscribe news --json | jq .payload
  sennit live subscribe news --unseal news.keys
  sennit live subscribe room --join-leave --info '{\"name\":\"ada\"}'

A broker that is lost is tried again for about a minute, then the exit code is 6. Publications of
the meantime come from the log, each once; what is not kept any more is told as a gap. At the
end by Ctrl-C the position of each channel goes to standard error, for --from.";

/// Most channels of one connection.
const CHANNELS_MAX: usize = 128;

/// The arguments of `sennit live subscribe`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The channels' names
    #[arg(required = true, value_name = "CHANNEL")]
    channels: Vec<String>,
    /// Where to begin: `latest`, `earliest` (all that is kept), or behind a position: the offset of a
    /// publication, 42, or with the epoch of its channel, 7:42
    #[arg(long, value_name = "WHERE", default_value = "latest")]
    from: Start,
    /// End after this many publications
    #[arg(long, short = 'n', value_name = "N")]
    count: Option<NonZeroU64>,
    #[command(flatten)]
    presence: PresenceOptions,
    #[command(flatten)]
    format: Format,
    #[command(flatten)]
    unseal: UnsealOptions,
}

impl Args {
    /// Runs the verb.
    ///
    /// # Errors
    /// The broker's refusal, it cannot be reached any more, or publications could not be printed.
    pub async fn run(self, connect: &ConnectOptions) -> Result<(), Failure> {
        let Self { channels, from, count, presence, format, unseal } = self;
        check(&channels, &from)?;
        let authorization = connect.authorization()?;
        let printer = PublicationPrinter::new(&format, channels.len() > 1, unseal.unsealer(true)?)?;
        let interrupted = interrupted();
        let stop = async {
            tokio::select! {
                () = interrupted => {}
                () = stdout_closed() => {}
            }
        };
        let count = count.map_or(u64::MAX, NonZeroU64::get);
        let mut subscriber = Subscriber::new(channels, &from, presence, count, printer, stop);
        match subscribe(connect, authorization.as_deref(), &mut subscriber).await {
            End::Failed(failure) => Err(failure),
            End::Done => {
                if subscriber.is_unfinished() {
                    for (channel, position) in subscriber.positions() {
                        let (epoch, offset) = (&position.epoch, position.offset);
                        print_to_stderr(&format!("{channel}: --from {epoch}:{offset} goes on"));
                    }
                }
                subscriber.all_opened()
            }
        }
    }
}

fn check(channels: &[String], from: &Start) -> Result<(), Failure> {
    let wrong = |text: String| Err(Failure::new(Exit::Usage, text));
    if channels.len() > CHANNELS_MAX {
        return wrong(format!("a connection has at most {CHANNELS_MAX} subscriptions"));
    }
    if let Some((at, twice)) =
        channels.iter().enumerate().find(|(at, name)| channels[..*at].contains(name))
    {
        return wrong(format!("{twice} stands there twice, as channel {}", at + 1));
    }
    if matches!(from, Start::Behind(_)) && channels.len() > 1 {
        return wrong("a position is one of a channel: name one channel".to_owned());
    }
    Ok(())
}

/// Connects, as often as it takes, and prints.
async fn subscribe(
    connect: &ConnectOptions,
    authorization: Option<&str>,
    subscriber: &mut Subscriber,
) -> End {
    let mut patience = RetryTimer::default();
    let mut has_begun = false;
    loop {
        let opening = LiveConnection::open(connect, authorization);
        let ended = match subscriber.unless_stopped(opening).await {
            Ok(Ok(mut connection)) => {
                follow(subscriber, &mut connection, &mut patience, &mut has_begun).await
            }
            Ok(Err(failure)) => End::Failed(failure),
            Err(end) => end,
        };
        match ended {
            // A broker that was never there is more likely one of another address.
            End::Failed(failure) if has_begun => {
                let waiting = patience.wait(failure);
                match subscriber.unless_stopped(waiting).await {
                    Ok(Ok(())) => {}
                    Ok(Err(failure)) => return End::Failed(failure),
                    Err(end) => return end,
                }
            }
            end => return end,
        }
    }
}

/// Prints what comes over one connection, to its end.
async fn follow(
    subscriber: &mut Subscriber,
    connection: &mut LiveConnection,
    patience: &mut RetryTimer,
    has_begun: &mut bool,
) -> End {
    if let Err(end) = subscriber.begin_all(connection).await {
        return end;
    }
    *patience = RetryTimer::default();
    *has_begun = true;
    loop {
        if let Err(end) = subscriber.follow(connection).await {
            return end;
        }
    }
}
