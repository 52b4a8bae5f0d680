//! Needs of shards that the catalogue has not met yet: a topic for dead letters, the end of a stream whose time is
//! over. A shard reports a need once, so a failure is tried again here.

use std::{cell::RefCell, rc::Rc, time::Duration};

use sennit_engine::Findings;
use sennit_model::TopicId;
use tokio::{sync::Notify, task::spawn_local, time::sleep};

use super::{control::Control, name_change::NameChange};
use crate::runtime::{core::CatalogueNeeds, index::ShardIndex};

/// How long to wait before a dead-letter topic that could not be made is tried again.
const DEAD_LETTER_TOPIC_AGAIN: Duration = Duration::from_secs(10);

/// See the file's page.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    dead_letter_topics: RefCell<Vec<TopicId>>,
    ended_streams: RefCell<Vec<TopicId>>,
    findings: RefCell<Vec<(ShardIndex, Findings)>>,
    added: Notify,
}

impl CatalogueNeeds for Needs {
    fn dead_letter_topic(&self, source: TopicId) {
        let mut topics = self.dead_letter_topics.borrow_mut();
        if !topics.contains(&source) {
            topics.push(source);
            self.added.notify_one();
        }
    }

    fn end_of_stream(&self, topic: TopicId) {
        self.ended_streams.borrow_mut().push(topic);
        self.added.notify_one();
    }

    fn names_of_groups(&self, shard: ShardIndex, findings: Findings) {
        self.findings.borrow_mut().push((shard, findings));
        self.added.notify_one();
    }
}

impl Needs {
    /// Sees to what shards need, as long as the core's thread lives.
    pub(crate) async fn serve(self: Rc<Self>, control: Rc<Control>) {
        loop {
            self.added.notified().await;
            while let Some((shard, findings)) = take(&self.findings) {
                control.name_groups(shard, findings);
            }
            while let Some(source) = take(&self.dead_letter_topics) {
                let create = NameChange::CreateDeadLetterTopic { source };
                if let Err(error) = control.change_names(create).await {
                    let (topic, error) = (control.name_of(source), error.to_string());
                    tracing::error!(topic, error, "no dead-letter topic: it is tried again");
                    spawn_local(self.clone().ask_again(source));
                }
            }
            while let Some(topic) = take(&self.ended_streams) {
                let ended = control.change_names(NameChange::EndStream { topic }).await;
                if let Err(failure) = ended {
                    let name = control.name_of(topic);
                    tracing::warn!(name, %failure, "a stream whose time is over was not deleted");
                }
            }
        }
    }

    async fn ask_again(self: Rc<Self>, source: TopicId) {
        sleep(DEAD_LETTER_TOPIC_AGAIN).await;
        self.dead_letter_topic(source);
    }
}

/// The last of a list; nobody holds the list meanwhile.
fn take<T>(list: &RefCell<Vec<T>>) -> Option<T> {
    list.borrow_mut().pop()
}
