//! The actions of stream users: they open, append to, close, fork, delete and read streams, and send requests with
//! an unknown outcome again. They also do the part of the broker's control beside the catalogue: drop unneeded
//! streams, and clean up after a crash.

use std::collections::BTreeSet;

use sennit_engine::{
    Command, Content, ForkOf, OpenStream, Origin, PartitionCommand, SessionId, StreamAnswer,
    StreamAppend, StreamCommand, StreamNote, StreamProducer, StreamRead, StreamRefusal,
    StreamSettings,
};
use sennit_model::{Offset, PartitionId, ReadFrom, TopicConfig, TopicKind};

use crate::{
    numbered_messages,
    oracle::Violation,
    streams::{KnownStream, Response, SentAppends, Step},
    swarm::Swarm,
    world::World,
};

/// Most streams at a time.
const STREAMS_MAX: usize = 8;
/// Writers with a name.
const WRITERS: u64 = 3;
/// The session of all stream users.
const SESSION: SessionId = SessionId(1 << 48);
/// Media types, in different spellings.
const TYPES: [&str; 3] = ["text/plain", "application/json", "Text/Plain; charset=utf-8"];

/// Handles responses, and may run one action.
///
/// # Errors
/// The broken promise.
pub fn step(world: &mut World, swarm: &Swarm) -> Result<(), Violation> {
    if world.streams.eagerness == 0 || world.is_fenced {
        return Ok(());
    }
    handle_responses(world);
    let eagerness = world.streams.eagerness;
    if !world.accepts_publishes() || !world.streams.random.chance(eagerness) {
        return Ok(());
    }
    match world.streams.random.weighted(&[8, 50, 20, 5, 6, 3, 30, 6, 5, 2]) {
        0 => open(world, swarm),
        1 => append(world, swarm),
        2 => resend(world),
        3 => close(world),
        4 => fork(world),
        5 => delete(world),
        6 => read(world),
        7 => ask(world),
        8 => stop_reading(world),
        _ => open_again(world),
    }
    Ok(())
}

/// Handles responses.
pub fn handle_responses(world: &mut World) {
    for id in std::mem::take(&mut world.streams.ended) {
        send_command(world, id, StreamCommand::Delete, Step::Delete(id));
    }
    for (request, response) in std::mem::take(&mut world.streams.responses) {
        let Some(step) = world.streams.waiting.remove(&request) else { continue };
        handle_response(world, step, response);
    }
}

fn send_command(world: &mut World, id: PartitionId, command: StreamCommand, step: Step) -> u64 {
    if matches!(step, Step::Delete(_))
        && let Some(held) = world.streams.find(id)
    {
        held.ends = true;
    }
    let origin = origin(world, step);
    world.submit(Command::Stream(origin, id, command));
    origin.request
}

/// The origin of a request that waits for this step.
pub fn origin(world: &mut World, step: Step) -> Origin {
    let request = world.request();
    world.streams.waiting.insert(request, step);
    Origin { session: SESSION, request }
}

fn handle_response(world: &mut World, step: Step, response: Response) {
    match (step, response) {
        (Step::Append(id, by), response) => handle_append(world, id, by, response),
        (Step::Together(Some(by)), Response::Answer(answer)) => {
            world.streams.atomic_writers.answered(by, Some(&answer));
        }
        (Step::Together(Some(by)), Response::Refused) => {
            world.streams.atomic_writers.answered(by, None)
        }
        (Step::Open(id), Response::Answer(StreamAnswer::Opened { status, .. })) => {
            if let Some(held) = world.streams.find(id) {
                held.end = status.next.0;
            }
        }
        (Step::Open(id), Response::Refused) => {
            // A refused stream does not exist.
            let held = world.streams.find(id).and_then(|held| held.open.settings.fork.clone());
            if !world.oracle.is_stream(id) {
                world.streams.held.retain(|held| held.id != id);
            }
            remove_fork(world, held, id);
        }
        (Step::AddFork(open, id), Response::Answer(StreamAnswer::Status(_))) => {
            let end = open.settings.fork.as_ref().map_or(0, |fork| fork.at.0);
            open_stream(world, id, *open, end);
        }
        (
            Step::Delete(id),
            Response::Answer(StreamAnswer::Deleted { is_unused: true, fork_of }),
        ) => {
            let origin = origin(world, Step::Drop(id, fork_of));
            world.submit(Command::Partition(origin, id, PartitionCommand::Drop));
        }
        (Step::Drop(id, fork_of), Response::Done) => {
            world.streams.forget(id);
            remove_fork(world, fork_of, id);
        }
        (Step::Read { of, audit }, Response::Answer(answer)) => {
            handle_read(world, of, audit, answer)
        }
        _ => {}
    }
}

