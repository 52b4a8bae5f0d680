//! The actions of workers: they take messages of the workbench's topics, and publish others and ack them in one step:
//! rightly, again after a stop, again although it is answered, or so that the step must be refused.

use sennit_engine::{AtomicAck, Command, Origin, Publish, PublishAtomic};
use sennit_journal::BLOCK_BYTES;
use sennit_model::{PartitionId, PartitionIndex, ProducerId, ProducerStamp, TopicId};

use crate::{
    atomic_workers::{SentStep, WORKERS},
    swarm::Swarm,
    workbench_topics::{self, DESK, ELSEWHERE, FARTHER, HeldMessage, JOBS},
    world::World,
};

/// The id of the first worker's producer. Others have far lower ones.
const FIRST_PRODUCER: u64 = 1 << 32;
/// A partition that does not exist.
const NOWHERE: PartitionId = PartitionId { topic: TopicId(u32::MAX), index: PartitionIndex(0) };

/// Runs one action of a random worker, at random.
pub fn step(world: &mut World, swarm: &Swarm) {
    let eagerness = world.workbench.workers.eagerness;
    if !world.workbench.random.chance(eagerness) || world.is_fenced || !world.accepts_publishes() {
        return;
    }
    let users = &mut world.workbench;
    let index = users.random.below(WORKERS as u64) as usize;
    let again = users.random.chance(60);
    let worker = &mut users.workers.workers[index];
    match (&worker.under_way, &worker.done) {
        (Some(sent), _) if sent.request.is_some() => {}
        (Some(sent), _) => {
            let sent = sent.clone();
            let request = send(world, &sent);
            let under_way = &mut world.workbench.workers.workers[index].under_way;
            under_way.iter_mut().for_each(|sent| {
                sent.request = Some(request);
                sent.times += 1;
            });
        }
        (None, Some(done)) if again => {
            let done = done.clone();
            send(world, &done);
        }
        (None, _) => begin(world, swarm, index),
    }
}

fn send(world: &mut World, sent: &SentStep) -> u64 {
    let request = world.request();
    let origin = Origin { session: sent.session, request };
    let part = |part: &Publish| Publish { origin, ..part.clone() };
    let (parts, acks) = (sent.parts.iter().map(part).collect(), sent.acks.clone());
    world.submit(Command::PublishAtomic(PublishAtomic { origin, parts, acks }));
    request
}

/// Makes a step of one or two messages that a consumer holds, at times of none.
fn begin(world: &mut World, swarm: &Swarm, index: usize) {
    let users = &mut world.workbench;
    let first = match users.random.chance(100) {
        true => None,
        false => users.random.pick(&users.held).copied(),
    };
    let most = users.random.between(1, 2) as usize;
    let is_with = |held: &HeldMessage| {
        first
            .is_some_and(|first| (held.session, held.partition) == (first.session, first.partition))
    };
    let mut held: Vec<HeldMessage> = Vec::new();
    users.held.retain(|message| {
        let takes = held.len() < most && is_with(message);
        if takes {
            held.push(*message);
        }
        !takes
    });
    let session = first.map_or(DESK, |first| first.session);
    let mut acks: Vec<AtomicAck> = Vec::new();
    if let Some(first) = first {
        let (partition, group) = (first.partition, workbench_topics::group_of(first.partition));
        let runs = held.iter().map(|held| held.run).collect();
        acks.push(AtomicAck { partition, group, runs });
    }
    let mut ids = vec![JOBS, ELSEWHERE, FARTHER];
    ids.rotate_left(users.random.below(3) as usize);
    ids.truncate(users.random.between(1, 3) as usize);
    let wrong = users.random.below(40);
    match wrong {
        0 => ids.push(NOWHERE),
        1 => ids.push(ids[0]),
        2 => acks.iter_mut().flat_map(|ack| &mut ack.runs).for_each(|run| run.attempt += 1),
        _ => {}
    }
    // Together they fit a frame, and at times the rest of a segment does not hold them.
    let room = (swarm.segment_bytes - 3 * BLOCK_BYTES as u64) / ids.len() as u64 - 1024;
    let longest = [100, room][users.random.below(2) as usize];
    let producer = ProducerId(FIRST_PRODUCER + index as u64);
    let mut parts = Vec::new();
    for partition in ids {
        let batch = users.batch(swarm, 1, longest);
        let sequences = &users.workers.workers[index].sequences;
        let gap = u64::from(wrong == 3);
        let first_sequence = sequences.get(&partition).copied().unwrap_or_default() + gap;
        let producer = ProducerStamp { id: producer, epoch: 0, first_sequence };
        let origin = Origin { session, request: 0 };
        parts.push(Publish { origin, partition, producer, batch });
    }
    let mut sent = SentStep { session, parts, acks, held, times: 1, request: None };
    sent.request = Some(send(world, &sent));
    world.workbench.workers.workers[index].under_way = Some(sent);
}
