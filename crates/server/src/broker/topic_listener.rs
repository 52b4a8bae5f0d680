//! A listener is notified of topics that can be read, and of deleted ones. The control of topics knows nothing else
//! of its listeners.

use std::{fmt, pin::Pin, rc::Rc};

use sennit_model::{Offset, TopicId, TopicName};

/// See the file's page. It hears of nothing before its start.
pub(crate) trait TopicListener: fmt::Debug {
    /// The catalogue is there, and all shards are as it says. The broker serves no client before this is done.
    ///
    /// On a node of a cluster it starts while clients are served, and the other nodes may not be there yet.
    fn starts(self: Rc<Self>) -> Pin<Box<dyn Future<Output = ()>>>;

    /// Whether it is there only where the catalogue is led: then it starts whenever this node begins to lead it.
    fn is_where_led(&self) -> bool {
        false
    }

    /// This node leads the catalogue no more: whoever does has what this one had.
    fn rests(self: Rc<Self>) {}

    /// A topic of one partition is there, and was not before: what lies behind `from` is new.
    fn appeared(self: Rc<Self>, name: &TopicName, topic: TopicId, from: Offset);

    /// It is gone.
    fn gone(self: Rc<Self>, name: &TopicName, topic: TopicId);
}
