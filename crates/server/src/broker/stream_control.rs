//! Creates, closes, forks and deletes streams: the catalogue's part on the first core, and the partition's part on
//! its own core, in the time of one commit. A source is held as long as it has forks. It knows no HTTP.

use std::collections::HashSet;

use sennit_engine::{
    CatalogueCommand, Command, Content, ForkOf, OpenStream, Placed, StreamAnswer, StreamCommand,
    StreamRead, StreamRefusal, StreamSettings, StreamStatus, Topic, is_same_media_type, media_type,
};
use sennit_identity::Verb;
use sennit_model::{
    Batch, BatchBuilder, Message, Messages, Offset, PartitionId, PartitionIndex, ReadFrom, TopicId,
    TopicName, limits::APPEND_BYTES_MAX,
};

use super::{
    audit,
    control::{Control, incarnation},
    control_request::ControlRefusal,
    name_change::{NameAnswer, NameChange},
    stream_offset::IncarnationTag,
    stream_request::{
        CreateStream, Created, ForkRequest, Located, StreamFailure, StreamPlace, config_of_stream,
    },
    streams::{Streams, ask, read_through, stopping, wait_for_room, wrong_answer},
};
use crate::identity::principal::Principal;
use crate::runtime::{core::content_bytes, index::ShardIndex, shard_answers::Answer};

impl Control {
    /// Where the topic of a name is, if there is one.
    ///
    /// # Errors
    /// As those of [`Self::look_up`].
    pub(crate) fn locate(&self, name: &TopicName) -> Result<Option<Located>, ControlRefusal> {
        self.look_up(|catalogue| catalogue.topic_named(name).map(Located::of))
    }

    /// Has a stream be there.
    pub(crate) async fn create_stream(
        &self,
        principal: &Principal,
        create: CreateStream,
    ) -> Result<Created, StreamFailure> {
        let name = create.name.to_string();
        let created = self.create_stream_if_allowed(principal, create).await;
        // One that is found is no act.
        if created.as_ref().is_ok_and(|created| created.is_new) || created.is_err() {
            audit::note(&self.core.cores, principal, "stream create", name, &created);
        }
        created
    }

    async fn create_stream_if_allowed(
        &self,
        principal: &Principal,
        create: CreateStream,
    ) -> Result<Created, StreamFailure> {
        let may = |verb, name: &TopicName| {
            principal.may(verb, name.as_str()).map_err(ControlRefusal::from)
        };
        may(Verb::Create, &create.name)?;
        self.check_topics_quota(principal, &create.name)?;
        if create.content.is_some() || create.closes {
            may(Verb::Publish, &create.name)?;
            if let Some(content) = &create.content {
                let batch = (u64::from(content.count()), content.bytes() as u64);
                principal.take(batch).map_err(ControlRefusal::from)?;
            }
        }
        if let Some(fork) = &create.fork {
            may(Verb::Read, &fork.source)?;
        }
        match self.change_names(NameChange::CreateStream(create)).await? {
            NameAnswer::Stream(created) => Ok(created),
            NameAnswer::Changed(_) | NameAnswer::Done => Err(wrong_answer()),
        }
    }

    /// Has a stream be there, where the catalogue is led.
    pub(super) async fn find_or_create_stream(
        &self,
        create: CreateStream,
    ) -> Result<Created, StreamFailure> {
        let _changes = self.changes.of(create.name.as_str()).await;
        if let Some(located) = self.locate(&create.name)? {
            if located.partitions > 1 {
                return Err(StreamFailure::Partitioned(located.partitions));
            }
            let asks = StreamCommand::Status { touches: false };
            let found = match ask(&self.core, located.place(), asks).await {
                Ok(StreamAnswer::Status(status)) => {
                    self.find_stream(create.clone(), located, &status).await
                }
                Ok(_) => Err(wrong_answer()),
                Err(failure) => Err(failure),
            };
            if !matches!(found, Err(StreamFailure::Stream(StreamRefusal::Unknown))) {
                return found.map(|(is_new, status)| Created { is_new, status, located });
            }
            // Its time is over, perhaps since it was asked, and nobody has come to take it away.
            if let Some(topic) = self.topic(located.topic) {
                self.remove_stream(&topic).await?;
            }
        }
        self.new_stream(create).await
    }

