//! The place of a connection at the HTTP port: one of those that there are, and one of those of its address. It is free
//! again when the connection has ended, wherever that has gone.

use tokio::sync::OwnedSemaphorePermit;

use super::addresses::{AddressPlace, GreetingPlace};

/// The place of a connection.
#[derive(Debug)]
pub(crate) struct PortPlace {
    _place: OwnedSemaphorePermit,
    of_address: AddressPlace,
}

impl PortPlace {
    pub(crate) fn new(place: OwnedSemaphorePermit, of_address: AddressPlace) -> Self {
        Self { _place: place, of_address }
    }

    /// A place among those of its address that have not said on whose behalf they ask; `None` if there are `most`.
    pub(crate) fn greet(&self, most: usize) -> Option<GreetingPlace> {
        self.of_address.greet(most)
    }
}
