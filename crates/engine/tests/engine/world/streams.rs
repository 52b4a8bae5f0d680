//! A stream in the world of the tests: opened, asked, appended to, read, and replayed after a crash.

use sennit_engine::{
    Command, Effect, OpenStream, StreamAnswer, StreamAppend, StreamChunk, StreamCommand,
    StreamNote, StreamProducer, StreamRead, StreamRefusal, StreamSettings,
};
use sennit_model::{
    Durability, Generation, Message, Messages, Offset, ReadFrom, TopicConfig, TopicKind,
};

use super::{ALICE, ORDERS, World, batch};

pub fn settings() -> StreamSettings {
    StreamSettings { content_type: "text/plain".into(), ..StreamSettings::of_topic() }
}

pub fn config(durability: Durability) -> TopicConfig {
    TopicConfig { durability, ..TopicConfig::of_kind(TopicKind::Stream) }
}

pub fn with(settings: StreamSettings) -> OpenStream {
    OpenStream { config: config(Durability::Durable), settings, content: None, closes: false }
}

pub fn opened(settings: StreamSettings) -> World {
    let mut world = World::empty();
    let answer = ask(&mut world, StreamCommand::Open(Box::new(with(settings))));
    assert!(matches!(answer, Some(StreamAnswer::Opened { created: true, .. })), "{answer:?}");
    world
}

/// What the stream answers, if it does at once.
pub fn ask(world: &mut World, command: StreamCommand) -> Option<StreamAnswer> {
    let origin = world.origin(ALICE);
    world.effects.clear();
    world.do_now(Command::Stream(origin, ORDERS, command));
    answers(world).pop()
}

pub fn answers(world: &mut World) -> Vec<StreamAnswer> {
    let answer = |effect| match effect {
        Effect::Stream(_, answer) => Some(*answer),
        _ => None,
    };
    world.effects.drain(..).filter_map(answer).collect()
}

pub fn append(world: &mut World, text: &str, note: StreamNote) -> StreamAnswer {
    let content = (!text.is_empty()).then(|| batch(&[Message::new(text.to_owned())]).into());
    let append = StreamAppend { content, content_type: Some("TEXT/plain; a=b".into()), note };
    ask(world, StreamCommand::Append(Box::new(append))).expect("an append is answered")
}

pub fn plain() -> StreamNote {
    StreamNote::default()
}

pub fn by(epoch: u64, sequence: u64) -> StreamNote {
    let producer = Some(StreamProducer { id: "writer".into(), epoch, sequence });
    StreamNote { producer, ..plain() }
}

pub fn closing(note: StreamNote) -> StreamNote {
    StreamNote { closes: true, ..note }
}

pub fn read_at(at: u64) -> StreamRead {
    StreamRead {
        at: ReadFrom::Offset(Offset(at)),
        before: None,
        bytes_max: 1 << 20,
        waits: false,
        one_append: false,
        for_fork: false,
    }
}

pub fn texts(chunk: &StreamChunk) -> Vec<String> {
    let messages = chunk.messages.iter().flat_map(|part| Messages::of_checked(part));
    messages.map(|message| String::from_utf8_lossy(message.payload()).into_owned()).collect()
}

pub fn read(world: &mut World, read: StreamRead) -> StreamChunk {
    match ask(world, StreamCommand::Read(read)) {
        Some(StreamAnswer::Chunk(chunk)) => chunk,
        other => panic!("{other:?}"),
    }
}

pub fn refused(answer: Option<StreamAnswer>) -> StreamRefusal {
    match answer {
        Some(StreamAnswer::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// The world after a crash: what was journaled is replayed.
pub fn replayed(world: &World) -> World {
    let mut after = World::empty();
    after.now = world.now;
    for (record, position) in &world.journal.records {
        after.engine.apply(record, *position);
        after.engine.committed(u64::MAX);
    }
    after.engine.set_generation(Generation(2));
    after.journal.batches = world.journal.batches.clone();
    after.journal.end = world.journal.end;
    after.journal.records = world.journal.records.clone();
    after
}
