//! What is asked about reading by offset: where a reader begins, and the cursors of a topic. It does
//! not deliver anything.
#![expect(clippy::result_large_err, reason = "a failure is rare, and leaves at once as a reply")]

use sennit_engine::{CursorClaim, CursorSetter, PartitionCommand, SessionId, Topic};
use sennit_model::{CursorName, GroupId, NameError, Offset, ReadFrom};
use sennit_protocol::{ErrorCode, Reply, control};

use crate::{
    answers::Answer,
    control::{
        Control, ControlReply, Failure, done, gather, unknown_topic, with_topic, wrong_answer,
    },
    cursor_list::cursor_list,
};

impl Control {
    /// Says where a reader begins. It begins there whatever happens until its shards hear of it.
    pub(crate) async fn read(&self, body: control::Read) -> Result<ControlReply, Failure> {
        self.wait_for_changes(&body.topic).await;
        let topic = self.topic_named(&body.topic)?;
        if body.topic_id.is_some_and(|id| id != topic.id().0) {
            return Err(unknown_topic(&body.topic));
        }
        let from = body.read_from();
        let cursor = body.cursor.as_deref().map(cursor_name).transpose()?;
        let take_over = body.take_over;
        // What it is asked here claims nothing yet.
        let cursor = cursor.map(|name| CursorClaim { name, take_over, number: 0 });
        let positions = positions(&topic, &body.topic, &body.positions)?;
        let asked = self.ask_partitions(&topic, |index| match positions[index.0 as usize] {
            Some(position) => PartitionCommand::Locate(ReadFrom::Offset(position), None),
            None => PartitionCommand::Locate(from, cursor.clone()),
        });
        let ranges = gather(asked).await?.into_iter().map(|answer| match answer {
            Answer::Located { first, end } => Ok(control::ReadRange { first: first.0, end: end.0 }),
            _ => Err(wrong_answer()),
        });
        let subscribed = control::Subscribed {
            subscription: body.subscription,
            topic_id: topic.id().0,
            group_id: GroupId::NONE.0,
            partitions: topic.config().partitions,
            lease_ms: 0,
            ranges: ranges.collect::<Result<_, _>>()?,
        };
        Ok(ControlReply { reply: Reply::Subscribed(subscribed), home: topic.created.home })
    }

    pub(crate) async fn set_cursor(
        &self,
        session: SessionId,
        body: control::SetCursor,
    ) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let name = cursor_name(&body.name)?;
        let (subscription, take_over) = (body.subscription, body.take_over);
        let by = CursorSetter { session, subscription, take_over };
        let positions = positions(&topic, &body.topic, &body.positions)?;
        let asked = self.ask_partitions_that(&topic, |index| {
            let offset = positions[index.0 as usize]?;
            Some(PartitionCommand::SetCursor(name.clone(), offset, by))
        });
        gather(asked).await?;
        Ok(done(topic.id(), 0, false))
    }

    pub(crate) async fn trim_topic(
        &self,
        body: control::TrimTopic,
    ) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let positions = positions(&topic, &body.topic, &body.positions)?;
        let asked = self.ask_partitions_that(&topic, |index| {
            positions[index.0 as usize].map(PartitionCommand::Trim)
        });
        gather(asked).await?;
        Ok(done(topic.id(), 0, false))
    }

    pub(crate) async fn delete_cursor(
        &self,
        body: control::DeleteCursor,
    ) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let command = PartitionCommand::DeleteCursor(cursor_name(&body.name)?);
        let answers = self.tell_partitions(&topic, &command).await?;
        if !answers.iter().any(|answer| matches!(answer, Answer::Done { created: true, .. })) {
            let message = format!("topic {:?} has no cursor {:?}", body.topic, body.name);
            let error = control::Error::new(ErrorCode::UnknownCursor, message);
            return Err(with_topic(error, &body.topic));
        }
        Ok(done(topic.id(), 0, false))
    }

    pub(crate) async fn list_cursors(
        &self,
        body: control::ListCursors,
    ) -> Result<ControlReply, Failure> {
        let topic = self.topic_named(&body.topic)?;
        let answers = self.tell_partitions(&topic, &PartitionCommand::ListCursors).await?;
        let list = cursor_list(answers).ok_or_else(wrong_answer)?;
        Ok(ControlReply { reply: Reply::CursorList(list), home: topic.created.home })
    }
}

fn cursor_name(name: &str) -> Result<CursorName, Failure> {
    name.parse().map_err(|error: NameError| Failure::from(&error))
}

/// An offset for each partition that `given` names, by partition.
fn positions(
    topic: &Topic,
    name: &str,
    given: &[control::ReadPosition],
) -> Result<Vec<Option<Offset>>, Failure> {
    let mut positions = vec![None; topic.config().partitions as usize];
    for position in given {
        let held = positions.get_mut(position.partition as usize);
        *held.ok_or_else(|| unknown_topic(name))? = Some(Offset(position.offset));
    }
    Ok(positions)
}
