//! Batches that cannot be read. A shard that is alone has lost them, and tells so. In a group others have them: the leader
//! tells nobody anything, whoever wants them waits, and it is to lead no more.

use sennit_engine::Place;
use sennit_journal::Position;
use sennit_model::PartitionId;

use crate::shard::Shard;

impl Shard {
    /// The position of the first batch that this replica of a group could not read when it delivered, if there was one.
    /// It may vote and acknowledge: it has forgotten nothing that it acknowledged without knowing it.
    #[must_use]
    pub fn damage(&self) -> Option<Position> {
        self.damage
    }

    /// A batch cannot be read, in a group. Returns whether it is kept where it was looked for.
    pub(crate) fn note_damage(&mut self, partition: PartitionId, place: Place) -> bool {
        let is_kept = self.engine.keeps(partition, place);
        if is_kept {
            self.counters.damaged_batches += u64::from(self.damage.is_none());
            self.damage.get_or_insert(Position(place.position));
        }
        is_kept
    }
}
