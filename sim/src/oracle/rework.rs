//! The oracle's rules for walks of the workbench: what is cancelled is delivered no more, what is moved is in its
//! destination and no longer where it was.

use sennit_engine::{Destination, PartitionCommand, Walk, WalkPage, WalkVerb};
use sennit_model::{PartitionId, Timestamp};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    Violation,
    copies::{Copies, Copy, Existence, PendingWalk},
};
use crate::workbench_topics;

impl PendingWalk {
    fn selects(&self, offset: Option<u64>) -> bool {
        self.offsets.is_empty() || offset.is_none_or(|offset| self.offsets.contains(&offset))
    }

    /// Whether a message is perhaps one that the walk selects.
    fn may_select(&self, copy: &Copy) -> bool {
        let is_here = copy.place.0 == self.source && self.selects(copy.place.1);
        copy.exists != Existence::No
            && !copy.is_gone
            && (is_here || copy.may_go.contains(&self.source))
    }
}

impl Copies {
    /// Notes a walk that changes something; false if the command is none.
    pub(super) fn begin_walk(
        &mut self,
        request: u64,
        source: PartitionId,
        command: &PartitionCommand,
    ) -> bool {
        let PartitionCommand::Walk(walk) = command else { return false };
        let (to, payload) = match &walk.verb {
            WalkVerb::Cancel => (None, None),
            WalkVerb::Requeue(requeue) => {
                let to = match requeue.to {
                    Destination::Source => workbench_topics::source_of(source),
                    Destination::DeadLetters => workbench_topics::dead_letters_of(source),
                    Destination::Topic { topic, .. } => Some(PartitionId { topic, ..source }),
                };
                let payload = requeue.edit.as_ref().and_then(|edit| edit.payload.as_deref());
                (to, payload.map(xxh3_64))
            }
            _ => return false,
        };
        let Walk { selection, dry_run, .. } = &**walk;
        let ranges = selection.offsets.iter();
        let mut pending = PendingWalk {
            source,
            to,
            dry_run: *dry_run,
            offsets: ranges.flat_map(|range| range.start.0..range.end.0).collect(),
            there: Vec::new(),
            bound: Vec::new(),
            doubtful: Vec::new(),
            payload,
            turn: self.turn,
        };
        for (&number, copy) in self.by_number.iter_mut().filter(|_| !dry_run) {
            if !pending.may_select(copy) {
                continue;
            }
            let is_certain = copy.exists == Existence::Yes
                && copy.place.0 == source
                && pending.selects(copy.place.1)
                && (pending.offsets.is_empty() || copy.place.1.is_some());
            if is_certain {
                pending.there.push((number, copy.place.1));
                pending.bound.push(copy.may_go.is_empty() && copy.doubts.is_empty());
            }
            match to {
                Some(to) => drop(copy.may_go.insert(to)),
                None => {
                    copy.doubts.insert(request);
                    pending.doubtful.push(number);
                }
            }
            copy.payloads.extend(payload);
        }
        self.walks.insert(request, pending);
        true
    }

    /// Checks the answer to a walk: what it has done is certain from now on.
    pub(super) fn end_walk(
        &mut self,
        request: u64,
        page: &WalkPage,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let Some(walk) = self.walks.remove(&request) else { return Ok(()) };
        if walk.dry_run {
            return Ok(());
        }
        if page.done == 0 {
            for number in walk.doubtful {
                if let Some(copy) = self.by_number.get_mut(&number) {
                    copy.doubts.remove(&request);
                }
            }
            return Ok(());
        }
        self.must_be_durable(walk.turn, page)?;
        let names_all = !walk.offsets.is_empty() && page.done == walk.offsets.len() as u64;
        let left_alone = page.leased + page.damaged + page.homeless;
        let is_whole = page.next.is_none() && page.refusal.is_none() && left_alone == 0;
        // An undo means only what a redrive has published.
        let takes_all = walk.offsets.is_empty()
            && is_whole
            && (walk.to.is_none() || walk.to != workbench_topics::dead_letters_of(walk.source));
        for ((number, offset), is_bound) in walk.there.into_iter().zip(walk.bound) {
            if !(names_all || takes_all && is_bound) {
                continue;
            }
            let Some(copy) = self.by_number.get_mut(&number) else { continue };
            if copy.place != (walk.source, offset) {
                // It was seen elsewhere since.
                continue;
            }
            if copy.is_leased(now) {
                let detail = format!("message {number}: {copy:?}");
                return Err(Violation::new("I5 a leased message is left alone", detail));
            }
            copy.left.extend(offset.map(|offset| (walk.source, offset)));
            match walk.to {
                None => copy.is_gone = true,
                Some(to) => {
                    copy.place = (to, None);
                    copy.payloads = walk.payload.map_or_else(
                        || std::mem::take(&mut copy.payloads),
                        |payload| vec![payload],
                    );
                }
            }
        }
        Ok(())
    }
}
