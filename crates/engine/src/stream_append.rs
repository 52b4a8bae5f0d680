//! Appends to streams and their answers: one append, or several that happen to all of their streams or to none. All
//! are admitted before anything is appended. It knows no frames.

use sennit_model::{PartitionId, ProducerStamp, Timestamp};

use crate::{
    admission::Refused,
    append::Append,
    command::Origin,
    engine::{Engine, Journal, Outbox},
    stream::{StreamAnswer, StreamAppend, StreamAppended, StreamNote, StreamRefusal},
};

/// One of several appends, and its answer if it was done before.
type Each = (PartitionId, StreamAppend, Option<StreamAppended>);

impl Engine {
    /// Appends to a stream; says whether the answer need not wait for the commit.
    pub(crate) fn append_to_stream(
        &mut self,
        id: PartitionId,
        append: StreamAppend,
        now: Timestamp,
        journal: &mut impl Journal,
    ) -> Result<(StreamAppended, bool), Refused> {
        if let Some(appended) = self.admit_append(id, &append, now)? {
            self.touch_stream(id, now);
            return Ok((appended, false));
        }
        let appended = self.appended(id, &append);
        let has_content = append.content.is_some();
        let (_, has_reserved) = self.append(append_of(id, append), now, journal)?;
        let is_early = has_content && self.confirms_now(id, has_reserved, journal).0;
        Ok((appended, is_early))
    }

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
        let admitted = match self.admit_together(appends, now) {
            Ok(admitted) => admitted,
            Err((which, Refused::Stream(refusal))) => {
                return out.answer(origin, StreamAnswer::RefusedTogether { which, refusal }, false);
            }
            Err((_, refused)) => return refused.tell(origin, out),
        };
        let (mut records, mut became) = (Vec::new(), Vec::with_capacity(admitted.len()));
        for (id, append, known) in admitted {
            if let Some(appended) = known {
                self.touch_stream(id, now);
                became.push(appended);
                continue;
            }
            // All of them are durable: no offsets are reserved.
            became.push(self.appended(id, &append));
            let first = self.end_of(id).unwrap_or_default();
            records.extend(append_of(id, append).records(first, now));
        }
        self.commit_together(records.into_iter(), journal);
        out.answer(origin, StreamAnswer::AppendedTogether(became), false);
    }

    /// Admits each, the first that is refused refuses all. Appends to one stream do not change what
    /// may be done with another, so that none has to be done before the next is admitted.
    fn admit_together(
        &self,
        appends: Vec<(PartitionId, StreamAppend)>,
        now: Timestamp,
    ) -> Result<Vec<Each>, (usize, Refused)> {
        let group = |id| self.streams.get(id).and_then(|stream| stream.settings.group.as_ref());
        let first = appends.first().and_then(|(id, _)| group(*id));
        let mut admitted: Vec<Each> = Vec::with_capacity(appends.len());
        for (which, (id, append)) in appends.into_iter().enumerate() {
            self.living(id, now, false).map_err(|refusal| (which, refusal.into()))?;
            if group(id).is_none() || group(id) != first {
                return Err((which, StreamRefusal::OtherGroup.into()));
            }
            if admitted.iter().any(|(other, ..)| *other == id) {
                return Err((which, StreamRefusal::Repeated.into()));
            }
            let known = self.admit_append(id, &append, now).map_err(|why| (which, why))?;
            admitted.push((id, append, known));
        }
        // Appends of one command were committed together: a producer that sends them again finds all of them.
        let was_before = |each: &Each| match &each.2 {
            Some(appended) => appended.is_duplicate.then_some(true),
            None => Some(false),
        };
        let mut known =
            admitted.iter().enumerate().filter_map(|(at, each)| Some((at, was_before(each)?)));
        if let Some((_, first)) = known.next()
            && let Some((which, _)) = known.find(|(_, other)| *other != first)
        {
            return Err((which, StreamRefusal::PartlyAppended.into()));
        }
        Ok(admitted)
    }

    /// The answer to an append that is done next.
    fn appended(&self, id: PartitionId, append: &StreamAppend) -> StreamAppended {
        let count = append.content.as_ref().map_or(0, |content| u64::from(content.count()));
        StreamAppended {
            next: self.end_of(id).unwrap_or_default().plus(count),
            is_closed: append.note.closes,
            is_duplicate: false,
            sequence: append.note.producer.as_ref().map(|producer| producer.sequence),
        }
    }
}

/// An append to a stream as any other.
pub(crate) fn append_of(partition: PartitionId, append: StreamAppend) -> Append {
    let StreamAppend { content, note, .. } = append;
    let note = (note != StreamNote::default()).then(|| Box::new(note));
    Append { partition, content, producer: ProducerStamp::default(), note }
}
