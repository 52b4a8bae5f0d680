//! The addresses of a cluster's nodes, in the order in which a client tries them. It opens no connection.

use std::sync::Arc;

use sennit_tls::ServerName;

use crate::reconnect::random;

/// A node's address.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Host and port, as given.
    pub(crate) host_port: Arc<str>,
    /// The name that its certificate is for; `None` on a plain connection.
    pub(crate) tls_name: Option<ServerName<'static>>,
}

/// The addresses of a client, and which one it uses. Each client has an order of its own, so that the clients of a
/// dead node spread over the others.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    all: Arc<[Address]>,
    current: usize,
}

impl Addresses {
    /// These addresses, at least one, in an order of chance.
    pub(crate) fn shuffled(mut all: Vec<Address>) -> Self {
        for last in (1..all.len()).rev() {
            all.swap(last, (random() % (last as u64 + 1)) as usize);
        }
        Self { all: all.into(), current: 0 }
    }

    /// Whether there are several.
    pub(crate) fn has_others(&self) -> bool {
        self.all.len() > 1
    }

    /// The address in use.
    pub(crate) fn current(&self) -> &Address {
        &self.all[self.current]
    }

    /// Each address once with its number, from the one in use on.
    pub(crate) fn in_turn(&self) -> impl Iterator<Item = (usize, &Address)> {
        let from = |at: usize| (at + self.current) % self.all.len();
        (0..self.all.len()).map(from).map(|number| (number, &self.all[number]))
    }

    /// Uses the address of this number.
    pub(crate) fn choose(&mut self, number: usize) {
        self.current = number;
    }

    /// Uses the next address, because the connection to this one was lost.
    pub(crate) fn leave(&mut self) {
        self.current = (self.current + 1) % self.all.len();
    }
}

/// The addresses of a list with commas. A text without any is one address, which nothing listens at.
pub(crate) fn split_list(text: &str) -> Vec<String> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let parts: Vec<_> = parts.map(str::to_owned).collect();
    if parts.is_empty() { vec![text.to_owned()] } else { parts }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn addresses(names: &[&str]) -> Addresses {
        let address = |name: &&str| Address { host_port: (*name).into(), tls_name: None };
        Addresses::shuffled(names.iter().map(address).collect())
    }

    fn order(addresses: &Addresses) -> Vec<String> {
        addresses.in_turn().map(|(_, address)| address.host_port.to_string()).collect()
    }

    #[test]
    fn clients_begin_at_different_addresses_and_try_each_once() {
        let firsts: BTreeSet<_> = (0..500)
            .map(|_| {
                let order = order(&addresses(&["a", "b", "c"]));
                assert_eq!(order.iter().collect::<BTreeSet<_>>().len(), 3);
                order[0].clone()
            })
            .collect();
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn an_address_that_was_left_is_the_last_to_be_tried() {
        let mut held = addresses(&["a", "b", "c"]);
        let before = order(&held);
        held.leave();
        assert_eq!(order(&held), [&before[1..], &before[..1]].concat());
        let number = held.in_turn().nth(1).unwrap().0;
        held.choose(number);
        assert_eq!(*held.current().host_port, before[2]);
    }

    #[test]
    fn a_list_is_split_at_its_commas() {
        assert_eq!(split_list("a:1, b:2,c:3,"), ["a:1", "b:2", "c:3"]);
        assert_eq!(split_list("a:1"), ["a:1"]);
        assert_eq!(split_list(""), [""]);
    }
}
