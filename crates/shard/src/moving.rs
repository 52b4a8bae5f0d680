//! When the shard has something moved, and what it makes of it. The moving itself is the
//! `mover`'s; that a batch lies elsewhere is a record like any other.

use std::collections::BTreeSet;

use sennit_journal::{Fault, Home, Position};
use sennit_model::Timestamp;

use crate::{
    mover::{Held, Keeping, MoveError, Moved},
    moves::{FOR_GOOD, MOVE_REST, MOVES_PER_TURN, Moves},
    packs::pack_of,
    shard::Shard,
};

/// On a short disk a segment is emptied of which so much is live at most: the half.
const THIN_SEGMENT: u64 = 2;

impl Shard {
    /// What is to be emptied next, if anything is: the oldest segment when the journal is long, or the
    /// one with the least in it when the disk is short; else a pack of which little is live. Where something is to be compacted that has its turn
    /// after each. One at a time: each is answered with [`Shard::moved`] or
    /// [`Shard::move_failed`] before there is another.
    pub fn next_move(&mut self, now: Timestamp) -> Option<Home> {
        self.moves.left.retain(|_, until| now < *until);
        let others_wait = self.moves.was_move && self.is_to_compact() && !self.is_journal_long();
        if self.fenced || !self.is_resting() || others_wait {
            return None;
        }
        let Moves { packs, left, journal_segments, .. } = &self.moves;
        let is_left = |home| left.contains_key(&home);
        let (segments, may) = (&self.writer.segments, |segment| !is_left(Home::Segment(segment)));
        let segment = match self.is_short() {
            // Each comes free, and its pack takes less.
            true => segments.thinnest(segments.segment_bytes() / THIN_SEGMENT, may),
            false => segments.to_empty(*journal_segments, may),
        };
        let home = match segment {
            Some(segment) => Home::Segment(segment),
            None => Home::Pack(packs.thinnest(|pack| !is_left(Home::Pack(pack)))?),
        };
        self.moves.under_way = Some(home);
        self.moves.was_move = true;
        Some(home)
    }

    /// Whether nothing is being moved or compacted, and what was is committed.
    pub(crate) fn is_resting(&self) -> bool {
        let Moves { under_way, pending, recorded, .. } = &self.moves;
        let is_still = under_way.is_none() && pending.is_empty() && self.compacting.is_resting();
        is_still && *recorded <= self.committed
    }

    /// Whether the journal is much longer than it should be: emptying has fallen behind.
    #[must_use]
    pub fn is_journal_long(&self) -> bool {
        self.segment_count() > 2 * self.moves.journal_segments
    }

    /// Keeps of `held` what is wanted, and says how long it is to be kept.
    pub fn retain_wanted(&self, held: &mut Vec<Held>) {
        held.retain_mut(|held| {
            let wanted = self.engine.is_live(held.partition, held.first, held.place);
            if wanted {
                held.keeping = Keeping::of(self.engine.kept_for(held.partition));
            }
            wanted
        });
    }

    /// What was to be emptied was copied: the copies are where the batches lie from now on.
    pub fn moved(&mut self, moved: Moved, now: Timestamp) {
        let home = self.moves.under_way.take();
        if self.fenced {
            return;
        }
        if moved.batches.is_empty() {
            // What it holds goes with a commit, or is not to be found in it: to ask again is in vain.
            self.moves.left.extend(home.map(|home| (home, FOR_GOOD)));
        }
        for pack in moved.packs {
            self.moves.packs.added(pack);
        }
        // All at once: a pack must not look empty while its batches are recorded one by one.
        for batch in &moved.batches {
            if let Some(pack) = pack_of(batch.place.position) {
                self.moves.packs.written(pack, batch.place.bytes);
            }
        }
        self.moves.pending.extend(moved.batches);
        self.record_moves();
        self.finish_turn(now);
    }

    /// What was to be emptied could not be read or copied. It is left as it is: where only room was
    /// missing for a while, else until the next start.
    pub fn move_failed(&mut self, home: Home, error: &MoveError, now: Timestamp) {
        self.moves.under_way = None;
        let until = match error {
            MoveError::Journal(Fault::StorageFull { .. }) => now.plus(MOVE_REST),
            _ => FOR_GOOD,
        };
        self.moves.left.insert(home, until);
    }

    /// When [`Shard::next_move`] is to be asked again if nothing else is done until then.
    #[must_use]
    pub fn next_move_at(&self) -> Option<Timestamp> {
        self.moves.left.values().copied().min().filter(|&until| until != FOR_GOOD)
    }

    /// Records some of the moves that wait.
    pub(crate) fn record_moves(&mut self) {
        let count = self.moves.pending.len().min(MOVES_PER_TURN);
        let mut batches = self.moves.pending.drain(..count).peekable();
        let mut of_partition = Vec::new();
        while let Some(batch) = batches.next() {
            of_partition.push((batch.first, batch.place));
            if batches.peek().is_none_or(|next| next.partition != batch.partition) {
                self.engine.move_batches(batch.partition, &of_partition, &mut self.writer);
                of_partition.clear();
            }
        }
        if count > 0 {
            self.moves.recorded = self.writer.end();
        }
    }

    /// Appends the packs that are needed no more to `out`: their files may go.
    pub fn take_released_packs(&mut self, out: &mut Vec<u32>) {
        let start = out.len();
        self.moves.packs.take_released(out);
        for &pack in &out[start..] {
            self.moves.left.remove(&Home::Pack(pack));
            let begin = Position::of_pack(pack, 0);
            self.reads.forget(begin, begin.plus(1 << 32));
        }
    }

    /// The packs to which the state refers.
    #[must_use]
    pub fn packs_in_use(&self) -> BTreeSet<u32> {
        self.moves.packs.numbers().collect()
    }

    /// How many packs are in use, and their bytes: of files, and of live batches.
    #[must_use]
    pub fn pack_usage(&self) -> (usize, u64, u64) {
        self.moves.packs.count()
    }
}
