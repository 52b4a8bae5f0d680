//! Bits that flip in what is durable: in what is live, in packs, in slots that nobody needs. The next
//! start refuses, or a reader says what it could not read, or everything is there all the same; and
//! when the bit is what it was, nothing is missing.

use std::{path::PathBuf, time::Duration};

use sennit_journal::Position;

use crate::{
    disk::Rotten,
    oracle::{OWED, Violation},
    run::Run,
    world::RECOVERS,
};

/// So long after the last commit a mark says that all before it was durable.
const UNTIL_MARK: Duration = Duration::from_millis(50);
/// Times that a mark is waited for: others write too.
const MARKS: u32 = 20;

/// Where a bit flips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    /// In a batch that is kept.
    Live,
    /// In a batch that is kept in a pack.
    LivePack,
    /// In a pack.
    Pack,
    /// In any file.
    Anywhere,
}

impl Run {
    /// A bit flips, somebody meets it, and it flips back.
    pub(crate) fn rot(&mut self) -> Result<(), Violation> {
        if !self.is_marked()? {
            return Ok(());
        }
        let Some((path, byte)) = self.place_to_rot() else { return Ok(()) };
        let bit = self.random.below(8) as u8;
        self.world.trace.step(format_args!("bit {bit} of byte {byte} of {path:?} rots"));
        let Some(rotten) = self.world.disk.rot(&path, byte, bit) else { return Ok(()) };
        let meets_running = self.random.chance(400);
        let is_refused = match meets_running {
            true => false,
            false => match self.restart(false) {
                Err(violation) if violation.rule == RECOVERS => true,
                restarted => restarted.map(|()| false)?,
            },
        };
        if !is_refused {
            self.plan(false);
            self.drain_past_rot()?;
        }
        self.mend(&rotten)
    }

    /// A frame behind the last records says that they were durable; without it damage to them cannot
    /// be told from a torn write. Says whether there is one.
    fn is_marked(&mut self) -> Result<bool, Violation> {
        for _ in 0..MARKS {
            self.calmly(1000)?;
            let soon = self.world.now.plus(UNTIL_MARK);
            if self.world.parts.shard.next_wake().is_none_or(|due| due > soon) {
                return Ok(!self.world.is_busy());
            }
            self.world.now = soon;
            self.world.advance()?;
        }
        Ok(false)
    }

    fn mend(&mut self, rotten: &Rotten) -> Result<(), Violation> {
        let is_mended = self.world.disk.mend(rotten);
        self.world.trace.step(format_args!("the bit is mended: {is_mended}"));
        self.restart(false)?;
        self.plan(false);
        Ok(())
    }

    /// All that is owed comes out, or its consumers are told that it cannot be read.
    fn drain_past_rot(&mut self) -> Result<(), Violation> {
        let drained = self.drain();
        let damaged = self.world.parts.shard.counters().damaged_batches;
        match drained {
            Err(violation) if violation.rule == OWED && damaged > 0 => {
                let silent = self.world.oracle.owed_without_word(self.world.now);
                match silent.first() {
                    None => Ok(()),
                    Some(first) => {
                        let detail = format!("{} messages, the first is {first:?}", silent.len());
                        Err(Violation::new("I1 what cannot be read is said", detail))
                    }
                }
            }
            drained => drained,
        }
    }

    fn place_to_rot(&mut self) -> Option<(PathBuf, usize)> {
        let all = [Where::Live, Where::LivePack, Where::Pack, Where::Anywhere];
        let wanted = *self.random.pick(&all)?;
        let mut files = self.world.disk.files();
        files.retain(|(_, length)| *length > 0);
        let is_pack = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "pack");
        if matches!(wanted, Where::Live | Where::LivePack) {
            let mut places: Vec<_> = self.world.parts.shard.engine().places().collect();
            places
                .retain(|place| wanted == Where::Live || Position(place.position).pack().is_some());
            // As they come their order is not the same each time.
            places.sort_unstable();
            let place = *self.random.pick(&places)?;
            let position = Position(place.position);
            let bytes = self.world.parts.reader.read(position, place.bytes as usize).ok()?;
            let at = match position.pack() {
                Some((_, byte)) => u64::from(byte),
                None => position.0 % self.swarm.segment_bytes,
            } as usize;
            let is_pack_wanted = position.pack().is_some();
            let (path, _) = files.into_iter().find(|(path, _)| {
                is_pack(path) == is_pack_wanted && self.world.disk.holds(path, at, &bytes)
            })?;
            return Some((path, at + self.random.below(place.bytes.into()) as usize));
        }
        files.retain(|(path, _)| wanted == Where::Anywhere || is_pack(path));
        let (path, length) = self.random.pick(&files).cloned()?;
        Some((path, self.random.below(length as u64) as usize))
    }
}
