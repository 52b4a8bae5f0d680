//! A listener hears of topics that can be read, and of those that are gone. The control of topics tells it, and
//! knows nothing else of it.

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
