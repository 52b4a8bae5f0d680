//! Changes of names, done where the catalogue is led: one at a time for each topic. It knows no rights and no protocol.

use super::{Changed, Control};
use crate::broker::{
    control_request::{ControlAnswer, ControlRefusal},
    name_change::{NameAnswer, NameChange},
    stream_request::StreamFailure,
};

impl Control {
    /// Has a change of names be done.
    pub(crate) async fn change_names(
        &self,
        change: NameChange,
    ) -> Result<NameAnswer, StreamFailure> {
        match &self.peers {
            None => Box::pin(self.do_change(change)).await,
            Some(peers) => Box::pin(self.change_where_led(peers, change)).await,
        }
    }

    /// The same for a change that is answered by what has changed.
    pub(super) async fn change(&self, change: NameChange) -> Result<Changed, ControlRefusal> {
        match self.change_names(change).await {
            Ok(answer) => answer.changed(),
            Err(StreamFailure::Broker(refusal)) => Err(*refusal),
            Err(_) => Err(ControlRefusal::WrongAnswer),
        }
    }

    /// The same for a client that is told that it is committed.
    pub(super) async fn changed(
        &self,
        change: NameChange,
    ) -> Result<ControlAnswer, ControlRefusal> {
        let Changed { topic, group, created } = self.change(change).await?;
        Ok(super::done(topic, group, created))
    }

    pub(super) async fn do_change(&self, change: NameChange) -> Result<NameAnswer, StreamFailure> {
        let changed = match change {
            NameChange::CreateTopic { name, config, beside } => {
                self.create_topic(name, config, beside).await?
            }
            NameChange::FindOrCreateTopic { name, config } => {
                self.find_or_create_topic(name, config).await?
            }
            NameChange::AlterTopic { name, config } => self.alter_topic(&name, config).await?,
            NameChange::DeleteTopic { name } => self.delete_topic(&name).await?,
            NameChange::CreateGroup(create) => self.create_group(create).await?,
            NameChange::FindOrCreateGroup { topic, group } => {
                self.find_or_create_group(&topic, group).await?
            }
            NameChange::AlterGroup(alter) => self.alter_group(alter).await?,
            NameChange::DeleteGroup { topic, group } => self.delete_group(&topic, &group).await?,
            NameChange::CreateDeadLetterTopic { source } => {
                self.create_dead_letter_topic(source).await?;
                return Ok(NameAnswer::Done);
            }
            NameChange::CreateStream(create) => {
                return self.find_or_create_stream(create).await.map(NameAnswer::Stream);
            }
            NameChange::DeleteStream { name } => {
                self.remove_stream_named(&name).await?;
                return Ok(NameAnswer::Done);
            }
            NameChange::EndStream { topic } => {
                self.end_stream(topic).await?;
                return Ok(NameAnswer::Done);
            }
            NameChange::Settle { name } => {
                self.settle(&name).await?;
                return Ok(NameAnswer::Done);
            }
        };
        Ok(NameAnswer::Changed(changed))
    }
}
