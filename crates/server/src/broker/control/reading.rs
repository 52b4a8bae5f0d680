//! Requests about reading by offset: where a reader begins, and the cursors of a topic. It does
//! not deliver anything, and knows no protocol.

use sennit_engine::{CursorClaim, CursorSetter, PartitionCommand, SessionId, Topic};
use sennit_model::{CursorName, Offset, OffsetRange, ReadFrom, TopicName};

use super::{Control, cursor_list::cursor_list, done, gather, place_of};
use crate::{
    broker::control_request::{
        ControlAnswer, ControlRefusal, PartitionOffset, Read, ReaderStart, SetCursor,
    },
    runtime::shard_answers::Answer,
};

impl Control {
    /// Says where a reader begins. It begins there whatever happens until its shards hear of it.
    pub(super) async fn read(&self, read: Read) -> Result<ControlAnswer, ControlRefusal> {
        let Read { topic: name, topic_id, from, positions: requested, cursor, take_over } = read;
        self.wait_for_changes(&name).await;
        let topic = self.topic_named(&name)?;
        if topic_id.is_some_and(|id| id != topic.id()) {
            return Err(ControlRefusal::UnknownTopic(name));
        }
        // What it is asked here claims nothing yet.
        let cursor = cursor.map(|name| CursorClaim { name, take_over, number: 0 });
        let positions = positions(&topic, &requested)?;
        let asked = self.ask_partitions(&topic, |index| match positions[index.0 as usize] {
            Some(position) => PartitionCommand::Locate(ReadFrom::Offset(position), None),
            None => PartitionCommand::Locate(from, cursor.clone()),
        });
        let ranges = gather(asked).await?.into_iter().map(|answer| match answer {
            Answer::Located { first, end } => Ok(OffsetRange { start: first, end }),
            _ => Err(ControlRefusal::WrongAnswer),
        });
        let ranges = ranges.collect::<Result<_, _>>()?;
        Ok(ControlAnswer::ReaderStart(ReaderStart { place: place_of(&topic), ranges }))
    }

    pub(super) async fn set_cursor(
        &self,
        session: SessionId,
        set: SetCursor,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(&set.topic)?;
        let (subscription, take_over) = (set.subscription, set.take_over);
        let by = CursorSetter { session, subscription, take_over };
        let positions = positions(&topic, &set.positions)?;
        let asked = self.ask_partitions_that(&topic, |index| {
            let offset = positions[index.0 as usize]?;
            Some(PartitionCommand::SetCursor(set.cursor.clone(), offset, by))
        });
        gather(asked).await?;
        Ok(done(topic.id(), None, false))
    }

    pub(super) async fn trim_topic(
        &self,
        name: &TopicName,
        requested: &[PartitionOffset],
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(name)?;
        let positions = positions(&topic, requested)?;
        let asked = self.ask_partitions_that(&topic, |index| {
            positions[index.0 as usize].map(PartitionCommand::Trim)
        });
        gather(asked).await?;
        Ok(done(topic.id(), None, false))
    }

    pub(super) async fn delete_cursor(
        &self,
        name: &TopicName,
        cursor: CursorName,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(name)?;
        let command = PartitionCommand::DeleteCursor(cursor.clone());
        let answers = self.tell_partitions(&topic, &command).await?;
        if !answers.iter().any(|answer| matches!(answer, Answer::Done { created: true, .. })) {
            return Err(ControlRefusal::UnknownCursor { topic: name.clone(), cursor });
        }
        Ok(done(topic.id(), None, false))
    }

    pub(super) async fn list_cursors(
        &self,
        name: &TopicName,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let topic = self.topic_named(name)?;
        let answers = self.tell_partitions(&topic, &PartitionCommand::ListCursors).await?;
        cursor_list(answers).map(ControlAnswer::Cursors).ok_or(ControlRefusal::WrongAnswer)
    }
}

/// An offset for each partition that `requested` names, by partition.
fn positions(
    topic: &Topic,
    requested: &[PartitionOffset],
) -> Result<Vec<Option<Offset>>, ControlRefusal> {
    let mut positions = vec![None; topic.config().partitions as usize];
    for &PartitionOffset { partition, offset } in requested {
        let held = positions.get_mut(partition.0 as usize);
        let unknown = || ControlRefusal::UnknownTopic(topic.created.name.clone());
        *held.ok_or_else(unknown)? = Some(offset);
    }
    Ok(positions)
}
