//! Runs the mover in steps beside the shard: list, ask, copy, report; and removes packs. Anything may happen
//! between two steps. It checks that the shard gives up no pack with live messages.

use std::collections::BTreeSet;

use sennit_journal::{Container, Lane, Pack, PackRemoval, Position};
use sennit_model::Timestamp;
use sennit_shard::{
    CompactionDone, CompactionStep, MoveError, Moved, Mover, Recovered, Shard, SlotBudget,
    StoredBatch,
};

use crate::{disk::SimulatedDisk, oracle::Violation, trace::Trace};

/// The greatest number of batches in one query to the shard: few, so that much happens between queries.
const QUERY_MAX: usize = 8;

/// The greatest number of keys that a pass of compaction holds at once.
const COMPACTION_KEYS: usize = 12;

/// The parts of a broker that a move needs.
pub struct MoverParts<'a> {
    /// The shard.
    pub shard: &'a mut Shard,
    /// The mover of its lane.
    pub mover: &'a mut Mover<SimulatedDisk>,
    /// Its lane.
    pub lane: &'a mut Lane<SimulatedDisk>,
}

impl<'a> From<&'a mut Recovered<SimulatedDisk>> for MoverParts<'a> {
    fn from(parts: &'a mut Recovered<SimulatedDisk>) -> Self {
        Self { shard: &mut parts.shard, mover: &mut parts.mover, lane: &mut parts.lane }
    }
}

/// The progress of a move.
#[derive(Debug)]
enum Move {
    /// The shard has chosen this container.
    Begun(Container),
    /// The container was listed. `rest` are the batches without a query to the shard yet.
    Listed { container: Container, rest: Vec<StoredBatch>, wanted: Vec<StoredBatch> },
    /// The copies are durable, and the shard has no report yet.
    Copied(Moved),
    /// The shard has chosen this step of a compaction.
    Compacting(CompactionStep),
    /// The step is done, and the shard has no report yet.
    Compacted(CompactionDone),
}

/// The move under way, and the packs to remove.
#[derive(Debug, Default)]
pub struct MoverSteps {
    under_way: Option<Move>,
    /// Whether the last step found something to do.
    found_work: bool,
    to_remove: Vec<u32>,
    removal: Option<(u32, PackRemoval<SimulatedDisk>)>,
    /// The numbers of all packs of this generation.
    numbers: BTreeSet<u32>,
    /// Whether a move or a removal failed in this generation: its files may stay.
    has_failed: bool,
    /// Batches that were moved.
    moved: u64,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveStep {
    /// There is no work.
    Idle,
    /// The mover has worked, without a report to the shard.
    Progressed,
    /// The shard has the result.
    Reported,
}

impl MoverSteps {
    /// Whether something is under way.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.found_work || self.under_way.is_some() || !self.to_remove.is_empty()
    }

    /// Whether a move or a removal failed in this generation.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// The number of batches moved in this generation.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Takes the packs that the shard releases.
    ///
    /// # Errors
    /// [`Violation`] if one of them has live messages.
    pub fn take_released(
        &mut self,
        parts: &mut MoverParts<'_>,
        trace: &Trace,
    ) -> Result<(), Violation> {
        let mut released = Vec::new();
        parts.shard.take_released_packs(&mut released);
        for &pack in &released {
            trace.step(format_args!("  release pack {pack}"));
        }
        if !released.is_empty()
            && let Some(live) =
                live_packs(parts.shard).intersection(&released.iter().copied().collect()).next()
        {
            let detail = format!("pack {live} is given up");
            return Err(Violation::new("I1 a pack with live messages is kept", detail));
        }
        self.to_remove.extend(released);
        Ok(())
    }

    /// Runs one step.
    ///
    /// # Errors
    /// The promise that was broken.
    pub fn step(
        &mut self,
        parts: &mut MoverParts<'_>,
        room: &SlotBudget,
        trace: &Trace,
        now: Timestamp,
    ) -> Result<MoveStep, Violation> {
        let Some(under_way) = self.under_way.take() else {
            let step = self.begin(parts, trace, now);
            self.found_work = step != MoveStep::Idle;
            return Ok(step);
        };
        let worked = self.continue_move(under_way, parts, room, trace, now);
        self.to_remove.extend(parts.mover.take_orphaned_packs());
        worked
    }

