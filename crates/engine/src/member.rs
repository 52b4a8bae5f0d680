//! A member of a group in one partition: a subscription, its window, and how much of the window is in use.

use crate::{command::Credit, delivery_list::DeliveryList, lease::Holder};

/// A subscription that takes part, or did until its connection was lost.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) holder: Holder,
    pub(crate) credit: Credit,
    pub(crate) held_messages: u64,
    pub(crate) held_bytes: u64,
    pub(crate) deliveries: DeliveryList,
}

impl Member {
    pub(crate) fn new(holder: Holder, credit: Credit) -> Self {
        let deliveries = DeliveryList::default();
        Self { holder, credit, held_messages: 0, held_bytes: 0, deliveries }
    }

    /// How many more messages it may receive; 0 once either window is full.
    pub(crate) fn room_messages(&self) -> u64 {
        if self.held_bytes >= self.credit.bytes && self.held_messages > 0 {
            return 0;
        }
        u64::from(self.credit.messages).saturating_sub(self.held_messages)
    }
}
