//! Fair groups whose backlog lies on the disk: batches have to be fetched, and a small cache soon forgets them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use sennit_engine::{Effect, Outbox, Payloads, Place};
use sennit_model::{Messages, PartitionId};

use crate::world::{
    ALICE, ORDERS, World,
    fair_groups::{fair, group, many, of},
};

/// Batches that the cache holds.
const CACHED_MAX: usize = 16;

/// The latest batches that were fetched.
struct SmallCache {
    disk: BTreeMap<u64, Bytes>,
    fetched: VecDeque<u64>,
    wanted: Vec<u64>,
}

impl Payloads for SmallCache {
    fn batch(&mut self, _: PartitionId, place: Place) -> Option<Bytes> {
        if self.fetched.contains(&place.position) {
            return self.disk.get(&place.position).cloned();
        }
        self.wanted.push(place.position);
        None
    }
}

impl SmallCache {
    /// The first of the wanted batches comes.
    fn fetch(&mut self) {
        if !self.wanted.is_empty() {
            self.fetched.push_back(self.wanted.swap_remove(0));
            self.wanted.clear();
        }
        if self.fetched.len() > CACHED_MAX {
            self.fetched.pop_front();
        }
    }
}

/// The payloads that are delivered from the disk, in order, until so many are; fewer after so many passes.
fn from_disk(world: &mut World, count: usize, passes: usize) -> Vec<String> {
    let disk = world.journal.batches.clone();
    let mut cache = SmallCache { disk, fetched: VecDeque::new(), wanted: Vec::new() };
    world.journal.absent = true;
    world.subscribe(ALICE, u32::try_from(count).expect("there are few"));
    let mut delivered = Vec::new();
    for _ in 0..passes {
        let mut out = Outbox::default();
        world.engine.fetched(ORDERS);
        world.engine.deliver(world.now, &mut world.journal, &mut cache, &mut out);
        for effect in &out.now {
            if let Effect::Deliver(delivery) = effect {
                let messages = Messages::of_checked(&delivery.messages);
                let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
                delivered.extend(messages.map(|message| text(message.payload())));
            }
        }
        if delivered.len() >= count {
            break;
        }
        cache.fetch();
    }
    delivered
}

#[test]
fn what_was_fetched_is_delivered_before_a_small_cache_has_forgotten_it() {
    const KEYS: usize = 300;
    let mut world = World::with(fair(), group(vec![]));
    for key in 0..KEYS {
        world.publish(&many(&format!("key {key}"), 1));
    }
    let delivered = from_disk(&mut world, KEYS, 2 * KEYS);
    assert_eq!(delivered.len(), KEYS);
}

#[test]
fn shares_are_by_weight_also_while_batches_have_to_be_fetched() {
    let mut world = World::with(fair(), group(vec![]));
    let tenants = ["1", "2", "3"];
    for tenant in tenants {
        for _ in 0..40 {
            world.publish(&vec![of(tenant, &[("weight", tenant)]); 5]);
        }
    }
    let delivered = from_disk(&mut world, 300, 2000);
    assert_eq!(delivered.len(), 300);
    for window in delivered.windows(60) {
        for tenant in tenants {
            let share = 10 * tenant.parse::<usize>().unwrap();
            let count = window.iter().filter(|payload| *payload == tenant).count();
            assert!(count.abs_diff(share) <= 6, "{tenant} has {count} of 60");
        }
    }
}
