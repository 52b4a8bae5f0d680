//! A replica that begins to lead: it says first which messages are lost that the leader before it may have delivered,
//! and then does what is due. What a replica does that follows stands here too; `rest` is the way back.

use sennit_model::{Generation, Timestamp};

use crate::{
    engine::{Engine, Journal},
    record::Record,
};

impl Engine {
    /// The state is that of a replica from now on: it decides nothing at an earlier time than the newest in the records
    /// that it has applied, nor than `time`, the newest of records that it does not have any more.
    pub fn join_group(&mut self, time: Timestamp) {
        self.group_time.keep(time);
    }

    /// The newest time in the records.
    #[must_use]
    pub fn group_time(&self) -> Timestamp {
        self.group_time.newest()
    }

    /// The time of a decision when the clock says `now`.
    pub(crate) fn time(&self, now: Timestamp) -> Timestamp {
        self.group_time.of_decision(now)
    }

    pub(crate) fn note_time(&mut self, record: &Record) {
        // A time that is in memory alone is in no record of the group.
        if let Some(time) = record.time()
            && self.memory.of_record(record).is_none()
        {
            self.group_time.raise(time);
        }
    }

    /// Begins to lead at `now`. Its deliveries have the `generation` of its term. All records that are applied have to
    /// be committed. Costs a step for each partition that is not at rest, and for each that has a reservation.
    ///
    /// The first records are [`Record::Lost`]: in a partition that is not durable the leader before may have delivered
    /// messages up to the end of its reservation, and those that are not here are lost. Then come records of what is
    /// due. A stream lives on from `now`, as its last use may have been a read.
    ///
    /// # Panics
    /// If the generation does not rise: deliveries of two leaders could be taken for one another.
    pub fn lead(&mut self, generation: Generation, now: Timestamp, journal: &mut impl Journal) {
        assert!(generation > self.generation, "each leader has a higher generation");
        let now = self.time(now);
        self.generation = generation;
        for partition in self.reserved.ids() {
            if let Some(range) = self.lost_at_end(partition, 0, true) {
                self.commit(&Record::Lost { partition, range }, journal);
            }
        }
        self.use_streams(now);
        self.advance(now, journal);
        for id in self.active_partitions() {
            self.mark_ready(id);
        }
    }

    /// The last record of a turn is applied, by a replica that follows. Timers that nobody needs go, and nothing waits
    /// to be delivered.
    pub fn end_followed_turn(&mut self) {
        self.sweep_timers();
        for id in std::mem::take(&mut self.ready_list) {
            if let Some(partition) = self.partitions.get_mut(&id) {
                partition.is_in_ready_list = false;
            }
        }
    }
}
