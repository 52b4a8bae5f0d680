//! What a hook has to know of its topic: its name, and which headers it names for fields. The first core knows it.

use std::{rc::Rc, sync::Arc};

use sennit_model::{MessageFields, TopicId, TopicName};
use tokio::sync::oneshot;

use crate::{
    broker::control::Control,
    runtime::{core::Cores, inbox::Message, index::CoreIndex},
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

/// Asks the first core; topics that are not there are left out. `None` if the broker stops.
pub(crate) async fn ask(cores: &Cores, topics: Topics) -> Option<Vec<TopicSettings>> {
    let (sender, answer) = oneshot::channel();
    let message = Message::call(move |control: &Rc<Control>| {
        let found = control.core.look(|core| {
            let catalogue = core.catalogue();
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
        });
        let _ = sender.send(found);
    });
    let _ = cores.inboxes[CoreIndex::FIRST].send(message);
    answer.await.ok()
}