    fn continue_move(
        &mut self,
        under_way: Move,
        parts: &mut MoverParts<'_>,
        room: &SlotBudget,
        trace: &Trace,
        now: Timestamp,
    ) -> Result<MoveStep, Violation> {
        match under_way {
            Move::Begun(container) => match parts.mover.list(container) {
                Ok(rest) => {
                    trace.step(format_args!("  {container:?} holds {} batches", rest.len()));
                    self.under_way = Some(Move::Listed { container, rest, wanted: Vec::new() });
                }
                Err(error) => self.failed(parts, trace, container, &error, now),
            },
            Move::Listed { container, mut rest, mut wanted } if !rest.is_empty() => {
                let mut asked = rest.split_off(rest.len().saturating_sub(QUERY_MAX));
                parts.shard.retain_wanted(&mut asked);
                wanted.append(&mut asked);
                self.under_way = Some(Move::Listed { container, rest, wanted });
            }
            Move::Listed { container, wanted, .. } => {
                trace.step(format_args!("  of {container:?} {} batches are wanted", wanted.len()));
                let copied = match wanted.is_empty() {
                    true => Ok(Moved::default()),
                    false => copy(parts, room, container, &wanted),
                };
                match copied {
                    Ok(moved) => self.copied(moved)?,
                    Err(error) => self.failed(parts, trace, container, &error, now),
                }
            }
            Move::Copied(moved) => {
                trace.step(format_args!(
                    "  moved {} batches: {:?}",
                    moved.batches.len(),
                    moved.packs
                ));
                self.moved += moved.batches.len() as u64;
                parts.shard.handle_move(moved, now);
                return Ok(MoveStep::Reported);
            }
            Move::Compacting(step) => {
                // Few keys, so that compaction needs many passes.
                parts.mover.set_compaction_keys(COMPACTION_KEYS);
                parts.mover.set_left_bytes(left_by_pack(parts, room));
                match parts.mover.compact(&step) {
                    Ok(done) => {
                        self.check_pack_numbers(&done.packs)?;
                        self.under_way = Some(Move::Compacted(done));
                    }
                    Err(error) => {
                        trace.step(format_args!("  the compaction failed: {error}"));
                        self.has_failed = true;
                        parts.shard.handle_failed_compaction(now);
                    }
                }
            }
            Move::Compacted(done) => {
                trace.step(format_args!("  compacted: {done:?}"));
                self.moved += done.batches.len() as u64;
                parts.shard.handle_compaction(done, now);
                return Ok(MoveStep::Reported);
            }
        }
        Ok(MoveStep::Progressed)
    }

    fn begin(&mut self, parts: &mut MoverParts<'_>, trace: &Trace, now: Timestamp) -> MoveStep {
        if let Some((pack, mut removal)) = self.removal.take() {
            match removal.step() {
                Ok(true) => trace.step(format_args!("  removed pack {pack}")),
                Ok(false) => self.removal = Some((pack, removal)),
                Err(error) => self.removal_failed(trace, pack, &error),
            }
            return MoveStep::Progressed;
        }
        if let Some(pack) = self.to_remove.pop() {
            match parts.mover.start_removal(pack) {
                Ok(removal) => self.removal = Some((pack, removal)),
                Err(error) => self.removal_failed(trace, pack, &error),
            }
            return MoveStep::Progressed;
        }
        let Some(container) = parts.shard.next_move(now) else {
            let Some(step) = parts.shard.next_compaction(now) else { return MoveStep::Idle };
            trace.step(format_args!("  compact {step:?}"));
            self.under_way = Some(Move::Compacting(step));
            return MoveStep::Progressed;
        };
        trace.step(format_args!("  empty {container:?}"));
        self.under_way = Some(Move::Begun(container));
        MoveStep::Progressed
    }

    /// Keeps the report of a copy. Pack numbers must be new, because records may still name a released pack.
    fn copied(&mut self, moved: Moved) -> Result<(), Violation> {
        self.check_pack_numbers(&moved.packs)?;
        self.under_way = Some(Move::Copied(moved));
        Ok(())
    }

    fn check_pack_numbers(&mut self, packs: &[Pack]) -> Result<(), Violation> {
        for pack in packs {
            if !self.numbers.insert(pack.number) {
                let detail = format!("pack {} is made again", pack.number);
                return Err(Violation::new("I4 pack numbers are not reused", detail));
            }
        }
        Ok(())
    }

    fn failed(
        &mut self,
        parts: &mut MoverParts<'_>,
        trace: &Trace,
        container: Container,
        error: &MoveError,
        now: Timestamp,
    ) {
        trace.step(format_args!("  {container:?} is left: {error}"));
        self.has_failed = true;
        parts.shard.handle_failed_move(container, error, now);
    }

    fn removal_failed(&mut self, trace: &Trace, pack: u32, error: &dyn std::error::Error) {
        trace.step(format_args!("  pack {pack} is not removed: {error}"));
        self.has_failed = true;
    }
}

/// Copies the wanted batches; on a full disk the lane gives the pack the room of a slot.
fn copy(
    parts: &mut MoverParts<'_>,
    room: &SlotBudget,
    container: Container,
    wanted: &[StoredBatch],
) -> Result<Moved, MoveError> {
    parts.mover.set_in_one_pack(room.is_full());
    parts.mover.set_left_bytes(left_by_pack(parts, room));
    let bytes = parts.mover.bytes_for(wanted);
    let spare = parts.lane.spare_count();
    let may_release_slot = room.may_release_slot(spare);
    if may_release_slot
        && bytes <= parts.mover.segment_bytes()
        && !parts.mover.has_room(bytes)?
        && let Some(slot) = parts.lane.take_surplus(spare - 1).pop()
    {
        parts.mover.make_room(&slot)?;
    }
    parts.mover.copy(container, wanted)
}

/// The bytes that a pack must leave free: those of the missing slots. On a full lane it is 0, because the pack
/// frees more than it takes.
fn left_by_pack(parts: &MoverParts<'_>, room: &SlotBudget) -> u64 {
    let missing = room.missing(parts.lane.spare_count()) as u64;
    if room.is_full() { 0 } else { missing * parts.mover.segment_bytes() }
}

/// The packs with live messages.
#[must_use]
pub fn live_packs(shard: &Shard) -> BTreeSet<u32> {
    let places = shard.engine().places();
    places.filter_map(|place| Some(Position(place.position).pack()?.0)).collect()
}
