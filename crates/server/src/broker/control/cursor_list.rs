//! The named cursors of a topic, gathered from the answers of its partitions. It knows no protocol.

use std::collections::BTreeMap;

use sennit_model::PartitionIndex;

use crate::{
    broker::control_request::{CursorPositions, PartitionOffset},
    runtime::shard_answers::Answer,
};

/// All cursors by name, of the answers by partition; `None` if one answers another question.
pub(super) fn cursor_list(answers: Vec<Answer>) -> Option<Vec<CursorPositions>> {
    let mut cursors = BTreeMap::<_, Vec<_>>::new();
    for (partition, answer) in (0..).map(PartitionIndex).zip(answers) {
        let Answer::Cursors(held) = answer else { return None };
        for (name, offset) in held {
            cursors.entry(name).or_default().push(PartitionOffset { partition, offset });
        }
    }
    let cursors = cursors.into_iter();
    Some(cursors.map(|(name, positions)| CursorPositions { name, positions }).collect())
}
