//! What native publishers do with streams: they publish something new or again, at times at an offset that
//! they expect. Who appends over HTTP is in `streaming`.

use sennit_engine::Command;
use sennit_model::Offset;

use crate::{
    natives::Natives,
    random::Random,
    streams::{Streams, one_of},
    swarm::Swarm,
    world::World,
};

/// One of them publishes, if it is time: something new or again, to a stream that is there or was.
pub fn step(world: &mut World, swarm: &Swarm) {
    if world.streams.eagerness == 0 || world.is_fenced {
        return;
    }
    let natives = &mut world.streams.natives;
    if natives.eagerness == 0 || !natives.random.chance(natives.eagerness) {
        return;
    }
    let request = world.request();
    let Streams { natives, held, gone, .. } = &mut world.streams;
    let Natives { random, publishers, .. } = natives;
    let Some(id) = one_of(random, held, gone) else { return };
    let publish = match random.chance(250) {
        true => publishers.resend(random, id, request),
        false => Some(publishers.publish(random, swarm, id, request)),
    };
    let end = held.iter().find(|held| held.id == id).map_or(0, |held| held.end);
    let expected = expected(random, end);
    world.say(match (publish, expected) {
        (Some(publish), Some(expected)) => Command::PublishAt(publish, expected),
        (Some(publish), None) => Command::Publish(publish),
        (None, _) => return,
    });
}

/// Where somebody may expect its messages who has heard that a stream ends here, if it minds.
fn expected(random: &mut Random, end: u64) -> Option<Offset> {
    match random.below(8) {
        0..3 => Some(Offset(end)),
        3 => Some(Offset(random.below(end + 3))),
        _ => None,
    }
}
