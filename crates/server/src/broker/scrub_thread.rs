//! Reads everything at rest once in a while and checks its checksums, so that damage is found while there is still
//! a copy elsewhere. One thread serves all shards, in short reads with long pauses: commits do not notice it.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use sennit_journal::{
    Container, Cut, CutFile, Damage, Position, ScrubResult,
    disk::{Access, RealDisk},
    scrub,
};

use crate::runtime::{
    error::ServeError,
    index::{IndexVec, ShardIndex},
    metrics::ShardMetrics,
    shard_files::ShardFiles,
    thread_priority::give_way,
};

/// Bytes a second that are read at least: little data is not stretched over the whole time.
const BYTES_PER_SECOND_MIN: u64 = 1 << 20;
/// The least time between two passes.
const PASS_MIN: Duration = Duration::from_millis(100);

/// Keeps the thread going; dropped, it ends it.
#[derive(Debug)]
pub(crate) struct ScrubHandle {
    every: mpsc::Sender<Option<Duration>>,
}

impl ScrubHandle {
    /// From now on everything at rest is read within `every`; the pass that runs begins again. `None`: nothing is read.
    pub(crate) fn set_every(&self, every: Option<Duration>) {
        let _ = self.every.send(every);
    }
}

struct ScrubThread {
    every: Duration,
    shard_files: Arc<ShardFiles>,
    metrics: IndexVec<ShardIndex, Arc<ShardMetrics>>,
    /// Brings another time for a pass; it is told when the broker stops.
    changes: mpsc::Receiver<Option<Duration>>,
    /// Damaged places by shard, as the last pass and this one so far know them.
    damaged: IndexVec<ShardIndex, BTreeSet<Position>>,
}

/// Why a pass goes on no longer.
enum Interrupted {
    /// The broker stops.
    Ended,
    /// Passes take another time from now on, or there are none.
    Changed(Option<Duration>),
}

/// What a pass reads.
struct ToRead {
    shard: ShardIndex,
    cut: Arc<Cut>,
    file: CutFile,
}

/// Starts the thread: everything at rest is read within `every`.
pub(crate) fn start(
    every: Duration,
    shard_files: Arc<ShardFiles>,
    metrics: IndexVec<ShardIndex, Arc<ShardMetrics>>,
) -> Result<ScrubHandle, ServeError> {
    let (sender, changes) = mpsc::channel();
    let damaged = IndexVec::of(metrics.len(), |_| BTreeSet::new());
    let mut scrub = ScrubThread { every, shard_files, metrics, changes, damaged };
    thread::Builder::new()
        .name("scrub".to_owned())
        .spawn(move || {
            give_way();
            scrub.run();
        })
        .map_err(ServeError::system("start the scrub's thread"))?;
    Ok(ScrubHandle { every: sender })
}

impl ScrubThread {
    /// Makes passes until the broker stops.
    fn run(&mut self) {
        loop {
            let mut every = match self.pass() {
                Ok(()) => continue,
                Err(Interrupted::Ended) => return,
                Err(Interrupted::Changed(every)) => every,
            };
            self.every = loop {
                match every {
                    Some(every) => break every,
                    None => match self.changes.recv() {
                        Ok(changed) => every = changed,
                        Err(_) => return,
                    },
                }
            };
        }
    }

    fn pass(&mut self) -> Result<(), Interrupted> {
        let begun = Instant::now();
        let disk = RealDisk::new(Access::Buffered);
        let (mut to_read, missing) = self.at_rest(&disk);
        // Somewhere else each time: a broker that is often started again gets everywhere too.
        let begin = getrandom::u64().unwrap_or_default() % to_read.len().max(1) as u64;
        to_read.rotate_left(begin as usize);
        let bytes: u64 = to_read.iter().map(|next| next.file.bytes).sum();
        let mut found = IndexVec::of(self.metrics.len(), |_| BTreeSet::new());
        let mut pace = ReaderPacing::new(bytes, self.every);
        for (shard, damage) in missing {
            self.note(shard, damage, &mut found[shard]);
        }
        for next in &to_read {
            self.read(&disk, next, &mut pace, &mut found[next.shard])?;
        }
        // What was damaged and is not there any more is forgotten.
        self.damaged = found;
        for (metrics, damaged) in self.metrics.iter().zip(self.damaged.iter()) {
            metrics.counts.scrub_damage.set(damaged.len() as u64);
        }
        self.rest(self.every.max(PASS_MIN).saturating_sub(begun.elapsed()))
    }

