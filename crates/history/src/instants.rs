//! Whether the operations of a partition can each have been done at one instant between their begin and their end, in
//! the order of the log. In a log these instants rise with the offsets: a message was appended after all below it, and
//! an end was read after what lies below it was appended and before what lies at it was. So it is enough that nobody
//! knew of an offset before something lower had begun. One pass over the log decides it.

use crate::{
    log::{EndSaid, Log},
    violation::{Rule, Violation, Witness, WitnessKind},
};

/// An instant before which nothing higher in the log can have been done.
#[derive(Clone, Copy)]
struct Bound {
    begun_ns: u64,
    by: Witness,
}

/// Finds operations that no order of instants explains. Each operation that began too late is told once.
pub(crate) fn judge(partition: u32, log: &Log, violations: &mut Vec<Violation>) {
    let mut pass = Pass { partition, bound: None, told: None, violations };
    let mut ends = log.ends.chunk_by(|a, b| a.end == b.end).peekable();
    for slot in &log.slots {
        while let Some(said) = ends.next_if(|said| said[0].end <= slot.offset) {
            pass.ends(said);
        }
        pass.raise(Bound { begun_ns: slot.begun_ns, by: slot.publish });
        pass.compare(slot.offset, slot.known_ns, slot.known_by);
    }
    ends.for_each(|said| pass.ends(said));
}

struct Pass<'a> {
    partition: u32,
    /// The latest begin of all that lies lower.
    bound: Option<Bound>,
    /// The operation that was told last.
    told: Option<Witness>,
    violations: &'a mut Vec<Violation>,
}

impl Pass<'_> {
    /// All that said the same end: among these there is no order.
    fn ends(&mut self, said: &[EndSaid]) {
        for one in said {
            self.compare(one.end, one.ended_ns, one.witness);
        }
        for one in said {
            self.raise(Bound { begun_ns: one.begun_ns, by: one.witness });
        }
    }

    fn raise(&mut self, bound: Bound) {
        if self.bound.is_none_or(|before| before.begun_ns < bound.begun_ns) {
            self.bound = Some(bound);
        }
    }

    /// `known_by` knew of all below `offset`, and if it is no end, of `offset` as well.
    fn compare(&mut self, offset: u64, known_ns: u64, known_by: Witness) {
        let Some(bound) = self.bound.filter(|bound| bound.begun_ns > known_ns) else { return };
        if self.told.replace(bound.by) == Some(bound.by) {
            return;
        }
        use WitnessKind::{Delivered, Ended, Published, Read};
        let rule = match (bound.by.kind, known_by.kind) {
            (Published, Published) => Rule::OrderBroken,
            (Published, Read | Delivered | Ended) => Rule::SeenTooSoon,
            (_, Ended) => Rule::EndWentBack,
            (_, Published | Read | Delivered) => Rule::EndTooLow,
        };
        let says =
            format!("{known_by} had ended before {}, which lies there or lower, began", bound.by);
        self.violations.push(Violation::at(rule, self.partition, offset, says));
    }
}
