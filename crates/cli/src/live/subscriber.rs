//! Subscriptions that go on behind what they had last, whatever becomes of connection and broker. Gaps are told.

use std::pin::Pin;

use sennit_centrifuge::{
    Answer, Data, ErrorCode, HistoryRequest, HistoryResult, Position, Publication, Push, PushKind,
    ReplyError, Request, SubscribeRequest, Unsubscribed,
};

use crate::exit::{Exit, Failure};

use super::{
    connection::LiveConnection,
    publication_printer::PublicationPrinter,
    refusal::refused,
    start::{ChannelPosition, Start},
};

/// From this code on clients subscribe again.
const SUBSCRIBES_AGAIN: u32 = 2500;

/// What a subscriber says of itself and hears of others.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PresenceOptions {
    /// Tell of clients that come and go: on standard error, or as lines of JSON
    #[arg(long)]
    pub join_leave: bool,
    /// What others see of this subscription in the channel's presence, as JSON
    #[arg(long, value_name = "JSON", value_parser = json)]
    info: Option<String>,
}

fn json(text: &str) -> Result<String, String> {
    let parsed: Result<serde_json::Value, _> = serde_json::from_str(text);
    parsed.map(|_| text.to_owned()).map_err(|error| format!("it is no JSON: {error}"))
}

impl PresenceOptions {
    fn data(&self) -> Data {
        self.info.clone().map_or_else(Data::default, |info| Data::of_payload(info.into()))
    }
}

/// The end of a subscriber.
pub enum End {
    /// It was stopped, or has what it wanted.
    Done,
    /// A failure, which may be one of the connection.
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A channel that is subscribed to.
struct Channel {
    name: String,
    /// The position that was reached; none before the first subscription to what is new.
    position: Option<ChannelPosition>,
    begins_earliest: bool,
}

impl Channel {
    fn position_of(&self) -> Option<(&str, &ChannelPosition)> {
        Some((&self.name, self.position.as_ref()?))
    }
}

/// Subscriptions of one verb, over one connection after the other.
pub struct Subscriber {
    channels: Vec<Channel>,
    printer: PublicationPrinter,
    presence: PresenceOptions,
    /// Publications that are still wanted.
    left: u64,
    /// Ends when nothing more is wanted.
    stop: Pin<Box<dyn Future<Output = ()>>>,
}

impl Subscriber {
    /// Subscriptions to these channels, which end after `count` publications or when `stop` does.
    pub fn new(
        channels: Vec<String>,
        start: &Start,
        presence: PresenceOptions,
        count: u64,
        printer: PublicationPrinter,
        stop: impl Future<Output = ()> + 'static,
    ) -> Self {
        let position = match start {
            Start::Behind(position) => Some(position.clone()),
            Start::Latest | Start::Earliest => None,
        };
        let begins_earliest = *start == Start::Earliest;
        let channels = channels.into_iter();
        let channels =
            channels.map(|name| Channel { name, position: position.clone(), begins_earliest });
        Self { channels: channels.collect(), printer, presence, left: count, stop: Box::pin(stop) }
    }

    /// The position of each channel, if it has one, for people who go on later.
    pub fn positions(&self) -> impl Iterator<Item = (&str, &ChannelPosition)> {
        let positions = self.channels.iter().filter_map(Channel::position_of);
        positions.filter(|(_, position)| !position.epoch.is_empty())
    }

    /// Whether all sealed publications were opened.
    ///
    /// # Errors
    /// Some were not.
    pub fn all_opened(&self) -> Result<(), Failure> {
        self.printer.all_opened()
    }

    /// Whether more publications were wanted.
    pub fn is_unfinished(&self) -> bool {
        self.left > 0
    }

    /// Waits for `work`, unless it is to stop.
    ///
    /// # Errors
    /// [`End::Done`] if it is to stop.
    pub async fn unless_stopped<T>(&mut self, work: impl Future<Output = T>) -> Result<T, End> {
        tokio::select! {
            done = work => Ok(done),
            () = &mut self.stop => Err(End::Done),
        }
    }

