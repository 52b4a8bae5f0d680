//! The publish of each message, by the message's name.

use std::collections::HashMap;

use crate::{
    history::History,
    operation::{MessageName, Operation, Published, What},
};

/// A publish: its index, and the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Publish<'a> {
    pub(crate) index: usize,
    pub(crate) operation: &'a Operation,
    pub(crate) published: &'a Published,
}

/// All publishes of a history.
pub(crate) struct Publishes<'a> {
    /// By publisher, in the order of their first numbers.
    by_publisher: HashMap<u32, Vec<Publish<'a>>>,
}

impl<'a> Publishes<'a> {
    pub(crate) fn of(history: &'a History) -> Self {
        let mut by_publisher: HashMap<u32, Vec<Publish<'a>>> = HashMap::new();
        for (index, operation) in history.operations().iter().enumerate() {
            if let What::Published(published) = &operation.what {
                let list = by_publisher.entry(published.first.publisher).or_default();
                list.push(Publish { index, operation, published });
            }
        }
        for list in by_publisher.values_mut() {
            list.sort_by_key(|publish| publish.published.first.number);
        }
        Self { by_publisher }
    }

    /// The publish of a message; `None` if there is none.
    pub(crate) fn find(&self, name: MessageName) -> Option<Publish<'a>> {
        let list = self.by_publisher.get(&name.publisher)?;
        let behind = list.partition_point(|publish| publish.published.first.number <= name.number);
        let publish = *list.get(behind.checked_sub(1)?)?;
        let index = name.number - publish.published.first.number;
        (index < u64::from(publish.published.count)).then_some(publish)
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Publish<'a>> {
        self.by_publisher.values().flatten().copied()
    }
}