    /// The topic is there: it is the stream that is asked for, or becomes it, or is another.
    async fn find_stream(
        &self,
        create: CreateStream,
        located: Located,
        status: &StreamStatus,
    ) -> Result<(bool, StreamStatus), StreamFailure> {
        let CreateStream { durability, mut settings, mut content, closes, fork, .. } = create;
        // A crash may have left the catalogue's part of a creation.
        let is_new = !status.is_opened;
        if is_new && !(self.is_stream(located.topic) && status.next == Offset(0)) {
            return Err(StreamRefusal::NativeTopic.into());
        }
        if let Some(placed) = self.placed(&settings)
            && is_new
            && self.core.cores.placement.shard_of(located.home, PartitionIndex(0)).0 != placed.shard
        {
            // A topic that is there already lies where it does.
            return Err(StreamRefusal::SettingsDiffer { field: "stream group" }.into());
        }
        if is_new {
            self.wait_for_room_beside(located.home, content.as_ref()).await?;
        }
        match &fork {
            Some(fork) if is_new => {
                let made = self.fork(fork, &mut settings).await?;
                content = joined(made, content)?;
                self.add_fork(&settings, located.topic).await?;
            }
            // The requests are compared, whatever has become of the source.
            Some(fork) => {
                inherit(&mut settings, &status.settings);
                settings.fork = Some(ForkOf {
                    source: PartitionId::default(),
                    home: TopicId::default(),
                    name: fork.source.as_str().into(),
                    at: Offset(0),
                    requested: (fork.token.clone(), fork.behind),
                });
            }
            None => {}
        }
        let source = settings.fork.as_ref().filter(|_| is_new).map(|of| (of.source, of.home));
        let config = match self.topic(located.topic) {
            Some(topic) => topic.config().clone(),
            None => config_of_stream(durability),
        };
        let open = StreamCommand::Open(Box::new(OpenStream { config, settings, content, closes }));
        let is_opened = ask(&self.core, located.place(), open).await.and_then(opened);
        if is_opened.is_err() {
            // It has not become a fork, and holds nothing.
            self.remove_fork(source, located.topic).await?;
        }
        is_opened
    }

    async fn new_stream(&self, create: CreateStream) -> Result<Created, StreamFailure> {
        let CreateStream { name, durability, mut settings, mut content, closes, fork } = create;
        // Before there is anything to be seen under its name. It may come to lie elsewhere meanwhile.
        let placed = self.placed(&settings);
        let next = self.core.look(|core| core.catalogue().next_topic(placed));
        self.wait_for_room_beside(next, content.as_ref()).await?;
        if let Some(asked) = &fork {
            let made = self.fork(asked, &mut settings).await?;
            content = joined(made, content)?;
        }
        let config = config_of_stream(durability);
        let incarnation = incarnation()?;
        let is_stream = true;
        let command = CatalogueCommand::CreateTopic {
            name: name.clone(),
            config: config.clone(),
            incarnation,
            placed,
            is_stream,
        };
        let open = OpenStream { config, settings: settings.clone(), content, closes };
        let open = StreamCommand::Open(Box::new(open));
        let (created, topic) = self.core.with(|core| {
            let (origin, created) = core.answers.ask();
            core.command(ShardIndex::CATALOGUE, Command::Catalogue(origin, command));
            core.handle();
            (created, core.catalogue().topic_named(&name).map(Topic::id))
        });
        // The catalogue's commit and the partition's are awaited together. A crash between them leaves
        // a topic that nobody was told of, and that the next creation makes the stream it is to be.
        let opening = async |topic: Option<TopicId>| {
            let topic = topic.ok_or(StreamRefusal::Unknown)?;
            self.add_fork(&settings, topic).await?;
            opened(ask(&self.core, place_of(topic), open).await?)
        };
        let (created, is_opened) = match self.peers {
            None => tokio::join!(created, opening(topic)),
            // A group may take the topic back, and its number be another's then: the partition waits. A leader without its lease has
            // not even created it yet.
            Some(_) => {
                let created = created.await;
                let is_opened = match &created {
                    Ok(Ok(Answer::Done { topic, .. })) => opening(Some(*topic)).await,
                    _ => Err(wrong_answer()),
                };
                (created, is_opened)
            }
        };
        let topic = match created {
            Ok(Ok(Answer::Done { topic, .. })) => topic,
            Ok(Ok(_)) => return Err(wrong_answer()),
            Ok(Err(refusal)) => return Err(ControlRefusal::Engine(refusal).into()),
            Err(_) => return Err(stopping()),
        };
        if is_opened.is_ok() {
            // What a fork has from its source is nothing new.
            let from = settings.fork.as_ref().map_or(Offset(0), |fork| fork.at);
            self.announce(topic, from);
        } else {
            // Nothing is left of what was refused.
            if let Some(topic) = self.topic(topic) {
                self.remove_topic(&topic).await?;
            }
            let source = settings.fork.as_ref().map(|of| (of.source, of.home));
            self.remove_fork(source, topic).await?;
        }
        // It stands for itself.
        let tag = IncarnationTag::of(incarnation);
        let located = Located { topic, home: topic, partitions: 1, tag };
        is_opened.map(|(is_new, status)| Created { is_new, status, located })
    }

