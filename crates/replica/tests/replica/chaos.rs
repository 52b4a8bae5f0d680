//! Whatever happens to links, lanes and nodes: what was confirmed is there in the end, once, and all have the same state.

use std::{collections::BTreeMap, ops::Range};

use sennit_engine::Effect;

use crate::group::Group;

/// Seeds that are run, if `SENNIT_CHAOS_SEEDS` does not say "from..to".
const SEEDS: Range<u64> = 0..60;
/// Steps of each in which something happens.
const STEPS: usize = 400;

fn seeds() -> Range<u64> {
    let Ok(given) = std::env::var("SENNIT_CHAOS_SEEDS") else { return SEEDS };
    let (from, to) = given.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

/// Numbers from a seed (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// A group, and what its publishers were told.
struct Run {
    group: Group,
    random: Random,
    published: BTreeMap<u64, String>,
    confirmed: Vec<String>,
    rebuilds: usize,
}

impl Run {
    fn new(seed: u64) -> Self {
        let (group, _) = Group::with_leader(3);
        let (published, confirmed) = (BTreeMap::new(), Vec::new());
        Self { group, random: Random(seed), published, confirmed, rebuilds: 0 }
    }

    fn any_node(&mut self) -> u64 {
        1 + self.random.below(3)
    }

    fn step(&mut self) {
        let (one, other) = (self.any_node(), self.any_node());
        let now = self.group.now;
        match self.random.below(42) {
            0..=11 => {
                let at = self.group.leader().unwrap_or(one);
                let text = format!(
                    "{} {}",
                    self.published.len(),
                    "x".repeat(self.random.below(3000) as usize)
                );
                let request = self.group.publish(at, &text);
                self.published.insert(request, text);
            }
            12..=20 => _ = self.group.work(),
            21..=28 => {
                let count = self.random.below(6) as usize;
                self.group.deliver(count);
            }
            29..=33 => self.group.tick_clocks(),
            34 => self.group.break_link(one, other),
            35 => self.group.node(one).writes = self.random.below(3) > 0,
            36 => {
                let is_cut = self.random.below(3) == 0;
                self.group.isolate(one, is_cut);
            }
            37 => self.restart(one),
            40..=41 => {
                let (full, slots) = (self.random.below(2) == 0, self.random.below(10) as usize);
                let shard = self.group.node(one).replica.shard_mut();
                let end = shard.end();
                shard.set_spare_slots(if full { slots } else { usize::MAX }, end);
                shard.set_storage_full(full);
            }
            // One who does not lead refuses.
            38 => _ = self.group.node(one).replica.transfer(other, now),
            _ => self.group.node(one).replica.shard_mut().checkpoint_soon(),
        }
        self.hear();
    }

    /// Takes what the nodes say.
    fn hear(&mut self) {
        for node in self.group.nodes.values_mut() {
            node.effects.append(node.replica.effects());
            for effect in node.effects.drain(..) {
                if let Effect::Confirmed(confirmed) = effect {
                    self.confirmed.push(self.published[&confirmed.origin.request].clone());
                }
            }
            self.rebuilds += std::mem::take(&mut node.rebuilds);
        }
    }

    fn restart(&mut self, id: u64) {
        let writes = self.group.node(id).writes;
        self.group.restart(id);
        self.group.node(id).writes = writes;
    }

    /// Everything is well again, and all comes to rest.
    fn heal(&mut self) -> u64 {
        for id in 1..=3 {
            self.group.isolate(id, false);
            let node = self.group.node(id);
            node.writes = true;
            node.replica.shard_mut().set_storage_full(false);
        }
        for _ in 0..100 {
            self.group.tick();
            self.hear();
        }
        self.group.leader().unwrap()
    }
}

/// The outcome of a run.
#[derive(Debug, Default)]
struct Counts {
    confirmed: usize,
    rebuilds: usize,
    /// Replicas that need what lies before the log, which takes a shipment.
    behind: usize,
}

fn run(seed: u64) -> Counts {
    let mut run = Run::new(seed);
    for _ in 0..STEPS {
        run.step();
    }
    let leader = run.heal();
    // Some may have been behind once. Those that are stay where they are; the others go on.
    run.group.node(leader).replica.take_behind();
    (0..4).for_each(|_| run.group.tick());
    let behind = run.group.node(leader).replica.take_behind();
    assert!(behind.len() <= 1, "seed {seed}: {behind:?} are behind, and a quorum is not");
    run.group.check_same_state_but(&behind);
    let request = run.group.publish(leader, "the last");
    run.published.insert(request, "the last".into());
    run.group.subscribe(leader);
    run.group.run();
    let delivered = run.group.node(leader).delivered();
    run.hear();
    for text in &run.confirmed {
        let times = delivered.iter().filter(|found| *found == text).count();
        assert_eq!(times, 1, "seed {seed}: a confirmed message is there {times} times: {text:.20}");
    }
    assert_eq!(run.confirmed.last().unwrap(), "the last");
    Counts { confirmed: run.confirmed.len(), rebuilds: run.rebuilds, behind: behind.len() }
}

#[test]
fn what_was_confirmed_is_there_in_the_end_whatever_happened() {
    let mut all = Counts::default();
    for seed in seeds() {
        let found = std::panic::catch_unwind(|| run(seed));
        let Ok(counts) = found else { panic!("seed {seed}") };
        all.confirmed += counts.confirmed;
        all.rebuilds += counts.rebuilds;
        all.behind += counts.behind;
    }
    assert!(all.confirmed > 400 && all.rebuilds > 5 && all.behind > 0, "{all:?}");
}
