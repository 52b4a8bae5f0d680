//! Streams by name, wherever they live, for all doors. An answer to an append comes when the append is as durable
//! as the stream promises. It knows no HTTP.

use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

use foldhash::fast::RandomState;
use sennit_engine::{
    Command, Origin, Publish, Refusal, StreamAnswer, StreamAppend, StreamAppended, StreamChunk,
    StreamCommand, StreamRead, StreamRefusal, StreamStatus,
};
use sennit_identity::Verb;
use sennit_model::{
    Batch, Offset, PartitionId, PartitionIndex, ProducerStamp, ReadFrom, TopicId, TopicName,
};
use tokio::{sync::oneshot, task::spawn_local};

use super::{
    control::{Control, ask_control},
    control_request::ControlRefusal,
    interrupted_reads::InterruptedReads,
    stream_offset::{Identified, IncarnationTag, StreamOffset},
    stream_request::{CreateStream, Created, Located, StreamFailure, StreamPlace},
};
use crate::identity::principal::Principal;
use crate::runtime::{
    core::{CoreHandle, content_bytes},
    inbox::Message,
    index::{CoreIndex, ShardIndex},
    peer_cores::PeerCores,
    shard_answers::Answer,
};

/// Names whose place a core remembers, at some 60 bytes and the name each; beyond that it begins to learn
/// them anew.
const NAMES_MAX: usize = 1 << 17;

/// How long an append waits for room before it is told to come again.
const APPEND_PATIENCE: Duration = Duration::from_secs(10);

/// Streams, as one core sees them.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(crate) core: CoreHandle,
    /// What the first core has told of names. A number is never given to another topic: one that is
    /// gone says so itself.
    names: RefCell<HashMap<TopicName, Located, RandomState>>,
    breaks: Rc<InterruptedReads>,
    /// Who wants to know whose streams are asked for.
    peer_cores: Option<Rc<PeerCores>>,
}

impl Streams {
    /// The streams that `core` can ask for: all.
    pub(crate) fn new(core: CoreHandle) -> Rc<Self> {
        Rc::new(Self::new_with(core, None))
    }

    /// The same for connections, which can move to where their streams are.
    pub(crate) fn of_connections(core: CoreHandle, peer_cores: Rc<PeerCores>) -> Rc<Self> {
        Rc::new(Self::new_with(core, Some(peer_cores)))
    }

    fn new_with(core: CoreHandle, peer_cores: Option<Rc<PeerCores>>) -> Self {
        let breaks = core.services.find_or_add();
        Self { core, names: RefCell::default(), breaks, peer_cores }
    }

    /// An answer broke off here: the next one ends before it, whichever core is asked, so that who goes
    /// on is told why.
    pub(crate) fn breaks_off(&self, topic: TopicId, at: Offset) {
        for inbox in self.core.cores.inboxes.iter() {
            let _ = inbox.send(Message::call(move |breaks: &Rc<InterruptedReads>| {
                breaks.broke_off(topic, at)
            }));
        }
    }

    /// Where an answer broke off last.
    pub(crate) fn break_of(&self, topic: TopicId) -> Option<Offset> {
        self.breaks.of(topic)
    }

    /// Has a stream be there; says whether it was not before, and how it is.
    pub(crate) async fn create(
        &self,
        principal: &Principal,
        create: CreateStream,
    ) -> Result<(bool, Identified<StreamStatus>), StreamFailure> {
        let (sender, answer) = oneshot::channel();
        let (name, principal) = (create.name.clone(), principal.clone());
        self.ask_first_core(|control| {
            spawn_local(async move {
                let _ = sender.send(control.create_stream(&principal, create).await);
            });
        });
        let Created { is_new, status, located } = answer.await.map_err(|_| stopping())??;
        self.remember(name, located);
        Ok((is_new, Identified { of: located.tag, answer: status }))
    }

    /// Appends, or closes, or both at once. `append` says what; it is asked once more if the name is
    /// another stream's by now.
    pub(crate) async fn append(
        &self,
        principal: &Principal,
        name: &TopicName,
        mut append: impl FnMut() -> Option<Box<StreamAppend>>,
    ) -> Result<Identified<StreamAppended>, StreamFailure> {
        let located = self.located(principal, Verb::Publish, name).await?;
        let shard = self.shard(located.home);
        let first = append().ok_or_else(wrong_answer)?;
        let bytes = content_bytes(first.content.as_ref());
        let messages = first.content.as_ref().map_or(0, |content| u64::from(content.count()));
        wait_for_room(&self.core, shard, bytes).await?;
        // At the last moment: what is counted is with its shard before it is measured what that stores.
        principal.take((messages, bytes)).map_err(ControlRefusal::from)?;
        let mut first = Some(first);
        let mut append = || first.take().or_else(&mut append);
        let command = || append().map(StreamCommand::Append);
        match self.ask(name, located, command).await? {
            Identified { of, answer: StreamAnswer::Appended(answer) } => {
                Ok(Identified { of, answer })
            }
            _ => Err(wrong_answer()),
        }
    }