fn remove_fork(world: &mut World, fork_of: Option<ForkOf>, fork: PartitionId) {
    if let Some(ForkOf { source, .. }) = fork_of {
        send_command(world, source, StreamCommand::RemoveFork(fork.topic), Step::Delete(source));
    }
}

/// The content of an append: a batch, at times several.
fn new_content(world: &mut World, swarm: &Swarm) -> Option<Content> {
    let streams = &mut world.streams;
    let (random, next_message) = (&mut streams.random, &mut streams.next_message);
    let has_several = swarm.several_batches > 0 && random.chance(swarm.several_batches);
    let count = if has_several { random.between(2, 3) } else { 1 };
    let room = numbered_messages::plain_room(swarm) / count as usize;
    Content::of((0..count).map(|_| numbered_messages::plain(random, swarm, next_message, room)))
}

/// Opens a stream whose first `end` offsets are inherited.
pub fn open_stream(world: &mut World, id: PartitionId, open: OpenStream, end: u64) {
    let sent_appends = Default::default();
    let held = KnownStream { id, open: open.clone(), end, sent_appends, sequence: 0, ends: false };
    world.streams.held.push(held);
    send_command(world, id, StreamCommand::Open(Box::new(open)), Step::Open(id));
}

fn open(world: &mut World, swarm: &Swarm) {
    if world.streams.held.len() >= STREAMS_MAX {
        return;
    }
    let id = world.streams.new_id();
    let content = world.streams.random.chance(400).then(|| new_content(world, swarm)).flatten();
    let (now, ends) = (world.now, world.streams.ends);
    let random = &mut world.streams.random;
    let mut settings = StreamSettings {
        content_type: (*random.pick(&TYPES).expect("there are some")).into(),
        ..StreamSettings::of_topic()
    };
    if random.chance(ends) {
        let longest = [1, 10, 100, 5_000][random.below(4) as usize];
        match random.chance(500) {
            true => settings.time_to_live = Some(random.between(1, longest)),
            false => {
                let at =
                    now.plus(std::time::Duration::from_millis(random.between(1, longest * 1000)));
                settings.expires_at = Some((at, format!("{}", at.0).into()));
            }
        }
    }
    let closes = random.chance(80);
    let config = TopicConfig::of_kind(TopicKind::Stream);
    open_stream(world, id, OpenStream { config, settings, content, closes }, 0);
}

/// Opens a stream again, with the same settings or with others.
fn open_again(world: &mut World) {
    let Some(id) = world.streams.any() else { return };
    let is_other = world.streams.random.chance(300);
    let Some(held) = world.streams.find(id).filter(|held| !held.ends) else { return };
    let mut open = held.open.clone();
    match is_other {
        true if open.settings.group.is_some() => open.settings.group = None,
        true => open.settings.time_to_live = Some(77),
        false => {}
    }
    send_command(world, id, StreamCommand::Open(Box::new(open)), Step::Nothing);
}

fn append(world: &mut World, swarm: &Swarm) {
    let Some(id) = world.streams.any() else { return };
    let content = new_content(world, swarm);
    let streams = &mut world.streams;
    let random = &mut streams.random;
    let writer = random.below(WRITERS + 1);
    let (with_sequence, closes) = (random.chance(150), random.chance(20));
    let wrong = random.chance(20);
    let new_life = random.chance(40);
    let gap = random.chance(30);
    let Some(held) = streams.held.iter_mut().find(|held| held.id == id) else {
        let append = StreamAppend { content, content_type: None, note: StreamNote::default() };
        send_command(world, id, StreamCommand::Append(Box::new(append)), Step::Append(id, None));
        return;
    };
    let content_type = match wrong {
        true => Some("image/png".into()),
        false => Some(held.open.settings.content_type.to_uppercase().into()),
    };
    let sequence = with_sequence.then(|| {
        held.sequence += 1;
        format!("{:08}", held.sequence).into()
    });
    let mut note = StreamNote { producer: None, sequence, closes };
    if writer == 0 {
        let append = StreamAppend { content, content_type, note };
        send_command(world, id, StreamCommand::Append(Box::new(append)), Step::Append(id, None));
        return;
    }
    let line = held.sent_appends.entry(writer).or_default();
    if new_life && line.at == line.sent.len() {
        *line = SentAppends { epoch: line.epoch + 1, ..SentAppends::default() };
    }
    if line.at < line.sent.len() {
        // Unanswered appends go first.
        return send(world, id, writer);
    }
    let number = line.sent.len() as u64;
    note.producer = Some(StreamProducer {
        id: format!("writer-{writer}").into(),
        epoch: line.epoch,
        sequence: number + u64::from(gap),
    });
    let append = StreamAppend { content, content_type, note };
    if gap {
        send_command(world, id, StreamCommand::Append(Box::new(append)), Step::Append(id, None));
        return;
    }
    line.sent.push((append, false));
    send(world, id, writer);
}

