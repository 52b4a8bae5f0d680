//! The checker "same state": who has applied the same records is in the same state. A leader that steps down is
//! compared with a follower, and so is what a start makes of the disk.

use super::*;

/// The promise that leaders, followers and those that start have the same state at the same record.
pub const SAME_STATE: &str = "I9 the same records make the same state";

impl World {
    /// The shard is not compared with a follower: that takes as long as all else together.
    pub fn go_unfollowed(&mut self) {
        self.follower.lose_track();
    }

    /// Has the shard step down before it stops, and compares its state with that of its follower.
    pub(super) fn check_rested(&mut self) -> Result<(), Violation> {
        let mut frames = Vec::new();
        self.parts.shard.take_frames(&mut frames);
        self.follower.hear(&frames);
        let is_heard = !self.is_fenced;
        self.parts.shard.stand(Standing::Follower { leader: None }, self.now);
        self.parts.shard.effects().clear();
        match is_heard {
            true => self.compare("a rested leader and its follower", Vec::new()),
            // Records are gathered that no frame has.
            false => Ok(()),
        }
    }

    /// Compares what a start has made of the disk with the state of a follower that has heard as much.
    pub(super) fn check_rebuilt(&mut self) -> Result<(), Violation> {
        self.follower.forget_behind(self.parts.last_record);
        if self.has_rot || self.reports_damage() {
            self.follower.lose_track();
        }
        self.compare("what was rebuilt and a follower", self.parts.lost_records.clone())
    }

    /// Compares the shard with its follower, once that has applied `more`.
    fn compare(&self, compared: &str, more: Vec<Record>) -> Result<(), Violation> {
        let Some(follower) = self.follower.state(more, self.now) else { return Ok(()) };
        let state = self.parts.shard.engine().replicated_state(self.now);
        self.trace.step(format_args!("{compared}: {:016x}", state.hash()));
        match state.difference(&follower.replicated_state(self.now)) {
            None => Ok(()),
            Some((one, other)) => {
                let detail = format!("{compared} differ:\n    {one}\n    {other}");
                Err(Violation::new(SAME_STATE, detail))
            }
        }
    }
}
