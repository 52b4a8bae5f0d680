//! The named cursors of a topic, gathered from what its partitions say.

use std::collections::BTreeMap;

use sennit_protocol::control;

use crate::answers::Answer;

/// All cursors by name, of the answers by partition; `None` if one answers another question.
pub(crate) fn cursor_list(answers: Vec<Answer>) -> Option<control::CursorList> {
    let mut cursors = BTreeMap::<_, Vec<_>>::new();
    for (partition, answer) in (0..).zip(answers) {
        let Answer::Cursors(held) = answer else { return None };
        for (name, offset) in held {
            let position = control::ReadPosition { partition, offset: offset.0 };
            cursors.entry(name).or_default().push(position);
        }
    }
    let cursors = cursors
        .into_iter()
        .map(|(name, positions)| control::Cursor { name: name.to_string(), positions });
    Some(control::CursorList { cursors: cursors.collect() })
}