    /// Waits until there is room for what a stream begins with where the partitions of `home` are.
    async fn wait_for_room_beside(
        &self,
        home: TopicId,
        content: Option<&Content>,
    ) -> Result<(), StreamFailure> {
        let bytes = content_bytes(content);
        if bytes == 0 {
            return Ok(());
        }
        let shard = self.core.cores.placement.shard_of(home, PartitionIndex(0));
        Ok(wait_for_room(&self.core, shard, bytes).await?)
    }

    /// Where a new stream is to lie: those of one group lie on one shard.
    fn placed(&self, settings: &StreamSettings) -> Option<Placed> {
        let placement = &self.core.cores.placement;
        let shard = placement.shard_of_group(settings.group.as_deref()?).0;
        Some(Placed { shard, shards: placement.shards() as u32 })
    }

    /// Says what a fork goes on from, in its settings; gives what it begins with of its own.
    async fn fork(
        &self,
        fork: &ForkRequest,
        settings: &mut StreamSettings,
    ) -> Result<Option<Batch>, StreamFailure> {
        let located = self.locate(&fork.source)?.ok_or(StreamFailure::SourceUnknown)?;
        if located.partitions > 1 {
            return Err(StreamFailure::Partitioned(located.partitions));
        }
        let place = located.place();
        let asks = StreamCommand::Status { touches: false };
        let StreamAnswer::Status(status) = ask(&self.core, place, asks).await.map_err(of_source)?
        else {
            return Err(wrong_answer());
        };
        if let Some(offset) = fork.at
            && !offset.is_of(located.tag)
            && !Streams::new(self.core.clone()).is_inherited(located, offset).await?
        {
            return Err(StreamFailure::OtherStream);
        }
        let mut at = fork.at.map_or(status.next, |offset| offset.at);
        if at > status.next {
            return Err(StreamFailure::BeyondSource(status.next));
        }
        let (given, held) = (&settings.content_type, &status.settings.content_type);
        if !media_type(given).is_empty() && !is_same_media_type(given, held) {
            return Err(StreamFailure::SourceContentType(status.settings.content_type.clone()));
        }
        inherit(settings, &status.settings);
        let mut content = None;
        if fork.behind > 0 {
            (at, content) = self.behind(place, at, fork.behind, &settings.content_type).await?;
        }
        settings.fork = Some(ForkOf {
            source: place.0,
            home: place.1,
            name: fork.source.as_str().into(),
            at,
            requested: (fork.token.clone(), fork.behind),
        });
        Ok(content)
    }

    /// Reads the one append that lies at `at` in a fork's source. Returns the offset up to which the fork inherits,
    /// `skipped` bytes or JSON messages behind `at`, and the part that it inherits of the message there.
    async fn behind(
        &self,
        source: StreamPlace,
        at: Offset,
        skipped: u64,
        content_type: &str,
    ) -> Result<(Offset, Option<Batch>), StreamFailure> {
        let read = StreamRead {
            at: ReadFrom::Offset(at),
            before: None,
            bytes_max: APPEND_BYTES_MAX as u64,
            waits: false,
            one_append: true,
            for_fork: false,
        };
        let chunk = read_through(&self.core, source, read).await.map_err(of_source)?;
        let is_json = media_type(content_type).eq_ignore_ascii_case("application/json");
        let (whole, rest) = behind(&chunk.messages, skipped, is_json)
            .ok_or(StreamFailure::BeyondAppend(skipped))?;
        Ok((at.plus(whole), rest))
    }

    /// Has the source of a fork keep what the fork goes on from.
    async fn add_fork(
        &self,
        settings: &StreamSettings,
        fork: TopicId,
    ) -> Result<(), StreamFailure> {
        let Some(ForkOf { source, home, .. }) = settings.fork else { return Ok(()) };
        let added = ask(&self.core, (source, home), StreamCommand::AddFork(fork)).await;
        added.map(drop).map_err(of_source)
    }

