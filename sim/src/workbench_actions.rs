//! The actions of the users of the workbench: in topics of their own they publish, consume and fail messages, and cancel,
//! move, redrive, edit and take back what the groups still have.

use std::{sync::Arc, time::Duration};

use sennit_engine::{
    Command, Credit, DeadLetters, Destination, Edit, GroupSetting, Origin, PartitionCommand,
    Publish, Requeue, Selection, SessionId, Settle, Subscribe, Verdict, Walk, WalkVerb,
};
use sennit_model::{
    GroupConfig, Offset, OffsetRange, PartitionId, ProducerStamp, StartAt, TopicConfig, TopicKind,
};

use crate::{
    swarm::Swarm,
    topics,
    workbench::payload,
    workbench_topics::{
        DESK, ELSEWHERE, FARTHER, HeldMessage, JOBS, LEASE, LETTERS, PARTITIONS, group_of,
    },
    world::World,
};

/// No message is longer, with the headers of its failures.
const MESSAGE_BYTES: u64 = 3_000;
/// The number of consumers at a time.
const CONSUMERS_MAX: usize = 6;

/// Creates the topics, or opens them after a start.
pub fn open(world: &mut World) {
    if world.workbench.eagerness == 0 {
        return;
    }
    // Dead letters first.
    for id in [LETTERS, JOBS, ELSEWHERE, FARTHER] {
        let dead_letters = match id {
            JOBS => DeadLetters::To(LETTERS.topic),
            LETTERS => DeadLetters::Stay,
            _ => DeadLetters::NotYet,
        };
        let attempts_max = if id == JOBS { 20 } else { 1_000_000 };
        let config = GroupConfig { lease: LEASE, attempts_max, ..GroupConfig::default() };
        let groups = vec![GroupSetting { id: group_of(id), config, start: StartAt::Earliest }];
        let names = Arc::new(topics::names(id.topic, &groups));
        let config = TopicConfig::of_kind(TopicKind::Queue);
        send_command(world, id, PartitionCommand::Open { config, groups, dead_letters });
        send_command(world, id, PartitionCommand::Name(names));
    }
}

fn send_command(world: &mut World, id: PartitionId, command: PartitionCommand) -> u64 {
    let request = world.request();
    world.submit(Command::Partition(Origin { session: DESK, request }, id, command));
    request
}

/// Runs one action of a random user, at random.
pub fn step(world: &mut World, swarm: &Swarm) {
    let users = &mut world.workbench;
    if !users.random.chance(users.eagerness) || world.is_fenced {
        return;
    }
    // Workers settle what they take with their steps.
    let weights = match world.workbench.workers.eagerness {
        0 => [20, 12, 4, 40, 24],
        _ => [20, 12, 4, 10, 3],
    };
    match world.workbench.random.weighted(&weights) {
        0 => publish(world, swarm),
        1 => subscribe(world),
        2 => leave(world),
        3 => settle(world, swarm),
        _ => walk(world, swarm),
    }
}

fn publish(world: &mut World, swarm: &Swarm) {
    if !world.accepts_publishes() {
        return;
    }
    let users = &mut world.workbench;
    let partition = [JOBS, JOBS, JOBS, ELSEWHERE][users.random.below(4) as usize];
    let batch = users.batch(swarm, 4, swarm.payload_bytes_max.min(400));
    let origin = Origin { session: DESK, request: world.request() };
    let producer = ProducerStamp::default();
    world.submit(Command::Publish(Publish { origin, partition, producer, batch }));
}

fn subscribe(world: &mut World) {
    if world.workbench.consumers.len() >= CONSUMERS_MAX {
        return;
    }
    let random = &mut world.workbench.random;
    let partition = PARTITIONS[random.weighted(&[50, 25, 15, 10])];
    let credit = Credit { messages: random.between(1, 4) as u32, bytes: 1 << 20 };
    subscribe_to(world, partition, credit);
}

fn subscribe_to(world: &mut World, partition: PartitionId, credit: Credit) {
    let users = &mut world.workbench;
    users.next_session += 1;
    let session = SessionId(users.next_session);
    users.consumers.push((session, partition));
    let origin = Origin { session, request: world.request() };
    let (subscription, group) = (1, group_of(partition));
    world.submit(Command::Subscribe(Subscribe { origin, subscription, partition, group, credit }));
}

fn leave(world: &mut World) {
    let users = &mut world.workbench;
    if users.consumers.is_empty() {
        return;
    }
    let index = users.random.below(users.consumers.len() as u64) as usize;
    let (session, _) = users.consumers.swap_remove(index);
    users.held.retain(|held| held.session != session);
    world.submit(Command::EndSession { session, grace: Duration::ZERO });
}