    /// Subscribes to all channels over a connection.
    ///
    /// # Errors
    /// The end.
    pub async fn begin_all(&mut self, connection: &mut LiveConnection) -> Result<(), End> {
        for at in 0..self.channels.len() {
            self.begin(connection, at).await?;
        }
        Ok(())
    }

    /// Prints what comes over a connection.
    ///
    /// # Errors
    /// The end.
    pub async fn follow(&mut self, connection: &mut LiveConnection) -> Result<(), End> {
        let mut next = Some(self.unless_stopped(connection.push()).await??);
        while let Some(push) = next {
            let again = self.take(push).await?;
            if let Some(at) = again {
                self.begin(connection, at).await?;
            }
            next = connection.push_that_came();
        }
        self.deliver().await
    }

    /// Takes a push; returns which channel is to be subscribed to again.
    async fn take(&mut self, push: Push) -> Result<Option<usize>, End> {
        let Some(at) = self.channels.iter().position(|channel| channel.name == push.channel) else {
            return Ok(None);
        };
        match push.kind {
            PushKind::Publication(publication) => self.publication(at, &publication).await?,
            PushKind::Unsubscribe(Unsubscribed { code, .. }) if code >= SUBSCRIBES_AGAIN => {
                return Ok(Some(at));
            }
            PushKind::Unsubscribe(Unsubscribed { reason, .. }) => {
                self.deliver().await?;
                let text = format!("the broker ended the subscription: {reason}");
                return Err(Failure::new(Exit::Forbidden, text).about(&push.channel).into());
            }
            PushKind::Join(client) => self.printer.joined_or_left(&push.channel, "joined", &client),
            PushKind::Leave(client) => self.printer.joined_or_left(&push.channel, "left", &client),
            _ => {}
        }
        Ok(None)
    }

    /// Subscribes to a channel, behind its position if it has one. What the broker cannot recover is fetched from the
    /// history of the channel first, as far as it is there.
    async fn begin(&mut self, connection: &mut LiveConnection, at: usize) -> Result<(), End> {
        if self.channels[at].position.is_none() && self.channels[at].begins_earliest {
            self.find_earliest(connection, at).await?;
        }
        loop {
            let channel = &self.channels[at];
            let mut request = SubscribeRequest {
                channel: channel.name.clone(),
                positioned: true,
                recoverable: true,
                join_leave: self.presence.join_leave,
                data: self.presence.data(),
                ..SubscribeRequest::default()
            };
            if let Some(position) = &channel.position {
                request.recover = true;
                request.epoch.clone_from(&position.epoch);
                request.offset = position.offset;
                request.flag = SubscribeRequest::REJECT_UNRECOVERED;
            }
            let asked = connection.ask(Request::Subscribe(request));
            match self.unless_stopped(asked).await?? {
                Ok(Answer::Subscribe(result)) => {
                    let channel = &mut self.channels[at];
                    let offset = match &channel.position {
                        // Those that are answered with it lie before it.
                        Some(position) => position.offset,
                        None => result.offset,
                    };
                    channel.position = Some(ChannelPosition { epoch: result.epoch, offset });
                    for publication in &result.publications {
                        self.publication(at, publication).await?;
                    }
                    return Ok(());
                }
                Ok(_) => return Err(self.odd(at).into()),
                Err(error) if error.code == ErrorCode::UnrecoverablePosition.code() => {
                    self.fetch_missed(connection, at).await?;
                }
                Err(error) => return Err(refused(&error).about(&self.channels[at].name).into()),
            }
        }
    }

