//! The promises that hold however often the broker dies, judged from the confirms and deliveries of producers and
//! consumers, in order.

use std::collections::{HashMap, HashSet};

/// A message, by its producer and that producer's count.
pub type Name = (u32, u64);

/// Where a message lies: partition and offset.
pub type Place = (u32, u64);

/// Which delivery of a message: generation of the broker, and attempt.
pub type Attempt = (u32, u32);

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Confirmed, and never delivered though all was drained.
    Missing(Name, Place),
    /// One place, two messages.
    PlaceReused(Place, Name, Name),
    /// One message, two places.
    Twice(Name, Place, Place),
    /// Delivered after its ack was confirmed: the attempt that was acked, and the one that came.
    AckedDeliveredAgain(Name, Place, Attempt, Attempt),
    /// One delivery, by generation and attempt, that came twice.
    ToldTwice(Name, Place, Attempt),
    /// A first attempt at an offset at or before one that this consumer had already been given.
    DeliveredOutOfOrder(Place, u64),
    /// A producer's messages lie in another order than it published them.
    AppendedOutOfOrder(Place, Name),
}

/// Hears what happens and finds what must not.
#[derive(Debug, Default)]
pub struct Checker {
    names: HashMap<Place, Name>,
    places: HashMap<Name, Place>,
    confirmed: HashSet<Name>,
    delivered: HashMap<Place, Vec<Attempt>>,
    /// By place the first attempt whose ack was confirmed, and the broker's generation then.
    acked: HashMap<Place, (Attempt, u32)>,
    /// Deliveries taken up after an ack of another broker's delivery: they lay with a client.
    outlived: u64,
    /// The last first attempt by consumer, partition and generation.
    last: HashMap<(u32, u32, u32), u64>,
    violations: Vec<Violation>,
}

impl Checker {
    /// A producer was told that `name` lies at `place`.
    pub fn confirmed(&mut self, name: Name, place: Place) {
        self.lies(name, place);
        self.confirmed.insert(name);
    }

    /// `consumer` was given `name` from `place`.
    pub fn delivered(&mut self, consumer: u32, name: Name, place: Place, attempt: Attempt) {
        self.lies(name, place);
        let told = self.delivered.entry(place).or_default();
        let is_told = told.contains(&attempt);
        told.push(attempt);
        match self.acked.get(&place) {
            // A broker that had died when the ack was confirmed may have handed it out before the
            // ack was committed. Within one broker's life nobody else has what is acked.
            Some(&(acked, since)) if attempt.0 != acked.0 && attempt.0 < since => {
                self.outlived += 1;
            }
            Some(&(acked, _)) => {
                self.violations.push(Violation::AckedDeliveredAgain(name, place, acked, attempt));
            }
            None => {}
        }
        if is_told {
            self.violations.push(Violation::ToldTwice(name, place, attempt));
        }
        let (generation, count) = attempt;
        if count == 1 {
            let (partition, offset) = place;
            if let Some(last) = self.last.insert((consumer, partition, generation), offset)
                && last >= offset
            {
                self.violations.push(Violation::DeliveredOutOfOrder(place, last));
            }
        }
    }

    /// A consumer was told by the `generation`th broker, or one before it, that its ack of `attempt`
    /// at `place` is committed.
    pub fn ack_confirmed(&mut self, place: Place, attempt: Attempt, generation: u32) {
        self.acked.entry(place).or_insert((attempt, generation));
    }

    fn lies(&mut self, name: Name, place: Place) {
        let before = *self.names.entry(place).or_insert(name);
        if before != name {
            self.violations.push(Violation::PlaceReused(place, before, name));
        }
        let before = *self.places.entry(name).or_insert(place);
        if before != place {
            self.violations.push(Violation::Twice(name, before, place));
        }
    }

    /// How many messages were confirmed, and how many acks.
    pub fn counts(&self) -> (usize, usize) {
        (self.confirmed.len(), self.acked.len())
    }

    /// How many deliveries came late: their broker was dead, and another one's was acked.
    pub fn outlived(&self) -> u64 {
        self.outlived
    }

