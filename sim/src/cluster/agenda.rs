//! Events in the order of their time. Events of the same time keep the order in which they were added.

use std::collections::BTreeMap;

/// A list of events, by time in microseconds.
#[derive(Debug)]
pub struct Agenda<T> {
    events: BTreeMap<(u64, u64), T>,
    added: u64,
}

impl<T> Agenda<T> {
    /// A list without events.
    pub fn new() -> Self {
        Self { events: BTreeMap::new(), added: 0 }
    }

    /// Adds an event that happens at `at_us`.
    pub fn add(&mut self, at_us: u64, event: T) {
        self.added += 1;
        self.events.insert((at_us, self.added), event);
    }

    /// Adds an event that was taken, and happens at `at_us` after all. `number` is what it was taken with.
    pub fn add_again(&mut self, at_us: u64, number: u64, event: T) {
        self.events.insert((at_us, number), event);
    }

    /// The time of the next event.
    pub fn next_at_us(&self) -> Option<u64> {
        self.events.first_key_value().map(|((at_us, _), _)| *at_us)
    }

    /// Takes the next event if its time has come, with its number in the order in which events were added.
    pub fn take_due(&mut self, now_us: u64) -> Option<(u64, T)> {
        let next = self.events.first_entry()?;
        let (at_us, number) = *next.key();
        (at_us <= now_us).then(|| (number, next.remove()))
    }

    /// Events for which `is_meant` returns true happen at `at_us` if they were to happen later, in the order in which they
    /// were added.
    pub fn bring_forward(&mut self, at_us: u64, is_meant: impl Fn(&T) -> bool) {
        let later = self.events.range((at_us + 1, 0)..).filter(|(_, event)| is_meant(event));
        let later: Vec<_> = later.map(|(key, _)| *key).collect();
        for key in later {
            let event = self.events.remove(&key).expect("it was found");
            self.events.insert((at_us, key.1), event);
        }
    }

    /// Keeps the events for which `is_kept` returns true. It is called in the order of time.
    pub fn retain(&mut self, mut is_kept: impl FnMut(&T) -> bool) {
        self.events.retain(|_, event| is_kept(event));
    }

    /// The number of events for which `is_counted` returns true.
    pub fn count(&self, is_counted: impl Fn(&T) -> bool) -> usize {
        self.events.values().filter(|event| is_counted(event)).count()
    }
}