    /// Has a channel begin with the oldest publication that is kept.
    async fn find_earliest(
        &mut self,
        connection: &mut LiveConnection,
        at: usize,
    ) -> Result<(), End> {
        let position = match self.history(connection, at, 1, None).await? {
            Ok(result) => {
                let oldest =
                    result.publications.first().map(|oldest| oldest.offset.saturating_sub(1));
                ChannelPosition { epoch: result.epoch, offset: oldest.unwrap_or(result.offset) }
            }
            // It is created when it is subscribed to.
            Err(error) if error.code == ErrorCode::UnknownChannel.code() => {
                ChannelPosition::default()
            }
            Err(error) => return Err(refused(&error).about(&self.channels[at].name).into()),
        };
        self.channels[at].position = Some(position);
        Ok(())
    }

    /// Prints what is kept behind the position of a channel, and tells what is not.
    async fn fetch_missed(
        &mut self,
        connection: &mut LiveConnection,
        at: usize,
    ) -> Result<(), End> {
        loop {
            let before = self.channels[at].position.clone().unwrap_or_default();
            let since = Position { offset: before.offset, epoch: before.epoch.clone() };
            let result = match self.history(connection, at, -1, Some(since)).await? {
                Ok(result) => result,
                Err(error) => {
                    let is = |code: ErrorCode| error.code == code.code();
                    let is_another = is(ErrorCode::UnrecoverablePosition);
                    let is_gone = is(ErrorCode::UnknownChannel);
                    if !is_another && !is_gone {
                        return Err(refused(&error).about(&self.channels[at].name).into());
                    }
                    self.printer.other_topic(&self.channels[at].name, &before);
                    self.channels[at].position = Some(ChannelPosition::default());
                    if is_gone {
                        return Ok(());
                    }
                    continue;
                }
            };
            let at_end = result.publications.is_empty();
            let first = result.publications.first().map(|first| first.offset);
            let next = first.unwrap_or(result.offset.saturating_add(1));
            if next > before.next() {
                self.printer.gap(&self.channels[at].name, &before, next - before.next());
            }
            let offset = first.map_or(result.offset, |first| first.saturating_sub(1));
            self.channels[at].position = Some(ChannelPosition { epoch: result.epoch, offset });
            for publication in &result.publications {
                let position = self.channels[at].position.clone().unwrap_or_default();
                if publication.offset > position.next() {
                    let count = publication.offset - position.next();
                    self.printer.gap(&self.channels[at].name, &position, count);
                }
                self.publication(at, publication).await?;
            }
            if at_end {
                return Ok(());
            }
        }
    }

    async fn history(
        &mut self,
        connection: &mut LiveConnection,
        at: usize,
        limit: i32,
        since: Option<Position>,
    ) -> Result<Result<HistoryResult, ReplyError>, End> {
        let channel = self.channels[at].name.clone();
        let asked = connection.ask(Request::History(HistoryRequest {
            channel,
            limit,
            since,
            reverse: false,
        }));
        match self.unless_stopped(asked).await?? {
            Ok(Answer::History(result)) => Ok(Ok(result)),
            Ok(_) => Err(self.odd(at).into()),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Prints a publication, unless it was printed already.
    async fn publication(&mut self, at: usize, publication: &Publication) -> Result<(), End> {
        let Channel { name, position, .. } = &mut self.channels[at];
        let position = position.get_or_insert_default();
        if publication.offset <= position.offset && publication.offset > 0 {
            return Ok(());
        }
        position.offset = publication.offset.max(position.offset);
        self.printer.publication(name, &position.epoch, publication);
        self.left -= 1;
        if self.left == 0 {
            self.deliver().await?;
            return Err(End::Done);
        }
        if self.printer.is_full() { self.deliver().await } else { Ok(()) }
    }

    /// Writes what was printed.
    async fn deliver(&mut self) -> Result<(), End> {
        match self.printer.deliver(&mut self.stop.as_mut()).await {
            None => Ok(()),
            Some(Ok(())) => Err(End::Done),
            Some(Err(failure)) => Err(failure.into()),
        }
    }

    fn odd(&self, at: usize) -> Failure {
        let text = "the broker answers something that was not asked";
        Failure::new(Exit::Failed, text).about(&self.channels[at].name)
    }
}
