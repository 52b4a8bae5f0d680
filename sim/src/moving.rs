//! The mover's work beside the shard, in steps: list, ask, copy, tell; and packs that go. Between two
//! steps anything may happen. It looks at what the shard gives up: nothing live may lie there.

use std::collections::BTreeSet;

use sennit_journal::{Home, Pack, PackRemoval, Position};
use sennit_model::Timestamp;
use sennit_shard::{CompactionDone, CompactionStep, Held, MoveError, Moved, Recovered, Room};

use crate::{disk::SimulatedDisk, oracle::Violation, trace::Trace};

/// Most batches that the shard is asked about at once: few, so that much happens between.
const ASKED_MAX: usize = 8;

/// Most keys that a pass of compaction knows at once.
const COMPACTION_KEYS: usize = 12;

/// How far a move is.
#[derive(Debug)]
enum Move {
    /// The shard wants this emptied.
    Begun(Home),
    /// This is held; of the rest the shard was not asked yet.
    Listed { home: Home, rest: Vec<Held>, wanted: Vec<Held> },
    /// The copies are on the platter, and the shard does not know.
    Copied(Moved),
    /// The shard wants this step of a compaction done.
    Compacting(CompactionStep),
    /// It is done, and the shard does not know.
    Compacted(CompactionDone),
}

/// See the file's page.
#[derive(Debug, Default)]
pub struct Moving {
    under_way: Option<Move>,
    /// Whether the last step found something to do.
    is_stirred: bool,
    to_remove: Vec<u32>,
    removal: Option<(u32, PackRemoval<SimulatedDisk>)>,
    /// Numbers that packs of this life had.
    numbers: BTreeSet<u32>,
    /// Whether a move or a removal failed in this life: what is left of it may stay.
    has_failed: bool,
    /// Batches that were moved.
    moved: u64,
}

/// What a step came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// There is nothing to do.
    Idle,
    /// Something was done that the shard knows nothing of.
    Worked,
    /// The shard was told.
    Told,
}

