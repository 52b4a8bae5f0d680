//! A listener is notified of topics that can be read, and of deleted ones. The control of topics knows nothing else
//! of its listeners.

use std::{fmt, pin::Pin, rc::Rc};

use sennit_model::{Offset, TopicId, TopicName};

/// See the file's page. It hears of nothing before its start.
pub(crate) trait TopicListener: fmt::Debug {
    /// The catalogue is there, and all shards are as it says. The broker serves no client before this is done.
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>>;

    /// A topic of one partition is there, and was not before: what lies behind `from` is new.
    fn appeared(self: Rc<Self>, name: &TopicName, topic: TopicId, from: Offset);

    /// It is gone.
    fn gone(self: Rc<Self>, name: &TopicName, topic: TopicId);
}
