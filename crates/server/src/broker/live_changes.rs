//! Topics whose settings for live connections have changed, on their way from the first core to the live door of each
//! core. It knows no connections.

use std::{cell::RefCell, rc::Rc};

use sennit_model::{LiveSettings, TopicId};
use tokio::sync::Notify;

use crate::runtime::{core::Cores, inbox::Message};

/// What waits for the live door of a core: a service of the core.
#[derive(Debug)]
pub(crate) struct LiveChanges {
    waiting: RefCell<Vec<(TopicId, LiveSettings)>>,
    notify: Rc<Notify>,
}

impl LiveChanges {
    /// Changes for which this bell is rung.
    pub(crate) fn new(notify: Rc<Notify>) -> Self {
        Self { waiting: RefCell::default(), notify }
    }

    /// Takes what waits, in its order.
    pub(crate) fn take(&self) -> Vec<(TopicId, LiveSettings)> {
        self.waiting.take()
    }

    fn note(&self, topic: TopicId, live: LiveSettings) {
        self.waiting.borrow_mut().push((topic, live));
        self.notify.notify_one();
    }
}

/// Tells the live doors of all cores of a topic's settings.
pub(crate) fn tell(cores: &Cores, topic: TopicId, live: LiveSettings) {
    for inbox in cores.inboxes.iter() {
        // A core that has ended has no connections.
        let _ = inbox.send(Message::call(move |changes: &Rc<LiveChanges>| {
            changes.note(topic, live);
        }));
    }
}
