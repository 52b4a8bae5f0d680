//! The oracle's model of atomic appends: all appends are one change, or one refusal refuses all of them. Written from
//! docs/reference/http-streams.md.

use std::collections::BTreeMap;

use sennit_engine::{Origin, StreamAnswer, StreamAppend, StreamAppended, StreamRefusal};
use sennit_model::{PartitionId, Timestamp};

use super::{
    Oracle,
    stream::{RequestTime, StreamModel},
    streams::{ExpectedAnswer, Streams},
};

impl Oracle {
    /// Applies an atomic append, and predicts its answer.
    pub(super) fn expect_atomic_append(
        &mut self,
        origin: Origin,
        appends: &[(PartitionId, StreamAppend)],
        now: Timestamp,
    ) {
        let turn = self.turn;
        let Streams { by_id, answers, changes, .. } = &mut self.streams;
        for (id, _) in appends {
            let model = by_id.entry(*id).or_insert_with(StreamModel::new);
            model.expire(&mut RequestTime { turn, changes, now });
        }
        let answer = match known_outcomes(by_id, appends) {
            Ok(known_outcomes) => {
                // The same change in all streams: each counts it as the next.
                let before = *changes;
                *changes += 1;
                let mut apply = |((id, append), known): (&(_, _), _)| {
                    let time = &mut RequestTime { turn, changes: &mut before.clone(), now };
                    by_id.get_mut(id).map(|model| model.apply_append(append, known, time))
                };
                let appended = appends.iter().zip(known_outcomes).filter_map(&mut apply).collect();
                StreamAnswer::AppendedTogether(appended)
            }
            Err((which, refusal)) => StreamAnswer::RefusedTogether { which, refusal },
        };
        let ids: Vec<PartitionId> = appends.iter().map(|(id, _)| *id).collect();
        let models = ids.iter().filter_map(|id| by_id.get(id));
        let turn = models.map(StreamModel::latest_turn).max().unwrap_or(0);
        answers.insert(origin.request, ExpectedAnswer { ids, answer, turn });
    }
}

/// The known outcome of each append, in order; or the index of the refused append, and its refusal.
fn known_outcomes(
    by_id: &BTreeMap<PartitionId, StreamModel>,
    appends: &[(PartitionId, StreamAppend)],
) -> Result<Vec<Option<StreamAppended>>, (usize, StreamRefusal)> {
    let group_of = |id| by_id.get(id).and_then(|model| model.settings.group.as_ref());
    let mut outcomes = Vec::new();
    for (which, (id, append)) in appends.iter().enumerate() {
        let Some(model) = by_id.get(id) else { return Err((which, StreamRefusal::Unknown)) };
        if let Some(refusal) = model.absence() {
            return Err((which, refusal));
        }
        if group_of(id).is_none() || group_of(id) != group_of(&appends[0].0) {
            return Err((which, StreamRefusal::OtherGroup));
        }
        if appends[..which].iter().any(|(other, _)| other == id) {
            return Err((which, StreamRefusal::Repeated));
        }
        outcomes.push(model.known_outcome(append).map_err(|refusal| (which, refusal))?);
    }
    // An append that closes a closed stream is neither new nor a duplicate.
    let is_duplicate = |outcome: &Option<StreamAppended>| match outcome {
        Some(known) => known.is_duplicate.then_some(true),
        None => Some(false),
    };
    let first = outcomes.iter().find_map(is_duplicate);
    let differs = |outcome: &_| is_duplicate(outcome).is_some_and(|other| Some(other) != first);
    match outcomes.iter().position(differs) {
        Some(which) => Err((which, StreamRefusal::PartlyAppended)),
        None => Ok(outcomes),
    }
}