    /// Appends what the broker has for a stream of its own at this offset; false if the stream ends elsewhere: then nothing is appended.
    pub(crate) async fn append_at(
        &self,
        name: &TopicName,
        at: Offset,
        batch: Batch,
    ) -> Result<bool, StreamFailure> {
        let located = self.located(&Principal::broker(), Verb::Publish, name).await?;
        let shard = self.shard(located.home);
        let answer = self.core.with(|core| {
            let (origin, answer) = core.answers.ask();
            let (partition, producer) = (located.place().0, ProducerStamp::default());
            let publish = Publish { origin, partition, producer, batch };
            core.command(shard, Command::PublishAt(publish, at));
            answer
        });
        match answer.await {
            Ok(Ok(Answer::Published { .. })) => Ok(true),
            Ok(Ok(_)) => Err(wrong_answer()),
            Ok(Err(Refusal::OffsetMismatch { .. })) => Ok(false),
            Ok(Err(refusal)) => {
                if refusal == Refusal::UnknownTopic {
                    self.names.borrow_mut().remove(name);
                }
                Err(StreamFailure::of_refusal(&refusal))
            }
            Err(_) => Err(stopping()),
        }
    }

    /// Reads at an offset, of what it was forked from too. Dropped, it waits no more. Where the offset
    /// was given `of` a stream, it has to be an offset of the one that has the name now.
    pub(crate) async fn read(
        &self,
        principal: &Principal,
        name: &TopicName,
        of: Option<IncarnationTag>,
        read: StreamRead,
    ) -> Result<Identified<StreamChunk>, StreamFailure> {
        let offset = match (of, read.at) {
            (Some(of), ReadFrom::Offset(at)) => Some(StreamOffset { of, at }),
            _ => None,
        };
        let mut located = self.located(principal, Verb::Read, name).await?;
        if let Some(offset) = offset
            && !offset.is_of(located.tag)
        {
            // The name may have become another stream's since this core learnt of it.
            located = self.located_anew(name).await?;
            self.check_offset(located, offset).await?;
        }
        let mut chunk = tokio::select! {
            biased;
            chunk = read_through(&self.core, located.place(), read) => chunk,
            missing = principal.lost(Verb::Read, name.as_str()), if read.waits => {
                return Err(ControlRefusal::from(missing).into());
            }
        };
        if let Some(now) = self.moved(name, located, &chunk).await? {
            if let Some(offset) = offset {
                self.check_offset(now, offset).await?;
            }
            chunk = read_through(&self.core, now.place(), read).await;
            located = now;
        }
        // It may have waited.
        principal.may(Verb::Read, name.as_str()).map_err(ControlRefusal::from)?;
        let of = located.tag;
        chunk.map(|answer| Identified { of, answer }).map_err(|failure| failure.said_by(of))
    }

    /// Whether an offset is one of the stream that is there.
    async fn check_offset(
        &self,
        located: Located,
        offset: StreamOffset,
    ) -> Result<(), StreamFailure> {
        let is_of = offset.is_of(located.tag) || self.is_inherited(located, offset).await?;
        if is_of { Ok(()) } else { Err(StreamFailure::OtherStream) }
    }

    /// How a stream is. `touches` makes its time to live begin anew.
    pub(crate) async fn status(
        &self,
        principal: &Principal,
        name: &TopicName,
        touches: bool,
    ) -> Result<Identified<StreamStatus>, StreamFailure> {
        let located = self.located(principal, Verb::Describe, name).await?;
        match self.ask(name, located, || Some(StreamCommand::Status { touches })).await? {
            Identified { of, answer: StreamAnswer::Status(answer) } => {
                Ok(Identified { of, answer })
            }
            _ => Err(wrong_answer()),
        }
    }

    /// Deletes a stream; what its forks need of it stays until they are gone.
    pub(crate) async fn delete(
        &self,
        principal: &Principal,
        name: &TopicName,
    ) -> Result<(), StreamFailure> {
        let (sender, answer) = oneshot::channel();
        let (deletes, principal) = (name.clone(), principal.clone());
        self.ask_first_core(|control| {
            spawn_local(async move {
                let _ = sender.send(control.delete_stream(&principal, &deletes).await);
            });
        });
        let deleted = answer.await.unwrap_or_else(|_| Err(stopping()));
        self.names.borrow_mut().remove(name);
        deleted
    }

