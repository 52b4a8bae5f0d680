//! Pages of delayed messages as bodies of the native protocol. The token of a page is the position of its last message:
//! due time, partition and offset, with dots between.

use sennit_model::{Offset, PartitionIndex, Timestamp};
use sennit_protocol::control;

use crate::broker::control_request::{DelayedOfPartition, DelayedPage, DelayedPosition};

pub(super) fn delayed_list(page: &DelayedPage) -> control::DelayedList {
    let run = |of: &DelayedOfPartition| control::DelayedRun {
        partition: of.partition.0,
        start: of.run.range.start.0,
        end: of.run.range.end.0,
        due_ms: of.run.due.0,
    };
    control::DelayedList {
        runs: page.runs.iter().map(run).collect(),
        next_page_token: page.next_after.map(token).unwrap_or_default(),
    }
}

fn token(position: DelayedPosition) -> String {
    let DelayedPosition { due, partition, offset } = position;
    format!("{}.{}.{}", due.0, partition.0, offset.0)
}

/// The position that a token spells; `None` if it is none.
pub(super) fn position(token: &str) -> Option<DelayedPosition> {
    let mut parts = token.split('.');
    let due = Timestamp(parts.next()?.parse().ok()?);
    let partition = PartitionIndex(parts.next()?.parse().ok()?);
    let offset = Offset(parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(DelayedPosition { due, partition, offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_the_position_of_which_it_was_made() {
        let (due, partition, offset) = (Timestamp(7), PartitionIndex(u32::MAX), Offset(u64::MAX));
        let at = DelayedPosition { due, partition, offset };
        assert_eq!(position(&token(at)), Some(at));
        for wrong in ["7", "7.8", "7.8.9.1", "7.4294967296.9", "x.8.9", "7.8.", "-7.8.9"] {
            assert_eq!(position(wrong), None, "{wrong}");
        }
    }
}
