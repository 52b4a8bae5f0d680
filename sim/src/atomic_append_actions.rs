//! The actions of atomic writers: they open streams of a group, append to several of them at once, repeat
//! unanswered appends as a whole, and at times make an append that has to be refused.

use sennit_engine::{
    Command, Content, OpenStream, StreamAppend, StreamNote, StreamProducer, StreamSettings,
};
use sennit_model::{PartitionId, TopicConfig, TopicKind};

use crate::{
    atomic_writers::{Appends, AtomicWriter, AtomicWriters, GROUPS, SentAppend},
    numbered_messages, stream_actions,
    streams::Step,
    swarm::Swarm,
    world::World,
};

/// The greatest number of streams of a group.
const MEMBERS_MAX: u64 = 4;
/// The streams' media type.
const TYPE: &str = "application/json";

/// Runs one action of a random writer, at random.
pub fn step(world: &mut World, swarm: &Swarm) {
    if world.streams.eagerness == 0 || world.is_fenced || !world.accepts_publishes() {
        return;
    }
    let atomic_writers = &mut world.streams.atomic_writers;
    if atomic_writers.eagerness == 0 || !atomic_writers.random.chance(atomic_writers.eagerness) {
        return;
    }
    let group = atomic_writers.random.below(GROUPS);
    match atomic_writers.random.weighted(&[15, 60, 12, 13]) {
        0 => open(world, swarm, group),
        1 => append(world, swarm, group),
        2 => resend(world, group),
        _ => append_wrongly(world, swarm, group),
    }
}

fn name(group: u64) -> Box<str> {
    format!("accounts-{group}").into()
}

/// The streams of a group.
fn members(world: &World, group: u64) -> Vec<PartitionId> {
    let name = Some(name(group));
    let held = world.streams.held.iter().filter(|held| held.open.settings.group == name);
    held.map(|held| held.id).collect()
}

/// Content for each of `count` streams. All of it together fits one frame.
fn content(world: &mut World, swarm: &Swarm, count: usize) -> Option<Content> {
    let room = (swarm.segment_bytes as usize - 4096 - 512) / count - 256;
    let streams = &mut world.streams;
    let random = &mut streams.atomic_writers.random;
    Some(numbered_messages::plain(random, swarm, &mut streams.next_message, room).into())
}

fn open(world: &mut World, swarm: &Swarm, group: u64) {
    if members(world, group).len() as u64 >= MEMBERS_MAX {
        return;
    }
    let id = world.streams.new_id();
    let content = match world.streams.atomic_writers.random.chance(200) {
        true => content(world, swarm, 2),
        false => None,
    };
    let ends = world.streams.ends;
    let random = &mut world.streams.atomic_writers.random;
    let time_to_live = random.chance(ends).then(|| random.between(1, 60));
    let settings = StreamSettings {
        content_type: TYPE.into(),
        group: Some(name(group)),
        is_verified: true,
        time_to_live,
        ..StreamSettings::of_topic()
    };
    let config = TopicConfig::of_kind(TopicKind::Stream);
    stream_actions::open_stream(
        world,
        id,
        OpenStream { config, settings, content, closes: false },
        0,
    );
}

fn send_command(world: &mut World, appends: Appends, by: Option<SentAppend>) {
    let origin = stream_actions::origin(world, Step::Together(by));
    world.submit(Command::AppendTogether(origin, appends));
}

/// Some streams of a group, usually more than one, in random order.
fn pick_streams(world: &mut World, group: u64) -> Vec<PartitionId> {
    let mut ids = members(world, group);
    let random = &mut world.streams.atomic_writers.random;
    let count = random.between(2, MEMBERS_MAX) as usize;
    while ids.len() > count {
        ids.swap_remove(random.below(ids.len() as u64) as usize);
    }
    if !ids.is_empty() {
        let by = random.below(ids.len() as u64) as usize;
        ids.rotate_left(by);
    }
    ids
}