    fn ask_first_core(&self, ask: impl FnOnce(Rc<Control>) + Send + 'static) {
        let call = Message::call(move |control: &Rc<Control>| ask(control.clone()));
        let _ = self.core.cores.inboxes[CoreIndex::FIRST].send(call);
    }

    pub(crate) fn shard(&self, home: TopicId) -> ShardIndex {
        self.core.cores.placement.shard_of(home, PartitionIndex(0))
    }

    /// Where the stream is that the principal asks for, if it may do this to it. What is read of a stream, appended to it or asked about it
    /// comes here first.
    pub(crate) async fn located(
        &self,
        principal: &Principal,
        verb: Verb,
        name: &TopicName,
    ) -> Result<Located, StreamFailure> {
        principal.may(verb, name.as_str()).map_err(ControlRefusal::from)?;
        self.find(name).await
    }

    /// Where the stream of a name is, as far as this core knows.
    async fn find(&self, name: &TopicName) -> Result<Located, StreamFailure> {
        let known = self.names.borrow().get(name).copied();
        let located = match known {
            Some(located) => located,
            None => Box::pin(self.learn(name)).await?,
        };
        if let Some(peer_cores) = &self.peer_cores {
            let shard = self.shard(located.home);
            peer_cores.note_request(self.core.cores.placement.core_of(shard));
        }
        Ok(located)
    }

    async fn learn(&self, name: &TopicName) -> Result<Located, StreamFailure> {
        let located = if self.core.cores.groups.is_some() {
            let name = name.clone();
            let known = |control: Rc<Control>| async move { control.locate_known(&name).await };
            ask_control(&self.core.cores, known).await?
        } else if self.core.index == CoreIndex::FIRST {
            self.core.look(|core| core.catalogue().topic_named(name).map(Located::of))
        } else {
            let (sender, answer) = oneshot::channel();
            let name = name.clone();
            self.ask_first_core(move |control| {
                let _ = sender.send(control.locate(&name));
            });
            answer.await.map_err(|_| stopping())??
        };
        let located = located.ok_or(StreamRefusal::Unknown)?;
        if located.partitions > 1 {
            return Err(StreamFailure::Partitioned(located.partitions));
        }
        self.remember(name.clone(), located);
        Ok(located)
    }

    fn remember(&self, name: TopicName, located: Located) {
        let mut names = self.names.borrow_mut();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name, located);
    }

    /// Where the stream of a name is, as the first core knows.
    pub(crate) async fn located_anew(&self, name: &TopicName) -> Result<Located, StreamFailure> {
        self.names.borrow_mut().remove(name);
        self.find(name).await
    }

    async fn ask(
        &self,
        name: &TopicName,
        located: Located,
        mut command: impl FnMut() -> Option<StreamCommand>,
    ) -> Result<Identified<StreamAnswer>, StreamFailure> {
        let first = command().ok_or_else(wrong_answer)?;
        let mut answer = ask(&self.core, located.place(), first).await;
        let mut of = located.tag;
        if let Some(now) = self.moved(name, located, &answer).await?
            && let Some(command) = command()
        {
            answer = ask(&self.core, now.place(), command).await;
            of = now.tag;
        }
        answer.map(|answer| Identified { of, answer }).map_err(|failure| failure.said_by(of))
    }

    /// Where the name is now, if `answer` says that there is nothing where it was.
    async fn moved<T>(
        &self,
        name: &TopicName,
        was: Located,
        answer: &Result<T, StreamFailure>,
    ) -> Result<Option<Located>, StreamFailure> {
        if !matches!(answer, Err(StreamFailure::Stream(StreamRefusal::Unknown))) {
            return Ok(None);
        }
        let now = Box::pin(self.located_anew(name)).await?;
        Ok((now.topic != was.topic).then_some(now))
    }
}

/// Waits until a shard has room for what is to be appended, for a while.
pub(crate) async fn wait_for_room(
    core: &CoreHandle,
    shard: ShardIndex,
    bytes: u64,
) -> Result<(), ControlRefusal> {
    let room = core.cores.gauges[shard].room_for(bytes, APPEND_PATIENCE).await;
    room.map_err(ControlRefusal::Busy)
}

