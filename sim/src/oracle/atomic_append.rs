//! The oracle's model of atomic appends: all appends are done as one change, or the first that is refused refuses
//! all. Written from docs/reference/http-streams.md.

use std::collections::BTreeMap;

use sennit_engine::{Origin, StreamAnswer, StreamAppend, StreamAppended, StreamRefusal};
use sennit_model::{PartitionId, Timestamp};

use super::{
    Oracle,
    stream::{AskedAt, StreamModel},
    streams::{ExpectedAnswer, Streams},
};

impl Oracle {
    /// Something is to be appended to several streams.
    pub(super) fn together_asked(
        &mut self,
        origin: Origin,
        appends: &[(PartitionId, StreamAppend)],
        now: Timestamp,
    ) {
        let turn = self.turn;
        let Streams { by_id, asked, changes, .. } = &mut self.streams;
        for (id, _) in appends {
            let model = by_id.entry(*id).or_insert_with(StreamModel::new);
            model.passes(&mut AskedAt { turn, changes, now });
        }
        let answer = match decide(by_id, appends) {
            Ok(outcome_of) => {
                // One change of all of them: each counts it as the next.
                let before = *changes;
                *changes += 1;
                let mut take = |((id, append), known): (&(_, _), _)| {
                    let when = &mut AskedAt { turn, changes: &mut before.clone(), now };
                    by_id.get_mut(id).map(|model| model.take(append, known, when))
                };
                let became = appends.iter().zip(outcome_of).filter_map(&mut take).collect();
                StreamAnswer::AppendedTogether(became)
            }
            Err((which, refusal)) => StreamAnswer::RefusedTogether { which, refusal },
        };
        let ids: Vec<PartitionId> = appends.iter().map(|(id, _)| *id).collect();
        let models = ids.iter().filter_map(|id| by_id.get(id));
        let turn = models.map(StreamModel::stands_on).max().unwrap_or(0);
        asked.insert(origin.request, ExpectedAnswer { ids, answer, turn });
    }
}

/// What each comes to, in their order; or which is refused, and why.
fn decide(
    by_id: &BTreeMap<PartitionId, StreamModel>,
    appends: &[(PartitionId, StreamAppend)],
) -> Result<Vec<Option<StreamAppended>>, (usize, StreamRefusal)> {
    let group_of = |id| by_id.get(id).and_then(|model| model.settings.group.as_ref());
    let mut outcome_of = Vec::new();
    for (which, (id, append)) in appends.iter().enumerate() {
        let Some(model) = by_id.get(id) else { return Err((which, StreamRefusal::Unknown)) };
        if let Some(gone) = model.gone() {
            return Err((which, gone));
        }
        if group_of(id).is_none() || group_of(id) != group_of(&appends[0].0) {
            return Err((which, StreamRefusal::OtherGroup));
        }
        if appends[..which].iter().any(|(other, _)| other == id) {
            return Err((which, StreamRefusal::Repeated));
        }
        outcome_of.push(model.outcome_of(append).map_err(|refusal| (which, refusal))?);
    }
    // To close what is closed is neither new nor known.
    let is_known = |known: &Option<StreamAppended>| match known {
        Some(known) => known.is_duplicate.then_some(true),
        None => Some(false),
    };
    let first = outcome_of.iter().find_map(is_known);
    let differs = |known: &_| is_known(known).is_some_and(|is_known| Some(is_known) != first);
    match outcome_of.iter().position(differs) {
        Some(which) => Err((which, StreamRefusal::PartlyAppended)),
        None => Ok(outcome_of),
    }
}
