//! Many seeds on several threads.

use std::{
    ops::Range,
    panic::resume_unwind,
    sync::atomic::{AtomicU64, Ordering},
};

/// Calls `run` for each seed on `threads` threads, and returns the failures in the order of the seeds.
pub fn run_on_threads<F: Send>(
    seeds: Range<u64>,
    threads: u64,
    run: impl Fn(u64) -> Result<(), F> + Sync,
) -> Vec<F> {
    let next = AtomicU64::new(seeds.start);
    let work = || {
        let mut failures = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return failures;
            }
            failures.extend(run(seed).err().map(|failure| (seed, failure)));
        }
    };
    let mut failures: Vec<(u64, F)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        // A panic in a thread must not lose the failures of others.
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.flat_map(|failures| failures.unwrap_or_else(|panic| resume_unwind(panic))).collect()
    });
    failures.sort_by_key(|(seed, _)| *seed);
    failures.into_iter().map(|(_, failure)| failure).collect()
}
