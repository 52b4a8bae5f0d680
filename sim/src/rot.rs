//! Flips bits in durable data: in live batches, in packs, in unused slots. Then the next start reports the loss, or
//! refuses, or a reader reports the damage, or nothing is missing. If no start has reported a loss, nothing is
//! missing after the bit is flipped back.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use sennit_engine::Place;
use sennit_journal::{BLOCK_BYTES, Position};

use crate::{
    oracle::{OUTSTANDING, Violation},
    run::Run,
    world::RECOVERS,
};

/// Time from the last commit to the durable mark.
const UNTIL_MARK: Duration = Duration::from_millis(50);
/// How often the run waits for a mark: other writes may delay it.
const MARKS: u32 = 20;

/// The place of a flipped bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RotPlace {
    /// In a live batch.
    Live,
    /// In a live batch in a pack.
    LivePack,
    /// In a pack.
    Pack,
    /// In a slot, whether it is in use or not.
    Slot,
    /// In the written part of the newest segment.
    Newest,
    /// In any file.
    Anywhere,
}

/// A place is as likely as it is frequent here.
const PLACES: [RotPlace; 8] = [
    RotPlace::Live,
    RotPlace::LivePack,
    RotPlace::Pack,
    RotPlace::Slot,
    RotPlace::Newest,
    RotPlace::Newest,
    RotPlace::Newest,
    RotPlace::Anywhere,
];

impl Run {
    /// Flips a bit, lets a start or a reader find it, and flips it back. Returns true if a start
    /// has reported a loss, because the rest cannot be judged then.
    pub(crate) fn rot(&mut self) -> Result<bool, Violation> {
        if !self.wait_for_mark()? {
            return Ok(false);
        }
        let Some((path, byte)) = self.place_to_rot() else { return Ok(false) };
        let bit = self.random.below(8) as u8;
        self.world.trace.step(format_args!("bit {bit} of byte {byte} of {path:?} rots"));
        let Some(rotten) = self.world.disk.rot(&path, byte, bit) else { return Ok(false) };
        let ends = self.world.oracle.durable_ends();
        self.world.has_rot = true;
        let is_refused = match self.random.chance(400) {
            true => false,
            false => match self.restart(false) {
                Err(violation) if violation.rule == RECOVERS => true,
                _ if self.world.reports_damage() => {
                    self.world.check_no_offset_reused(&ends)?;
                    return Ok(true);
                }
                restarted => restarted.map(|()| false)?,
            },
        };
        if !is_refused {
            self.plan(false);
            self.drain_past_rot()?;
        }
        let is_mended = self.world.disk.mend(&rotten);
        self.world.trace.step(format_args!("the bit is mended: {is_mended}"));
        self.world.has_rot = false;
        self.restart(false)?;
        self.plan(false);
        Ok(false)
    }

    /// Waits for a durable mark after the last records. Without it, damage to them looks like a torn write. Returns
    /// whether there is one.
    fn wait_for_mark(&mut self) -> Result<bool, Violation> {
        for _ in 0..MARKS {
            self.settle_down_calmly(1000)?;
            let soon = self.world.now.plus(UNTIL_MARK);
            if self.world.parts.shard.next_wake().is_none_or(|due| due > soon) {
                return Ok(!self.world.is_busy());
            }
            self.world.now = soon;
            self.world.advance()?;
        }
        Ok(false)
    }

    /// Drains the run: each outstanding message is delivered, or its consumers are told that it is unreadable.
    fn drain_past_rot(&mut self) -> Result<(), Violation> {
        let drained = self.drain();
        let damaged = self.world.parts.shard.counters().damaged_batches;
        match drained {
            Err(violation) if violation.rule == OUTSTANDING && damaged > 0 => {
                let silent = self.world.oracle.outstanding_unreported(self.world.now);
                match silent.first() {
                    None => Ok(()),
                    Some(first) => {
                        let detail = format!("{} messages, the first is {first:?}", silent.len());
                        Err(Violation::new("I1 unreadable messages are reported", detail))
                    }
                }
            }
            drained => drained,
        }
    }

    fn place_to_rot(&mut self) -> Option<(PathBuf, usize)> {
        let wanted = *self.random.pick(&PLACES)?;
        let segment_bytes = self.swarm.segment_bytes;
        match wanted {
            RotPlace::Live | RotPlace::LivePack => {
                let mut places: Vec<_> = self.world.parts.shard.engine().places().collect();
                let is_packed = |place: &Place| Position(place.position).pack().is_some();
                places.retain(|place| wanted == RotPlace::Live || is_packed(place));
                // The engine returns them in an order that differs between runs.
                places.sort_unstable();
                let place = *self.random.pick(&places)?;
                let (path, at) = self.file_of(Position(place.position), place.bytes as usize)?;
                Some((path, at + self.random.below(place.bytes.into()) as usize))
            }
            RotPlace::Newest => {
                let end = self.world.committed;
                let begin = Position(end.0.checked_sub(1)? / segment_bytes * segment_bytes);
                let (path, _) = self.file_of(begin, BLOCK_BYTES)?;
                Some((path, self.random.below(end.0 - begin.0) as usize))
            }
            RotPlace::Pack | RotPlace::Slot | RotPlace::Anywhere => {
                let mut files = self.world.disk.files();
                files.retain(|(path, length)| {
                    let fits =
                        wanted == RotPlace::Anywhere || is_pack(path) == (wanted == RotPlace::Pack);
                    *length > 0 && fits
                });
                let (path, length) = self.random.pick(&files).cloned()?;
                Some((path, self.random.below(length as u64) as usize))
            }
        }
    }

    /// The file that holds `length` bytes of the journal or of a pack, and their place in it.
    fn file_of(&mut self, position: Position, length: usize) -> Option<(PathBuf, usize)> {
        let bytes = self.world.parts.reader.read(position, length).ok()?;
        let pack = position.pack();
        let at = pack.map_or(position.0 % self.swarm.segment_bytes, |(_, byte)| byte.into());
        let mut files = self.world.disk.files();
        files.retain(|(path, _)| {
            is_pack(path) == pack.is_some() && self.world.disk.holds(path, at as usize, &bytes)
        });
        files.into_iter().next().map(|(path, _)| (path, at as usize))
    }
}

fn is_pack(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "pack")
}
