//! The actions of native publishers on streams: they publish new or old batches, at times at an expected offset.

use sennit_engine::Command;
use sennit_model::Offset;

use crate::{
    native_publishers::NativePublishers,
    random::Random,
    streams::{Streams, one_of},
    swarm::Swarm,
    world::World,
};

/// Publishes at random: a new or an old batch, to a stream that exists or existed.
pub fn step(world: &mut World, swarm: &Swarm) {
    if world.streams.eagerness == 0 || world.is_fenced {
        return;
    }
    let native_publishers = &mut world.streams.native_publishers;
    if native_publishers.eagerness == 0
        || !native_publishers.random.chance(native_publishers.eagerness)
    {
        return;
    }
    let request = world.request();
    let Streams { native_publishers, held, gone, .. } = &mut world.streams;
    let NativePublishers { random, publishers, .. } = native_publishers;
    let Some(id) = one_of(random, held, gone) else { return };
    let publish = match random.chance(250) {
        true => publishers.resend(random, id, request),
        false => Some(publishers.publish(random, swarm, id, request)),
    };
    let end = held.iter().find(|held| held.id == id).map_or(0, |held| held.end);
    let expected = expected(random, end);
    world.submit(match (publish, expected) {
        (Some(publish), Some(expected)) => Command::PublishAt(publish, expected),
        (Some(publish), None) => Command::Publish(publish),
        (None, _) => return,
    });
}

/// The expected offset of a publish, if it has one: often the known end of the stream.
fn expected(random: &mut Random, end: u64) -> Option<Offset> {
    match random.below(8) {
        0..3 => Some(Offset(end)),
        3 => Some(Offset(random.below(end + 3))),
        _ => None,
    }
}