/// Asks a stream; dropped, it is not awaited any more.
pub(crate) async fn ask(
    core: &CoreHandle,
    (partition, home): StreamPlace,
    command: StreamCommand,
) -> Result<StreamAnswer, StreamFailure> {
    let shard = core.cores.placement.shard_of(home, PartitionIndex(0));
    let waits = matches!(command, StreamCommand::Read(_));
    let (origin, answer) = core.with(|core| {
        let (origin, answer) = core.answers.ask();
        // Done with all else that is asked in this pass.
        core.command(shard, Command::Stream(origin, partition, command));
        (origin, answer)
    });
    let mut awaited = PendingSubscriptions { core, shard, partition, origin, waits };
    let answer = answer.await;
    awaited.waits = false;
    match answer {
        Ok(Ok(Answer::Stream(StreamAnswer::Refused(refusal)))) => Err(refusal.into()),
        Ok(Ok(Answer::Stream(answer))) => Ok(answer),
        Ok(Ok(_)) => Err(wrong_answer()),
        Ok(Err(refusal)) => Err(StreamFailure::of_refusal(&refusal)),
        Err(_) => Err(stopping()),
    }
}

/// A question that is not awaited any more once this is dropped.
struct PendingSubscriptions<'a> {
    core: &'a CoreHandle,
    shard: ShardIndex,
    partition: PartitionId,
    origin: Origin,
    /// Whether the shard has to be told.
    waits: bool,
}

impl Drop for PendingSubscriptions<'_> {
    fn drop(&mut self) {
        let Self { core, shard, partition, origin, waits } = *self;
        if !waits {
            return;
        }
        core.with(|core| {
            core.answers.forget(origin);
            core.command(shard, Command::Stream(origin, partition, StreamCommand::StopReading));
        });
    }
}

/// Reads what lies at an offset of a stream, and of what it was forked from, however often that was forked
/// itself.
pub(crate) async fn read_through(
    core: &CoreHandle,
    place: StreamPlace,
    read: StreamRead,
) -> Result<StreamChunk, StreamFailure> {
    // In a loop: a chain of forks may be longer than a stack is deep.
    let mut forks = Vec::new();
    let (mut place, mut read) = (place, read);
    let mut chunk = loop {
        match ask(core, place, StreamCommand::Read(read)).await? {
            StreamAnswer::Chunk(chunk) => break chunk,
            StreamAnswer::Inherited { source, home, before, status } => {
                forks.push(Fork { place, read, before, status });
                place = (source, home);
                read = StreamRead { before: Some(before), waits: false, for_fork: true, ..read };
            }
            _ => return Err(wrong_answer()),
        }
    };
    while let Some(fork) = forks.pop() {
        chunk = Box::pin(fork.goes_on(core, chunk)).await?;
    }
    Ok(chunk)
}

/// A fork of which a part was read that it has from its source.
struct Fork {
    place: StreamPlace,
    /// What was asked of it.
    read: StreamRead,
    /// Up to where its source was asked.
    before: Offset,
    status: StreamStatus,
}

impl Fork {
    /// What was read of it: `chunk` of its source, and behind that what is its own, if it was asked for and
    /// there is room.
    async fn goes_on(
        self,
        core: &CoreHandle,
        mut chunk: StreamChunk,
    ) -> Result<StreamChunk, StreamFailure> {
        let Self { place, read, before, status } = self;
        (chunk.topic, chunk.settings) = (place.0.topic, status.settings);
        (chunk.is_up_to_date, chunk.is_closed, chunk.rest) = (false, false, None);
        let bytes: u64 = chunk.messages.iter().map(|part| part.len() as u64).sum();
        let is_full = bytes >= read.bytes_max || read.one_append && bytes > 0;
        let is_all = read.before.is_some_and(|end| chunk.next >= end);
        if chunk.next < before || is_all || is_full && chunk.next < status.next {
            return Ok(chunk);
        }
        let own = StreamRead {
            at: ReadFrom::Offset(chunk.next),
            bytes_max: read.bytes_max.saturating_sub(bytes).max(1),
            waits: read.waits && chunk.messages.is_empty(),
            ..read
        };
        let StreamAnswer::Chunk(mut rest) = ask(core, place, StreamCommand::Read(own)).await?
        else {
            return Err(wrong_answer());
        };
        chunk.messages.append(&mut rest.messages);
        let StreamChunk { next, is_up_to_date, is_closed, settings, rest, .. } = rest;
        Ok(StreamChunk { next, is_up_to_date, is_closed, settings, rest, ..chunk })
    }
}

pub(crate) fn stopping() -> StreamFailure {
    ControlRefusal::ShuttingDown.into()
}

pub(crate) fn wrong_answer() -> StreamFailure {
    ControlRefusal::WrongAnswer.into()
}