/// Sends the writer's next append.
fn send(world: &mut World, id: PartitionId, writer: u64) {
    let Some(line) = world.streams.find(id).and_then(|held| held.sent_appends.get_mut(&writer))
    else {
        return;
    };
    let Some((append, _)) = line.sent.get(line.at).cloned() else { return };
    let by = (writer, line.epoch, line.at);
    line.at += 1;
    send_command(world, id, StreamCommand::Append(Box::new(append)), Step::Append(id, Some(by)));
}

/// Sends an earlier append of a writer again, at times under an old epoch.
fn resend(world: &mut World) {
    let Some(id) = world.streams.any() else { return };
    let streams = &mut world.streams;
    let random = &mut streams.random;
    let (writer, back, is_stale) =
        (random.between(1, WRITERS), random.below(4), random.chance(200));
    let Some(line) = streams.find(id).and_then(|held| held.sent_appends.get(&writer)) else {
        return;
    };
    let Some(index) = line.at.min(line.sent.len()).checked_sub(1 + back as usize) else { return };
    let mut append = line.sent[index].0.clone();
    if let Some(producer) = append.note.producer.as_mut().filter(|_| is_stale && line.epoch > 0) {
        producer.epoch -= 1;
    }
    send_command(world, id, StreamCommand::Append(Box::new(append)), Step::Append(id, None));
}

fn handle_append(
    world: &mut World,
    id: PartitionId,
    by: Option<(u64, u64, usize)>,
    response: Response,
) {
    let Some(held) = world.streams.find(id) else { return };
    let mut is_final = true;
    match &response {
        Response::Answer(StreamAnswer::Appended(appended)) => held.end = appended.next.0,
        Response::Answer(StreamAnswer::Refused(
            StreamRefusal::ProducerGap { .. } | StreamRefusal::ProducerBegins,
        ))
        | Response::Refused => is_final = false,
        _ => {}
    }
    let Some((writer, epoch, index)) = by else { return };
    let Some(line) = held.sent_appends.get_mut(&writer).filter(|line| line.epoch == epoch) else {
        return;
    };
    let is_refused = matches!(response, Response::Answer(StreamAnswer::Refused(_)));
    if is_final && is_refused {
        // It will never be accepted: the writer continues in a new epoch.
        *line = SentAppends { epoch: epoch + 1, ..SentAppends::default() };
    } else if is_final {
        line.sent[index].1 = true;
    } else {
        line.at = line.at.min(index);
    }
}

fn close(world: &mut World) {
    let Some(id) = world.streams.any() else { return };
    let note = StreamNote { closes: true, ..StreamNote::default() };
    let append = StreamAppend { content: None, content_type: None, note };
    send_command(world, id, StreamCommand::Append(Box::new(append)), Step::Append(id, None));
}

fn fork(world: &mut World) {
    let Some(source) = world.streams.any() else { return };
    if world.streams.held.len() >= STREAMS_MAX {
        return;
    }
    let id = world.streams.new_id();
    let Some(held) = world.streams.find(source) else { return };
    let (mut settings, end) = (held.open.settings.clone(), held.end);
    let at = Offset(match world.streams.random.chance(300) {
        true => end,
        false => world.streams.random.below(end + 1),
    });
    let name = format!("{source}").into();
    let requested = (format!("{at}").into(), 0);
    settings.fork = Some(ForkOf { source, home: source.topic, name, at, requested });
    settings.group = None;
    let config = TopicConfig::of_kind(TopicKind::Stream);
    let open = OpenStream { config, settings, content: None, closes: false };
    let add = StreamCommand::AddFork(id.topic);
    send_command(world, source, add, Step::AddFork(Box::new(open), id));
}

fn delete(world: &mut World) {
    if let Some(id) = world.streams.any() {
        send_command(world, id, StreamCommand::Delete, Step::Delete(id));
    }
}

fn ask(world: &mut World) {
    let Some(id) = world.streams.any() else { return };
    let touches = world.streams.random.chance(300);
    send_command(world, id, StreamCommand::Status { touches }, Step::Nothing);
}

fn reads_at(at: ReadFrom) -> StreamRead {
    StreamRead {
        at,
        before: None,
        bytes_max: 64 << 10,
        waits: false,
        one_append: false,
        for_fork: false,
    }
}

