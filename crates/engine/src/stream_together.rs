//! What is appended to several streams at once: to all of them or to none. All is decided before
//! anything is appended; the records lie in one frame. It knows no frames.

use sennit_model::{PartitionId, Timestamp};

use crate::{
    command::Origin,
    engine::{Engine, Journal, Outbox},
    record::Record,
    stream::{StreamAnswer, StreamAppend, StreamAppended, StreamRefusal},
    stream_decide::{Decided, NotAppended},
};

/// What one of several appends comes to.
type Each = (PartitionId, StreamAppend, Decided);

impl Engine {
    pub(crate) fn append_together(
        &mut self,
        origin: Origin,
        appends: Vec<(PartitionId, StreamAppend)>,
        now: Timestamp,
        journal: &mut impl Journal,
        out: &mut Outbox,
    ) {
        for (id, _) in &appends {
            self.end_if_over(*id, now, journal);
        }
        let answer = match self.decide_together(appends, now) {
            Ok(decided) => {
                StreamAnswer::AppendedTogether(self.append_decided(decided, now, journal))
            }
            Err((which, NotAppended::Stream(refusal))) => {
                StreamAnswer::RefusedTogether { which, refusal }
            }
            Err((_, NotAppended::Topic(refusal))) => return out.refuse(origin, refusal),
        };
        out.answer(origin, answer, false);
    }

    /// Decides each, the first that is refused refuses all. Appends to one stream do not change what
    /// may be done with another, so that none has to be done before the next is decided.
    fn decide_together(
        &self,
        appends: Vec<(PartitionId, StreamAppend)>,
        now: Timestamp,
    ) -> Result<Vec<Each>, (usize, NotAppended)> {
        let first = appends.first().map(|(id, _)| *id);
        let mut decided: Vec<Each> = Vec::with_capacity(appends.len());
        for (which, (id, append)) in appends.into_iter().enumerate() {
            self.living(id, now, false).map_err(|refusal| (which, refusal.into()))?;
            let group = self.stream_settings(id).group.clone();
            if group.is_none()
                || group != first.and_then(|id| self.stream_settings(id).group.clone())
            {
                return Err((which, StreamRefusal::OtherGroup.into()));
            }
            if decided.iter().any(|(other, ..)| *other == id) {
                return Err((which, StreamRefusal::Repeated.into()));
            }
            let comes_to = self.decide_append(id, &append, now).map_err(|why| (which, why))?;
            decided.push((id, append, comes_to));
        }
        // What was appended together was appended whole: who sends it again finds all of it.
        let was_before = |each: &Each| match &each.2 {
            Decided::Already(appended) => appended.is_duplicate.then_some(true),
            Decided::New => Some(false),
        };
        let mut known =
            decided.iter().enumerate().filter_map(|(at, each)| Some((at, was_before(each)?)));
        if let Some((_, first)) = known.next()
            && let Some((which, _)) = known.find(|(_, other)| *other != first)
        {
            return Err((which, StreamRefusal::PartlyAppended.into()));
        }
        Ok(decided)
    }

    /// Appends what was decided, and says what became of each.
    fn append_decided(
        &mut self,
        decided: Vec<Each>,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Vec<StreamAppended> {
        let mut records = Vec::with_capacity(decided.len());
        let mut became = Vec::with_capacity(decided.len());
        for (id, append, comes_to) in decided {
            became.push(match comes_to {
                Decided::Already(appended) => {
                    self.touch_stream(id, now);
                    appended
                }
                Decided::New => {
                    let StreamAppend { content, note, .. } = append;
                    let count = content.as_ref().map_or(0, |content| u64::from(content.count()));
                    let appended = StreamAppended {
                        next: self.end_of(id).unwrap_or_default().plus(count),
                        is_closed: note.closes,
                        is_duplicate: false,
                        sequence: note.producer.as_ref().map(|producer| producer.sequence),
                    };
                    records.append(&mut self.append_records(id, content, note, now));
                    appended
                }
            });
        }
        self.commit_together(&records, journal);
        became
    }

    /// Commits records that are all there after a crash, or none: they lie in one frame, if they are
    /// written at all.
    pub(crate) fn commit_together(&mut self, records: &[Record], journal: &mut impl Journal) {
        let is_written = |record: &Record| self.memory.of_record(record).is_none();
        if records.len() > 1 && records.iter().all(is_written) {
            journal.hold_together(records);
        }
        for record in records {
            self.commit(record, journal);
        }
    }
}
