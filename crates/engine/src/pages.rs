//! Values in numbered places, packed into pages: a table of half a million entries is never copied to grow, nor
//! half empty afterwards. It knows nothing of the values.

use std::ops::{Index, IndexMut};

/// So many places are made at a time.
const PAGE_PLACES: usize = 128;

/// Values by their place, which stays theirs until they are taken out. A place that is free has the
/// default value.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    /// All but the last are as long as a page gets.
    pages: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T> Default for Pages<T> {
    fn default() -> Self {
        Self { pages: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Pages<T> {
    /// Puts a value somewhere and says where.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self[place] = value;
            return place;
        }
        let place = self.places();
        if place as usize == self.pages.len() * PAGE_PLACES {
            self.pages.push(Vec::with_capacity(PAGE_PLACES));
        }
        self.pages.last_mut().expect("there is one now").push(value);
        place
    }

    /// Takes the value out of its place.
    pub(crate) fn remove(&mut self, place: u32) -> T {
        self.free.push(place);
        std::mem::take(&mut self[place])
    }

    /// How many places there are, free ones too: each number below has one.
    pub(crate) fn places(&self) -> u32 {
        let full = self.pages.len().saturating_sub(1) * PAGE_PLACES;
        let places = full + self.pages.last().map_or(0, Vec::len);
        u32::try_from(places).expect("places are limited far below 2^32")
    }

    /// How many places are not free.
    pub(crate) fn len(&self) -> usize {
        self.places() as usize - self.free.len()
    }

    /// What is at each place, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flatten()
    }
}

impl<T> Index<u32> for Pages<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.pages[place as usize / PAGE_PLACES][place as usize % PAGE_PLACES]
    }
}

impl<T> IndexMut<u32> for Pages<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.pages[place as usize / PAGE_PLACES][place as usize % PAGE_PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_again_once_its_value_is_gone() {
        let mut pages = Pages::default();
        let places: Vec<u32> = (1..=1_000u64).map(|value| pages.insert(value)).collect();
        assert_eq!((pages.len(), pages.places()), (1_000, 1_000));
        assert_eq!(pages.remove(places[300]), 301);
        assert_eq!((pages.len(), pages.iter().filter(|&&value| value > 0).count()), (999, 999));
        assert_eq!(pages.insert(7), places[300]);
        assert_eq!((pages[places[300]], pages[places[999]]), (7, 1_000));
        assert_eq!(pages.places(), 1_000);
    }
}