fn read(world: &mut World) {
    let Some(id) = world.streams.any() else { return };
    let end = world.streams.find(id).map_or(0, |held| held.end);
    let random = &mut world.streams.random;
    let at = match random.below(6) {
        0 => ReadFrom::Earliest,
        1 => ReadFrom::Latest,
        2 => ReadFrom::Offset(Offset(end)),
        _ => ReadFrom::Offset(Offset(random.below(end + 3))),
    };
    let bytes_max = [1, 500, 64 << 10][random.below(3) as usize];
    let waits = random.chance(400);
    let one_append = random.chance(100);
    let read = StreamRead { bytes_max, waits, one_append, ..reads_at(at) };
    let request =
        send_command(world, id, StreamCommand::Read(read), Step::Read { of: id, audit: None });
    if waits {
        world.streams.open_reads.insert(request, id);
    }
}

fn stop_reading(world: &mut World) {
    let Some((&request, &id)) = world.streams.open_reads.first_key_value() else { return };
    stop(world, request, id);
}

fn stop(world: &mut World, request: u64, id: PartitionId) {
    world.streams.open_reads.remove(&request);
    world.streams.waiting.remove(&request);
    let origin = Origin { session: SESSION, request };
    world.submit(Command::Stream(origin, id, StreamCommand::StopReading));
}

fn handle_read(
    world: &mut World,
    of: PartitionId,
    audit: Option<(PartitionId, Offset)>,
    answer: StreamAnswer,
) {
    match answer {
        StreamAnswer::Chunk(chunk) => {
            if let Some(held) = world.streams.find(of) {
                held.end = held.end.max(chunk.next.0);
            }
            if let Some((id, _)) = audit
                && (of != id || !chunk.is_up_to_date)
            {
                audit_from(world, id, chunk.next);
            }
        }
        StreamAnswer::Inherited { source, before, .. } => {
            let at = Offset(world.streams.random.below(before.0 + 1));
            let at = audit.map_or(at, |(_, at)| at);
            let at = reads_at(ReadFrom::Offset(at));
            let read = StreamRead { before: Some(before), for_fork: true, ..at };
            send_command(
                world,
                source,
                StreamCommand::Read(read),
                Step::Read { of: source, audit },
            );
        }
        StreamAnswer::Refused(StreamRefusal::Damaged { next }) => {
            if let Some((id, _)) = audit {
                audit_from(world, id, next);
            }
        }
        _ => {}
    }
}

fn audit_from(world: &mut World, id: PartitionId, at: Offset) {
    let read = reads_at(ReadFrom::Offset(at));
    send_command(
        world,
        id,
        StreamCommand::Read(read),
        Step::Read { of: id, audit: Some((id, at)) },
    );
}

/// Stops all reads that wait.
pub fn stop_all_reads(world: &mut World) {
    for (request, id) in std::mem::take(&mut world.streams.open_reads) {
        stop(world, request, id);
    }
}

/// Starts to read all streams.
pub fn begin_audits(world: &mut World) {
    let ids: Vec<PartitionId> = world.streams.held.iter().map(|held| held.id).collect();
    ids.into_iter().for_each(|id| audit(world, id));
}

/// Starts to read a stream, from its first message to its end.
pub fn audit(world: &mut World, id: PartitionId) {
    audit_from(world, id, Offset(0));
}

/// Cleans up after a start: forks that do not exist release their sources, unneeded streams are dropped, and
/// writers send unanswered appends again, and some answered ones.
pub fn clean_up(world: &mut World) {
    if world.streams.eagerness == 0 {
        return;
    }
    let engine = world.parts.shard.engine();
    let there: BTreeSet<PartitionId> = engine.partition_ids().collect();
    let mut held: Vec<_> = engine.held_streams().collect();
    held.sort_unstable();
    let gone: Vec<PartitionId> = world.streams.held.iter().map(|held| held.id).collect();
    for id in gone.into_iter().filter(|id| !there.contains(id)) {
        world.streams.forget(id);
    }
    for (source, fork) in held {
        match fork.map(|topic| PartitionId { topic, ..source }) {
            Some(fork) if there.contains(&fork) => {}
            Some(fork) => {
                let command = StreamCommand::RemoveFork(fork.topic);
                send_command(world, source, command, Step::Delete(source));
            }
            None => {
                send_command(world, source, StreamCommand::Delete, Step::Delete(source));
            }
        }
    }
    let mut again = Vec::new();
    let streams = &mut world.streams;
    for held in &mut streams.held {
        for (&writer, line) in &mut held.sent_appends {
            if streams.random.chance(300) {
                line.at = line.at.saturating_sub(streams.random.below(3) as usize);
            }
            again.extend((line.at..line.sent.len()).map(|_| (held.id, writer)));
        }
    }
    again.into_iter().for_each(|(id, writer)| send(world, id, writer));
    if world.streams.random.chance(500) {
        begin_audits(world);
    }
}