    /// Everything that was broken. To be asked once the group is empty.
    pub fn verdict(mut self) -> Vec<Violation> {
        for name in &self.confirmed {
            let place = self.places[name];
            if !self.delivered.contains_key(&place) {
                self.violations.push(Violation::Missing(*name, place));
            }
        }
        let mut places: Vec<_> = self.names.into_iter().collect();
        places.sort_unstable();
        let mut last: HashMap<(u32, u32), u64> = HashMap::new();
        for (place, (producer, sequence)) in places {
            let (partition, _) = place;
            if let Some(before) = last.insert((producer, partition), sequence)
                && before >= sequence
            {
                let broken = Violation::AppendedOutOfOrder(place, (producer, sequence));
                self.violations.push(broken);
            }
        }
        self.violations
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten messages of one producer, confirmed, delivered and acked.
    fn clean() -> Checker {
        let mut checker = Checker::default();
        for n in 0..10 {
            checker.confirmed((1, n), (0, n));
        }
        for n in 0..10 {
            checker.delivered(0, (1, n), (0, n), (1, 1));
            checker.ack_confirmed((0, n), (1, 1), 1);
        }
        checker
    }

    #[test]
    fn a_clean_run_has_no_violations() {
        assert_eq!(clean().verdict(), []);
    }

    #[test]
    fn a_lost_message_is_found() {
        let mut checker = clean();
        checker.confirmed((1, 10), (0, 10));
        assert_eq!(checker.verdict(), [Violation::Missing((1, 10), (0, 10))]);
    }

    #[test]
    fn a_reused_offset_is_found() {
        let mut checker = clean();
        checker.confirmed((2, 0), (0, 9));
        assert!(checker.verdict().contains(&Violation::PlaceReused((0, 9), (1, 9), (2, 0))));
    }

    #[test]
    fn a_message_appended_twice_is_found() {
        let mut checker = clean();
        checker.delivered(0, (1, 9), (0, 10), (1, 1));
        assert!(checker.verdict().contains(&Violation::Twice((1, 9), (0, 9), (0, 10))));
    }

    #[test]
    fn a_delivery_after_its_confirmed_ack_is_found() {
        // By the next broker, and the very delivery that was acked once more.
        for again in [(2, 1), (1, 1)] {
            let mut checker = clean();
            checker.delivered(3, (1, 4), (0, 4), again);
            let violations = checker.verdict();
            let broken = Violation::AckedDeliveredAgain((1, 4), (0, 4), (1, 1), again);
            assert!(violations.contains(&broken), "{violations:?}");
        }
    }

    #[test]
    fn a_delivery_that_lay_with_a_client_while_the_next_broker_delivered_to_another_is_none() {
        let mut checker = clean();
        checker.confirmed((1, 10), (0, 10));
        checker.delivered(1, (1, 10), (0, 10), (2, 1));
        checker.ack_confirmed((0, 10), (2, 1), 2);
        checker.delivered(0, (1, 10), (0, 10), (1, 1));
        assert_eq!(checker.outlived(), 1);
        assert_eq!(checker.verdict(), []);
    }

    #[test]
    fn a_delivery_that_lay_with_a_client_while_an_ack_went_on_to_the_next_broker_is_none() {
        // The second broker delivers anew and dies before it hears the ack of the first one's.
        for (again, outlived, violations) in [((2, 1), 1, 0), ((3, 1), 0, 1), ((1, 2), 0, 1)] {
            let mut checker = clean();
            checker.confirmed((1, 10), (0, 10));
            checker.delivered(0, (1, 10), (0, 10), (1, 1));
            checker.ack_confirmed((0, 10), (1, 1), 3);
            checker.delivered(1, (1, 10), (0, 10), again);
            assert_eq!(checker.outlived(), outlived, "{again:?}");
            assert_eq!(checker.verdict().len(), violations, "{again:?}");
        }
    }

    #[test]
    fn one_delivery_that_comes_twice_is_found_though_nobody_acked_it() {
        let mut checker = Checker::default();
        checker.delivered(0, (1, 4), (0, 4), (1, 2));
        checker.delivered(1, (1, 4), (0, 4), (1, 2));
        assert_eq!(checker.verdict(), [Violation::ToldTwice((1, 4), (0, 4), (1, 2))]);
    }

    #[test]
    fn a_later_attempt_or_a_restart_may_go_back_and_a_first_attempt_may_not() {
        for (attempt, generation, violations) in [(2, 1, 0), (1, 2, 0), (1, 1, 1)] {
            let mut checker = Checker::default();
            checker.delivered(0, (1, 5), (0, 5), (1, 1));
            checker.delivered(0, (1, 4), (0, 4), (generation, attempt));
            assert_eq!(checker.verdict().len(), violations, "{attempt} {generation}");
        }
    }

    #[test]
    fn a_producers_messages_in_another_order_are_found() {
        let mut checker = Checker::default();
        checker.delivered(0, (1, 1), (0, 0), (1, 1));
        checker.delivered(0, (1, 0), (0, 1), (1, 1));
        assert_eq!(checker.verdict(), [Violation::AppendedOutOfOrder((0, 1), (1, 0))]);
    }
}