fn append(world: &mut World, swarm: &Swarm, group: u64) {
    let new_life = world.streams.atomic_writers.random.chance(40);
    let writer = &mut world.streams.atomic_writers.by_group[group as usize];
    if writer.at < writer.sent.len() {
        // Unanswered appends go first.
        return send(world, group as usize);
    }
    if new_life {
        *writer = AtomicWriter { epoch: writer.epoch + 1, ..AtomicWriter::default() };
    }
    let ids = pick_streams(world, group);
    let mut appends = Appends::new();
    for &id in &ids {
        let content = content(world, swarm, ids.len());
        let random = &mut world.streams.atomic_writers.random;
        let (with_sequence, closes) = (random.chance(100), random.chance(8));
        let sequence = world.streams.find(id).filter(|_| with_sequence).map(|held| {
            held.sequence += 1;
            format!("{:08}", held.sequence).into()
        });
        let AtomicWriter { epoch, sent, .. } =
            &world.streams.atomic_writers.by_group[group as usize];
        let names = |sent: &&(Appends, bool)| sent.0.iter().any(|(named, _)| *named == id);
        let producer = StreamProducer {
            id: "teller".into(),
            epoch: *epoch,
            sequence: sent.iter().filter(names).count() as u64,
        };
        let note = StreamNote { producer: Some(producer), sequence, closes };
        let content_type = Some(TYPE.into());
        appends.push((id, StreamAppend { content, content_type, note }));
    }
    if !appends.is_empty() {
        world.streams.atomic_writers.by_group[group as usize].sent.push((appends, false));
        send(world, group as usize);
    }
}

/// Sends the writer's next append.
fn send(world: &mut World, group: usize) {
    let writer = &mut world.streams.atomic_writers.by_group[group];
    let Some((appends, _)) = writer.sent.get(writer.at).cloned() else { return };
    let by = (group, writer.epoch, writer.at);
    writer.at += 1;
    send_command(world, appends, Some(by));
}

/// Repeats an earlier append as a whole, or appends under an old epoch.
fn resend(world: &mut World, group: u64) {
    let atomic_writers = &mut world.streams.atomic_writers;
    let (back, is_stale) =
        (atomic_writers.random.below(4) as usize, atomic_writers.random.chance(200));
    let writer = &atomic_writers.by_group[group as usize];
    let Some(index) = writer.at.checked_sub(1 + back) else { return };
    let mut appends = writer.sent[index].0.clone();
    if is_stale && writer.epoch > 0 {
        let producers = appends.iter_mut().filter_map(|(_, append)| append.note.producer.as_mut());
        producers.for_each(|producer| producer.epoch -= 1);
    }
    send_command(world, appends, None);
}

/// Makes an append that is usually refused.
fn append_wrongly(world: &mut World, swarm: &Swarm, group: u64) {
    let mut ids = pick_streams(world, group);
    if ids.is_empty() {
        return;
    }
    let which = world.streams.atomic_writers.random.below(6);
    let other = match which {
        0 => members(world, (group + 1) % GROUPS).first().copied(),
        1 => ids.first().copied(),
        2 => world.streams.any(),
        3 => world.streams.gone.last().copied(),
        _ => None,
    };
    ids.extend(other);
    let mut appends = Appends::new();
    for &id in &ids {
        let content = content(world, swarm, ids.len());
        let append = StreamAppend { content, content_type: None, note: StreamNote::default() };
        appends.push((id, append));
    }
    let random = &mut world.streams.atomic_writers.random;
    let at = random.below(appends.len() as u64) as usize;
    match which {
        4 => appends[at].1.content_type = Some("image/png".into()),
        5 => {
            // One append of an earlier atomic append, together with new ones.
            let sent = &world.streams.atomic_writers.by_group[group as usize].sent;
            let first =
                sent.first().and_then(|(sent, _)| sent.iter().find(|(id, _)| *id == ids[at]));
            // It has content of its own: a restart cannot reveal whether an append without content happened.
            if let Some((_, append)) = first {
                let content = appends[at].1.content.take();
                appends[at].1 = StreamAppend { content, ..append.clone() };
            }
        }
        _ => {}
    }
    send_command(world, appends, None);
}

/// Sends unanswered appends again after a start, and some answered ones.
pub fn send_again(world: &mut World) {
    for group in 0..GROUPS as usize {
        let AtomicWriters { random, by_group, eagerness } = &mut world.streams.atomic_writers;
        if *eagerness > 0 && random.chance(300) {
            by_group[group].at = by_group[group].at.saturating_sub(random.below(3) as usize);
        }
        let writer = &by_group[group];
        for _ in writer.at..writer.sent.len() {
            send(world, group);
        }
    }
}
