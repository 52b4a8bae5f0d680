//! How many connections of the HTTP port each address has, so that no address has the places of all. It knows no
//! sockets.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use foldhash::fast::RandomState;
use sennit_identity::AddressPrefix;

/// What connections of one address share, on whatever core they are.
#[derive(Debug, Default)]
struct AddressCount {
    connections: AtomicUsize,
    /// Of them, those that have not said on whose behalf they ask, where they have to.
    greeting: AtomicUsize,
}

/// The addresses from which there are connections.
#[derive(Debug)]
pub(crate) struct Addresses {
    counts: RefCell<HashMap<AddressPrefix, Arc<AddressCount>, RandomState>>,
    most: usize,
    /// Entries at which those are let go that nobody counts for.
    sweep_at: Cell<usize>,
}

/// A connection's place among those of its address.
#[derive(Debug)]
pub(crate) struct AddressPlace {
    /// None for an address that is not counted.
    count: Option<Arc<AddressCount>>,
}

/// A connection's place among those of its address that have not said on whose behalf they ask.
#[derive(Debug)]
pub(crate) struct GreetingPlace(Option<Arc<AddressCount>>);

/// Entries that are not worth looking through.
const SWEPT_ENTRIES_MIN: usize = 1024;

impl Addresses {
    /// Addresses with so many connections each.
    pub(crate) fn new(most: usize) -> Self {
        Self { counts: RefCell::default(), most, sweep_at: Cell::new(SWEPT_ENTRIES_MIN) }
    }

    /// A place for a connection from an address; `None` if that has as many as it may.
    pub(crate) fn enter(&self, address: Option<IpAddr>) -> Option<AddressPlace> {
        let Some(address) = address.filter(|address| !is_shared(*address)) else {
            return Some(AddressPlace { count: None });
        };
        let mut counts = self.counts.borrow_mut();
        if counts.len() >= self.sweep_at.get() {
            counts.retain(|_, count| Arc::strong_count(count) > 1);
            self.sweep_at.set((2 * counts.len()).max(SWEPT_ENTRIES_MIN));
        }
        let count = counts.entry(AddressPrefix::of(address)).or_default();
        if count.connections.load(Relaxed) >= self.most {
            return None;
        }
        count.connections.fetch_add(1, Relaxed);
        Some(AddressPlace { count: Some(count.clone()) })
    }
}

/// Whether an address is that of everybody whom a proxy on this machine passes on.
fn is_shared(address: IpAddr) -> bool {
    let loopback = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    loopback.contains(&address.to_canonical())
}

impl AddressPlace {
    /// A place among those that have not said on whose behalf they ask; `None` if the address has `most` of them.
    pub(crate) fn greet(&self, most: usize) -> Option<GreetingPlace> {
        let Some(count) = &self.count else { return Some(GreetingPlace(None)) };
        if count.greeting.fetch_add(1, Relaxed) >= most {
            count.greeting.fetch_sub(1, Relaxed);
            return None;
        }
        Some(GreetingPlace(Some(count.clone())))
    }
}

impl Drop for AddressPlace {
    fn drop(&mut self) {
        if let Some(count) = &self.count {
            count.connections.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for GreetingPlace {
    fn drop(&mut self) {
        if let Some(count) = &self.0 {
            count.greeting.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn an_address_has_its_places_and_takes_none_of_others() {
        let addresses = Addresses::new(2);
        let enter = |text| addresses.enter(address(text));
        let held = [enter("192.0.2.1").unwrap(), enter("192.0.2.1").unwrap()];
        assert!(enter("192.0.2.1").is_none());
        assert!(enter("::ffff:192.0.2.1").is_none(), "it is the same one");
        let other = enter("192.0.2.2").unwrap();
        let of_prefix = ["2001:db8::1", "2001:db8::2"].map(|text| enter(text).unwrap());
        assert!(enter("2001:db8::3").is_none(), "one client has all of them at its disposal");
        drop((held, of_prefix));
        assert!(enter("192.0.2.1").is_some() && enter("2001:db8::3").is_some());
        drop(other);
    }

    #[test]
    fn the_address_of_a_proxy_on_this_machine_is_not_counted() {
        let addresses = Addresses::new(1);
        let held: Vec<_> = (0..9).map(|_| addresses.enter(address("127.0.0.1")).unwrap()).collect();
        assert!(held.iter().all(|place| place.greet(0).is_some()));
        assert!(addresses.enter(address("::1")).is_some() && addresses.enter(None).is_some());
        assert!(addresses.counts.borrow().is_empty());
    }

    #[test]
    fn those_that_greet_are_counted_until_they_have() {
        let addresses = Addresses::new(9);
        let places = [(); 3].map(|()| addresses.enter(address("192.0.2.1")).unwrap());
        let greeting = [&places[0], &places[1]].map(|place| place.greet(2).unwrap());
        assert!(places[2].greet(2).is_none());
        drop(greeting);
        assert!(places[2].greet(2).is_some());
    }

    #[test]
    fn addresses_without_connections_are_forgotten() {
        let addresses = Addresses::new(1);
        for number in 0..10 * SWEPT_ENTRIES_MIN as u32 {
            assert!(addresses.enter(Some(Ipv4Addr::from_bits(number << 8 | 1).into())).is_some());
        }
        assert!(addresses.counts.borrow().len() <= SWEPT_ENTRIES_MIN);
    }
}
