//! The lane's slots, and the room for them on a disk that may be full: created, held and lent by the broker's own
//! rule.

use sennit_engine::{Content, StreamCommand};

use super::*;

/// The number of message bytes that a command appends.
fn published_bytes(command: &Command) -> u64 {
    let of = |content: Option<&Content>| content.map_or(0, |content| content.bytes() as u64);
    match command {
        Command::Publish(publish) | Command::PublishAt(publish, _) => {
            publish.batch.bytes().len() as u64
        }
        Command::PublishAtomic(step) => {
            step.parts.iter().map(|part| part.batch.bytes().len() as u64).sum()
        }
        Command::Stream(_, _, StreamCommand::Append(append)) => of(append.content.as_ref()),
        Command::AppendTogether(_, appends) => {
            appends.iter().map(|(_, append)| of(append.content.as_ref())).sum()
        }
        Command::Stream(_, _, StreamCommand::Open(open)) => of(open.content.as_ref()),
        _ => 0,
    }
}

impl World {
    /// Whether publishers may publish. They wait while a segment's worth of bytes is not committed, so that a full
    /// disk has room for it; once the disk is full they are refused. The broker makes them wait at half of that.
    #[must_use]
    pub fn accepts_publishes(&self) -> bool {
        let on_their_way: u64 = self.commands.iter().map(published_bytes).sum();
        let bytes = self.parts.shard.uncommitted_bytes() + on_their_way;
        !self.holds_publishers || self.room.is_full() || bytes < self.config.segment_bytes
    }

    /// Notes that the lane waits for a slot. Only another program or a disk failure may prevent it from having one.
    pub(super) fn wait_for_slot(&mut self) -> Result<(), Stop> {
        self.slot_step()?;
        let FaultPlan { sync_fails, write_fails, .. } = self.disk.plan();
        self.waits += u32::from(sync_fails == 0 && write_fails == 0 && !self.room.has_room());
        if self.waits > WAITS_MAX {
            let detail = format!(
                "the lane waits for a slot: {} segments in use, checkpoints take {}",
                self.parts.shard.segment_count(),
                self.parts.shard.checkpoint_segments(),
            );
            return Err(Violation::new(FULL_DISK, detail).into());
        }
        Ok(())
    }

    /// Runs one step of the slot maker.
    ///
    /// # Errors
    /// A power failure.
    pub fn slot_step(&mut self) -> Result<(), Stop> {
        if self.slots_are_late && self.parts.lane.spare_count() > 0 {
            return Ok(());
        }
        self.room.set_checkpoint_segments(self.parts.shard.checkpoint_segments());
        let spare = self.parts.lane.spare_count();
        if let Some(keep) = self.room.surplus_over(spare, self.room.is_full()) {
            self.surplus.extend(self.parts.lane.take_surplus(keep.max(self.slots_wanted)));
        }
        if let Some(slot) = self.surplus.pop() {
            // If the removal fails, the next start finds a spare slot.
            let removed = self.parts.slots.remove(&slot);
            self.trace.step(format_args!("  slot removed: {}", removed.is_ok()));
        }
        self.make_slot();
        if self.disk.is_off() {
            return Err(Stop::PowerOff);
        }
        self.update_full();
        Ok(())
    }

    /// Updates the slot budget after a write of the lane. A lane that uses its held slots checks the free space
    /// itself.
    pub(super) fn check_free_space(&mut self) {
        self.update_full();
        let spare = self.parts.lane.spare_count();
        if self.room.must_check_disk(spare) {
            let needed = self.room.missing(spare) as u64 * self.config.segment_bytes;
            let available = self.parts.lane.available_bytes().unwrap_or_default();
            self.trace.step(format_args!("  {spare} slots are spare, {available} bytes are free"));
            if available < needed {
                self.room.set_room(false);
                self.update_full();
            }
        }
    }

    fn update_full(&mut self) {
        if let Some(full) = self.room.update_full(self.parts.lane.spare_count()) {
            self.storage_full(full);
        }
    }

    /// Creates the slot that the lane needs next, and checks whether there is room for another.
    pub(super) fn make_slot(&mut self) {
        let (count, written) =
            (self.parts.lane.spare_count(), self.parts.lane.written_spare_count());
        let is_wanted = count < self.slots_wanted;
        let slot_request =
            self.slot_request.or_else(|| self.room.next_request(SpareSlots { count, written }));
        self.slot_request = slot_request.or(is_wanted.then_some(SlotRequest::Ready));
        if let Some(slot_request) = self.slot_request {
            let fill = if slot_request == SlotRequest::Held {
                SlotFill::Allocated
            } else {
                SlotFill::Written
            };
            match self.parts.slots.make_with_free_bytes(0, fill) {
                Ok(slot) => {
                    self.slot_request = None;
                    self.room.slot_made(slot_request);
                    self.parts.lane.add_spare(slot);
                }
                Err(Fault::StorageFull { .. }) => return self.room.set_room(false),
                Err(_) => return,
            }
        } else if self.room.has_room() {
            return;
        }
        if let Ok(available) = self.parts.slots.available_bytes() {
            self.room.set_room(available >= self.config.segment_bytes);
        }
    }

    pub(super) fn storage_full(&mut self, full: bool) {
        let spare = self.parts.lane.spare_count();
        self.trace.step(format_args!("  storage full: {full}, {spare} slots are spare"));
        self.parts.shard.set_storage_full(full);
        self.oracle.set_storage_full(full);
    }

    /// Whether all held slots exist.
    #[must_use]
    pub fn has_held_slots(&self) -> bool {
        self.room.missing(self.parts.lane.spare_count()) == 0
    }

    /// Starts the slot budget as the broker does: publishes are refused from the start if the disk has no room for
    /// the missing slots.
    pub(super) fn init_slot_budget(&mut self) -> Result<(), Violation> {
        let checkpoint_segments = self.parts.shard.checkpoint_segments();
        let spare = self.parts.lane.spare_count() as u64;
        let segment_bytes = self.config.segment_bytes;
        let Ok(free) = self.parts.slots.available_bytes() else {
            self.room = SlotBudget::new(checkpoint_segments, false);
            return Ok(());
        };
        let missing = held_slots(checkpoint_segments).saturating_sub(spare);
        let begins_full = free < missing.saturating_mul(segment_bytes);
        self.room = SlotBudget::new(checkpoint_segments, begins_full);
        if begins_full {
            self.storage_full(true);
            // Segments that only the checkpoint before the newest needs are room too.
            let mut released = Vec::new();
            self.parts.shard.take_released(&mut released);
            released.into_iter().for_each(|segment| self.parts.lane.release(segment));
        }
        let spare = self.parts.lane.spare_count() as u64;
        if spare + free / segment_bytes < START_SLOTS {
            let detail = format!("a start finds {spare} slots and {free} bytes");
            return Err(Violation::new(FULL_DISK, detail));
        }
        Ok(())
    }
}