    /// What is to be read, and what of it cannot be, by shard.
    fn at_rest(&self, disk: &RealDisk) -> (Vec<ToRead>, Vec<(ShardIndex, Damage)>) {
        let (mut to_read, mut missing) = (Vec::new(), Vec::new());
        let doors = self.shard_files.all();
        for (shard, door) in doors.iter().flat_map(IndexVec::iter_indexed) {
            let Some(packs) = door.packs_in_use() else { continue };
            let Some(cut) = door.lane.look() else { continue };
            match cut.at_rest(disk, &packs) {
                Ok(found) => {
                    // What was let go of since the cut is gone rightly.
                    let packs = door.packs_in_use().unwrap_or_default();
                    let is_needed = |home| match home {
                        Container::Segment(_) => door.lane.holds(home),
                        Container::Pack(pack) => packs.contains(&pack),
                    };
                    let lost = found.missing.iter().filter(|missing| is_needed(missing.container));
                    missing.extend(lost.map(|missing| (shard, missing.as_damage(&cut))));
                    let cut = Arc::new(cut);
                    to_read.extend(found.files.into_iter().map(|file| {
                        let cut = cut.clone();
                        ToRead { shard, cut, file }
                    }));
                }
                Err(fault) => {
                    tracing::error!(shard = shard.0, %fault, "the scrub finds nothing to read")
                }
            }
        }
        (to_read, missing)
    }

    fn read(
        &mut self,
        disk: &RealDisk,
        next: &ToRead,
        pace: &mut ReaderPacing,
        found: &mut BTreeSet<Position>,
    ) -> Result<(), Interrupted> {
        let ToRead { shard, cut, file } = next;
        // The pass may be days old.
        if !self.is_needed(*shard, file) {
            return Ok(());
        }
        let metrics = self.metrics[*shard].clone();
        let mut interrupted = None;
        let scrubbed = scrub(disk, cut, file, &mut |bytes| {
            metrics.counts.scrubbed_bytes.add(bytes as u64);
            interrupted = self.rest(pace.rest_after(bytes)).err();
            interrupted.is_none()
        });
        let damage = match scrubbed {
            ScrubResult::Stopped => return Err(interrupted.unwrap_or(Interrupted::Ended)),
            ScrubResult::Gone => return Ok(()),
            ScrubResult::Read(damage) => damage,
        };
        if !self.is_needed(*shard, file) {
            return Ok(());
        }
        damage.into_iter().for_each(|damage| self.note(*shard, damage, found));
        metrics.counts.scrub_damage.set(self.damaged[*shard].len() as u64);
        Ok(())
    }

    fn note(&mut self, shard: ShardIndex, damage: Damage, found: &mut BTreeSet<Position>) {
        let Damage { path, position, bytes, problem: what } = damage;
        let path = path.display();
        tracing::error!(shard = shard.0, %path, %position, bytes, what, "the scrub found damage");
        found.insert(position);
        self.damaged[shard].insert(position);
        self.metrics[shard].counts.scrub_damage.set(self.damaged[shard].len() as u64);
    }

    /// Whether the file holds what it held when the pass began.
    fn is_needed(&self, shard: ShardIndex, file: &CutFile) -> bool {
        self.shard_files.all().is_some_and(|files| files[shard].lane.holds(file.container))
            && file.path.exists()
    }

    fn rest(&self, rest: Duration) -> Result<(), Interrupted> {
        match self.changes.recv_timeout(rest) {
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(()),
            Err(mpsc::RecvTimeoutError::Disconnected) => Err(Interrupted::Ended),
            Ok(every) => Err(Interrupted::Changed(every)),
        }
    }
}

/// How fast a pass reads.
struct ReaderPacing {
    begun: Instant,
    bytes_per_second: u64,
    read: u64,
}

impl ReaderPacing {
    fn new(bytes: u64, every: Duration) -> Self {
        let within = bytes / every.as_secs().max(1);
        let bytes_per_second = within.max(BYTES_PER_SECOND_MIN);
        Self { begun: Instant::now(), bytes_per_second, read: 0 }
    }

    /// How long to rest after a read. What was missed is not made up for in a hurry.
    fn rest_after(&mut self, bytes: usize) -> Duration {
        self.read += bytes as u64;
        let due = Duration::from_secs_f64(self.read as f64 / self.bytes_per_second as f64);
        let elapsed = self.begun.elapsed();
        if elapsed > due {
            let alone = Duration::from_secs_f64(bytes as f64 / self.bytes_per_second as f64);
            return alone / 2;
        }
        due - elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_over_much_takes_its_time_and_one_over_little_is_no_slower_than_the_floor() {
        let week = Duration::from_secs(7 * 86_400);
        let much = ReaderPacing::new(7 * 86_400 * (5 << 20), week);
        assert_eq!(much.bytes_per_second, 5 << 20);
        let mut little = ReaderPacing::new(1 << 20, week);
        assert_eq!(little.bytes_per_second, BYTES_PER_SECOND_MIN);
        let rest = little.rest_after(1 << 19);
        assert!(
            rest > Duration::from_millis(400) && rest <= Duration::from_millis(500),
            "{rest:?}"
        );
    }
}