    /// Deletes a stream; what its forks need of it stays until they are gone.
    pub(crate) async fn delete_stream(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<(), StreamFailure> {
        let deleted = self.delete_stream_if_allowed(principal, name).await;
        audit::note(&self.core.cores, principal, "stream delete", name.as_str(), &deleted);
        deleted
    }

    async fn delete_stream_if_allowed(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<(), StreamFailure> {
        principal.may(Verb::Delete, name.as_str()).map_err(ControlRefusal::from)?;
        self.change_names(NameChange::DeleteStream { name: name.clone() }).await.map(drop)
    }

    /// Deletes a stream, where the catalogue is led.
    pub(super) async fn remove_stream_named(&self, name: &TopicName) -> Result<(), StreamFailure> {
        let _changes = self.changes.of(name.as_str()).await;
        let topic = self.locate(name)?.and_then(|located| self.topic(located.topic));
        let topic = topic.ok_or(StreamRefusal::Unknown)?;
        if topic.config().partitions > 1 {
            return Err(StreamFailure::Partitioned(topic.config().partitions));
        }
        let asks = StreamCommand::Status { touches: false };
        match ask(&self.core, (first_partition(topic.id()), topic.created.home), asks).await {
            // Its time was over: it is taken away, and was not there.
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) => {
                self.remove_stream(&topic).await?;
                Err(StreamRefusal::Unknown.into())
            }
            Err(failure) => Err(failure),
            Ok(StreamAnswer::Status(status)) if !status.is_opened && !topic.created.is_stream() => {
                Err(StreamRefusal::NativeTopic.into())
            }
            Ok(_) => self.remove_stream(&topic).await,
        }
    }

    /// Takes away a stream if its time is over, where the catalogue is led.
    pub(super) async fn end_stream(&self, ended: TopicId) -> Result<(), StreamFailure> {
        let Some(topic) = self.topic(ended) else { return Ok(()) };
        let _changes = self.changes.of(topic.created.name.as_str()).await;
        // Another client may have deleted the stream of this name meanwhile.
        if self.topic(ended).is_none() {
            return Ok(());
        }
        let place = (first_partition(topic.id()), topic.created.home);
        let asks = StreamCommand::Status { touches: false };
        match ask(&self.core, place, asks).await {
            Err(StreamFailure::Stream(StreamRefusal::Unknown)) => self.remove_stream(&topic).await,
            _ => Ok(()),
        }
    }

    /// Takes a stream away, or what nobody but its forks needs; and what that was forked from, if
    /// nothing needs it any more.
    async fn remove_stream(&self, topic: &Topic) -> Result<(), StreamFailure> {
        let place = (first_partition(topic.id()), topic.created.home);
        match ask(&self.core, place, StreamCommand::Delete).await {
            Ok(StreamAnswer::Deleted { is_unused: false, .. }) => {
                self.listener_gone(topic);
                Ok(())
            }
            Ok(StreamAnswer::Deleted { is_unused: true, fork_of }) => {
                self.remove_topic(topic).await?;
                self.remove_fork(fork_of.map(|of| (of.source, of.home)), topic.id()).await
            }
            Ok(_) => Err(wrong_answer()),
            Err(failure) => Err(failure),
        }
    }

    /// A fork is gone: so is what it was made of, if only that was needed there, and so on.
    async fn remove_fork(
        &self,
        mut source: Option<StreamPlace>,
        mut fork: TopicId,
    ) -> Result<(), StreamFailure> {
        while let Some(place) = source {
            source = self.release(place, fork).await?;
            fork = place.0.topic;
        }
        Ok(())
    }

    /// A fork of `source` is gone. If nothing needs that any more it is deleted; says what it was
    /// forked from.
    async fn release(
        &self,
        source: StreamPlace,
        fork: TopicId,
    ) -> Result<Option<StreamPlace>, StreamFailure> {
        match ask(&self.core, source, StreamCommand::RemoveFork(fork)).await {
            Ok(StreamAnswer::Deleted { is_unused: true, fork_of }) => {
                if let Some(topic) = self.topic(source.0.topic) {
                    self.remove_topic(&topic).await?;
                }
                Ok(fork_of.map(|of| (of.source, of.home)))
            }
            Ok(_) => Ok(None),
            Err(StreamFailure::Stream(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Deletes a topic, whatever may need it; what it was forked from is not held any more.
    pub(crate) async fn remove_whole(&self, topic: &Topic) -> Result<(), ControlRefusal> {
        let place = (first_partition(topic.id()), topic.created.home);
        // It is no fork of its own: this only says what it is a fork of, deleted or not.
        let asks = StreamCommand::RemoveFork(topic.id());
        let source = match ask(&self.core, place, asks).await {
            Ok(StreamAnswer::Deleted { fork_of, .. }) => fork_of.map(|of| (of.source, of.home)),
            _ => None,
        };
        self.remove_topic(topic).await?;
        if let Err(failure) = self.remove_fork(source, topic.id()).await {
            let name = topic.created.name.as_str();
            tracing::warn!(name, %failure, "what it was forked from is held until the next start");
        }
        Ok(())
    }

    /// What a crash has left of streams: forks that are gone, or never came to be, hold nothing any
    /// more, and what nothing needs is deleted.
    pub(crate) async fn release_streams(
        &self,
        held: &[(PartitionId, Option<TopicId>)],
        forks: &HashSet<(TopicId, PartitionId)>,
    ) {
        for &(source, fork) in held {
            let Some(topic) = self.topic(source.topic) else { continue };
            let _changes = self.changes.of(topic.created.name.as_str()).await;
            // Its time may have been over as well.
            if self.topic(source.topic).is_none() {
                continue;
            }
            let done = match fork {
                // In a cluster what was found may be behind: a fork whose topic is there may be one by now.
                Some(fork)
                    if self.topic(fork).is_some()
                        && (self.peers.is_some() || forks.contains(&(fork, source))) =>
                {
                    continue;
                }
                Some(fork) => self.remove_fork(Some((source, topic.created.home)), fork).await,
                None => self.remove_stream(&topic).await,
            };
            if let Err(failure) = done {
                let name = topic.created.name.as_str();
                tracing::warn!(name, %failure, "a deleted stream is still there");
            }
        }
    }

    /// Whether a topic was made to be a stream.
    fn is_stream(&self, id: TopicId) -> bool {
        self.topic(id).is_some_and(|topic| topic.created.is_stream())
    }

    fn topic(&self, id: TopicId) -> Option<Topic> {
        self.core.look(|core| core.catalogue().topic(id).cloned())
    }
}

/// A failure of a fork's source, as one who creates the fork is told it.
fn of_source(failure: StreamFailure) -> StreamFailure {
    match failure {
        StreamFailure::Stream(StreamRefusal::Unknown) => StreamFailure::SourceUnknown,
        StreamFailure::Stream(StreamRefusal::Deleted) => StreamFailure::SourceDeleted,
        failure => failure,
    }
}

fn first_partition(topic: TopicId) -> PartitionId {
    PartitionId { topic, index: PartitionIndex(0) }
}

/// The place of a topic that stands for itself.
fn place_of(topic: TopicId) -> StreamPlace {
    (first_partition(topic), topic)
}

/// What a fork is not told it has from its source.
fn inherit(settings: &mut StreamSettings, source: &StreamSettings) {
    if settings.content_type.is_empty() {
        settings.content_type = source.content_type.clone();
    }
    if settings.time_to_live.is_none() && settings.expires_at.is_none() {
        settings.time_to_live = source.time_to_live;
        settings.expires_at = source.expires_at.clone();
    }
}

/// What lies `behind` bytes, or messages of JSON, into what was appended at once: so many whole
/// messages, and what is left of the next. `None` if that is shorter.
fn behind(parts: &[bytes::Bytes], behind: u64, is_json: bool) -> Option<(u64, Option<Batch>)> {
    let (mut whole, mut left) = (0, behind);
    for message in parts.iter().flat_map(|part| Messages::of_checked(part)) {
        if left == 0 {
            break;
        }
        let size = if is_json { 1 } else { message.payload().len() as u64 };
        if size > left {
            let cut = usize::try_from(left).ok()?;
            let mut builder = BatchBuilder::for_append(cut);
            let payload = bytes::Bytes::copy_from_slice(&message.payload()[..cut]);
            builder.push(&Message::new(payload)).ok()?;
            return Some((whole, builder.take()));
        }
        (whole, left) = (whole + 1, left - size);
    }
    (left == 0).then_some((whole, None))
}

/// What a fork has of its source in part, and what its creator gives it: appended at once.
fn joined(first: Option<Batch>, second: Option<Content>) -> Result<Option<Content>, StreamRefusal> {
    let second = second.map(Content::into_parts);
    let second = second.into_iter().flat_map(|(batch, further)| [batch].into_iter().chain(further));
    let joined = Content::of(first.into_iter().chain(second));
    // Each is within the limit; together they need not be.
    if joined.as_ref().is_some_and(|content| content.bytes() > APPEND_BYTES_MAX) {
        let (name, limit) = ("APPEND_BYTES_MAX", APPEND_BYTES_MAX as u64);
        return Err(StreamRefusal::Limit { name, limit });
    }
    Ok(joined)
}

fn opened(answer: StreamAnswer) -> Result<(bool, StreamStatus), StreamFailure> {
    match answer {
        StreamAnswer::Opened { created, status } => Ok((created, status)),
        _ => Err(wrong_answer()),
    }
}
