//! What a hook has to know of its topic: its name, and which headers it names for fields. The first core knows it.

use std::sync::Arc;

use sennit_model::{MessageFields, TopicId, TopicName};

use crate::{
    broker::{control::ask_control, control_request::ControlRefusal},
    runtime::core::Cores,
};

/// A topic, as its hook sees it.
#[derive(Clone, Debug)]
pub(crate) struct TopicSettings {
    pub(crate) id: TopicId,
    pub(crate) name: TopicName,
    /// The headers that it names; `None` if it names none.
    pub(crate) fields: Option<Arc<MessageFields>>,
    pub(crate) partitions: u32,
    /// The topic beside whose partitions its own are placed.
    pub(crate) home: TopicId,
}

/// Which topics are asked about.
#[derive(Clone, Debug)]
pub(crate) enum Topics {
    Named(TopicName),
    Numbered(Vec<TopicId>),
}

/// Asks the first core; topics that are not there are left out.
///
/// # Errors
/// It cannot be said now which topics there are, or the broker stops.
pub(crate) async fn ask(
    cores: &Cores,
    topics: Topics,
) -> Result<Vec<TopicSettings>, ControlRefusal> {
    ask_control(cores, move |control| async move {
        if let Topics::Named(name) = &topics {
            control.know(name, None).await?;
        }
        control.look_up(|catalogue| {
            let of = |topic: &sennit_engine::Topic| TopicSettings {
                id: topic.id(),
                name: topic.created.name.clone(),
                fields: topic.config().fields.clone(),
                partitions: topic.config().partitions,
                home: topic.created.home,
            };
            match topics {
                Topics::Named(name) => catalogue.topic_named(&name).map(of).into_iter().collect(),
                Topics::Numbered(ids) => {
                    ids.into_iter().filter_map(|id| catalogue.topic(id).map(of)).collect()
                }
            }
        })
    })
    .await
}