fn settle(world: &mut World, swarm: &Swarm) {
    let users = &mut world.workbench;
    if users.held.is_empty() {
        return;
    }
    let index = users.random.below(users.held.len() as u64) as usize;
    let held = users.held.swap_remove(index);
    let fails = if held.partition == JOBS { 50 } else { 0 };
    let verdict = match users.random.weighted(&[30, 10, 10, fails]) {
        0 => Verdict::Ack,
        1 => Verdict::Retry,
        2 => Verdict::RetryAfter(swarm.span(&mut users.random)),
        _ => Verdict::DeadLetter { reason: "it cannot be done".into() },
    };
    settle_one(world, held, verdict);
}

fn settle_one(world: &mut World, held: HeldMessage, verdict: Verdict) {
    let HeldMessage { session, partition, run, .. } = held;
    let origin = Origin { session, request: world.request() };
    let (group, runs) = (group_of(partition), vec![run]);
    world.submit(Command::Settle(Settle {
        origin,
        partition,
        group,
        verdict,
        runs,
        confirm: true,
    }));
}

/// Begins a walk that changes something: mostly of places where messages were seen, at times of all.
fn walk(world: &mut World, swarm: &Swarm) {
    let users = &mut world.workbench;
    if users.walk.is_some() {
        return;
    }
    let random = &mut users.random;
    let source = PARTITIONS[random.weighted(&[35, 45, 15, 5])];
    let to_topic = |id: PartitionId| Destination::Topic { topic: id.topic, partitions: 1 };
    let redrive = random.between(1, 3);
    let mut selection = Selection::default();
    let requeue = |to, redrive| Requeue { to, redrive, edit: None };
    let verb = match (source, random.below(10)) {
        (JOBS, 0..3) => {
            selection.redrive = random.chance(500).then_some(redrive);
            WalkVerb::Requeue(requeue(Destination::DeadLetters, 0))
        }
        (LETTERS, 0..6) => WalkVerb::Requeue(requeue(Destination::Source, redrive)),
        (_, 0..8) => {
            let others = [JOBS, ELSEWHERE, ELSEWHERE, FARTHER];
            let to = others[random.below(4) as usize];
            let to = if to == source { FARTHER } else { to };
            WalkVerb::Requeue(requeue(to_topic(to), 0))
        }
        _ => WalkVerb::Cancel,
    };
    let mut verb = verb;
    if random.chance(750) {
        let mut places: Vec<(u64, u64)> = users
            .places
            .iter()
            .filter(|place| place.0 == source)
            .map(|&(_, at, number)| (at, number))
            .collect();
        let most = users.random.between(1, 3);
        while places.len() as u64 > most {
            places.swap_remove(users.random.below(places.len() as u64) as usize);
        }
        places.sort_unstable();
        places.dedup();
        if places.is_empty() {
            return;
        }
        selection.offsets = ranges(&places);
        if let (WalkVerb::Requeue(requeue), [(_, number)]) = (&mut verb, &places[..])
            && users.random.chance(400)
        {
            let payload = payload(*number, users.random.below(300) as usize);
            requeue.edit = Some(Edit { payload: Some(payload.into()), ..Edit::default() });
        }
    }
    // What is published again lies in one record, which fits a segment.
    let matched_max = match verb {
        WalkVerb::Cancel => 1000,
        // What a step publishes may be long.
        _ if users.workers.eagerness > 0 => 1,
        _ => swarm.segment_bytes / 2 / MESSAGE_BYTES,
    };
    let walk = Walk {
        group: group_of(source),
        from: Offset(0),
        selection: Arc::new(selection),
        fair_key: None,
        examined_max: 4096,
        matched_max,
        verb,
        dry_run: users.random.chance(80),
    };
    let request = send_command(world, source, PartitionCommand::Walk(Box::new(walk)));
    world.workbench.walk = Some(request);
}

/// The ranges of these offsets, which are in order.
fn ranges(places: &[(u64, u64)]) -> Vec<OffsetRange> {
    let mut ranges: Vec<OffsetRange> = Vec::new();
    for &(at, _) in places {
        match ranges.last_mut().filter(|range| range.end == Offset(at)) {
            Some(last) => last.end = Offset(at + 1),
            None => ranges.push(OffsetRange { start: Offset(at), end: Offset(at + 1) }),
        }
    }
    ranges
}

/// Has consumers with ample credit take everything.
pub fn subscribe_all(world: &mut World) {
    if world.workbench.eagerness == 0 {
        return;
    }
    let users = &mut world.workbench;
    users.held.clear();
    let sessions: Vec<SessionId> = users.consumers.drain(..).map(|(session, _)| session).collect();
    for session in sessions {
        world.submit(Command::EndSession { session, grace: Duration::ZERO });
    }
    for id in PARTITIONS {
        subscribe_to(world, id, Credit { messages: 200, bytes: 1 << 20 });
    }
}

/// Acks all held messages; false if there are none.
pub fn ack_all(world: &mut World) -> bool {
    let held = std::mem::take(&mut world.workbench.held);
    let is_any = !held.is_empty();
    held.into_iter().for_each(|held| settle_one(world, held, Verdict::Ack));
    is_any
}