impl Moving {
    /// Whether something is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.is_stirred || self.under_way.is_some() || !self.to_remove.is_empty()
    }

    /// Whether a move or a removal failed in this life.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// How many batches were moved in this life.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Takes the packs that the shard gives up.
    ///
    /// # Errors
    /// [`Violation`] if something live lies in one.
    pub fn take_released(
        &mut self,
        parts: &mut Recovered<SimulatedDisk>,
        trace: &Trace,
    ) -> Result<(), Violation> {
        let mut released = Vec::new();
        parts.shard.take_released_packs(&mut released);
        for &pack in &released {
            trace.step(format_args!("  release pack {pack}"));
        }
        if !released.is_empty()
            && let Some(live) =
                live_packs(parts).intersection(&released.iter().copied().collect()).next()
        {
            let detail = format!("pack {live} is given up");
            return Err(Violation::new("I1 what is wanted is kept in its pack", detail));
        }
        self.to_remove.extend(released);
        Ok(())
    }

    /// Gets on by a step.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn step(
        &mut self,
        parts: &mut Recovered<SimulatedDisk>,
        room: &Room,
        trace: &Trace,
        now: Timestamp,
    ) -> Result<MoveStep, Violation> {
        let Some(under_way) = self.under_way.take() else {
            let step = self.begin(parts, trace, now);
            self.is_stirred = step != MoveStep::Idle;
            return Ok(step);
        };
        let worked = self.go_on(under_way, parts, room, trace, now);
        self.to_remove.extend(parts.mover.take_rubbish());
        worked
    }

    fn go_on(
        &mut self,
        under_way: Move,
        parts: &mut Recovered<SimulatedDisk>,
        room: &Room,
        trace: &Trace,
        now: Timestamp,
    ) -> Result<MoveStep, Violation> {
        match under_way {
            Move::Begun(home) => match parts.mover.list(home) {
                Ok(rest) => {
                    trace.step(format_args!("  {home:?} holds {} batches", rest.len()));
                    self.under_way = Some(Move::Listed { home, rest, wanted: Vec::new() });
                }
                Err(error) => self.failed(parts, trace, home, &error, now),
            },
            Move::Listed { home, mut rest, mut wanted } if !rest.is_empty() => {
                let mut asked = rest.split_off(rest.len().saturating_sub(ASKED_MAX));
                parts.shard.retain_wanted(&mut asked);
                wanted.append(&mut asked);
                self.under_way = Some(Move::Listed { home, rest, wanted });
            }
            Move::Listed { home, wanted, .. } => {
                trace.step(format_args!("  of {home:?} {} batches are wanted", wanted.len()));
                let copied = match wanted.is_empty() {
                    true => Ok(Moved::default()),
                    false => copy(parts, room, home, &wanted),
                };
                match copied {
                    Ok(moved) => self.copied(moved)?,
                    Err(error) => self.failed(parts, trace, home, &error, now),
                }
            }
            Move::Copied(moved) => {
                trace.step(format_args!(
                    "  moved {} batches: {:?}",
                    moved.batches.len(),
                    moved.packs
                ));
                self.moved += moved.batches.len() as u64;
                parts.shard.moved(moved, now);
                return Ok(MoveStep::Told);
            }
            Move::Compacting(step) => {
                // Few, so that a pass is made again and again.
                parts.mover.set_compaction_keys(COMPACTION_KEYS);
                parts.mover.set_left_bytes(left_by_pack(parts, room));
                match parts.mover.compact(&step) {
                    Ok(done) => {
                        self.made(&done.packs)?;
                        self.under_way = Some(Move::Compacted(done));
                    }
                    Err(error) => {
                        trace.step(format_args!("  the compaction failed: {error}"));
                        self.has_failed = true;
                        parts.shard.compaction_failed(now);
                    }
                }
            }
            Move::Compacted(done) => {
                trace.step(format_args!("  compacted: {done:?}"));
                self.moved += done.batches.len() as u64;
                parts.shard.compacted(done, now);
                return Ok(MoveStep::Told);
            }
        }
        Ok(MoveStep::Worked)
    }

    fn begin(
        &mut self,
        parts: &mut Recovered<SimulatedDisk>,
        trace: &Trace,
        now: Timestamp,
    ) -> MoveStep {
        if let Some((pack, mut removal)) = self.removal.take() {
            match removal.step() {
                Ok(true) => trace.step(format_args!("  removed pack {pack}")),
                Ok(false) => self.removal = Some((pack, removal)),
                Err(error) => self.not_removed(trace, pack, &error),
            }
            return MoveStep::Worked;
        }
        if let Some(pack) = self.to_remove.pop() {
            match parts.mover.removal(pack) {
                Ok(removal) => self.removal = Some((pack, removal)),
                Err(error) => self.not_removed(trace, pack, &error),
            }
            return MoveStep::Worked;
        }
        let Some(home) = parts.shard.next_move(now) else {
            let Some(step) = parts.shard.next_compaction(now) else { return MoveStep::Idle };
            trace.step(format_args!("  compact {step:?}"));
            self.under_way = Some(Move::Compacting(step));
            return MoveStep::Worked;
        };
        trace.step(format_args!("  empty {home:?}"));
        self.under_way = Some(Move::Begun(home));
        MoveStep::Worked
    }

    /// The number of a pack that was given up may be somewhere still.
    fn copied(&mut self, moved: Moved) -> Result<(), Violation> {
        self.made(&moved.packs)?;
        self.under_way = Some(Move::Copied(moved));
        Ok(())
    }

    fn made(&mut self, packs: &[Pack]) -> Result<(), Violation> {
        for pack in packs {
            if !self.numbers.insert(pack.number) {
                let detail = format!("pack {} is made again", pack.number);
                return Err(Violation::new("I4 numbers of packs are not used again", detail));
            }
        }
        Ok(())
    }

    fn failed(
        &mut self,
        parts: &mut Recovered<SimulatedDisk>,
        trace: &Trace,
        home: Home,
        error: &MoveError,
        now: Timestamp,
    ) {
        trace.step(format_args!("  {home:?} is left: {error}"));
        self.has_failed = true;
        parts.shard.move_failed(home, error, now);
    }

    fn not_removed(&mut self, trace: &Trace, pack: u32, error: &dyn std::error::Error) {
        trace.step(format_args!("  pack {pack} is not removed: {error}"));
        self.has_failed = true;
    }
}

/// Copies what is wanted; on a full disk the lane lends the pack a slot's room.
fn copy(
    parts: &mut Recovered<SimulatedDisk>,
    room: &Room,
    home: Home,
    wanted: &[Held],
) -> Result<Moved, MoveError> {
    parts.mover.set_in_one_pack(room.is_full());
    parts.mover.set_left_bytes(left_by_pack(parts, room));
    let bytes = parts.mover.bytes_for(wanted);
    let spare = parts.lane.spare_count();
    let may_lend = room.may_lend(spare);
    if may_lend
        && bytes <= parts.mover.segment_bytes()
        && !parts.mover.has_room(bytes)?
        && let Some(slot) = parts.lane.take_surplus(spare - 1).pop()
    {
        parts.mover.make_room(&slot)?;
    }
    parts.mover.copy(home, wanted)
}

/// What a pack leaves free: what the lane lacks, unless that is full. Then the pack frees more than it takes.
fn left_by_pack(parts: &Recovered<SimulatedDisk>, room: &Room) -> u64 {
    let missing = room.missing(parts.lane.spare_count()) as u64;
    if room.is_full() { 0 } else { missing * parts.mover.segment_bytes() }
}

/// The packs in which something live lies.
#[must_use]
pub fn live_packs(parts: &Recovered<SimulatedDisk>) -> BTreeSet<u32> {
    let places = parts.shard.engine().places();
    places.filter_map(|place| Some(Position(place.position).pack()?.0)).collect()
}
