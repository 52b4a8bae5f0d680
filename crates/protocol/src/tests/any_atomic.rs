//! Strategies for the frames of atomic publishes.

use proptest::{collection::vec, prelude::*};
use sennit_model::{GroupId, TopicId};

use super::any_frame::{publish, settle_run};
use crate::{
    AtomicAck, PublishAtomic,
    control::{AtomicPart, AtomicRun, PublishedAtomic},
};

pub fn publish_atomic() -> impl Strategy<Value = PublishAtomic> {
    let ack = (any::<(u32, u32)>(), vec(settle_run(), 1..4)).prop_map(|((topic, group), runs)| {
        AtomicAck { topic: TopicId(topic), group: GroupId(group), runs: runs.into_iter().collect() }
    });
    (vec(publish(), 1..4), vec(ack, 0..3)).prop_map(|(parts, acks)| PublishAtomic { parts, acks })
}

pub fn published_atomic() -> impl Strategy<Value = PublishedAtomic> {
    let run = any::<(u32, Option<u64>, bool)>()
        .prop_map(|(count, first_offset, duplicate)| AtomicRun { count, first_offset, duplicate });
    let part = (any::<(u32, u32, u64, u64)>(), 0..5_i32, vec(run, 0..3)).prop_map(
        |((topic_id, partition, dropped, replaced), durability, runs)| AtomicPart {
            topic_id,
            partition,
            durability,
            runs,
            dropped,
            replaced,
        },
    );
    vec(part, 0..4).prop_map(|parts| PublishedAtomic { parts })
}
